"""Reads a task's result, or the error that it failed with, from its terminal event."""

from typing import Any, Literal

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.events import Denial, Event, TaskCompleted, TaskFailed, TaskStopped, UsageTotals
from codesdk.contract.tools import Change


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended. `text` is its last answer."""

    task_id: str
    state: Literal["completed", "stopped"]
    text: str
    stop_reason: str
    usage: UsageTotals
    duration_ms: int
    calls: int = 0
    """How many tool calls it requested."""
    denied: int = 0
    """How many of them were denied."""
    denials: list[Denial] = []
    """Which ones, and why; the first hundred."""
    changes: list[Change] = []
    """The files that its calls changed, each as the last call left it; the first hundred."""
    changed: int = 0
    """How many files that were."""
    data: dict[str, Any] | None = None
    """What the task came to, if it was given an output schema: it fits that."""

    @property
    def cost_usd(self) -> float | None:
        """What it cost, or None if a price is not known."""
        return self.usage.cost_usd


def result_of(task_id: str, event: Event) -> TaskResult:
    """Return the result in a terminal event. Raise `TaskFailure` with the task's error if it failed."""
    payload = event.payload
    if isinstance(payload, TaskFailed):
        error = payload.error
        raise TaskFailure(
            error.message,
            code=error.code,
            retryable=error.retryable,
            runtime=error.runtime,
            details=error.details,
        )
    assert isinstance(payload, TaskCompleted | TaskStopped), "a terminal event has one of three payloads"
    done = isinstance(payload, TaskCompleted)
    work = payload.work
    return TaskResult(
        task_id=task_id,
        state="completed" if done else "stopped",
        text=payload.text if done else "",
        stop_reason=payload.stop_reason if done else payload.reason,
        usage=payload.usage,
        duration_ms=payload.duration_ms,
        calls=work.calls,
        denied=work.denied,
        denials=work.denials,
        changes=work.changes,
        changed=work.changed,
        data=payload.data if done else None,
    )
