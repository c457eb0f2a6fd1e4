"""The cases of tests/golden/codex-sdk, and what recorded frames mean. `make record` writes the files."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.runtimes.codex.rig import read

from codesdk.contract.events import TYPE_OF
from codesdk.contract.runtime import Draft
from codesdk.runtimes.codex.normalize import normalize
from codesdk.runtimes.codex.state import State

GOLDENS = Path(__file__).parents[2] / "golden" / "codex-sdk"
TOOLS = {"workspace_read": "workspace.read", "workspace_write": "workspace.write"}
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
WRITE: dict[str, Any] = {
    "call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}, "id": "w1"}
}


class Case(NamedTuple):
    """A script, and when the task is stopped, if it is."""

    turns: list[Any]
    mode: str = "auto"
    stop_at: str | None = None
    natives: tuple[str, ...] = ()
    interaction: str = "interactive"


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
    "stopped-in-an-answer": Case(
        [[{"text": ["One, ", "two, "]}, {"silence": True}]], stop_at="model.output.delta"
    ),
    "stopped-at-a-question": Case([[{"text": "I write."}, WRITE]], "ask", "approval.requested"),
    "native": Case(
        [
            [
                {"text": "I look."},
                {"call": {"tool": "exec_command", "input": {"cmd": "cat notes.txt; exit 3"}, "id": "x1"}},
            ],
            [{"call": {"tool": "apply_patch", "input": PATCH, "id": "p1"}}],
            [{"text": "Milk."}],
        ],
        "yolo",
        natives=("apply_patch", "exec_command"),
    ),
    "native-denied": Case(
        [[{"call": {"tool": "exec_command", "input": {"cmd": "id"}, "id": "x1"}}], [{"text": "No."}]],
        "ask",
        natives=("exec_command",),
        interaction="non_interactive",
    ),
    "retried": Case([[{"text": "Half. "}, {"reset": True}], [{"text": "Whole."}]]),
    "unauthorized": Case([[{"http": {"status": 401, "message": "No such key."}}]] * 4),
    "too-many": Case([[{"http": {"status": 429}}]] * 4),
    "context-too-large": Case([[{"context_too_large": True}]] * 4),
}


def meanings(lines: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    """Return what the frames of one turn mean, as plain data, each with the number of its frame. Raw is left out."""
    natives = frozenset(case.natives)
    state = State(
        turn_id=lines[0]["turn"], model="gpt-5.5", tools=TOOLS, natives=natives, workspace="/workspace"
    )
    return [
        {"frame": number, **_plain(item)}
        for number, line in enumerate(lines)
        for item in normalize(state, line["frame"])
    ]


def _plain(item: Any) -> dict[str, Any]:
    if isinstance(item, Draft):
        return {"type": TYPE_OF[type(item.payload)], "payload": msgspec.to_builtins(item.payload)}
    plain = msgspec.to_builtins(item)
    plain.pop("raw", None)
    return {"type": type(item).__name__, "payload": plain}
