"""The function that wrote each kind of stored event, called again on recorded data. A part of `replay`.

`Tape` is the stored log, read with look-ahead, and the source of its times and ids.
"""

from functools import partial
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.codec import decode
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.ids import Prefix
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import EventLog
from codesdk.contract.records import StoredFrame
from codesdk.contract.sender import Sender
from codesdk.contract.tools import ToolIdentity
from codesdk.engine.calls import ledger
from codesdk.engine.log.feed import PAGE_EVENTS
from codesdk.engine.log.fold_calls import call_asked_about, opinion_of
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import Answer, CallState, call_key
from codesdk.engine.tasks import lifecycle

LOOK_AHEAD = 2000
_DRAFTS = (
    ev.OutputDelta
    | ev.OutputRetracted
    | ev.OutputCompleted
    | ev.UsageReported
    | ev.RequestStarted
    | ev.RequestCompleted
)


class Tape:
    """Stored events read page by page, and the `Stamper` that repeats their times and ids."""

    def __init__(self, log: EventLog, session_id: str) -> None:
        self._log = log
        self._session_id = session_id
        self._events: list[tuple[Event, bytes]] = []
        self._place = 0
        self._read_to = 0
        self._sender = Sender()
        self.damaged: list[StoredFrame] = []

    async def fill(self) -> bool:
        """Read enough events for the next step. Return false at the end of the log."""
        if len(self._events) - self._place < LOOK_AHEAD:
            self._events = self._events[self._place :]
            self._place = 0
            while frames := await self._log.read(self._session_id, self._read_to, PAGE_EVENTS):
                self._take(frames)
                if len(self._events) >= LOOK_AHEAD:
                    break
        return self.peek() is not None

    def _take(self, frames: list[StoredFrame]) -> None:
        for frame in frames:
            self._read_to = frame.seq
            if frame.damage is not None:
                self.damaged.append(frame)
            else:
                self._events.append((decode(frame.data), frame.data))

    def peek(self, ahead: int = 0) -> Event | None:
        """Return an event without taking it. The journal itself notes again that a clock was set back."""
        for place in range(self._place, len(self._events)):
            event = self._events[place][0]
            if isinstance(event.payload, ev.ClockChanged):
                continue
            if not ahead:
                return event
            ahead -= 1
        return None

    def next(self) -> tuple[Event, bytes] | None:
        """Take the next event."""
        if self._place >= len(self._events):
            return None
        self._place += 1
        return self._events[self._place - 1]

    def peek_payload(self, ahead: int) -> Any:
        """Return the payload of an event further on, or None."""
        event = self.peek(ahead)
        return event.payload if event else None

    def now(self) -> str:
        """Return the time of the next event."""
        event = self.peek()
        return event.time if event else "1970-01-01T00:00:00.000Z"

    def sender(self) -> Sender | None:
        """Return the request that the next event was written for."""
        event = self.peek()
        if event is None:
            return None
        trace = event.trace
        sender = Sender(request_id=trace.request_id, client_id=trace.client_id, traceparent=trace.traceparent)
        if sender != self._sender:
            self._sender = sender
        return self._sender  # the same one for events in a row, which then share their trace

    def mint(self, prefix: Prefix) -> str:
        """Return the id that the next event was given."""
        event = self.peek()
        field = {"call": "tool_call_id", "apr": "approval_id"}.get(prefix, "")
        return str(getattr(event.payload, field, "")) if event else ""


def play(tape: Tape, journal: Journal, event: Event) -> None:
    """Give one stored event to the function that wrote it."""
    payload = event.payload
    match payload:
        case ev.SessionRecovered():
            lifecycle.recover(journal, _carried_inputs(tape), payload.cause)
        case _ if _begins_end(tape, journal, event):
            _end(tape, journal)
        case _ if event.trace.task_id is not None and isinstance(payload, _DRAFTS):
            lifecycle.draft(journal, payload, event.runtime.raw, event.runtime.raw_ref)
        case ev.TaskStarted():
            _start(tape, journal, event.trace.task_id or "", payload)
        case ev.TaskStopRequested():
            lifecycle.ask_stop(journal, payload.by, payload.reason)
        case ev.ApprovalRequested(tool_call_id=str(tool_call_id), attempt=attempt):
            call = _call(journal, tool_call_id, attempt or 1)
            ledger.ask(journal, call, payload.summary, payload.expires_at, payload.question)
        case ev.ApprovalAnswered() if call := call_asked_about(journal.state, payload.approval_id):
            ledger.answer(
                journal, call, payload.decision, payload.by, payload.scope, payload.reason, payload.answer
            )
        case ev.ToolCallRequested():
            _request(journal, event, payload)
        case ev.ToolOutputDelta() | ev.ToolOutputCompleted() | ev.ToolCallAnnounced():
            _pass_on(journal, event)
        case ToolIdentity():
            _play_call(tape, journal, payload, _call(journal, payload.tool_call_id, payload.attempt))
        case _:
            _pass_on(journal, event)


def _play_call(tape: Tape, journal: Journal, payload: ToolIdentity, call: CallState) -> None:
    """Give an event about an open call to the function that wrote it."""
    match payload:
        case ev.ToolCallPolicyEvaluated():
            ledger.evaluate(journal, call, opinion_of(payload))
        case ev.ToolCallApproved():
            ledger.approve(journal, call, payload.by, payload.reason)
        case ev.ToolCallDenied():
            ledger.deny(journal, call, payload.by, payload.reason, carried=payload.carried)
        case ev.ToolCallStarted() if (why := _why_skipped(tape, payload)) is not None:
            ledger.skip(journal, call, why)
        case ev.ToolCallStarted():
            ledger.started(journal, call, payload.execution_env, payload.sandbox)
        case ev.ToolCallCompleted():
            ledger.completed(
                journal,
                call,
                is_error=payload.is_error,
                outcome=payload.outcome,
                result_preview=payload.result_preview,
                result_ref=payload.result_ref,
                exit_code=payload.exit_code,
                changes=payload.changes,
            )
        case _:
            raise ValueError("no function writes it")


def _carried_inputs(tape: Tape) -> dict[str, ArtifactRef]:
    """Find the stored inputs that the recovery gave to its carried questions."""
    inputs: dict[str, ArtifactRef] = {}
    for ahead in range(LOOK_AHEAD):
        event = tape.peek(ahead)
        if event is None:
            break
        if isinstance(event.payload, ev.ApprovalCarried):
            carried = event.payload
            inputs[call_key(carried.tool_call_id, carried.attempt)] = carried.input_ref
    return inputs


def _begins_end(tape: Tape, journal: Journal, event: Event) -> bool:
    """Return whether the task's end begins here: the messages that it cuts off, then the terminal event.

    A runtime may also end its messages as partial; those are ordinary drafts, and mostly have a raw message.
    """
    if event.type in TERMINAL_TYPES:
        return True
    payload, task = event.payload, journal.state.task
    if task is None or not isinstance(payload, ev.OutputCompleted) or not payload.partial:
        return False
    if event.runtime.raw is not None or event.runtime.raw_ref is not None:
        return False
    cut = lifecycle.cut_off(task)
    last = tape.peek(len(cut))
    return (
        last is not None
        and last.type in TERMINAL_TYPES
        and [tape.peek_payload(ahead) for ahead in range(len(cut))] == cut
    )


def _end(tape: Tape, journal: Journal) -> None:
    ahead = 0
    while (event := tape.peek(ahead)) is not None and event.type not in TERMINAL_TYPES:
        ahead += 1
    assert event is not None, "an end has a terminal event"
    payload = event.payload
    raw: dict[str, Any] = {"raw": event.runtime.raw, "raw_ref": event.runtime.raw_ref}
    if isinstance(payload, ev.TaskStopped) and journal.state.task and journal.state.task.stop is None:
        _pass_on(journal, event)
    elif isinstance(payload, ev.TaskFailed):
        lifecycle.end(journal, error=payload.error, **raw)
    else:
        stop_reason = payload.stop_reason if isinstance(payload, ev.TaskCompleted) else None
        answer = _answer(payload) if isinstance(payload, ev.TaskCompleted) else None
        lifecycle.end(journal, stop_reason=stop_reason, answer=answer, **raw)


def _answer(payload: ev.TaskCompleted) -> Answer:
    """Return the result that a task recorded: what large ones are stored as does not follow from the log."""
    return Answer(data=payload.data, data_ref=payload.data_ref)


def _why_skipped(tape: Tape, payload: ev.ToolCallStarted) -> str | None:
    """Return why a call was skipped, if its start was only recorded; None if it ran.

    A remote MCP tool has an unknown environment, too, but its sandbox allows the network.
    """
    completed = tape.peek_payload(1)
    if payload.execution_env != "unknown" or payload.sandbox != ledger.UNRUN:
        return None
    return str(completed.result_preview) if isinstance(completed, ev.ToolCallCompleted) else None


def _call(journal: Journal, tool_call_id: str, attempt: int) -> CallState:
    task = journal.state.task
    assert task is not None, "there is no running task"
    return task.calls[call_key(tool_call_id, attempt)]


def _pass_on(journal: Journal, event: Event) -> None:
    """Write an event as it is: a fact that does not follow from anything else in the log."""
    journal.write(
        event.payload,
        in_task=event.trace.task_id is not None,
        task_id=event.trace.task_id,
        raw=event.runtime.raw,
        raw_ref=event.runtime.raw_ref,
        make=partial(ev.UnknownEvent, type=event.type) if isinstance(event, ev.UnknownEvent) else None,
    )


def _start(tape: Tape, journal: Journal, task_id: str, payload: ev.TaskStarted) -> None:
    if not payload.executed:
        stopped = tape.peek_payload(1)
        assert isinstance(stopped, ev.TaskStopped), "a task that never runs ends at once"
        lifecycle.drop_queued(journal, task_id, stopped.by, stopped.reason)
        return
    lifecycle.start(
        journal,
        task_id,
        payload.messages,
        payload.runtime_config,
        resumes=payload.resumes,
        summarizes_before=payload.summarizes_before,
        output_schema=payload.output_schema,
        output_way=payload.output_way,
    )


def _request(journal: Journal, event: Event, payload: ev.ToolCallRequested) -> None:
    if payload.input is not msgspec.UNSET:
        # Hashed again: a stored hash that is not that of the input must come out as a difference.
        payload = msgspec.structs.replace(payload, input_hash=hash_json(payload.input))
    ledger.request(journal, payload, event.runtime.raw, event.runtime.raw_ref)
