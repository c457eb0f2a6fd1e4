"""What the real claude said in each case, as `make record` wrote it down, and what the normalizer makes of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from tests.runtimes.claude.rig import EDIT, MORE, READ, native_call

from codesdk.contract.events import TYPE_OF
from codesdk.contract.runtime import Draft, RuntimeItem
from codesdk.runtimes.claude.normalize import ClaudeState, normalize
from codesdk.tools.names import PREFIX

GOLDENS = Path(__file__).parents[2] / "golden" / "claude-agent-sdk"
TOOLS = {f"{PREFIX}workspace_read": "workspace.read", f"{PREFIX}workspace_edit": "workspace.edit"}


class Case(msgspec.Struct, frozen=True):
    """A script, and what is done while it plays."""

    turns: list[Any]
    stop_at: str | None = None
    steer_at: str | None = None
    mode: str = "auto"
    interaction: str = "interactive"
    natives: tuple[str, ...] = ()


def _http(status: int) -> list[dict[str, Any]]:
    return [{"http": {"status": status, "retry_after_s": 0}}]


CASES: dict[str, Case] = {
    "text": Case([[{"text": ["Hel", "lo."]}]]),
    "reasoning": Case([[{"reasoning": ["Hm, ", "so."]}, {"text": "Answer."}]]),
    "tool": Case([[{"text": "Let me look."}, READ], "Milk."]),
    "two-tools": Case([[READ, MORE], "Both."]),
    "denied": Case([[EDIT], "No."], mode="ask", interaction="non_interactive"),
    "not-ours": Case([[native_call("Bash", {"command": "id"})], "No shell."]),
    "native": Case(
        [[native_call("Bash", {"command": "cat notes.txt; exit 3"})], "Milk."], mode="yolo", natives=("Bash",)
    ),
    "native-denied": Case(
        [[native_call("Bash", {"command": "id"})], "No."],
        mode="ask",
        interaction="non_interactive",
        natives=("Bash",),
    ),
    "stopped": Case([[{"text": "Begin "}, {"delay_s": 60}]], stop_at="model.output.delta"),
    "stopped-asking": Case([[READ]], stop_at="approval.requested", mode="ask"),
    "steered": Case(
        [[{"text": "One"}, {"delay_s": 1}, {"text": "."}], "Two."], steer_at="model.output.delta"
    ),
    "stream-dies": Case([[{"text": "Half a "}, {"delay_s": 0.3}, {"reset": True}], "Whole."]),
    "retried": Case([_http(429), "After."]),
    "unauthorized": Case([_http(401), _http(401)]),
    "overloaded": Case([_http(529), _http(529)]),
    "too-large": Case([[{"context_too_large": True}]]),
    "cut": Case([[{"text": "cut "}, {"max_tokens": True}], "rest."]),
    "refused": Case([[{"text": "I "}, {"refusal": "No."}], [{"text": "I "}, {"refusal": "No."}]]),
}


def read(case: str, name: str) -> list[Any]:
    """Return the lines of a golden file."""
    return [msgspec.json.decode(line) for line in (GOLDENS / case / name).read_bytes().split(b"\n") if line]


def meanings(raw: Iterable[Any], case: Case) -> list[Any]:
    """Return what the frames of a case mean. A line `said` is an input that the driver handed over there."""
    state, made = ClaudeState(TOOLS, case.natives, "/scratch/workspace"), []
    for line in raw:
        if "said" in line:
            state.waiting.add(line["said"])
        else:
            made += [_plain(item) for item in normalize(state, line)]
    return made


def _plain(item: RuntimeItem) -> dict[str, Any]:
    """Return an item as JSON, without the frame that it came from."""
    if isinstance(item, Draft):
        return {"draft": TYPE_OF[type(item.payload)], **msgspec.to_builtins(item.payload)}
    fields = {name: value for name, value in msgspec.to_builtins(item).items() if name != "raw"}
    return {"item": type(item).__name__, **fields}
