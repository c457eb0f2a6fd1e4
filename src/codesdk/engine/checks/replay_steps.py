"""The function that wrote each kind of stored event, called again on recorded data. A part of `replay`."""

import dataclasses
from functools import partial

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.tools import ToolIdentity
from codesdk.engine.calls import ledger
from codesdk.engine.checks.tape import LOOK_AHEAD, Tape
from codesdk.engine.log.fold_calls import call_asked_about, opinion_of
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import CallState, call_key
from codesdk.engine.tasks import lifecycle

_DRAFTS = (
    ev.OutputDelta
    | ev.OutputRetracted
    | ev.OutputCompleted
    | ev.UsageReported
    | ev.RequestStarted
    | ev.RequestCompleted
)


@dataclasses.dataclass(frozen=True)
class Deck:
    """A tape and the journal that it is played into."""

    tape: Tape
    journal: Journal


def play(deck: Deck, event: Event) -> None:
    """Give one stored event to the function that wrote it."""
    journal, payload = deck.journal, event.payload
    match payload:
        case ev.SessionRecovered():
            unstored = payload.cause == "STORAGE_FAILED"
            lifecycle.recover(journal, _carried_inputs(deck), unstored=unstored)
        case _ if _begins_end(deck, event):
            _end(deck)
        case _ if event.trace.task_id is not None and isinstance(payload, _DRAFTS):
            lifecycle.draft(journal, payload, event.runtime.raw, event.runtime.raw_ref)
        case ev.TaskStarted():
            _start(deck, event.trace.task_id or "", payload)
        case ev.TaskStopRequested():
            lifecycle.ask_stop(journal, payload.by, payload.reason)
        case ev.ApprovalRequested(tool_call_id=str(tool_call_id), attempt=attempt):
            call = _call(deck, tool_call_id, attempt or 1)
            ledger.ask(journal, call, payload.summary, payload.expires_at)
        case ev.ApprovalAnswered() if call := call_asked_about(journal.state, payload.approval_id):
            ledger.answer(journal, call, payload.decision, payload.by, payload.scope, payload.reason)
        case ev.ToolCallRequested():
            _request(deck, event, payload)
        case ev.ToolOutputDelta() | ev.ToolOutputCompleted():
            _pass_on(deck, event)
        case ToolIdentity():
            _play_call(deck, payload, _call(deck, payload.tool_call_id, payload.attempt))
        case _:
            _pass_on(deck, event)


def _play_call(deck: Deck, payload: ToolIdentity, call: CallState) -> None:
    """Give an event about an open call to the function that wrote it."""
    journal = deck.journal
    match payload:
        case ev.ToolCallPolicyEvaluated():
            ledger.evaluate(journal, call, opinion_of(payload))
        case ev.ToolCallApproved():
            ledger.approve(journal, call, payload.by, payload.reason)
        case ev.ToolCallDenied():
            ledger.deny(journal, call, payload.by, payload.reason, carried=payload.carried)
        case ev.ToolCallStarted() if (why := _why_skipped(deck, payload)) is not None:
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


def _carried_inputs(deck: Deck) -> dict[str, ArtifactRef]:
    """Find the stored inputs that the recovery gave to its carried questions."""
    inputs: dict[str, ArtifactRef] = {}
    for ahead in range(LOOK_AHEAD):
        event = deck.tape.peek(ahead)
        if event is None:
            break
        if isinstance(event.payload, ev.ApprovalCarried):
            carried = event.payload
            inputs[call_key(carried.tool_call_id, carried.attempt)] = carried.input_ref
    return inputs


def _begins_end(deck: Deck, event: Event) -> bool:
    """Return whether the task's end begins here: the messages that it cuts off, then the terminal event.

    A runtime may also end its messages as partial; those are ordinary drafts, and mostly have a raw message.
    """
    if event.type in TERMINAL_TYPES:
        return True
    payload, task = event.payload, deck.journal.state.task
    if task is None or not isinstance(payload, ev.OutputCompleted) or not payload.partial:
        return False
    if event.runtime.raw is not None or event.runtime.raw_ref is not None:
        return False
    cut = lifecycle.cut_off(task)
    last = deck.tape.peek(len(cut))
    return (
        last is not None
        and last.type in TERMINAL_TYPES
        and [deck.tape.peek_payload(ahead) for ahead in range(len(cut))] == cut
    )


def _end(deck: Deck) -> None:
    ahead = 0
    while (event := deck.tape.peek(ahead)) is not None and event.type not in TERMINAL_TYPES:
        ahead += 1
    assert event is not None, "an end has a terminal event"
    payload = event.payload
    if (
        isinstance(payload, ev.TaskStopped)
        and deck.journal.state.task
        and deck.journal.state.task.stop is None
    ):
        _pass_on(deck, event)
    elif isinstance(payload, ev.TaskFailed):
        lifecycle.end(deck.journal, error=payload.error)
    else:
        stop_reason = payload.stop_reason if isinstance(payload, ev.TaskCompleted) else None
        lifecycle.end(deck.journal, stop_reason=stop_reason)


def _why_skipped(deck: Deck, payload: ev.ToolCallStarted) -> str | None:
    """Return why a call was skipped, if its start was only recorded; None if it ran.

    A remote MCP tool has an unknown environment, too, but its sandbox allows the network.
    """
    completed = deck.tape.peek_payload(1)
    if payload.execution_env != "unknown" or payload.sandbox != ledger.UNRUN:
        return None
    return str(completed.result_preview) if isinstance(completed, ev.ToolCallCompleted) else None


def _call(deck: Deck, tool_call_id: str, attempt: int) -> CallState:
    task = deck.journal.state.task
    assert task is not None, "there is no running task"
    return task.calls[call_key(tool_call_id, attempt)]


def _pass_on(deck: Deck, event: Event) -> None:
    """Write an event as it is: a fact that does not follow from anything else in the log."""
    deck.journal.write(
        event.payload,
        in_task=event.trace.task_id is not None,
        task_id=event.trace.task_id,
        raw=event.runtime.raw,
        raw_ref=event.runtime.raw_ref,
        make=partial(ev.UnknownEvent, type=event.type) if isinstance(event, ev.UnknownEvent) else None,
    )


def _start(deck: Deck, task_id: str, payload: ev.TaskStarted) -> None:
    if not payload.executed:
        stopped = deck.tape.peek_payload(1)
        assert isinstance(stopped, ev.TaskStopped), "a task that never runs ends at once"
        lifecycle.drop_queued(deck.journal, task_id, stopped.by, stopped.reason)
        return
    lifecycle.start(
        deck.journal,
        task_id,
        payload.messages,
        payload.runtime_config,
        resumes=payload.resumes.task_id if payload.resumes else None,
    )


def _request(deck: Deck, event: Event, payload: ev.ToolCallRequested) -> None:
    if payload.input is not msgspec.UNSET:
        # Hashed again: a stored hash that is not that of the input must come out as a difference.
        payload = msgspec.structs.replace(payload, input_hash=hash_json(payload.input))
    ledger.request(deck.journal, payload, event.runtime.raw, event.runtime.raw_ref)
