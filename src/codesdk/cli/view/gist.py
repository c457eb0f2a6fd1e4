"""Events → one plain line each, wherever events are shown to people. Pure."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec

from codesdk.cli.view.safe import one_line
from codesdk.contract import events as ev
from codesdk.contract.events import Event, UsageTotals
from codesdk.contract.messages import Message, text_of
from codesdk.contract.tools import Actor

P = TypeVar("P")
_GISTS: dict[type, Callable[[Any], str]] = {}


def gist(event: Event, limit: int = 120) -> str:
    """Return one line that says what happened, cut to `limit` characters."""
    payload: object = event.payload
    tell = _GISTS.get(type(payload))
    text = tell(payload) if tell else brief(payload)
    return one_line(text, limit)


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
    for unit in ("kB", "MB", "GB"):
        count_in_unit = count / {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
        if count_in_unit < 1000 or unit == "GB":
            return f"{count_in_unit:.1f} {unit}"
    raise AssertionError("the last unit takes all")


def local_time(stamp: str) -> datetime:
    """Return a stored time in the time zone of the machine."""
    return datetime.fromisoformat(stamp).astimezone()


def who(actor: Actor) -> str:
    """Return who did something."""
    return f"{actor.kind} {one_line(actor.id, 40)}" if actor.id else actor.kind


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _scalar(value: Any, limit: int) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")
    return one_line(text, limit)


def _said(messages: list[Message]) -> str:
    return " ".join(text_of(message.content) for message in messages)


def _of(kind: type[P]) -> Callable[[Callable[[P], str]], Callable[[P], str]]:
    """Register the function that describes one kind of payload."""

    def keep(tell: Callable[[P], str]) -> Callable[[P], str]:
        _GISTS[kind] = tell
        return tell

    return keep


@_of(ev.SessionCreated)
def _(p: ev.SessionCreated) -> str:
    title = f'"{p.title}" ' if p.title else ""
    return f"{title}{p.runtime}, {p.permission_mode}, {p.interaction_mode}, in {p.workspace}"


@_of(ev.SessionResumed)
def _(p: ev.SessionResumed) -> str:
    return f"from event {p.from_seq} on {p.runtime}" + (f", lost: {', '.join(p.lost)}" if p.lost else "")


@_of(ev.SessionClosed)
def _(p: ev.SessionClosed) -> str:
    return p.reason


@_of(ev.SessionRecovered)
def _(p: ev.SessionRecovered) -> str:
    why = "the process had ended" if p.cause == "INTERRUPTED" else "the log could not be written"
    open_calls = f", {plural(len(p.open_calls), 'call')} open" if p.open_calls else ""
    return f"closes {p.task_id}: {why}{open_calls}"


@_of(ev.SettingsChanged)
def _(p: ev.SettingsChanged) -> str:
    return f"{brief(msgspec.to_builtins(p.given()))} by {who(p.by)}"


@_of(ev.TaskQueued)
def _(p: ev.TaskQueued) -> str:
    return f"{p.task_id} {_said(p.messages)}"


@_of(ev.TaskStarted)
def _(p: ev.TaskStarted) -> str:
    before = f"resumes {p.resumes.task_id} " if p.resumes else ""
    return before + _said(p.messages)


@_of(ev.TaskSteered)
def _(p: ev.TaskSteered) -> str:
    return _said(p.messages)


@_of(ev.TaskStopRequested)
def _(p: ev.TaskStopRequested) -> str:
    return f"by {who(p.by)}: {p.reason}"


@_of(ev.ModelInput)
def _(p: ev.ModelInput) -> str:
    window = p.context_window
    return (
        f"{p.capture}, about {window.estimated_tokens:,} tokens, {plural(len(p.tool_manifest), 'tool')},"
        f" {p.input_ref.artifact_id}"
    )


@_of(ev.RequestStarted)
def _(p: ev.RequestStarted) -> str:
    return f"{p.purpose} {p.model or ''}"


@_of(ev.RequestCompleted)
def _(p: ev.RequestCompleted) -> str:
    return f"{p.status} in {duration(p.duration_ms)}"


@_of(ev.OutputDelta)
def _(p: ev.OutputDelta) -> str:
    kind = p.kind.removesuffix("_delta")
    return f"{kind} {msgspec.json.encode(p.delta).decode('utf-8', 'replace')}"


@_of(ev.OutputRetracted)
def _(p: ev.OutputRetracted) -> str:
    return f"{plural(len(p.block_ids), 'block')}: {p.reason}"


@_of(ev.OutputCompleted)
def _(p: ev.OutputCompleted) -> str:
    return ("(cut off) " if p.partial else "") + (text_of(p.content) or f"{p.stop_reason or 'no text'}")


@_of(ev.ToolCallRequested)
def _(p: ev.ToolCallRequested) -> str:
    given = p.input_ref.artifact_id if p.input_ref else brief(p.input)
    return f"{p.name} {given}" + (f" (attempt {p.attempt})" if p.attempt > 1 else "")


@_of(ev.ToolCallPolicyEvaluated)
def _(p: ev.ToolCallPolicyEvaluated) -> str:
    return (
        f"{p.source} says {p.result}"
        + (f" ({p.rule})" if p.rule else "")
        + (f" {p.reason}" if p.reason else "")
    )


@_of(ev.ApprovalRequested)
def _(p: ev.ApprovalRequested) -> str:
    return f"{p.tool_call_id or p.approval_id} {p.summary}"


@_of(ev.ApprovalAnswered)
def _(p: ev.ApprovalAnswered) -> str:
    scope = " for the session" if p.scope == "session" else ""
    return f"{p.decision}{scope} by {who(p.by)}" + (f": {p.reason}" if p.reason else "")


@_of(ev.ApprovalCarried)
def _(p: ev.ApprovalCarried) -> str:
    return f"{p.tool_call_id} {p.summary}"


@_of(ev.GrantRevoked)
def _(p: ev.GrantRevoked) -> str:
    return f"{p.tool} by {who(p.by)}"


@_of(ev.ToolCallApproved)
def _(p: ev.ToolCallApproved) -> str:
    return f"{p.name} by {who(p.by)}" + (f": {p.reason}" if p.reason else "")


@_of(ev.ToolCallDenied)
def _(p: ev.ToolCallDenied) -> str:
    return f"{p.name} by {who(p.by)}: {p.reason}"


@_of(ev.ToolCallStarted)
def _(p: ev.ToolCallStarted) -> str:
    return f"{p.name} in {p.execution_env}"


@_of(ev.ToolOutputDelta)
def _(p: ev.ToolOutputDelta) -> str:
    return f"{p.stream} {p.delta}"


@_of(ev.ToolOutputCompleted)
def _(p: ev.ToolOutputCompleted) -> str:
    return size(p.bytes) + (", cut off" if p.truncated else "")


@_of(ev.ToolCallCompleted)
def _(p: ev.ToolCallCompleted) -> str:
    how = "outcome unknown" if p.outcome == "unknown" else "failed" if p.is_error else "ok"
    changed = f", changed {', '.join(change.path for change in p.changes)}" if p.changes else ""
    return f"{p.name} {how} in {duration(p.duration_ms)}{changed}: {brief(p.result_preview)}"


@_of(ev.FilesUndone)
def _(p: ev.FilesUndone) -> str:
    refused = f", {plural(len(p.refused), 'call')} not undone" if p.refused else ""
    return f"{', '.join(file.path for file in p.restored)} by {who(p.by)}{refused}"


@_of(ev.UsageReported)
def _(p: ev.UsageReported) -> str:
    cost = money(p.cost_usd) if p.cost_usd is not None else "cost unknown"
    return f"{p.input:,} tokens in, {p.output:,} out, {cost}"


@_of(ev.RuntimeNotice)
def _(p: ev.RuntimeNotice) -> str:
    return f"{p.kind}: {p.message}"


@_of(ev.ArtifactCreated)
def _(p: ev.ArtifactCreated) -> str:
    return f"{p.artifact.artifact_id} {p.artifact.name or ''} {size(p.artifact.size_bytes)}, {p.reason}"


@_of(ev.TaskCompleted)
def _(p: ev.TaskCompleted) -> str:
    return f"{p.stop_reason} in {duration(p.duration_ms)}"


@_of(ev.TaskFailed)
def _(p: ev.TaskFailed) -> str:
    return f"{p.error.code}: {p.error.message}"


@_of(ev.TaskStopped)
def _(p: ev.TaskStopped) -> str:
    return f"by {who(p.by)}: {p.reason}"
