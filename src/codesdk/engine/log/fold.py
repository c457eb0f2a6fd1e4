"""Applies one event to a session's state, and to the rows that the store keeps of it.

Only `fold` changes a `SessionState`: the journal runs it on new events, loading and replay on stored ones. It
decides nothing and tolerates anything that a log can hold.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.ids import is_id
from codesdk.contract.messages import text_of
from codesdk.contract.records import Changes, SessionRow, Spent, TaskRow, TaskState
from codesdk.contract.sender import Sender
from codesdk.contract.settings import merge_values
from codesdk.engine.log import transcript
from codesdk.engine.log.fold_calls import HANDLERS, drop_carried, seal_done
from codesdk.engine.log.fold_context import CONTEXT_HANDLERS
from codesdk.engine.log.state import (
    MAX_SUGGEST_REQUESTS,
    ActiveTask,
    OpenBlock,
    QueuedTask,
    SessionState,
    StopAsked,
    add_usage,
    supplement_key,
)

NOTHING = Spent()
_CHANGEABLE = ("title", "model", "permission_mode", "budgets", "sealed")
"""The fields of `session.created` that can change, apart from its settings."""
Handler = Callable[[SessionState, Event, Any, Changes], None]


def fold(state: SessionState, event: Event, changes: Changes) -> None:
    """Apply an event. Add the rows that change with it to `changes`."""
    state.seq = event.seq
    state.time = event.time
    runtime = event.runtime
    if runtime.runtime_session_id is not None:
        state.runtime_session_id = runtime.runtime_session_id
    if runtime.model is not None:
        state.model = runtime.model
    payload: object = event.payload
    handler = _HANDLERS.get(type(payload))
    if handler is not None:
        handler(state, event, payload, changes)


def session_row(state: SessionState) -> SessionRow:
    """Return the row that lists show for this state."""
    config = state.config
    return SessionRow(
        session_id=state.session_id,
        principal=state.principal,
        status="closed" if state.closed else "open",
        runtime=state.runtime_name,
        workspace=config.workspace,
        permission_mode=config.permission_mode,
        created_at=state.created_at,
        updated_at=state.updated_at,
        title=config.title,
        model=state.next_model or state.model,
        active_task_id=state.task.task_id if state.task else None,
        queued=len(state.queue),
        parent_session_id=config.parent.session_id if config.parent else None,
        goes_on=state.goes_on,
        spent=state.spent if state.spent != NOTHING else None,
        project_id=config.project_id,
    )


def task_row(state: SessionState, task_id: str) -> TaskRow | None:
    """Return the row of a task that runs or waits, or None if it does neither."""
    if state.task is not None and state.task.task_id == task_id:
        return _task_row(state, "running")
    waiting = _waiting(state, task_id)
    return None if waiting is None else _queued_row(state, waiting)


def _waiting(state: SessionState, task_id: str | None) -> QueuedTask | None:
    return next((entry for entry in state.queue if entry.task_id == task_id), None)


def _queued_row(state: SessionState, waiting: QueuedTask) -> TaskRow:
    return TaskRow(
        task_id=waiting.task_id,
        session_id=state.session_id,
        state="queued",
        created_at=waiting.created_at,
        queued_seq=waiting.seq,
    )


def _touch(state: SessionState, event: Event, changes: Changes) -> None:
    state.updated_at = event.time
    changes.session = session_row(state)


def _created(state: SessionState, event: Event, payload: ev.SessionCreated, changes: Changes) -> None:
    state.created = payload
    state.created_at = event.time
    state.runtime_name = payload.runtime
    state.model = payload.model
    if payload.parent is not None:
        state.messages = payload.parent.messages
        state.chain = payload.parent.chain
        state.model_messages = state.turns_played = payload.parent.model_messages
        state.context.compacted = payload.parent.compacted or state.context.compacted
    _touch(state, event, changes)


def _resumed(state: SessionState, event: Event, payload: ev.SessionResumed, changes: Changes) -> None:
    if payload.runtime != state.runtime_name:
        # The previous runtime's session id and model mean nothing to this one.
        state.runtime_session_id = state.model = state.next_model = None
        state.context.native = False
    state.runtime_name = payload.runtime
    if state.created is not None and payload.runtime_config is not None:
        settings = {**state.created.settings, "runtime_config": payload.runtime_config}
        state.created = msgspec.structs.replace(state.created, settings=settings)
    _touch(state, event, changes)


def _settings_changed(
    state: SessionState, event: Event, payload: ev.SettingsChanged, changes: Changes
) -> None:
    if state.created is None:
        return
    if payload.equipped is not msgspec.UNSET and "script" in payload.equipped:
        state.turns_played = 0
    given = payload.given()
    state.values = merge_values(state.values, given.pop("values", {}))
    state.next_model = given.get("model", state.next_model)
    own = {name: given.pop(name) for name in _CHANGEABLE if name in given}  # the rest are timeouts
    state.created = msgspec.structs.replace(
        state.created, settings={**state.created.settings, **given}, **own
    )
    _touch(state, event, changes)


def _supplemented(
    state: SessionState, event: Event, payload: ev.TranscriptSupplemented, changes: Changes
) -> None:
    state.supplements[supplement_key(payload.by, payload.supplement_id)] = event.seq
    _touch(state, event, changes)


def _suggest_requested(
    state: SessionState, event: Event, payload: ev.SuggestRequested, changes: Changes
) -> None:
    state.suggest_requests = [*state.suggest_requests, payload.suggest_id][-MAX_SUGGEST_REQUESTS:]
    _touch(state, event, changes)


def _suggest_answered(
    state: SessionState, event: Event, payload: ev.SuggestAnswered, changes: Changes
) -> None:
    state.suggest_requests = [name for name in state.suggest_requests if name != payload.suggest_id]
    _touch(state, event, changes)


def _recovered(state: SessionState, event: Event, payload: ev.SessionRecovered, _: Changes) -> None:
    if payload.cause == "SHUTDOWN":  # the attempt did not fail; it was not given the time
        state.attempts = max(0, state.attempts - 1)


def _not_resumed(state: SessionState, event: Event, payload: ev.SessionNotResumed, changes: Changes) -> None:
    state.not_resumed = payload.task_id
    _touch(state, event, changes)


def _closed(state: SessionState, event: Event, payload: ev.SessionClosed, changes: Changes) -> None:
    state.closed = True
    drop_carried(state, event, changes)
    _touch(state, event, changes)


def _queued(state: SessionState, event: Event, payload: ev.TaskQueued, changes: Changes) -> None:
    waiting = QueuedTask(
        task_id=payload.task_id,
        messages=payload.messages,
        created_at=event.time,
        seq=event.seq,
        output_schema=payload.output_schema,
        sender=_sender(event, event.trace.traceparent),
    )
    state.queue.append(waiting)
    changes.tasks.append(_queued_row(state, waiting))
    _touch(state, event, changes)


def _started(state: SessionState, event: Event, payload: ev.TaskStarted, changes: Changes) -> None:
    task_id = event.trace.task_id or ""
    waiting = _waiting(state, task_id)
    if not payload.executed:
        return  # it never runs: it leaves the queue with its end, whatever runs meanwhile
    if waiting is not None:
        state.queue.remove(waiting)
    state.task = ActiveTask(
        task_id=task_id,
        started_seq=event.seq,
        started_at=event.time,
        created_at=waiting.created_at if waiting else event.time,
        queued_seq=waiting.seq if waiting else None,
        resumes=payload.resumes.task_id if payload.resumes else None,
        resumed_by=payload.resumes.by if payload.resumes else None,
        summarizes_before=payload.summarizes_before,
        asked=payload.messages if payload.summarizes_before is not None else [],
        output_schema=payload.output_schema,
        output_way=payload.output_way,
        reminded=-1 if payload.output_way == "tool" else 0,  # for a tool it asks from the start
        sender=_sender(event),
    )
    state.next_model = None  # the runtime gets it now, and the event carries it
    if payload.resumes is not None:
        state.interrupted_task = state.interrupted_schema = state.not_resumed = None
        state.waits_for_raise = False
    state.attempts = (payload.resumes.attempt or 0) if payload.resumes is not None else 0
    if state.context.untold is None:  # else one before it ended untold as well
        state.context.untold = state.messages
    transcript.add_user(state, payload.messages)
    seal_done(state, event, changes)
    changes.tasks.append(_task_row(state, "running"))
    _touch(state, event, changes)


def _sender(event: Event, traceparent: str | None = None) -> Sender:
    trace = event.trace
    return Sender(request_id=trace.request_id, client_id=trace.client_id, traceparent=traceparent)


def _steered(state: SessionState, event: Event, payload: ev.TaskSteered, changes: Changes) -> None:
    transcript.add_user(state, payload.messages)
    if payload.by is None or payload.by.kind != "engine" or state.task is None:
        seal_done(state, event, changes)
        return
    # The engine speaks when the runtime's turn is over, so nothing is added to what came before.
    state.task.reminded += 1
    changes.messages.extend(transcript.seal(state, event.seq, everything=True))


def _request_started(state: SessionState, event: Event, payload: ev.RequestStarted, _: Changes) -> None:
    task = state.task if event.trace.task_id is not None else None
    if is_id("req", payload.request_id):  # only the gateway's have such an id
        if payload.purpose == "main":
            state.turns_played += 1
        _spend(state, task, Spent(requests=1))
    elif task is not None:
        _claim(state, task, Spent(requests=1))


def _delta(state: SessionState, event: Event, payload: ev.OutputDelta, _: Changes) -> None:
    task = state.task
    if task is None or event.trace.task_id is None:
        return
    block = task.blocks.get(payload.block_id)
    if block is None:
        task.blocks[payload.block_id] = OpenBlock(
            block_id=payload.block_id,
            kind=payload.kind,
            message_id=payload.message_id,
            language=payload.language,
            chunks=[payload.delta],
        )
        task.streaming.setdefault(payload.message_id, []).append(payload.block_id)
    else:
        block.chunks.append(payload.delta)


def _retracted(state: SessionState, event: Event, payload: ev.OutputRetracted, _: Changes) -> None:
    if state.task is not None:
        for block_id in payload.block_ids:
            state.task.blocks.pop(block_id, None)


def _completed(state: SessionState, event: Event, payload: ev.OutputCompleted, changes: Changes) -> None:
    task = state.task
    if task is None or event.trace.task_id is None:
        return
    for block_id in task.streaming.pop(payload.message_id, ()):
        block = task.blocks.get(block_id)
        if block is not None and block.message_id == payload.message_id:  # else it was retracted
            del task.blocks[block_id]
    task.completed_messages[payload.message_id] = event.seq
    state.model_messages += 1
    state.context.native = state.context.native or task.summarizes_before is None
    # Where no gateway counts, each message took a request. Where one does, an answer may be several messages, but one
    # that follows the end of a call took another request, which the gateway saw or not.
    if task.called or not task.seen.requests:
        task.turns += 1
        _count(state, task)
    task.called = False
    text = text_of(payload.content)
    if text:
        task.text = text
    part = transcript.part_of(state, payload.message_id)
    if part is not None:
        part.content = payload.content
    seal_done(state, event, changes)


def _usage(state: SessionState, event: Event, payload: ev.UsageReported, _: Changes) -> None:
    task = state.task if event.trace.task_id is not None else None
    if payload.source == "gateway":
        _spend(state, task, Spent.of(payload))
    elif task is not None:
        _claim(state, task, Spent.of(payload))
    if task is not None:
        task.usage = add_usage(task.tallies, payload)


def _spend(state: SessionState, task: ActiveTask | None, spent: Spent) -> None:
    if task is None:
        state.spent = state.spent.plus(spent)
    else:
        task.seen = task.seen.plus(spent)
        _count(state, task)


def _claim(state: SessionState, task: ActiveTask, spent: Spent) -> None:
    task.claimed = task.claimed.plus(spent)
    _count(state, task)


def _count(state: SessionState, task: ActiveTask) -> None:
    """Count the larger of what gateway and runtime say: both speak of the same requests, so never the sum."""
    spent = task.seen.larger(task.claimed).larger(Spent(requests=task.turns))
    state.spent = state.spent.plus(spent.minus(task.spent))
    task.spent = spent


def _stop_requested(state: SessionState, event: Event, payload: ev.TaskStopRequested, _: Changes) -> None:
    if state.task is not None:
        state.task.stop = StopAsked(by=payload.by, reason=payload.reason)


def _terminal(state: SessionState, event: Event, payload: Any, changes: Changes) -> None:
    task = state.task
    if task is None or task.task_id != event.trace.task_id:
        _drop(state, event, changes)
        return
    changes.messages.extend(transcript.seal(state, event.seq, everything=True))
    failed = payload.error if isinstance(payload, ev.TaskFailed) else None
    if task.summarizes_before is None:
        state.context.too_large = failed is not None and failed.code == "CONTEXT_TOO_LARGE"
    ended: TaskState = "failed" if failed else "stopped"
    if isinstance(payload, ev.TaskCompleted):
        ended = "completed"
    unstored = failed is not None and failed.code == "STORAGE_FAILED" and failed.retryable
    # These can be taken up again with a resume; any other end is final, and a summary is asked for again.
    resumable = unstored or (failed is not None and failed.code in ("INTERRUPTED", "BUDGET_EXCEEDED"))
    if resumable and task.summarizes_before is None:
        state.interrupted_task, state.interrupted_schema = task.task_id, task.output_schema
        state.waits_for_raise = failed is not None and failed.code == "BUDGET_EXCEEDED"
    changes.tasks.append(_task_row(state, ended, event))
    state.last_task = task.task_id
    state.task = None
    _touch(state, event, changes)


def _drop(state: SessionState, event: Event, changes: Changes) -> None:
    """Take a task that never ran out of the queue. Its messages do not become part of the transcript."""
    waiting = _waiting(state, event.trace.task_id)
    if waiting is None:
        return
    state.queue.remove(waiting)
    row = _queued_row(state, waiting)
    changes.tasks.append(
        msgspec.structs.replace(row, state="stopped", ended_seq=event.seq, ended_at=event.time)
    )
    _touch(state, event, changes)


def _task_row(state: SessionState, ended: TaskState, event: Event | None = None) -> TaskRow:
    task = state.task
    assert task is not None
    return TaskRow(
        task_id=task.task_id,
        session_id=state.session_id,
        state=ended,
        created_at=task.created_at,
        queued_seq=task.queued_seq,
        started_seq=task.started_seq,
        ended_seq=event.seq if event else None,
        ended_at=event.time if event else None,
    )


_HANDLERS: dict[type, Handler] = {
    **HANDLERS,
    **CONTEXT_HANDLERS,
    ev.SessionCreated: _created,
    ev.SessionResumed: _resumed,
    ev.SettingsChanged: _settings_changed,
    ev.TranscriptSupplemented: _supplemented,
    ev.SuggestRequested: _suggest_requested,
    ev.SuggestAnswered: _suggest_answered,
    ev.SessionClosed: _closed,
    ev.SessionRecovered: _recovered,
    ev.SessionNotResumed: _not_resumed,
    ev.TaskQueued: _queued,
    ev.TaskStarted: _started,
    ev.TaskSteered: _steered,
    ev.RequestStarted: _request_started,
    ev.OutputDelta: _delta,
    ev.OutputRetracted: _retracted,
    ev.OutputCompleted: _completed,
    ev.UsageReported: _usage,
    ev.TaskStopRequested: _stop_requested,
    ev.TaskCompleted: _terminal,
    ev.TaskFailed: _terminal,
    ev.TaskStopped: _terminal,
}
