"""`acpx`, a client by others, drives `codesdk acp`: one prompt, a session over several processes, answers, modes, a cancel, a daemon."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.editor import call
from tests.acp_agent.judged import ROOT
from tests.acp_agent.test_judged import answers
from tests.daemon.rig import daemon

from codesdk.testing.network import alone, left_behind, tried_outside

ACPX = ROOT / "node_modules" / "acpx" / "dist" / "cli.js"
READ, WRITE = call("workspace.read", path="a.txt"), call("workspace.write", path="made.txt", content="x")
PATIENCE_S = 120
NOTHING_ALLOWED = 5
"""How acpx ends if it denied everything that it was asked."""


@pytest.fixture(autouse=True)
def only_loopback() -> Iterator[None]:
    """Nobody knows whom it would call."""
    with alone():
        yield
        assert tried_outside() == 0


class Acpx:
    """The command line of acpx, in a home of its own."""

    def __init__(self, folder: Path, *turns: Any) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / "a.txt").write_text("A\n")
        (folder / "home").mkdir()
        self.home = folder / "home"
        plays = {"turns": [{"steps": list(steps)} for steps in turns]}
        (folder / "script.json").write_text(json.dumps(plays))
        agent = folder / "agent"
        options = f"--runtime scripted --script {folder / 'script.json'} --data-dir {folder / 'data'} --model a --model b"
        agent.write_text(f"#!/bin/sh\nexec {sys.executable} -m codesdk.cli.main acp {options}\n")
        agent.chmod(0o755)
        self._line = [
            "node",
            str(ACPX),
            "--agent",
            str(agent),
            "--cwd",
            str(self.workspace),
            "--format",
            "json",
        ]

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._line,
            *arguments,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, code: int = 0) -> list[Any]:
        """Run a command to its end and return what it printed."""
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == code, (out, err)
        return [json.loads(line) for line in out.splitlines() if line]


def ended(lines: list[Any]) -> str:
    """Return how a prompt ended."""
    return [line["result"]["stopReason"] for line in lines if "stopReason" in (line.get("result") or {})][-1]


def said(lines: list[Any]) -> str:
    updates = [line["params"]["update"] for line in lines if line.get("method") == "session/update"]
    chunks = [update for update in updates if update["sessionUpdate"] == "agent_message_chunk"]
    return "".join(update["content"]["text"] for update in chunks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "made", "code"),
    [("--approve-all", True, 0), ("--deny-all", False, NOTHING_ALLOWED), ("--approve-reads", False, 0)],
)
async def test_one_prompt_with_its_answers(tmp_path: Path, answers: str, made: bool, code: int):
    acpx = Acpx(tmp_path, [READ], [WRITE], [{"text": "Done."}])
    lines = await acpx.run(answers, "exec", "go", code=code)
    assert (ended(lines), said(lines)) == ("end_turn", "Done.")
    assert (acpx.workspace / "made.txt").exists() is made
    assert left_behind(acpx.home) == []


@pytest.mark.slow
async def test_a_session_over_several_processes_its_mode_its_model_and_a_cancel(tmp_path: Path):
    acpx = Acpx(tmp_path, [{"text": "One."}], [{"text": "Long. "}, {"await_steer": True}])
    (made,) = await acpx.run("sessions", "new")
    session = made["acpxSessionId"]
    lines = await acpx.run("prompt", "first")  # in a process of its own, which loads or resumes the session
    assert (ended(lines), said(lines)) == ("end_turn", "One.")
    await acpx.run("set-mode", "auto")
    await acpx.run("set", "model", "b")
    (listed,) = await acpx.run("sessions", "list")
    assert [(row["sessionId"], row["title"]) for row in listed["sessions"]] == [(session, "first")]
    prompting = await acpx.start("prompt", "second")
    assert prompting.stdout is not None
    seen: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while line := await prompting.stdout.readline():
            seen.append(json.loads(line))
            if said(seen) == "Long. ":
                break
    await acpx.run("cancel")
    out, _ = await asyncio.wait_for(prompting.communicate(), PATIENCE_S)
    assert ended([*seen, *[json.loads(line) for line in out.splitlines() if line]]) == "cancelled"
    await acpx.run("sessions", "close")


@pytest.mark.slow
async def test_a_session_of_a_daemon_is_asked_answered_and_gone_on_with(tmp_path: Path):
    acpx = Acpx(tmp_path, [WRITE], [{"text": "Done."}], [{"text": "Again."}])
    with daemon(tmp_path / "data"):
        (made,) = await acpx.run("sessions", "new")
        assert said(await acpx.run("--approve-all", "prompt", "first")) == "Done."
        assert said(await acpx.run("prompt", "second")) == "Again."
        await acpx.run("sessions", "close")
    assert (acpx.workspace / "made.txt").read_text() == "x"
    assert await answers(tmp_path / "data", made["acpxSessionId"]) == [("approve", None, "acpx")]
