"""The terminal event of a task, checked against everything that was seen of the task, and what its totals sum up.

Covers what invariants 7 and 8 say about ends, and 9 about their totals. `rules_calls` checks that all calls
are over by then.
"""

from typing import Any

import msgspec
from msgspec import UNSET

from codesdk.contract import events as ev
from codesdk.contract.canonical import content_hash
from codesdk.contract.events import Event
from codesdk.engine.checks.rules_state import Report, TaskCheck, elapsed_ms
from codesdk.tools import OutputSchema


def check_end(report: Report, event: Event, payload: Any, task: TaskCheck) -> None:
    """Check that a task may end here, and in this way."""
    for message_id in dict.fromkeys(task.blocks.values()):
        report(7, f"{event.type} of {task.task_id}, while message {message_id} still streams")
    _check_kind(report, event, payload, task)
    _check_totals(report, event, payload, task)
    if isinstance(payload, ev.TaskCompleted):
        _check_result(report, payload, task)


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


def _check_result(report: Report, payload: ev.TaskCompleted, task: TaskCheck) -> None:
    """Check that a task with an output schema ends with the result that was given, and that it fits."""
    found, what = (payload.data, payload.data_ref), f"task.completed of {task.task_id}"
    if task.output_schema is None:
        if found != (None, None):
            report(9, f"{what} has data, but it had no output schema")
        return
    if found == (None, None):
        report(9, f"{what} has no data, although it had an output schema")
    elif task.output_way == "tool" and (task.answer is None or found != _given(task.answer)):
        report(9, f"{what}: its data is not the result that was last accepted")
    elif task.output_way == "native" and not _is_text(payload, task.text):
        report(9, f"{what}: its data is not the model's last answer")
    elif payload.data is not None and not _fits(task, payload.data):
        report(9, f"{what}: its data does not fit its output schema")


def _given(call: ev.ToolCallRequested) -> tuple[Any, Any]:
    return None if call.input is UNSET else call.input, call.input_ref


def _is_text(payload: ev.TaskCompleted, text: str) -> bool:
    if payload.data_ref is not None:
        return payload.data_ref.content_hash == content_hash(text.encode())
    try:
        return bool(msgspec.json.decode(text) == payload.data)
    except (ValueError, RecursionError):
        return False


def _fits(task: TaskCheck, data: dict[str, Any]) -> bool:
    """Return whether a result fits its schema. One from which a secret was taken fitted before that."""
    assert task.output_schema is not None, "only then it has to fit"
    try:
        checked = OutputSchema(task.output_schema)
    except ValueError:
        return False
    redacted = task.answer is not None and task.answer.input_redacted
    return redacted or checked.problem(data) is None
