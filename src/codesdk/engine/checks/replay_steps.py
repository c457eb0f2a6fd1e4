"""The function that wrote each kind of stored event, called again on recorded data. A part of `replay`."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.tools import Evaluation, ToolIdentity
from codesdk.engine.calls import ledger
from codesdk.engine.checks.tape import LOOK_AHEAD, Tape
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import CallState, call_key
from codesdk.engine.tasks import lifecycle


@dataclasses.dataclass(frozen=True)
class Deck:
    """A tape and the journal that it is played into."""

    tape: Tape
    journal: Journal


def play(deck: Deck, event: Event) -> None:
    """Give one stored event to the function that wrote it."""
    payload: object = event.payload
    if isinstance(payload, ev.SessionRecovered):
        unstored = payload.cause == "STORAGE_FAILED"
        lifecycle.recover(deck.journal, _carried_inputs(deck), unstored=unstored)
    elif _begins_end(deck, event):
        _end(deck)
    elif isinstance(payload, ev.ToolCallStarted) and _is_skip(deck, payload):
        ledger.skip(deck.journal, _call(deck, payload), _why_skipped(deck))
    else:
        _STEPS.get(type(payload), _as_it_is)(deck, event, payload)


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


def _is_skip(deck: Deck, payload: ev.ToolCallStarted) -> bool:
    """Return whether a start was only recorded: the call was skipped before it ran.

    A remote MCP tool has an unknown environment, too, but its sandbox allows the network.
    """
    return (
        payload.execution_env == "unknown"
        and payload.sandbox == ledger.UNRUN
        and isinstance(deck.tape.peek_payload(1), ev.ToolCallCompleted)
    )


def _why_skipped(deck: Deck) -> str:
    completed = deck.tape.peek_payload(1)
    return str(completed.result_preview) if isinstance(completed, ev.ToolCallCompleted) else ""


def _call(deck: Deck, identity: ToolIdentity) -> CallState:
    task = deck.journal.state.task
    assert task is not None, "there is no running task"
    return task.calls[call_key(identity.tool_call_id, identity.attempt)]


def _as_it_is(deck: Deck, event: Event, _: Any) -> None:
    _pass_on(deck, event)


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


def _draft(deck: Deck, event: Event, payload: Any) -> None:
    if event.trace.task_id is None:
        _pass_on(deck, event)
    else:
        lifecycle.draft(deck.journal, payload, event.runtime.raw, event.runtime.raw_ref)


def _stop_requested(deck: Deck, event: Event, payload: ev.TaskStopRequested) -> None:
    lifecycle.ask_stop(deck.journal, payload.by, payload.reason)


def _started(deck: Deck, event: Event, payload: ev.TaskStarted) -> None:
    if not payload.executed:
        stopped = deck.tape.peek_payload(1)
        assert isinstance(stopped, ev.TaskStopped), "a task that never runs ends at once"
        lifecycle.drop_queued(deck.journal, event.trace.task_id or "", stopped.by, stopped.reason)
        return
    lifecycle.start(
        deck.journal,
        event.trace.task_id or "",
        payload.messages,
        payload.runtime_config,
        resumes=payload.resumes.task_id if payload.resumes else None,
    )


def _requested(deck: Deck, event: Event, payload: ev.ToolCallRequested) -> None:
    again = None
    if payload.attempt > 1:
        again = ToolIdentity(
            tool_call_id=payload.tool_call_id, attempt=payload.attempt - 1, input_hash=payload.input_hash
        )
    inline = payload.input is not msgspec.UNSET
    ledger.request(
        deck.journal,
        name=payload.name,
        tool_class=payload.tool_class,
        input_hash=hash_json(payload.input) if inline else payload.input_hash,
        input=payload.input,
        input_ref=payload.input_ref,
        input_redacted=payload.input_redacted,
        runtime_tool_call_id=payload.runtime_tool_call_id,
        message_id=payload.message_id,
        index=payload.index,
        again=again,
        raw=event.runtime.raw,
        raw_ref=event.runtime.raw_ref,
    )


def _evaluated(deck: Deck, event: Event, payload: ev.ToolCallPolicyEvaluated) -> None:
    opinion = Evaluation(
        source=payload.source, result=payload.result, rule=payload.rule, reason=payload.reason
    )
    ledger.evaluate(deck.journal, _call(deck, payload), opinion)


def _asked(deck: Deck, event: Event, payload: ev.ApprovalRequested) -> None:
    if payload.tool_call_id is None:
        _pass_on(deck, event)
        return
    task = deck.journal.state.task
    assert task is not None, "a question about a call needs a running task"
    call = task.calls[call_key(payload.tool_call_id, payload.attempt or 1)]
    ledger.ask(deck.journal, call, payload.summary, payload.expires_at)


def _answered(deck: Deck, event: Event, payload: ev.ApprovalAnswered) -> None:
    calls = deck.journal.state.task.calls.values() if deck.journal.state.task else ()
    call = next((c for c in calls if c.approval_id == payload.approval_id), None)
    if call is None:
        _pass_on(deck, event)
    else:
        ledger.answer(deck.journal, call, payload.decision, payload.by, payload.scope, payload.reason)


def _approved(deck: Deck, event: Event, payload: ev.ToolCallApproved) -> None:
    ledger.approve(deck.journal, _call(deck, payload), payload.by, payload.reason)


def _denied(deck: Deck, event: Event, payload: ev.ToolCallDenied) -> None:
    ledger.deny(deck.journal, _call(deck, payload), payload.by, payload.reason, carried=payload.carried)


def _tool_started(deck: Deck, event: Event, payload: ev.ToolCallStarted) -> None:
    ledger.started(deck.journal, _call(deck, payload), payload.execution_env, payload.sandbox)


def _tool_completed(deck: Deck, event: Event, payload: ev.ToolCallCompleted) -> None:
    ledger.completed(
        deck.journal,
        _call(deck, payload),
        is_error=payload.is_error,
        outcome=payload.outcome,
        result_preview=payload.result_preview,
        result_ref=payload.result_ref,
        exit_code=payload.exit_code,
        changes=payload.changes,
    )


_STEPS: dict[type, Callable[[Deck, Event, Any], None]] = {
    ev.TaskStarted: _started,
    ev.OutputDelta: _draft,
    ev.OutputRetracted: _draft,
    ev.OutputCompleted: _draft,
    ev.UsageReported: _draft,
    ev.RequestStarted: _draft,
    ev.RequestCompleted: _draft,
    ev.TaskStopRequested: _stop_requested,
    ev.ToolCallRequested: _requested,
    ev.ToolCallPolicyEvaluated: _evaluated,
    ev.ApprovalRequested: _asked,
    ev.ApprovalAnswered: _answered,
    ev.ToolCallApproved: _approved,
    ev.ToolCallDenied: _denied,
    ev.ToolCallStarted: _tool_started,
    ev.ToolCallCompleted: _tool_completed,
}
