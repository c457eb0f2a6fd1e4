"""The cases of tests/golden/opencode-server, and what recorded events mean. `make record` writes the files."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.runtimes.opencode.rig import read

from codesdk.contract.events import TYPE_OF
from codesdk.contract.runtime import Draft
from codesdk.runtimes.opencode.errors import waited_for
from codesdk.runtimes.opencode.normalize import normalize, session_of
from codesdk.runtimes.opencode.state import State

GOLDENS = Path(__file__).parents[2] / "golden" / "opencode-server"
TOOLS = {"codesdk_workspace_read": "workspace.read", "codesdk_workspace_write": "workspace.write"}
WRITE: dict[str, Any] = {
    "call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}, "id": "w1"}
}


class Case(NamedTuple):
    """A script, and when the task is stopped or steered, if it is."""

    turns: list[Any]
    mode: str = "auto"
    stop_at: str | None = None
    steer_at: str | None = None
    gives_up: bool = False
    """Whether the driver does when opencode would ask again: only that knows how late it is."""


CASES = {
    "answer": Case([[{"text": ["Good ", "day."]}]]),
    "reasoning-and-tools": Case(
        [
            {
                "steps": [
                    {"reasoning": ["Hm, ", "so."]},
                    {"text": "Let me look."},
                    read(),
                    read("no.txt", "r2"),
                ],
                "usage": {"input": 100, "output": 20, "cache_read": 5, "reasoning": 3},
            },
            [{"text": "Milk."}],
        ]
    ),
    "steered": Case(
        [[{"text": "I write."}, WRITE], [{"text": "Tea."}]], mode="yolo", steer_at="tool.call.requested"
    ),
    "stopped-in-an-answer": Case(
        [[{"text": ["One, ", "two, "]}, {"silence": True}]], stop_at="model.output.delta"
    ),
    "stopped-at-a-question": Case([[{"text": "I write."}, WRITE]], "ask", "approval.requested"),
    "retried": Case([[{"text": "Half. "}, {"reset": True}], [{"text": "Whole."}]]),
    "broken-off": Case([[{"text": "Half. "}, {"truncate": True}]] * 4),
    "cut-at-its-limit": Case([[{"text": "Half. "}, {"max_tokens": True}]]),
    "unauthorized": Case([[{"http": {"status": 401, "message": "No such key."}}]] * 4),
    "too-many": Case([[{"http": {"status": 429, "retry_after_s": 3600}}]] * 4, gives_up=True),
    "context-too-large": Case([[{"context_too_large": True}]] * 4),
}


def fresh(session_id: str) -> State:
    """Return the state at the beginning of a task."""
    return State(session_id=session_id, model="gpt-5.5", tools=TOOLS)


def session_in(lines: list[dict[str, Any]]) -> str:
    """Return the session that recorded events are about."""
    found = [session_of(line.get("properties", {})) for line in lines]
    return next(session for session in found if session is not None)


def meanings(lines: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    """Return what the frames of one task mean, as plain data, each with the number of its frame. Raw is left out."""
    state, found = fresh(session_in(lines)), list[dict[str, Any]]()
    for number, frame in enumerate(lines):
        found += [{"frame": number, **_plain(item)} for item in normalize(state, frame)]
        if state.retry is not None and case.gives_up:
            state.failure = waited_for(state.retry.message, state.retry.attempt, 3600.0)
    return found


def _plain(item: Any) -> dict[str, Any]:
    if isinstance(item, Draft):
        return {"type": TYPE_OF[type(item.payload)], "payload": msgspec.to_builtins(item.payload)}
    plain = msgspec.to_builtins(item)
    plain.pop("raw", None)
    return {"type": type(item).__name__, "payload": plain}
