"""One script on every runtime: it gives the same events, but for the differences that are declared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import TRIED
from tests.runtimes.reading import events_of, workspace_in
from tests.runtimes.same import DIFFERENCES, Summary, differences, outline, summarize

from codesdk import CodeSDK, SessionSettings
from codesdk.runtimes.registry import runtime_names
from codesdk.script import parse_object

FIRST = "claude-agent-sdk"
"""The runtime that all others are compared with."""
REASON = "Not the list."


def call(name: str, **given: str) -> dict[str, Any]:
    return {"call": {"tool": name, "input": given}}


SCRIPT: dict[str, Any] = {
    "turns": [
        {
            "steps": [
                {"reasoning": ["Let me ", "think."]},
                {"text": ["I will ", "read."]},
                call("workspace.read", path="notes.txt"),
                call("workspace.list", path="."),
            ],
            "usage": {"input": 100, "output": 20},
        },
        {
            "steps": [
                {"text": "Now I change it."},
                call("workspace.edit", path="notes.txt", old="milk", new="tea"),
                call("workspace.edit", path="list.txt", old="salt", new="sugar"),
                call("workspace.read", path="missing.txt"),
            ],
            "expect": {"tool_result_contains": "remember the milk"},
            "usage": {"input": 200, "output": 10},
        },
        {
            "steps": [{"text": "Done."}],
            "expect": {"tool_result_contains": REASON},
            "usage": {"input": 300, "output": 5},
        },
    ]
}
"""Text, reasoning, parallel calls, one that is approved, one that is denied, one that fails, and the end."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no announcement: a busy program tells of a call after it made it, and that must not show either."""
    monkeypatch.setattr("codesdk.engine.calls.matching.JOIN_S", 0.0)


async def play(tmp_path: Path, runtime: str) -> Summary:
    """Play the script on a runtime: by the gateway, or by the runtime itself if it asks no model."""
    workspace = workspace_in(tmp_path, f"ws-{runtime}")
    (workspace / "list.txt").write_text("salt\n")
    given: dict[str, Any] = {"plays": parse_object(SCRIPT, "same")}
    if runtime == "scripted":
        given = {"settings": SessionSettings(runtime_config={"script": SCRIPT})}
    async with CodeSDK.open(tmp_path / f"data-{runtime}", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime, workspace=workspace, permission_mode="auto", **given
        )
        task = await session.start("Please change my note.")
        async for event in task.events():
            if event.type == "approval.requested":
                id_ = event.payload.tool_call_id or ""
                await (task.deny(id_, REASON) if "list.txt" in event.payload.summary else task.approve(id_))
        assert (workspace / "notes.txt").read_text() == "remember the tea\n"
        assert (workspace / "list.txt").read_text() == "salt\n"
        return {
            **summarize(await events_of(sdk, session)),
            **outline(await session.transcript()),
        }


async def test_the_same_script_gives_the_same_events_on_every_runtime(tmp_path: Path):
    first = await play(tmp_path, FIRST)
    assert first["texts"] == ["I will read.", "Now I change it.", "Done."]
    assert first["thoughts"] == ["Let me think."]
    assert len(first["calls"]) == 5
    assert [role for role, *_ in first["transcript"]] == ["user", *["assistant", "tool"] * 2, "assistant"]
    others = {name: await play(tmp_path, name) for name in ("scripted", "minicode", *TRIED) if name != FIRST}
    found = {name: differences(first, other, name) for name, other in others.items()}
    assert found == {name: {} for name in others}
    certain = [d for d in DIFFERENCES if d.always]
    declared = [(d.subject, name) for d in certain for name in d.runtimes or () if name in others]
    # What is declared of one runtime and is not so would hide a difference to come.
    assert [(what, name) for what, name in declared if others[name].get(what) == first.get(what)] == []


def test_what_may_differ_is_said_of_runtimes_that_there_are_and_with_a_reason():
    names = set(runtime_names())
    assert all(d.why and (d.runtimes is None or d.runtimes <= names) for d in DIFFERENCES)
    assert len({(d.subject, d.runtimes) for d in DIFFERENCES}) == len(DIFFERENCES)
