"""Events → one plain line each, wherever events are shown to people. Pure."""

from datetime import datetime
from typing import Any, cast

import msgspec

from codesdk.cli.view.safe import one_line
from codesdk.contract import events as ev
from codesdk.contract.events import Event, UsageTotals
from codesdk.contract.messages import Message, text_of
from codesdk.contract.payloads import HandlerOutcome, RecoveryCause
from codesdk.contract.records import ApprovalRow
from codesdk.contract.tools import Actor


def gist(event: Event, limit: int = 120) -> str:
    """Return one line that says what happened, cut to `limit` characters."""
    payload: object = event.payload
    # Deltas are by far the most events, so what the model said is tried first.
    said = (text for tell in (_model, _call, _task, _session, _beside) if (text := tell(payload)) is not None)
    text = next(said, None)
    return one_line(brief(payload) if text is None else text, limit)


def brief(value: Any, limit: int = 400) -> str:
    """Return a tool's input on one line: the value alone if there is one, else `name=value` pairs."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if set(fields) == {"path", "old", "new"}:  # an edit, whose diff is shown when it is done
            return _scalar(fields["path"], limit)
        if len(fields) == 1:
            return _scalar(next(iter(fields.values())), limit)
        return one_line(" ".join(f"{name}={_scalar(item, 40)}" for name, item in fields.items()), limit)
    return _scalar(value, limit)


def tokens(usage: UsageTotals) -> str:
    """Return what a task used: tokens and, where known, money."""
    if not usage.input and not usage.output:
        return ""
    counted = f"{usage.input:,} tokens in, {usage.output:,} out"
    return (
        f"{counted} · {money(usage.cost_usd)}" if usage.cost_usd is not None else f"{counted} · cost unknown"
    )


def money(amount: float) -> str:
    """Return dollars, with as many decimals as a small amount needs."""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def duration(milliseconds: int) -> str:
    """Return a span of time for people."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Return a number of bytes for people."""
    if count < 1000:
        return f"{count} B"
    unit, factor = "kB", 1e3
    for larger, its_factor in (("MB", 1e6), ("GB", 1e9)):
        if count / factor >= 1000:
            unit, factor = larger, its_factor
    return f"{count / factor:.1f} {unit}"


def local_time(stamp: str) -> datetime:
    """Return a stored time in the time zone of the machine."""
    return datetime.fromisoformat(stamp).astimezone()


def since(row: ApprovalRow) -> str:
    """Return since when something waits for an answer."""
    kept = ", kept from an interrupted task" if row.state == "carried" else ""
    return f"since {local_time(row.requested_at):%H:%M:%S}{kept}"


def who(actor: Actor) -> str:
    """Return who did something."""
    return f"{actor.kind} {one_line(actor.id, 40)}" if actor.id else actor.kind


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _scalar(value: Any, limit: int) -> str:
    return one_line(value if isinstance(value, str) else _encoded(value), limit)


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")


def _said(messages: list[Message]) -> str:
    return " ".join(text_of(message.content) for message in messages)


def outcome_gist(one: HandlerOutcome) -> str:
    """Return what came of a handler, in a few words."""
    match one.kind:
        case "handler_result":
            return one.value if isinstance(one.value, str) else _encoded(one.value)
        case "handler_error":
            return f"failed: {one.message or one.error}"
        case "action_result":
            return f"{one.action_type}: {one.status}"
        case "enqueue_result":
            return f"job {(one.job or {}).get('id', '')}: {one.status}"


_CAUSES: dict[RecoveryCause, str] = {
    "INTERRUPTED": "the process had ended",
    "STORAGE_FAILED": "the log could not be written",
    "SHUTDOWN": "CodeSDK was closed",
}


def _session(payload: object) -> str | None:
    match payload:
        case ev.SessionCreated() as p:
            title = f'"{p.title}" ' if p.title else ""
            return f"{title}{p.runtime}, {p.permission_mode}, {p.interaction_mode}, in {p.workspace}"
        case ev.SessionResumed() as p:
            lost = f", lost: {', '.join(p.lost)}" if p.lost else ""
            return f"from event {p.from_seq} on {p.runtime}{lost}"
        case ev.SessionClosed() as p:
            return p.reason
        case ev.SessionRecovered() as p:
            why = _CAUSES[p.cause]
            open_calls = f", {plural(len(p.open_calls), 'call')} open" if p.open_calls else ""
            return f"closes {p.task_id}: {why}{open_calls}"
        case ev.SessionNotResumed() as p:
            return f"{p.task_id} does not continue by itself: {p.message}"
        case ev.ClockChanged() as p:
            return f"the clock was set back, from {p.before} to {p.after}"
        case ev.SettingsChanged() as p:
            return f"{brief(msgspec.to_builtins(p.given()))} by {who(p.by)}"
        case ev.SessionCompacted() as p:
            tokens = f"about {p.tokens_before:,} tokens to {p.tokens_after:,}"
            return f"{p.strategy}, {tokens}, from message {p.first} on, by {who(p.by)}: {p.reason}"
        case ev.GrantRevoked() as p:
            return f"{p.tool} by {who(p.by)}"
        case ev.FilesUndone() as p:
            refused = f", {plural(len(p.refused), 'call')} not undone" if p.refused else ""
            return f"{', '.join(file.path for file in p.restored)} by {who(p.by)}{refused}"
        case ev.ArtifactCreated(artifact=kept, reason=reason):
            return f"{kept.artifact_id} {kept.name or ''} {size(kept.size_bytes)}, {reason}"
        case _:
            return None


def _beside(payload: object) -> str | None:
    match payload:
        case ev.TranscriptSupplemented() as p:
            said = p.text if p.text is not None else _encoded(p.data)
            return f"{p.supplement_id} by {who(p.by)}: {said}"
        case ev.SuggestRequested() as p:
            return f"{p.suggest_id} by {who(p.by)}{'' if p.text is None else f': {p.text}'}"
        case ev.SuggestAnswered() as p:
            said = ", ".join(f"{one.module_name} {outcome_gist(one)}" for one in p.results)
            return f"{p.suggest_id}: {said or 'nothing'}"
        case _:
            return None


def _task(payload: object) -> str | None:
    match payload:
        case ev.TaskQueued() as p:
            return f"{p.task_id} {_said(p.messages)}"
        case ev.TaskStarted() as p:
            before = f"resumes {p.resumes.task_id} " if p.resumes else ""
            return before + _said(p.messages)
        case ev.TaskSteered() as p:
            return _said(p.messages) if p.by is None else f"by {who(p.by)}: {_said(p.messages)}"
        case ev.TaskStopRequested() | ev.TaskStopped() as p:
            return f"by {who(p.by)}: {p.reason}"
        case ev.TaskCompleted() as p:
            return f"{p.stop_reason} in {duration(p.duration_ms)}"
        case ev.TaskFailed() as p:
            return f"{p.error.code}: {p.error.message}"
        case ev.RuntimeNotice() as p:
            return f"{p.kind}: {p.message}"
        case _:
            return None


def _model(payload: object) -> str | None:
    match payload:
        case ev.OutputDelta() as p:
            return f"{p.kind.removesuffix('_delta')} {_encoded(p.delta)}"
        case ev.OutputRetracted() as p:
            return f"{plural(len(p.block_ids), 'block')}: {p.reason}"
        case ev.OutputCompleted() as p:
            return ("(cut off) " if p.partial else "") + (text_of(p.content) or p.stop_reason or "no text")
        case ev.ModelInput() as p:
            tools = plural(len(p.tool_manifest), "tool")
            about = f"about {p.context_window.estimated_tokens:,} tokens"
            return f"{p.capture}, {about}, {tools}, {p.input_ref.artifact_id}"
        case ev.RequestStarted() as p:
            return f"{p.purpose} {p.model or ''}"
        case ev.RequestCompleted() as p:
            return f"{p.status} in {duration(p.duration_ms)}"
        case ev.UsageReported() as p:
            cost = money(p.cost_usd) if p.cost_usd is not None else "cost unknown"
            return f"{p.input:,} tokens in, {p.output:,} out, {cost}"
        case _:
            return None


def _call(payload: object) -> str | None:
    match payload:
        case ev.ToolCallRequested() as p:
            given = p.input_ref.artifact_id if p.input_ref else brief(p.input)
            return f"{p.name} {given}" + (f" (attempt {p.attempt})" if p.attempt > 1 else "")
        case ev.ToolCallAnnounced() as p:
            return f"{p.tool_call_id} belongs to {p.message_id or 'no message'}"
        case ev.ToolCallPolicyEvaluated() as p:
            rule, reason = f" ({p.rule})" if p.rule else "", f" {p.reason}" if p.reason else ""
            return f"{p.source} says {p.result}{rule}{reason}"
        case ev.ApprovalRequested() as p:
            return f"{p.tool_call_id or p.approval_id} {p.summary}"
        case ev.ApprovalAnswered() as p:
            scope = " for the session" if p.scope == "session" else ""
            said = p.reason or p.answer
            how = p.decision if p.answer is None else "answer"
            return f"{how}{scope} by {who(p.by)}" + (f": {said}" if said else "")
        case ev.ApprovalCarried() as p:
            return f"{p.tool_call_id} {p.summary}"
        case ev.ToolCallApproved() | ev.ToolCallDenied() as p:
            return f"{p.name} by {who(p.by)}" + (f": {p.reason}" if p.reason else "")
        case ev.ToolCallStarted() as p:
            return f"{p.name} in {p.execution_env}"
        case ev.ToolOutputDelta() as p:
            return f"{p.stream} {p.delta}"
        case ev.ToolOutputCompleted() as p:
            return size(p.bytes) + (", cut off" if p.truncated else "")
        case ev.ToolCallCompleted() as p:
            how = "outcome unknown" if p.outcome == "unknown" else "failed" if p.is_error else "ok"
            changed = f", changed {', '.join(change.path for change in p.changes)}" if p.changes else ""
            return f"{p.name} {how} in {duration(p.duration_ms)}{changed}: {brief(p.result_preview)}"
        case _:
            return None
