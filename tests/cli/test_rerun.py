"""`codesdk rerun`: a recorded session is played again without its provider."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import daemon
from tests.gateway.agent import agent_runtime

from codesdk import CodeSDK, SessionSettings
from codesdk.cli.app import run
from codesdk.gateway.providers import ORIGINS, Provider
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Wire
from codesdk.runtimes import registry
from codesdk.script import parse_object

Codesdk = Callable[..., tuple[int, str]]
SCRIPT = {
    "turns": [
        {
            "steps": [
                {"text": "I will note it."},
                {"call": {"tool": "workspace.edit", "input": {"path": "n.txt", "old": "milk", "new": "tea"}}},
            ]
        },
        {"steps": [{"text": "Noted."}]},
    ]
}


async def record(data: Path, workspace: Path) -> str:
    """Record a session against a scripted provider that is gone afterwards; its one edit is approved."""
    async with Gateway() as provider:
        url = provider.admit(ScriptedModel(parse_object(SCRIPT, "script")))
        providers: dict[Wire, Provider] = {wire: Provider(origin=url) for wire in ORIGINS}
        async with CodeSDK.open(data, providers=providers, runtimes={"agent": agent_runtime()}) as sdk:
            session = await sdk.create_session(
                runtime="agent", workspace=workspace, settings=SessionSettings(gateway="record")
            )
            task = await session.start("Note that I want tea.")
            async for event in task.events():
                if event.type == "approval.requested":
                    await task.approve(event.payload.tool_call_id or "")
            assert (await task.result()).text == "Noted."
            return session.id


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, str]:
    monkeypatch.setattr(registry, "RUNTIMES", (*registry.RUNTIMES, "tests.gateway.agent"))
    data, workspace = tmp_path / "data", tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "n.txt").write_text("milk\n")
    session_id = asyncio.run(record(data, workspace))
    (workspace / "n.txt").write_text("milk\n")
    return data, workspace, session_id


@pytest.fixture
def codesdk(capfd: pytest.CaptureFixture[str]) -> Codesdk:
    """Runs the command in this process, which knows the agent. Returns its exit code and all that it printed."""

    def call(data: Path, *arguments: Any) -> tuple[int, str]:
        code = run(["--data-dir", str(data), *map(str, arguments)])
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return call


@pytest.mark.slow
def test_a_recorded_session_plays_again_with_its_answers_and_its_decisions(
    recorded: tuple[Path, Path, str], codesdk: Codesdk
):
    data, workspace, session_id = recorded
    code, printed = codesdk(data, "rerun", session_id)
    assert code == 0, printed
    assert "The model's messages are those of the recording." in printed
    assert (workspace / "n.txt").read_text() == "tea\n"
    assert codesdk(data, "verify", "last")[0] == 0
    assert codesdk(data, "replay", "last")[0] == 0


@pytest.mark.slow
def test_where_the_tools_find_something_else_the_difference_is_told(
    recorded: tuple[Path, Path, str], codesdk: Codesdk
):
    data, workspace, session_id = recorded
    (workspace / "n.txt").write_text("water\n")
    code, printed = codesdk(data, "rerun", session_id)
    assert code == 1
    assert "Nearest is exchange 2" in printed, printed
    assert "was not found in n.txt" in printed


def test_a_session_that_was_not_recorded_cannot_be_played_again(tmp_path: Path, codesdk: Codesdk):
    data = tmp_path / "data"
    script = tmp_path / "s.yaml"
    script.write_text("turns:\n  - steps:\n      - text: Hi\n")
    assert (
        codesdk(data, "run", "--runtime=scripted", "--script", script, "--workspace", tmp_path, "Hello")[0]
        == 0
    )
    code, printed = codesdk(data, "rerun", "last")
    assert code == 2
    assert "has no recorded exchanges" in printed


AGENT_TOO = """
from codesdk.cli.codesdkd import main
from codesdk.runtimes import registry
registry.RUNTIMES += ("tests.gateway.agent",)
main()
"""
"""A daemon that knows the agent of these tests."""


def test_a_daemon_plays_one_of_its_recorded_sessions_again(
    recorded: tuple[Path, Path, str], capfd: pytest.CaptureFixture[str]
):
    data, workspace, session_id = recorded
    with daemon(data, program=("-c", AGENT_TOO)) as running:
        code = run(["--url", running.url, "rerun", session_id])
    printed = capfd.readouterr()
    assert code == 0, printed
    assert "The model's messages are those of the recording." in printed.out
    assert (workspace / "n.txt").read_text() == "tea\n"
