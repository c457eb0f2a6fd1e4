"""Applies tool-call and approval events to a session's state and rows. The other half of `fold`."""

from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.messages import ToolResult
from codesdk.contract.records import ApprovalRow, Changes
from codesdk.contract.tools import ANSWER_TOOL, Evaluation, Grant, Question, ToolIdentity
from codesdk.engine.log import transcript
from codesdk.engine.log.state import (
    ActiveTask,
    Answer,
    BudgetQuestion,
    CallPart,
    CallState,
    Carried,
    Repeated,
    ServerQuestion,
    SessionState,
    call_key,
)
from codesdk.policy import open_questions

_QUESTION = Question.__struct_fields__
WIRE = "wire"
"""The rule for a call that the gateway kept from the runtime."""
REASON_CHARS = 200
"""How much of the reason of a denial the end of its task repeats."""


def call_of(state: SessionState, payload: ToolIdentity) -> CallState | None:
    """Return the open attempt that a tool event is about."""
    if state.task is None:
        return None
    return state.task.calls.get(call_key(payload.tool_call_id, payload.attempt))


def opinion_of(payload: ev.ToolCallPolicyEvaluated) -> Evaluation:
    """Return the opinion that an event records."""
    return Evaluation(
        source=payload.source,
        result=payload.result,
        rule=payload.rule,
        reason=payload.reason,
        answer_by=payload.answer_by,
    )


def seal_done(state: SessionState, event: Event, changes: Changes) -> None:
    """Add the rows of messages that are complete to `changes`."""
    changes.messages.extend(transcript.seal(state, event.seq, everything=False))


def _requested(state: SessionState, event: Event, payload: ev.ToolCallRequested, changes: Changes) -> None:
    task = state.task
    if task is None:
        return
    task.work = msgspec.structs.replace(task.work, calls=task.work.calls + 1)
    identity = msgspec.convert(payload, ToolIdentity, from_attributes=True)
    value = None if payload.input is msgspec.UNSET else payload.input
    task.calls[call_key(payload.tool_call_id, payload.attempt)] = CallState(
        identity=identity,
        name=payload.name,
        tool_class=payload.tool_class,
        # The mode of now: a change of settings does not reach back to calls that already wait.
        permission_mode=state.created.permission_mode if state.created else "ask",
        input=value,
        input_ref=payload.input_ref,
        input_redacted=payload.input_redacted,
    )
    if payload.runtime_tool_call_id is not None:
        task.seen_calls[payload.runtime_tool_call_id] = identity
    if payload.attempt > 1:
        for carried in [c for c in state.carried if c.tool_call_id == payload.tool_call_id]:
            state.carried.remove(carried)
            changes.approvals.append(_closed_approval(state, event, carried.approval_id))
    part = transcript.part_of(state, payload.message_id or transcript.own_id(payload))
    if part is not None:
        part.early = payload.early
        if payload.message_id is None or payload.message_id in task.completed_messages:
            part.content = part.content or []
        shown = value if payload.input_ref is None else {"input_hash": payload.input_hash}
        part.calls.append(
            CallPart(
                tool_call_id=payload.tool_call_id,
                attempt=payload.attempt,
                name=payload.name,
                input=shown,
                index=payload.index,
            )
        )
    seal_done(state, event, changes)


def _announced(state: SessionState, event: Event, payload: ev.ToolCallAnnounced, changes: Changes) -> None:
    identity = msgspec.convert(payload, ToolIdentity, from_attributes=True)
    call = call_of(state, payload)
    if call is not None:
        call.identity = identity
    if state.task is not None and payload.runtime_tool_call_id is not None:
        state.task.seen_calls[payload.runtime_tool_call_id] = identity
    transcript.place_call(state, payload)
    seal_done(state, event, changes)


def drop_carried(state: SessionState, event: Event, changes: Changes) -> None:
    """Close the carried questions: they can no longer be resumed."""
    carried_ids = (carried.approval_id for carried in state.carried)
    for approval_id in (*state.budget_questions, *state.server_questions, *carried_ids):
        changes.approvals.append(_closed_approval(state, event, approval_id))
    state.budget_questions = {}
    state.server_questions = {}
    state.carried = []


def _evaluated(state: SessionState, event: Event, payload: ev.ToolCallPolicyEvaluated, _: Changes) -> None:
    call = call_of(state, payload)
    if call is not None:
        call.evaluations.append(opinion_of(payload))
    if payload.rule == WIRE and state.task is not None and not state.denied_since:
        state.denied_since = state.task.started_seq


def _asked(state: SessionState, event: Event, payload: ev.ApprovalRequested, changes: Changes) -> None:
    call: CallState | None = None
    if state.task is not None and payload.tool_call_id is not None:
        call = state.task.calls.get(call_key(payload.tool_call_id, payload.attempt or 1))
    if call is not None:
        call.approval_id = payload.approval_id
        call.summary = payload.summary
        call.question = payload.question
    elif payload.question is not None:
        state.server_questions[payload.approval_id] = ServerQuestion(
            question=payload.question, task_id=event.trace.task_id
        )
    if payload.budget is not None:
        state.budget_questions[payload.approval_id] = BudgetQuestion(
            level=payload.budget, task_id=event.trace.task_id
        )
    changes.approvals.append(
        ApprovalRow(
            approval_id=payload.approval_id,
            session_id=state.session_id,
            state="waiting",
            kind=payload.kind,
            summary=payload.summary,
            requested_at=event.time,
            expires_at=payload.expires_at,
            task_id=event.trace.task_id,
            tool_call_id=payload.tool_call_id,
            attempt=payload.attempt,
            input_hash=payload.input_hash,
            tool=call.name if call else None,
            tool_class=call.tool_class if call else None,
            **_question_fields(payload.question),
        )
    )


def _answered(state: SessionState, event: Event, payload: ev.ApprovalAnswered, changes: Changes) -> None:
    approved = payload.decision == "approve"
    state.server_questions.pop(payload.approval_id, None)
    question = state.budget_questions.pop(payload.approval_id, None)
    if question is not None and approved:
        state.raises[question.level] = state.raises.get(question.level, 0) + 1
        state.waits_for_raise = False
    carried = next((c for c in state.carried if c.approval_id == payload.approval_id), None)
    if carried is not None:
        carried.approved = approved
        carried.by = payload.by
        carried.reason = payload.reason
        carried.answer = payload.answer
        changes.approvals.append(carried_row(state, carried))
        if not approved:
            state.carried.remove(carried)
        return
    call = call_asked_about(state, payload.approval_id)
    if call is not None:
        call.answer = payload.answer
    if call is not None and approved and payload.scope == "session":
        _grant(state, event, call, payload)
    changes.approvals.append(_closed_approval(state, event, payload.approval_id))


def _grant(state: SessionState, event: Event, call: CallState, payload: ev.ApprovalAnswered) -> None:
    """Keep an answer for the session: it then answers the same rules for all calls of the tool."""
    held = {grant.rule for grant in state.grants if grant.tool == call.name}
    for rule in open_questions(call.evaluations):
        if rule not in held:
            state.grants.append(
                Grant(tool=call.name, rule=rule, by=payload.by, granted_at=event.time, reason=payload.reason)
            )


def _revoked(state: SessionState, event: Event, payload: ev.GrantRevoked, _: Changes) -> None:
    state.grants = [grant for grant in state.grants if grant.tool != payload.tool]


def _carried(state: SessionState, event: Event, payload: ev.ApprovalCarried, changes: Changes) -> None:
    own = {name: getattr(payload, name) for name in payload.__struct_fields__ if name not in _QUESTION}
    asker = state.last_task  # its end comes right before
    carried = Carried(requested_at=event.time, task_id=asker, question=payload.question, **own)
    state.carried.append(carried)
    changes.approvals.append(carried_row(state, carried))


def _approved(state: SessionState, event: Event, payload: ev.ToolCallApproved, _: Changes) -> None:
    call = call_of(state, payload)
    if call is not None:
        call.phase = "approved"
        call.policy = payload.policy_snapshot
    _note_decision(state, payload, True)


def _denied(state: SessionState, event: Event, payload: ev.ToolCallDenied, changes: Changes) -> None:
    if state.task is not None and not payload.carried:  # a carried call is still to be decided
        _add_denial(state.task, payload)
        if _is_answer(state.task, payload.name):
            state.task.refusal = payload.reason
            state.task.refused += 1
    result = ToolResult(
        tool_call_id=payload.tool_call_id, attempt=payload.attempt, result=payload.reason, is_error=True
    )
    _close_call(state, event, result, changes)
    _note_decision(state, payload, False)


def _is_answer(task: ActiveTask, name: str) -> bool:
    """Return whether a call gives the result that the task owes."""
    return name == ANSWER_TOOL and task.output_way == "tool"


def _add_denial(task: ActiveTask, payload: ev.ToolCallDenied) -> None:
    work, listed = task.work, task.work.denials
    if len(listed) < ev.MAX_LISTED:
        reason = (
            payload.reason
            if len(payload.reason) <= REASON_CHARS
            else payload.reason[: REASON_CHARS - 1] + "…"
        )
        listed = [*listed, ev.Denial(tool_call_id=payload.tool_call_id, name=payload.name, reason=reason)]
    task.work = msgspec.structs.replace(work, denied=work.denied + 1, denials=listed)


def _tool_started(state: SessionState, event: Event, payload: ev.ToolCallStarted, _: Changes) -> None:
    call = call_of(state, payload)
    if call is not None:
        call.phase = "running"
        call.execution_env = payload.execution_env
        call.sandbox = payload.sandbox
        call.started_at = event.time


def _tool_completed(
    state: SessionState, event: Event, payload: ev.ToolCallCompleted, changes: Changes
) -> None:
    if state.task is not None:
        state.task.called = True
        state.task.changed |= {change.path: change for change in payload.changes}
        call = call_of(state, payload)
        if call is not None and _is_answer(state.task, call.name) and not payload.is_error:
            state.task.answer = Answer(data=call.input, data_ref=call.input_ref)
    result = ToolResult(
        tool_call_id=payload.tool_call_id,
        attempt=payload.attempt,
        result=payload.result_preview,
        is_error=payload.is_error,
        result_ref=payload.result_ref,
    )
    _close_call(state, event, result, changes)


def _note_decision(state: SessionState, payload: ToolIdentity, approved: bool) -> None:
    if state.task is not None:
        state.task.decisions[call_key(payload.tool_call_id, payload.attempt)] = approved


def _close_call(state: SessionState, event: Event, result: ToolResult, changes: Changes) -> None:
    """Close an attempt, and put its result into the message that made the call."""
    part = transcript.find_call(state, result.tool_call_id, result.attempt)
    if part is not None:
        part.result = result
    if state.task is not None:
        call = state.task.calls.pop(call_key(result.tool_call_id, result.attempt), None)
        if call is not None:
            call.closed_because = str(result.result)
            _count_repeat(state.task, call, result)
    seal_done(state, event, changes)


def _count_repeat(task: ActiveTask, call: CallState, result: ToolResult) -> None:
    """Count how often in a row the same call came to the same end."""
    made = (call.name, call.identity.input_hash)
    stored = None if result.result_ref is None else result.result_ref.content_hash
    outcome = (result.is_error, result.result, stored)
    same = (task.repeated.call, task.repeated.outcome) == (made, outcome)
    task.repeated = Repeated(call=made, outcome=outcome, times=task.repeated.times + 1 if same else 1)


def carried_row(state: SessionState, carried: Carried) -> ApprovalRow:
    """Return the row of a carried approval: still open until it is denied or run."""
    names: dict[bool | None, Any] = {None: "carried", True: "approved", False: "closed"}
    return ApprovalRow(
        approval_id=carried.approval_id,
        session_id=state.session_id,
        state=names[carried.approved],
        kind="tool" if carried.question is None else "question",
        summary=carried.summary,
        requested_at=carried.requested_at,
        tool_call_id=carried.tool_call_id,
        attempt=carried.attempt,
        input_hash=carried.input_hash,
        tool=carried.name,
        tool_class=carried.tool_class,
        **_question_fields(carried.question),
    )


def _question_fields(question: Question | None) -> dict[str, Any]:
    return {} if question is None else msgspec.structs.asdict(question)


def _closed_approval(state: SessionState, event: Event, approval_id: str) -> ApprovalRow:
    return ApprovalRow(
        approval_id=approval_id,
        session_id=state.session_id,
        state="closed",
        kind="tool",
        summary="",
        requested_at=event.time,
    )


def call_asked_about(state: SessionState, approval_id: str) -> CallState | None:
    """Return the open attempt that a question is about."""
    calls = state.task.calls.values() if state.task is not None else ()
    return next((call for call in calls if call.approval_id == approval_id), None)


HANDLERS: dict[type, Any] = {
    ev.ToolCallRequested: _requested,
    ev.ToolCallAnnounced: _announced,
    ev.ToolCallPolicyEvaluated: _evaluated,
    ev.ApprovalRequested: _asked,
    ev.ApprovalAnswered: _answered,
    ev.ApprovalCarried: _carried,
    ev.GrantRevoked: _revoked,
    ev.ToolCallApproved: _approved,
    ev.ToolCallDenied: _denied,
    ev.ToolCallStarted: _tool_started,
    ev.ToolCallCompleted: _tool_completed,
}
