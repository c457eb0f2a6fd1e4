"""What the rules remember while they read a log, and what they find.

Only the carried questions outlive their task.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import CanonicalError, hash_json
from codesdk.contract.capabilities import OutputWay
from codesdk.contract.tools import Decision, Evaluation, PermissionMode, PolicySnapshot
from codesdk.engine.log.clock import millis
from codesdk.engine.log.state import Tally

Report = Callable[[int, str], None]
"""Takes the number of an invariant and what is wrong with the current event."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault of a stored session. No `seq`: the whole log. No `invariant`: the store is damaged."""

    seq: int | None
    invariant: int | None
    message: str
    open_end: bool = False
    """Whether only the end is missing: the log stops inside a task."""


def is_interrupted(findings: Sequence[Finding]) -> bool:
    """Return whether a log keeps the contract as far as it goes, and its last task was not ended.

    If nobody runs that task, it was interrupted, and is closed when the session is next used.
    """
    return bool(findings) and all(finding.open_end for finding in findings)


class Attempt(msgspec.Struct, kw_only=True):
    """An open attempt. `unrun`: a stop came before it started, so it must not have run."""

    key: str
    request: ev.ToolCallRequested
    """As it was requested, with the runtime's id of it if that came later."""
    mode: PermissionMode | None = None
    phase: Literal["requested", "approved", "running"] = "requested"
    opinions: list[Evaluation] = []
    answer: Decision | None = None
    policy: PolicySnapshot | None = None
    started: ev.ToolCallStarted | None = None
    started_at: str = ""
    output_ended: bool = False
    unrun: bool = False
    carried: ev.ApprovalCarried | None = None


class TaskCheck(msgspec.Struct, kw_only=True):
    """What must be remembered of a task until it ends."""

    task_id: str
    seq: int
    started_at: str
    executed: bool = True
    stop: ev.TaskStopRequested | None = None
    recovered: ev.SessionRecovered | None = None
    gave_up: bool = False
    calls: dict[str, Attempt] = {}
    early: dict[str, Attempt] = {}
    """Attempts that the runtime has not told of yet, open or over."""
    ended: dict[str, str] = {}
    questions: dict[str, Attempt | None] = {}
    blocks: dict[str, str] = {}
    streaming: dict[str, dict[str, None]] = {}
    messages: set[str] = set()
    usage: ev.UsageTotals = ev.UsageTotals()
    tallies: dict[str, Tally] = {}
    text: str = ""
    output_schema: dict[str, Any] | None = None
    output_way: OutputWay | None = None
    answer: ev.ToolCallRequested | None = None
    """The call that gave the last accepted result."""


class CarriedQuestion(msgspec.Struct):
    """A question that outlived its task, and its answer."""

    payload: ev.ApprovalCarried
    answer: Decision | None = None


def elapsed_ms(start: str, end: str) -> int | None:
    """Return the time between two timestamps, never negative; None if one of them is invalid."""
    try:
        return max(0, millis(end) - millis(start))
    except ValueError:
        return None


def hash_or_none(value: object) -> str | None:
    """Return the hash of a JSON value; None if it has none."""
    try:
        return hash_json(value)
    except CanonicalError:
        return None


def whereabouts(task: TaskCheck, key: str) -> str:
    """Return what became of an attempt that is not open."""
    how = task.ended.get(key)
    return f"was already {how}" if how else "was never requested in this task"


asked_about = attrgetter("tool_call_id", "attempt", "input_hash", "name", "tool_class", "input_redacted")
"""What a carried question must have in common with its call."""
