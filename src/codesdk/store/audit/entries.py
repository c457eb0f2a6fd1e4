"""Makes audit entries from events, failures and HTTP requests: only from events that say who allowed what.

Pure. Nothing that a runtime may draft can name a person here; a `runtime.notice` has no entry at all. Texts
of prompts, inputs and outputs stay in the log; an entry names their event (`session_id`, `seq`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.actions import LOCAL, Caller
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.jobs import JobRow
from codesdk.contract.tools import Actor, PolicySnapshot
from codesdk.store.audit.chain import AuditEntry, Category, Who, now, storage_entry

MAX_TEXT = 1_000
MAX_ITEMS = 20

_USER = Actor(kind="user")
_ENGINE = Actor(kind="engine")
_RUNTIME = Actor(kind="runtime")


class _Said(NamedTuple):
    """What an event contributes to its audit entry."""

    category: Category
    action: str
    outcome: str
    what: dict[str, Any]
    why: Mapping[str, Any] = MappingProxyType[str, Any]({})
    by: Actor = _USER


OfSession = (
    ev.SessionCreated
    | ev.SessionResumed
    | ev.SessionClosed
    | ev.SessionRecovered
    | ev.SessionNotResumed
    | ev.SettingsChanged
    | ev.SessionCompacted
    | ev.GrantRevoked
    | ev.FilesUndone
)
Beside = ev.TranscriptSupplemented | ev.SuggestRequested | ev.SuggestAnswered
OfTask = (
    ev.TaskQueued
    | ev.TaskStarted
    | ev.TaskSteered
    | ev.TaskStopRequested
    | ev.TaskStopped
    | ev.TaskFailed
    | ev.RequestCompleted
)
Decided = ev.ToolCallApproved | ev.ToolCallDenied
Ran = ev.ToolCallStarted | ev.ToolCallCompleted
OfCall = ev.ApprovalAnswered | Decided | Ran


def entry_of(event: Event) -> AuditEntry | None:
    """Return the entry for an event; None if it has none."""
    tell = _TELL.get(event.type)
    said = tell(event.payload) if tell is not None else None
    if said is None:
        return None
    trace = event.trace
    place = {"session_id": trace.session_id, "seq": event.seq}
    if trace.task_id is not None:
        place["task_id"] = trace.task_id
    return AuditEntry(
        time=event.time,
        category=said.category,
        action=said.action,
        outcome=said.outcome,
        who=Who(
            principal=trace.user_id or LOCAL,
            kind=said.by.kind,
            id=said.by.id,
            client_id=trace.client_id,
            request_id=trace.request_id,
        ),
        what={**place, **_trimmed(said.what)},
        why=_trimmed(said.why),
    )


def failure_entry(principal: str, session_id: str, error: CodeSDKError) -> AuditEntry:
    """Return the entry for a session whose events could not be stored."""
    reason = _cut(error.message)
    return storage_entry("log.write", "failed", reason, principal, session_id=session_id, code=error.code)


def deletion_entry(caller: Caller, session_id: str) -> AuditEntry:
    """Return the entry for a deleted session: the only action that leaves no event."""
    return AuditEntry(
        time=now(),
        category="request",
        action="session.delete",
        outcome="ok",
        who=_who(caller),
        what={"session_id": session_id},
    )


def extension_entry(
    principal: str, extension: str, action_type: str, status: str, what: Mapping[str, Any], reason: str | None
) -> AuditEntry:
    """Return the entry for an action that an extension asked for, whatever became of it."""
    return AuditEntry(
        time=now(),
        category="request",
        action=f"extension.{action_type}",
        outcome=status,
        who=Who(principal=principal, kind="extension", id=extension),
        what=_trimmed(what),
        why=_trimmed({"reason": reason}),
    )


def job_entry(caller: Caller, verb: Literal["cancel", "retry"], job: JobRow) -> AuditEntry:
    """Return the entry for a job that somebody has called off, or had run again."""
    return AuditEntry(
        time=now(),
        category="request",
        action=f"job.{verb}",
        outcome="ok",
        who=_who(caller),
        what={
            "session_id": job.source_session_id,
            "job_id": job.job_id,
            "job_type": job.type,
            "extension": job.extension,
        },
    )


def request_entry(
    who: Who, method: str, route: str, status: int, session_id: str | None, code: str | None
) -> AuditEntry:
    """Return the entry for an HTTP request. `route` is the template, without ids and queries."""
    what = {"method": method, "route": route, "status": status, "session_id": session_id, "code": code}
    return AuditEntry(
        time=now(),
        category="request",
        action="http",
        outcome="ok" if status < 400 else "refused" if status < 500 else "failed",
        who=who,
        what=_trimmed(what),
    )


def _who(caller: Caller) -> Who:
    return Who(
        principal=caller.principal,
        kind=caller.actor.kind,
        id=caller.actor.id,
        client_id=caller.client_id,
        request_id=caller.request_id,
    )


def _of_session(payload: OfSession) -> _Said:
    match payload:
        case ev.SessionCreated():
            what = {
                "runtime": payload.runtime,
                "model": payload.model,
                "workspace": payload.workspace,
                "permission_mode": payload.permission_mode,
                "interaction_mode": payload.interaction_mode,
                "native_tools": payload.native_tools,
                "isolation": payload.isolation.level,
                "forked_from": payload.parent.session_id if payload.parent else None,
            }
            return _Said("request", "session.create", "ok", what)
        case ev.SessionResumed():
            return _Said(
                "request", "session.resume", "ok", {"runtime": payload.runtime}, by=payload.by or _USER
            )
        case ev.SessionClosed():
            return _Said("request", "session.close", "ok", {}, {"reason": payload.reason})
        case ev.SessionRecovered():
            what = {"task_id": payload.task_id, "open_calls": payload.open_calls}
            why = {"reason": payload.cause}
            if payload.cause == "SHUTDOWN":
                return _Said("runtime", "engine.shutdown", "interrupted", what, why, _ENGINE)
            return _Said("runtime", "engine.crash", "recovered", what, why, _ENGINE)
        case ev.SessionNotResumed():
            what = {
                "task_id": payload.task_id,
                "attempts": payload.attempts,
                "cause": payload.cause,
                "missing": payload.missing or None,
            }
            return _Said(
                "runtime", "session.not_resumed", "waits", what, {"reason": payload.message}, _ENGINE
            )
        case ev.SettingsChanged():
            changed = msgspec.to_builtins(payload.given())
            if "values" in changed:
                changed["values"] = sorted(
                    changed["values"]
                )  # what apps keep there is not the audit's business
            return _Said("request", "session.set", "ok", {"changed": changed}, by=payload.by)
        case ev.SessionCompacted():
            what = {"strategy": payload.strategy, "first": payload.first, "task_id": payload.task_id}
            return _Said("request", "session.compact", "ok", what, {"reason": payload.reason}, payload.by)
        case ev.GrantRevoked():
            return _Said("request", "grant.revoke", "ok", {"tool": payload.tool}, by=payload.by)
        case ev.FilesUndone():
            what = {
                "restored": [file.path for file in payload.restored],
                "refused": [call.tool_call_id for call in payload.refused] or None,
            }
            return _Said("request", "session.undo", "ok", what, by=payload.by)


def _beside(payload: Beside) -> _Said:
    match payload:
        case ev.TranscriptSupplemented():
            what = {"supplement_id": payload.supplement_id, "task_id": payload.task_id}
            return _Said("request", "transcript.supplement", "ok", what, by=payload.by)
        case ev.SuggestRequested():
            return _Said(
                "request", "suggest.request", "ok", {"suggest_id": payload.suggest_id}, by=payload.by
            )
        case ev.SuggestAnswered():
            what = {"suggest_id": payload.suggest_id, "results": len(payload.results)}
            return _Said("request", "suggest.answer", "ok", what, by=payload.by)


def _of_task(payload: OfTask) -> _Said | None:
    match payload:
        case ev.TaskQueued():
            what = {"task_id": payload.task_id, "messages": len(payload.messages)}
            return _Said("request", "task.queue", "ok", what)
        case ev.TaskStarted():
            resumed = payload.resumes
            what = {"messages": len(payload.messages), "resumes": resumed.task_id if resumed else None}
            what["attempt"] = resumed.attempt if resumed else None
            by = (resumed.by if resumed else None) or _USER
            return _Said("request", "task.start", "ok" if payload.executed else "dropped", what, by=by)
        case ev.TaskSteered():
            by, what = payload.by or _USER, {"messages": len(payload.messages)}
            return _Said("request", "task.steer", "ok", what, by=by)
        case ev.TaskStopRequested():
            return _Said("request", "task.stop", "asked", {}, {"reason": payload.reason}, payload.by)
        case ev.TaskStopped():
            return _Said("request", "task.stop", "ok", {}, {"reason": payload.reason}, payload.by)
        case ev.TaskFailed(error=error):
            category: Category = "storage" if error.code == "STORAGE_FAILED" else "runtime"
            what = {"code": error.code, "retryable": error.retryable, "runtime": error.runtime}
            return _Said(category, "task.fail", "failed", what, {"reason": error.message}, _RUNTIME)
        case ev.RequestCompleted():
            # Those that went well are many, and nobody was asked about them.
            if payload.status == "completed" and (payload.http_status or 0) < 400:
                return None
            what = {"model_request_id": payload.request_id, "http_status": payload.http_status}
            return _Said("runtime", "model.request", payload.status, what, by=_RUNTIME)


def _of_call(payload: OfCall) -> _Said:
    match payload:
        case ev.ApprovalAnswered():
            outcome = "approved" if payload.decision == "approve" else "denied"
            if payload.answer is not None:
                outcome = "answered"
            what = {
                "approval_id": payload.approval_id,
                "scope": payload.scope,
                "answer": payload.answer,
            }
            return _Said("request", "approval.answer", outcome, what, {"reason": payload.reason}, payload.by)
        case ev.ToolCallApproved() | ev.ToolCallDenied():
            outcome = "allowed" if isinstance(payload, ev.ToolCallApproved) else "denied"
            why = _reasons(payload.policy_snapshot, payload.reason)
            return _Said("request", "tool.decision", outcome, _call(payload), why, payload.by)
        case ev.ToolCallStarted():
            return _Said("tool", "tool.start", "started", _running(payload), by=_ENGINE)
        case ev.ToolCallCompleted():
            what = {
                **_running(payload),
                "exit_code": payload.exit_code,
                "duration_ms": payload.duration_ms,
                "changed": [change.path for change in payload.changes] or None,
            }
            outcome = "unknown" if payload.outcome == "unknown" else "failed" if payload.is_error else "ok"
            by = _ENGINE if payload.executed_by == "codesdk" else _RUNTIME
            return _Said("tool", "tool.end", outcome, what, _reasons(payload.policy_snapshot, None), by)


_TELL: dict[str, Callable[[Any], _Said | None]] = {
    ev.TYPE_OF[kind]: tell
    for group, tell in (
        (OfSession, _of_session),
        (Beside, _beside),
        (OfTask, _of_task),
        (OfCall, _of_call),
    )
    for kind in get_args(group)
}
RELEVANT = frozenset(_TELL)
"""The types of events that may have an entry."""


def shorten(text: str | None) -> str | None:
    """Shorten a text whose length a client chose."""
    return None if text is None else _cut(text)


def is_durable(entry: AuditEntry) -> bool:
    """Return whether an entry must survive a power failure: requests, decisions, and failures to store."""
    return entry.category in ("request", "storage") and entry.what.get("method") not in ("GET", "HEAD")


def _call(payload: Decided | Ran) -> dict[str, Any]:
    return {
        "tool": payload.name,
        "tool_call_id": payload.tool_call_id,
        "attempt": payload.attempt,
        "input_hash": payload.input_hash,
    }


def _running(payload: Ran) -> dict[str, Any]:
    sandbox = msgspec.to_builtins(payload.sandbox)
    return {**_call(payload), "execution_env": payload.execution_env, "sandbox": sandbox}


def _reasons(snapshot: PolicySnapshot, reason: str | None) -> dict[str, Any]:
    """Return the effective decision and the opinions that led to it."""
    return {
        "decision": snapshot.decision,
        "permission_mode": snapshot.permission_mode,
        "sources": msgspec.to_builtins(snapshot.sources),
        "reason": reason,
    }


def _trimmed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what is empty, and shorten what could be long."""
    return {name: _trim(value) for name, value in fields.items() if value is not None}


def _trim(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, dict):
        return _trimmed({str(name): item for name, item in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        items: list[Any] = [_trim(item) for item in value[:MAX_ITEMS]]  # pyright: ignore[reportUnknownVariableType]
        more = len(value) - MAX_ITEMS  # pyright: ignore[reportUnknownArgumentType]
        return [*items, f"… and {more} more"] if more > 0 else items
    return value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
