"""Events of `opencode serve` → drafts, announcements and the end of a task. Pure: no clock, no randomness, no I/O.

The deltas of a part are a preview; what counts is the part as it is at its end. The end of a task is no event of
opencode's, whose idle state comes too early: it is the answer to what was said, given here as the frame `ANSWERED`. A
known frame without an event of ours is kept as a signal, an unknown one as a notice.
"""

from collections.abc import Callable
from typing import Any

from codesdk.contract.events import OutputDelta, OutputRetracted, RuntimeNotice, UsageReported
from codesdk.contract.models import MAX_TOKENS
from codesdk.contract.plans import entries_in, plan_notice
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    RuntimeItem,
    ToolAnnouncement,
    ToolDropped,
    ToolEnded,
)
from codesdk.runtimes.opencode.errors import ABORTED, broken_off, error_of
from codesdk.runtimes.opencode.state import Block, BlockKind, Retry, State
from codesdk.runtimes.program.endings import shorten
from codesdk.runtimes.program.jsonrpc import Frame, as_dict, as_list

Items = list[RuntimeItem]

ANSWERED = "codesdk.answered"
"""Made by the driver: what opencode returned when all was done, as `body`, or `error`."""
ASKED = "permission.asked"
UNAVAILABLE = "unavailable tool"
"""What opencode says of a call of a tool that it does not have."""
_UNMADE = ("MCP error", "Tool execution aborted", "rejected permission", UNAVAILABLE)
"""How opencode says that a call failed before it reached us, or that nobody waits for it any more. Any other error is
what we answered."""
BY_ITSELF = "opencode began this by itself and was ended for it; whether it took effect is not known."

_QUIET = frozenset(
    {
        "file.watcher.updated",
        "lsp.updated",
        "mcp.tools.changed",
        "message.removed",
        "permission.replied",
        "project.updated",
        "server.instance.disposed",
        "session.created",
        "session.diff",
        "session.idle",
        "session.updated",
        "vcs.branch.updated",
    }
)
"""Known events that nothing of ours stands for."""
_QUIET_PARTS = frozenset({"agent", "file", "patch", "retry", "snapshot", "step-start"})
_STOPS = {"stop": "end_turn", "tool-calls": "tool_use", "length": "max_tokens", "content-filter": "refusal"}


def normalize(state: State, frame: Frame) -> Items:
    """Return what a frame means, and remember in `state` what later ones need. Must not raise."""
    kind, properties = str(frame.get("type")), as_dict(frame.get("properties"))
    if _is_of_another_session(state, properties):
        return [*state.signals.keep(f"{kind} of another session", frame)]
    try:
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(state, properties, frame)
    except (KeyError, TypeError, AttributeError, ValueError):
        return _unknown(state, f"a {kind} of another shape", frame)
    return (
        [*state.signals.keep(kind, frame)] if kind in _QUIET else _unknown(state, f"the event {kind}", frame)
    )


def cut_off(state: State, frame: Frame | None = None, *, partial: bool = True) -> Items:
    """Return the end of a message that gets no end of its own, and of the calls that were not made.

    That all of its parts have ended does not say that it has: opencode ends them when it is stopped.
    """
    dropped = [
        ToolDropped(runtime_tool_call_id=part, reason="The task ended before opencode made this call.")
        for part, known in state.parts.items()
        if known == "announced"
    ]
    state.parts = dict.fromkeys(state.parts, "ended")
    return [*state.complete(frame, "interrupted" if partial else "end_turn", partial=partial), *dropped]


# --- messages and their parts ---------------------------------------------------------------------------


def _message(state: State, properties: Frame, frame: Frame) -> Items:
    info = properties["info"]
    if info["role"] != "assistant":
        return []  # what the user said is ours, and recorded already
    state.answers.add(info["id"])
    return []


def _part(state: State, properties: Frame, frame: Frame) -> Items:
    part = properties["part"]
    if part["messageID"] not in state.answers:
        return []
    kind = part["type"]
    if kind in ("text", "reasoning"):
        return [*state.turn_to(part["messageID"], frame), *_said(state, part, kind, frame)]
    if kind == "tool":
        return [*state.turn_to(part["messageID"], frame), *_call(state, part, frame)]
    if kind == "step-finish":
        return [*state.turn_to(part["messageID"], frame), *_step_finished(state, part, frame)]
    if kind == "compaction":
        return [_notice("compaction", "opencode shortens its history.", {}, frame)]
    if kind in _QUIET_PARTS:
        return [*state.signals.keep(f"{frame['type']} {kind}", frame)]
    if kind == "subtask":
        return _violation(state, "an agent of its own", frame)
    return _unknown(state, f"a part {kind}", frame)


def _said(state: State, part: Frame, kind: BlockKind, frame: Frame) -> Items:
    """Take a part as it is now. What was streamed of it and is no longer there is retracted."""
    text, ended = part["text"], "end" in as_dict(part.get("time"))
    known = state.blocks.get(part["id"])
    if known is None and state.completed and not text:
        return []
    block = state.open_block(part["id"], kind)
    items = (
        [] if state.completed or _goes_on(block, text, ended=ended) else _retract(state, [part["id"]], frame)
    )
    if ended:
        block.text, block.done = text, True
    return items


def _goes_on(block: Block, text: str, *, ended: bool) -> bool:
    """Return whether what was streamed of a part is still part of it. Blanks at its end may go."""
    return not block.text or (not ended and not text) or text.startswith(block.text.rstrip())


def _retract(state: State, parts: list[str], frame: Frame) -> Items:
    retracted = OutputRetracted(block_ids=parts, reason="opencode took back what the model had begun to say.")
    for part in parts:
        state.blocks[part].text = ""
    return [Draft(retracted, frame)]


def _delta(state: State, properties: Frame, frame: Frame) -> Items:
    if properties["messageID"] not in state.answers or properties["field"] != "text":
        return [*state.signals.keep(f"{frame['type']} {properties['field']}", frame)]
    ended = state.turn_to(properties["messageID"], frame)
    part, text = properties["partID"], properties["delta"]
    block = state.open_block(part, "text")
    block.text += text
    payload = OutputDelta(
        kind="text_delta" if block.kind == "text" else "reasoning_delta",
        block_id=part,
        message_id=state.message_id,
        delta=text,
    )
    return [*ended, Draft(payload, frame)]


def _step_finished(state: State, part: Frame, frame: Frame) -> Items:
    """A model request is answered. One whose answer broke off would be asked again at once, and for ever."""
    reason = str(part.get("reason"))
    if reason == "unknown" and not state.calls:
        state.failure = state.failure or broken_off()
        return [*cut_off(state, frame), *_usage(state, part, frame)]
    return [*state.complete(frame, _STOPS.get(reason, reason)), *_usage(state, part, frame)]


def _usage(state: State, part: Frame, frame: Frame) -> Items:
    tokens = as_dict(part.get("tokens"))
    cache = as_dict(tokens.get("cache"))
    counts = {
        "input": tokens.get("input", 0),
        "output": tokens.get("output", 0),
        "reasoning": tokens.get("reasoning", 0),
        "cache_read": cache.get("read", 0),
        "cache_write": cache.get("write", 0),
    }
    if not all(isinstance(count, int) and 0 <= count <= MAX_TOKENS for count in counts.values()):
        return _unknown(state, "counts that cannot be", frame)
    return [Draft(UsageReported(model=state.model, cost_usd=None, source="runtime", **counts), frame)]


# --- tool calls -----------------------------------------------------------------------------------------


def _call(state: State, part: Frame, frame: Frame) -> Items:
    """Announce a call when its input is there, and drop one that did not reach us."""
    status, name = part["state"]["status"], part["tool"]
    known = state.parts.get(part["id"])
    if status == "pending" or known == "ended":
        return []
    if name not in state.tools:
        return _foreign_call(state, part, frame)
    items = [] if known else _announce(state, part, state.tools[name], frame)
    if status in ("completed", "error"):
        state.parts[part["id"]] = "ended"
    if status == "error" and any(words in _reason(part) for words in _UNMADE):
        items.append(ToolDropped(runtime_tool_call_id=part["id"], reason=_reason(part)))
    return items


def _foreign_call(state: State, part: Frame, frame: Frame) -> Items:
    """A call of a tool that is none of ours: opencode refuses it a moment later, or it runs something by itself.

    It calls both running. What runs tells more than its input, or ends in another way than refused.
    """
    name, now = str(part["tool"]), as_dict(part["state"])
    items = [] if state.parts.get(part["id"]) else _announce(state, part, name, frame)
    if now["status"] == "running" and not now.keys() & {"metadata", "title"}:
        return items
    state.parts[part["id"]] = "ended"
    if now["status"] == "error" and UNAVAILABLE in _reason(part):
        return [*items, ToolDropped(runtime_tool_call_id=part["id"], reason=_reason(part))]
    over = ToolEnded(runtime_tool_call_id=part["id"], result=BY_ITSELF, is_error=True, outcome="unknown")
    return [*items, over, *_violation(state, name, frame)]


def _announce(state: State, part: Frame, name: str, frame: Frame) -> Items:
    ended = state.complete(frame, "tool_use")
    call = ToolAnnouncement(
        name=name,
        input=part["state"]["input"],
        runtime_tool_call_id=part["id"],
        message_id=state.message_id,
        index=len(state.blocks) + state.calls,
        raw=frame,
    )
    state.calls += 1
    state.parts[part["id"]] = "announced"
    return [*ended, call]


def _reason(part: Frame) -> str:
    return shorten(str(part["state"].get("error") or "opencode did not make this call."))


# --- the session ----------------------------------------------------------------------------------------


def _status(state: State, properties: Frame, frame: Frame) -> Items:
    """Opencode waits to ask the model again. What it had streamed comes again, so it is retracted."""
    status = properties["status"]
    if status["type"] != "retry":
        return [*state.signals.keep(f"{frame['type']} {status['type']}", frame)]
    message = shorten(str(status.get("message")))
    attempt, next_ms = int(status["attempt"]), int(status.get("next") or 0)
    if (
        max(abs(attempt), abs(next_ms)) > MAX_TOKENS
    ):  # no time and no count, and the driver calculates with it
        return _unknown(state, "numbers that cannot be", frame)
    state.retry = Retry(attempt, message, next_ms)
    unfinished = [part for part, block in state.blocks.items() if not block.done and block.text]
    retracted = _retract(state, unfinished, frame) if unfinished and not state.completed else []
    details = {"attempt": state.retry.attempt}
    return [*retracted, _notice("retry", f"opencode asks the model again: {message}", details, frame)]


def _error(state: State, properties: Frame, frame: Frame) -> Items:
    """Keep an error. It need not be the end, and if it is, the answer has it, too."""
    return [*state.signals.keep(frame["type"], frame)]


def _question(state: State, properties: Frame, frame: Frame) -> Items:
    """A question of opencode's that is answered at once: ours are allowed, everything else is refused."""
    if properties["permission"] in state.tools:
        return [*state.signals.keep(frame["type"], frame)]
    return _violation(state, f"{properties['permission']}, which was refused", frame)


def _answered(state: State, properties: Frame, frame: Frame) -> Items:
    """The end. Parts whose own events were lost are in the answer."""
    body = as_dict(properties.get("body"))
    info = as_dict(body.get("info"))
    items: Items = []
    if info.get("id") in state.answers:
        for part in as_list(body.get("parts")):
            if as_dict(part).get("type") in ("text", "reasoning") and info["id"] == state.current:
                items += _late(state, part, frame)
    items += cut_off(state, frame, partial=not info.get("finish"))
    error = info.get("error") or properties.get("error")
    if state.failure is not None:
        return [*items, Failed(error=state.failure, raw=frame)]
    if error and as_dict(error).get("name") != ABORTED:
        return [*items, Failed(error=error_of(error, state.wire), raw=frame)]
    reason = (
        "stopped" if error else _STOPS.get(str(info.get("finish")), str(info.get("finish") or "end_turn"))
    )
    return [*items, Finished(stop_reason=reason, raw=frame)]


def _late(state: State, part: Frame, frame: Frame) -> Items:
    block = state.blocks.get(part["id"])
    if state.completed or (block is not None and block.done):
        return []
    return _said(state, part, part["type"], frame)


def _todos(state: State, properties: Frame, frame: Frame) -> Items:
    """Return opencode's list of what is to do as its plan. What it has cancelled is not part of that."""
    return [Draft(plan_notice(entries_in(properties["todos"])), frame)]


_HANDLERS: dict[str, Callable[[State, Frame, Frame], Items]] = {
    "message.updated": _message,
    "message.part.updated": _part,
    "message.part.delta": _delta,
    "session.status": _status,
    "session.error": _error,
    "todo.updated": _todos,
    ASKED: _question,
    ANSWERED: _answered,
}


# --- small parts ----------------------------------------------------------------------------------------


def session_of(properties: Frame) -> str | None:
    """Return the session that an event is about, if it is about one."""
    inner = as_dict(properties.get("part")) or as_dict(properties.get("info"))
    found = properties.get("sessionID") or inner.get("sessionID")
    return found if isinstance(found, str) else None


def _is_of_another_session(state: State, properties: Frame) -> bool:
    return session_of(properties) not in (None, state.session_id)


def _violation(state: State, what: str, frame: Frame) -> Items:
    state.violation = state.violation or what
    details = {"what": what, "executed_by": "runtime"}
    message = f"opencode did something by itself that is switched off: {what}."
    return [_notice("violation", message, details, frame)]


def _unknown(state: State, what: str, frame: Frame) -> Items:
    return [*state.signals.unknown(what, frame)]


def _notice(kind: str, message: str, details: dict[str, Any], frame: Frame) -> Draft:
    return Draft(RuntimeNotice(kind=kind, message=message, details=details), frame)
