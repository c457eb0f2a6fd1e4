"""A task's terminal event to its result, or to the error that it failed with."""

from typing import Literal

import msgspec

from codesdk.contract.errors import from_info
from codesdk.contract.events import Event, TaskCompleted, TaskFailed, TaskStopped, UsageTotals


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended. `text` is its last answer."""

    task_id: str
    state: Literal["completed", "stopped"]
    text: str
    stop_reason: str
    usage: UsageTotals
    duration_ms: int


def result_of(task_id: str, event: Event) -> TaskResult:
    """Return the result in a terminal event. Raise the task's error if it failed."""
    payload = event.payload
    if isinstance(payload, TaskFailed):
        raise from_info(payload.error)
    assert isinstance(payload, TaskCompleted | TaskStopped), "a terminal event has one of three payloads"
    done = isinstance(payload, TaskCompleted)
    return TaskResult(
        task_id=task_id,
        state="completed" if done else "stopped",
        text=payload.text if done else "",
        stop_reason=payload.stop_reason if done else payload.reason,
        usage=payload.usage,
        duration_ms=payload.duration_ms,
    )
