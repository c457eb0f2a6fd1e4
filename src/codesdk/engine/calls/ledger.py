"""The tool-call ledger: every attempt from request to its one end, written through a journal.

    requested ─▶ waiting ─┬─▶ denied
                          └─▶ approved ─▶ started ─▶ completed

Pure like `lifecycle`. Only this module writes `tool.call.*` and `approval.*`.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.runtime import ToolAnnouncement
from codesdk.contract.tools import (
    Actor,
    Change,
    Decision,
    Evaluation,
    ExecutionEnv,
    OutputStream,
    PolicySnapshot,
    PolicySource,
    Question,
    SandboxSummary,
    Scope,
    ToolIdentity,
    Verdict,
)
from codesdk.engine.log.clock import millis
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import CallState, call_key

ENGINE = Actor(kind="engine")
POLICY = Actor(kind="policy")
NATIVE: ExecutionEnv = "runtime_internal"
"""Where a call runs that the runtime runs itself."""
CARRIED_REASON = "The process ended before anyone answered; the question is kept for a resume."


def request(
    journal: Journal, payload: ev.ToolCallRequested, raw: Any = None, raw_ref: ArtifactRef | None = None
) -> CallState:
    """Open an attempt."""
    journal.write(payload, raw=raw, raw_ref=raw_ref)
    task = journal.state.task
    assert task is not None, "a tool call needs a running task"
    return task.calls[call_key(payload.tool_call_id, payload.attempt)]


def announced(
    journal: Journal,
    call: ToolIdentity,
    item: ToolAnnouncement,
    raw: Any = None,
    raw_ref: ArtifactRef | None = None,
) -> None:
    """Record what a runtime tells of a call that was opened early. The call may be over by now."""
    runtime_id = item.runtime_tool_call_id or call.runtime_tool_call_id
    identity = msgspec.structs.replace(call, runtime_tool_call_id=runtime_id)
    payload = ev.ToolCallAnnounced(
        **msgspec.structs.asdict(identity), message_id=item.message_id, index=item.index
    )
    journal.write(payload, raw=raw, raw_ref=raw_ref)


def evaluate(journal: Journal, call: CallState, opinion: Evaluation) -> None:
    """Record one opinion on a call."""
    journal.write(ev.ToolCallPolicyEvaluated(**_identity(call), **msgspec.structs.asdict(opinion)))


def conclude(journal: Journal, call: CallState, opinions: Sequence[Evaluation], verdict: Evaluation) -> None:
    """Record all opinions on a call, and decide it by `verdict` unless that asks."""
    for opinion in opinions:
        evaluate(journal, call, opinion)
    if verdict.result == "allow":
        approve(journal, call, POLICY)
    elif verdict.result == "deny":
        deny(journal, call, POLICY, verdict.reason or f"Denied by {verdict.rule}.")


def ask(
    journal: Journal,
    call: CallState,
    summary: str,
    expires_at: str | None,
    question: Question | None = None,
) -> str:
    """Ask whoever may answer about a call, or what the call itself asks. Return the approval's id."""
    approval_id = journal.stamper.mint("apr")
    journal.write(
        ev.ApprovalRequested(
            approval_id=approval_id,
            kind="tool" if question is None else "question",
            **_asked(question),
            summary=summary,
            expires_at=expires_at,
            tool_call_id=call.identity.tool_call_id,
            attempt=call.identity.attempt,
            input_hash=call.identity.input_hash,
        )
    )
    return approval_id


def ask_budget(
    journal: Journal, level: ev.BudgetLevel, summary: str, *, expires_at: str | None = None
) -> str:
    """Ask whether to raise a budget. With `expires_at` the running task waits, else no task does."""
    approval_id = journal.stamper.mint("apr")
    payload = ev.ApprovalRequested(
        approval_id=approval_id, kind="budget", summary=summary, expires_at=expires_at, budget=level
    )
    journal.write(payload, in_task=expires_at is not None)
    return approval_id


def ask_for_server(journal: Journal, question: Question, expires_at: str) -> str:
    """Ask what an MCP server asks while it works on a call."""
    approval_id = journal.stamper.mint("apr")
    journal.write(
        ev.ApprovalRequested(
            approval_id=approval_id,
            kind="question",
            summary=summarize_question(question),
            expires_at=expires_at,
            **_asked(question),
        )
    )
    return approval_id


def answer_question(
    journal: Journal,
    approval_id: str,
    decision: Decision,
    by: Actor,
    reason: str | None,
    text: str | None = None,
) -> None:
    """Record the answer to a question about a budget, of an MCP server, or to one that outlived its task."""
    payload = ev.ApprovalAnswered(
        approval_id=approval_id, decision=decision, by=by, scope="once", reason=reason, answer=text
    )
    state = journal.state
    asked = state.budget_questions.get(approval_id) or state.server_questions.get(approval_id)
    journal.write(payload, in_task=asked is not None and asked.task_id is not None)


def close_questions(journal: Journal, why: str) -> None:
    """Deny the questions that the running task waits for: about budgets, and of MCP servers."""
    for approval_id, asked in list(
        {**journal.state.budget_questions, **journal.state.server_questions}.items()
    ):
        if asked.task_id is not None:
            answer_question(journal, approval_id, "deny", ENGINE, why)


def answer(
    journal: Journal,
    call: CallState,
    decision: Decision,
    by: Actor,
    scope: Scope,
    reason: str | None,
    text: str | None = None,
) -> None:
    """Record the answer to a call's question and the opinion that it is, and decide the call by it.

    `text` answers what the call asks.
    """
    assert call.approval_id is not None, "only a question can be answered"
    journal.write(
        ev.ApprovalAnswered(
            approval_id=call.approval_id, decision=decision, by=by, scope=scope, reason=reason, answer=text
        )
    )
    source: PolicySource = by.kind if by.kind in ("user", "extension") else "codesdk"
    result: Verdict = "allow" if decision == "approve" else "deny"
    rule = extension_name(by) if source == "extension" else None
    evaluate(journal, call, Evaluation(source=source, result=result, rule=rule, reason=reason))
    if decision == "approve":
        approve(journal, call, by, reason)
    else:
        deny(journal, call, by, reason or "Denied without a reason.")


def extension_name(by: Actor) -> str:
    """Return an extension as rules name it in `answer_by`."""
    return f"extension:{by.id}"


def approve(journal: Journal, call: CallState, by: Actor, reason: str | None = None) -> None:
    """Decide that the call runs."""
    snapshot = _snapshot(call, "allow")
    journal.write(
        ev.ToolCallApproved(**_identity(call), name=call.name, by=by, policy_snapshot=snapshot, reason=reason)
    )


def deny(journal: Journal, call: CallState, by: Actor, reason: str, *, carried: bool = False) -> None:
    """Decide that the call does not run."""
    snapshot = _snapshot(call, "deny")
    journal.write(
        ev.ToolCallDenied(
            **_identity(call),
            name=call.name,
            by=by,
            policy_snapshot=snapshot,
            reason=reason,
            carried=carried,
        )
    )


def refuse(journal: Journal, call: CallState, reason: str) -> None:
    """Deny a waiting call for the engine, answering its open question if it has one."""
    if call.approval_id is not None:
        answer(journal, call, "deny", ENGINE, "once", reason)
    else:
        deny(journal, call, ENGINE, reason)


def started(journal: Journal, call: CallState, env: ExecutionEnv, sandbox: SandboxSummary) -> None:
    """Record that an approved call starts. Must be stored before the call runs."""
    journal.write(ev.ToolCallStarted(**_identity(call), name=call.name, execution_env=env, sandbox=sandbox))


def output(journal: Journal, call: CallState, stream: OutputStream, delta: str) -> None:
    """Record output of a running call."""
    journal.write(ev.ToolOutputDelta(**_identity(call), stream=stream, delta=delta))


def output_end(
    journal: Journal, call: CallState, size: int, truncated: bool, refs: list[ArtifactRef]
) -> None:
    """Record how much output a running call gave."""
    journal.write(ev.ToolOutputCompleted(**_identity(call), bytes=size, truncated=truncated, refs=refs))


def completed(
    journal: Journal,
    call: CallState,
    *,
    is_error: bool,
    outcome: ev.Outcome = "known",
    result_preview: Any = None,
    result_ref: ArtifactRef | None = None,
    exit_code: int | None = None,
    changes: list[Change] | None = None,
) -> None:
    """End a started call."""
    snapshot = call.policy or _snapshot(call, "allow")
    now = journal.now()
    journal.write(
        ev.ToolCallCompleted(
            **_identity(call),
            name=call.name,
            executed_by="runtime" if call.execution_env == NATIVE else "codesdk",
            execution_env=call.execution_env,
            policy_snapshot=snapshot,
            sandbox=call.sandbox or SandboxSummary(network=False),
            is_error=is_error,
            outcome=outcome,
            duration_ms=max(0, millis(now) - millis(call.started_at or now)),
            changes=changes or [],
            result_ref=result_ref,
            result_preview=result_preview,
            exit_code=exit_code,
        ),
        time=now,
    )


def close_left_open(journal: Journal, call: CallState) -> None:
    """Close a call that is still open when its task ends."""
    if call.phase == "waiting":
        refuse(journal, call, "The task ended.")
    elif call.phase == "approved":
        skip(journal, call, "Not run: the task ended.")
    else:
        lose(journal, call, "It did not end when it was cancelled; whether it took effect is not known.")


UNRUN = SandboxSummary(network=False)
"""The sandbox of a call that never ran."""


def skip(journal: Journal, call: CallState, why: str) -> None:
    """End an approved call that did not run because a stop or a disconnect came first."""
    # An approved call must end with `completed`, and that needs a start: one that ran nowhere.
    started(journal, call, "unknown", UNRUN)
    completed(journal, call, is_error=True, result_preview=why)


def lose(journal: Journal, call: CallState, why: str) -> None:
    """End a started call whose end nobody saw: its outcome is unknown."""
    completed(journal, call, is_error=True, outcome="unknown", result_preview=why)


def carry(journal: Journal, call: CallState, inputs: dict[str, ArtifactRef]) -> list[ev.ApprovalCarried]:
    """Close a waiting call after a crash. Return its question, if it had one, to be kept for a resume."""
    deny(journal, call, ENGINE, CARRIED_REASON, carried=True)
    if call.approval_id is None or call.key not in inputs:
        return []
    return [
        ev.ApprovalCarried(
            approval_id=call.approval_id,
            tool_call_id=call.identity.tool_call_id,
            attempt=call.identity.attempt,
            name=call.name,
            tool_class=call.tool_class,
            summary=call.summary or call.name,
            input_ref=inputs[call.key],
            input_hash=call.identity.input_hash,
            input_redacted=call.input_redacted,
            **_asked(call.question),
        )
    ]


def summarize(name: str, value: Any) -> str:
    """Return one line that shows a person what a call would do."""
    text = msgspec.json.encode(value).decode()
    return f"{name} {text if len(text) <= 200 else text[:199] + '…'}"


def summarize_question(question: Question) -> str:
    """Return one line that shows a person what is asked."""
    text = " ".join(question.text.split())
    who = f"{question.asker} asks: " if question.asker else ""
    return f"{who}{text if len(text) <= 200 else text[:199] + '…'}"


def _asked(question: Question | None) -> dict[str, Any]:
    return {} if question is None else msgspec.structs.asdict(question)


def _identity(call: CallState) -> dict[str, Any]:
    return msgspec.structs.asdict(call.identity)


def _snapshot(call: CallState, decision: Literal["allow", "deny"]) -> PolicySnapshot:
    return PolicySnapshot(
        permission_mode=call.permission_mode, decision=decision, sources=list(call.evaluations)
    )
