"""The terminal event of a task against all that was remembered of it.

What invariants 7 and 8 say of ends, and 9 of their totals, once per task. What must be over by then of its calls
is the concern of `rules_calls`.
"""

from typing import Any

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.engine.checks.rules_state import Report, TaskCheck, elapsed_ms


def check_end(report: Report, event: Event, payload: Any, task: TaskCheck) -> None:
    """Check that a task may end here, and like this."""
    for message_id in dict.fromkeys(task.blocks.values()):
        report(7, f"{event.type} of {task.task_id}, while message {message_id} still streams")
    _check_kind(report, event, payload, task)
    _check_totals(report, event, payload, task)


def _check_kind(report: Report, event: Event, payload: Any, task: TaskCheck) -> None:
    """A crash and a stop have their own ends."""
    what = f"{event.type} of {task.task_id}"
    stopped = isinstance(payload, ev.TaskStopped)
    if task.recovered:
        error = payload.error if isinstance(payload, ev.TaskFailed) else None
        code = task.recovered.cause
        if error is None or error.code != code or not error.retryable:
            report(8, f"{what}, but a crash must end it with task.failed {code}, retryable")
    elif task.stop is not None and not stopped:
        report(7, f"{what} after a stop was asked for: it must end with task.stopped")
    elif task.stop is None and stopped and task.executed:
        report(7, f"{what}, but no stop was asked for")
    elif task.stop is not None and (payload.reason, payload.by) != (task.stop.reason, task.stop.by):
        report(9, f"{what} has another reason or author than the stop that was asked for")


def _check_totals(report: Report, event: Event, payload: Any, task: TaskCheck) -> None:
    what = f"{event.type} of {task.task_id}"
    if payload.usage != task.usage:
        report(9, f"{what}: its usage is not the sum of what was reported")
    if isinstance(payload, ev.TaskCompleted) and payload.text != task.text:
        report(9, f"{what}: its text is not the model's last")
    taken = elapsed_ms(task.started_at, event.time) if task.executed else 0
    if taken not in (None, payload.duration_ms):
        report(9, f"{what}: duration_ms is not the time since it started")
