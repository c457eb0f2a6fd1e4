"""The terminal event of a task, checked against everything that was seen of the task, and what its totals sum up.

Covers what invariants 7 and 8 say about ends, and 9 about their totals. `rules_calls` checks that all calls
are over by then.
"""

from typing import Any

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.engine.checks.rules_state import Report, TaskCheck, elapsed_ms


def check_end(report: Report, event: Event, payload: Any, task: TaskCheck) -> None:
    """Check that a task may end here, and in this way."""
    for message_id in dict.fromkeys(task.blocks.values()):
        report(7, f"{event.type} of {task.task_id}, while message {message_id} still streams")
    _check_kind(report, event, payload, task)
    _check_totals(report, event, payload, task)


def check_usage(report: Report, payload: ev.UsageReported, requests: set[str] | None) -> None:
    """Check a report that goes into the totals. `requests` are those that the gateway has not counted yet."""
    if not payload.is_plausible:
        report(9, "usage.reported has a figure that is negative or beyond its bound")
    if payload.source == "gateway" and requests is not None:
        if payload.request_id not in requests:
            report(9, "usage.reported has the source gateway, but no request that it did not count yet")
        requests.discard(payload.request_id or "")


def _check_kind(report: Report, event: Event, payload: Any, task: TaskCheck) -> None:
    """Check the type of the end: a crash and a stop have their own."""
    what = f"{event.type} of {task.task_id}"
    stopped = isinstance(payload, ev.TaskStopped)
    if task.recovered:
        error = payload.error if isinstance(payload, ev.TaskFailed) else None
        code = "STORAGE_FAILED" if task.recovered.cause == "STORAGE_FAILED" else "INTERRUPTED"
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
