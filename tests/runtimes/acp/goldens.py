"""The cases of tests/golden/acp: what each real agent says, and what that means. `make record` writes the files."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from codesdk import CodeSDK
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import TYPE_OF
from codesdk.contract.runtime import Draft
from codesdk.runtimes.acp import ROWS
from codesdk.runtimes.acp.normalize import normalize
from codesdk.runtimes.acp.state import State
from codesdk.runtimes.program.signals import Signals
from codesdk.script import parse_object

GOLDENS = Path(__file__).parents[2] / "golden" / "acp"
TOOLS = {"workspace_read": "workspace.read", "workspace_write": "workspace.write"}
NOTE = "remember the milk"
TASK = "task_00000000000000000000000000"
TIMEOUT_S = 180.0


class Case(NamedTuple):
    """An agent, a script, and when the task is stopped, if it is."""

    agent: str
    turns: list[Any]
    stop_at: str | None = None


def _read(path: str, call_id: str) -> dict[str, Any]:
    return {"call": {"tool": "workspace.read", "input": {"path": path}, "id": call_id}}


_CASES: dict[str, tuple[list[Any], str | None]] = {
    "reasoning-and-tools": (
        [
            [
                {"reasoning": ["Hm, ", "so."]},
                {"text": "Let me look."},
                _read("notes.txt", "r1"),
                _read("no.txt", "r2"),
            ],
            [{"text": ["Mi", "lk."]}],
        ],
        None,
    ),
    "stopped-in-an-answer": ([[{"text": ["One, ", "two, "]}, {"silence": True}]], "model.output.delta"),
    "unauthorized": ([[{"http": {"status": 401, "message": "No such key."}}]] * 4, None),
}
CASES = {
    f"{agent}/{name}": Case(agent, turns, stop_at)
    for agent in ROWS
    for name, (turns, stop_at) in _CASES.items()
}


async def play(case: Case, scratch: Path) -> None:
    """Play a case with the real agent."""
    workspace = scratch / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text(f"{NOTE}\n")
    script = parse_object({"turns": [{"steps": turn} for turn in case.turns]}, "a case")
    async with asyncio.timeout(TIMEOUT_S), CodeSDK.open(scratch / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=f"acp:{case.agent}", workspace=workspace, permission_mode="auto", plays=script
        )
        task = await session.start("What do my notes say?")
        async for event in task.events():
            if case.stop_at is not None and event.type == case.stop_at:
                await task.stop()
                break
        try:
            await task.result()
        except CodeSDKError as error:
            print(f"  {error.code}: {error.message}")


def state_of(case: Case, session_id: str) -> State:
    """Return the state that a prompt of a case begins with."""
    row = ROWS[case.agent].row
    return State(
        runtime=f"acp:{case.agent}",
        session_id=session_id,
        task_id=TASK,
        tools=TOOLS,
        reading=row.reading,
        after_name=row.call_id == "after_name",
        signals=Signals(f"acp:{case.agent}"),
    )


def meanings(lines: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    """Return what the frames of one prompt mean, as plain data, each with the number of its frame. Raw is left out."""
    state = state_of(case, lines[0]["session"])
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        found += [{"frame": number, **_plain(item)} for item in normalize(state, line["frame"])]
        found += [{"frame": number, "type": "answer", "payload": answer} for _, answer in state.answers]
        state.answers = []
    return found


def _plain(item: Any) -> dict[str, Any]:
    if isinstance(item, Draft):
        return {"type": TYPE_OF[type(item.payload)], "payload": msgspec.to_builtins(item.payload)}
    plain = msgspec.to_builtins(item)
    plain.pop("raw", None)
    return {"type": type(item).__name__, "payload": plain}
