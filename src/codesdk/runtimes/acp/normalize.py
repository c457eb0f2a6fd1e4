"""Frames of an agent of the Agent Client Protocol → drafts, announcements, answers and the end of a task. Pure.

The protocol streams text without saying where a model's answer ends. A message is what was said until a call is
announced, or until the end. Names and inputs of calls are as the agent tells them; a call that is none of ours is a
violation. A known frame without an event of ours is kept as a signal, an unknown one as a notice.
"""

from collections.abc import Callable
from typing import Any

from codesdk.contract.events import OutputDelta, RuntimeNotice, UsageReported
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
from codesdk.contract.tools import Verdict
from codesdk.runtimes.acp.calls import at_place, input_of, is_quiet, name_of, own_tool, words_of
from codesdk.runtimes.acp.errors import error_of
from codesdk.runtimes.acp.state import AgentCall, BlockKind, State
from codesdk.runtimes.program.jsonrpc import Frame, as_dict, as_list

Items = list[RuntimeItem]
PROMPT = "session/prompt"
PERMISSION = "session/request_permission"
UPDATE = "session/update"
CANCELLED: Frame = {"result": {"outcome": {"outcome": "cancelled"}}}
BY_ITSELF = "The agent did this by itself; how it ended is not known."
NOT_OURS = "This is no tool of CodeSDK's, so the task was ended before the agent could run it."
_QUIET = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "plan_removed",
        "plan_update",
        "session_info_update",
        "usage_update",
    }
)
_ENDED = ("completed", "failed")
_OPTION_CHARS = 1_000  # it is sent back


def normalize(state: State, frame: Frame) -> Items:
    """Return what a frame means, and remember in `state` what later ones need. Must not raise.

    The answer to the prompt is a frame with `method` and `result` or `error`.
    """
    method, params = str(frame.get("method")), as_dict(frame.get("params"))
    try:
        if method == PROMPT:
            return _answered(state, frame)
        if method == PERMISSION:
            return _question(state, params, frame)
        if method == UPDATE and params.get("sessionId", state.session_id) == state.session_id:
            return _update(state, as_dict(params.get("update")), frame)
    except (KeyError, TypeError, AttributeError, ValueError):
        return _unknown(state, f"a {method} of another shape", frame)
    if method == UPDATE or "id" not in frame:
        return [*state.signals.keep(method, frame)]
    return _unknown(state, f"the request {method}, which was refused", frame)


def cut_off(state: State, frame: Frame | None = None, stop_reason: str = "interrupted") -> Items:
    """Return the end of a message, and of the calls that the agent leaves open."""
    dropped = [
        ToolDropped(
            runtime_tool_call_id=call.call_id, reason="The agent's turn ended before it made this call."
        )
        for call in state.calls.values()
        if call.announced and not call.over
    ]
    for call in state.calls.values():
        state.end_call(call)
    partial = stop_reason in ("interrupted", "cancelled")
    return [*state.complete(frame, stop_reason, partial=partial), *dropped]


def _update(state: State, update: Frame, frame: Frame) -> Items:
    kind = str(update.get("sessionUpdate"))
    handler = _HANDLERS.get(kind)
    if handler is not None:
        return handler(state, update, frame)
    if kind in _QUIET:
        return [*state.signals.keep(kind, frame)]
    return _unknown(state, f"the update {kind}", frame)


# --- text -----------------------------------------------------------------------------------------------


def _chunk(kind: BlockKind) -> Callable[[State, Frame, Frame], Items]:
    def take(state: State, update: Frame, frame: Frame) -> Items:
        content = as_dict(update.get("content"))
        if content.get("type") != "text":
            return [*state.signals.keep(f"{update['sessionUpdate']} {content.get('type')}", frame)]
        text = str(content["text"])
        if kind == "reasoning" and (not state.blocks or state.blocks[-1].kind != kind or state.completed):
            text = text.lstrip("\n")  # some part one thought from the next with blank lines
        if not text:
            return []
        if kind == "text" and text.startswith(state.reading.dropped or ("\0",)):
            return [*state.signals.keep("own words", frame)]
        # Only texts: a thought may have an id of its own, and belongs to the answer that follows it.
        ended = state.part(update.get("messageId"), frame) if kind == "text" else []
        block = state.open_block(kind)
        block.pieces.append(text)
        payload = OutputDelta(
            kind="text_delta" if kind == "text" else "reasoning_delta",
            block_id=block.block_id,
            message_id=state.message_id,
            delta=text,
        )
        return [*ended, Draft(payload, frame)]

    return take


def _echo(state: State, update: Frame, frame: Frame) -> Items:
    """Drop what the user said: it is ours, and recorded already."""
    return []


# --- calls ----------------------------------------------------------------------------------------------


def _call(state: State, update: Frame, frame: Frame) -> Items:
    call = _known_call(state, update)
    if call.over:
        return []
    if is_quiet(state.reading, call.told):
        return [*state.signals.keep("tool_call of the agent's own", frame)]
    status = str(call.told.get("status") or "pending")
    items: Items = []
    if not call.announced and own_tool(state.reading, call.told, state.tools) is not None:
        # Its place is where it begins. While its input streams it is pending, and an agent may tell what has come of
        # that so far; the whole input is there when it is asked about or under way.
        state.place_call(call)
        if status != "pending":
            items += _announce(state, call, frame)
    elif not call.announced:
        items += _violation(state, call, frame)
    if status in _ENDED:
        if status == "failed" and call.announced:
            reason = words_of(call.told) or "The agent did not make this call."
            items.append(ToolDropped(runtime_tool_call_id=call.call_id, reason=reason))
        state.end_call(call)
    return items


def _known_call(state: State, update: Frame) -> AgentCall:
    own_id = str(update["toolCallId"])
    return state.hear_of(own_id, _model_id(state, own_id), update)


def _model_id(state: State, own_id: str) -> str:
    return own_id.rpartition("__")[2] if state.after_name else own_id


def _announce(state: State, call: AgentCall, frame: Frame, opinion: Verdict = "allow") -> Items:
    wire = own_tool(state.reading, call.told, state.tools)
    state.place_call(call)
    ended = state.complete(frame, "tool_use")
    call.announced = True
    announcement = ToolAnnouncement(
        name=state.tools[wire or ""],
        input=input_of(state.reading, call.told) or {},
        runtime_tool_call_id=call.call_id,
        message_id=call.message_id,
        index=call.index,
        raw=frame,
        opinion=opinion if state.opines else None,
    )
    return [*ended, announcement]


def _question(state: State, params: Frame, frame: Frame) -> Items:
    """Answer a question about a call: one of our tools is decided on when it reaches us; all else is rejected."""
    call = _known_call(state, as_dict(params["toolCall"]))
    own = own_tool(state.reading, call.told, state.tools) is not None
    halted = state.stopping or state.excess is not None
    answer = CANCELLED if halted else _choice(params, "allow" if own else "reject")
    state.answers.append((frame.get("id"), answer))
    if halted:
        return [*state.signals.keep(PERMISSION, frame)]
    if not own:
        return _violation(state, call, frame)
    return [] if call.announced else _announce(state, call, frame, "ask")


def _choice(params: Frame, wanted: str) -> Frame:
    """Return the option that allows or rejects a call this once; if there is none, that nobody chose."""
    options = [as_dict(option) for option in as_list(params.get("options"))]
    for kind in (f"{wanted}_once", f"{wanted}_always"):
        for option in options:
            chosen: Any = option.get("optionId")
            if option.get("kind") == kind and isinstance(chosen, str) and len(chosen) <= _OPTION_CHARS:
                return {"result": {"outcome": {"outcome": "selected", "optionId": chosen}}}
    return CANCELLED


def _violation(state: State, call: AgentCall, frame: Frame) -> Items:
    """Record a call of the agent's own, which nobody allowed."""
    what = name_of(state.reading, call.told)
    call.announced = True
    state.end_call(call)
    state.violation = state.violation or what
    announced = ToolAnnouncement(
        name=what,
        input=as_dict(call.told.get("rawInput")),
        runtime_tool_call_id=call.call_id,
        raw=frame,
    )
    over: RuntimeItem
    if call.told.get("status") in (None, "pending"):
        over = ToolDropped(runtime_tool_call_id=call.call_id, reason=NOT_OURS)
    else:
        over = ToolEnded(
            runtime_tool_call_id=call.call_id, result=BY_ITSELF, is_error=True, outcome="unknown"
        )
    details = {"what": what, "executed_by": "runtime"}
    message = f"{state.runtime} did something by itself that is switched off: {what}."
    return [announced, over, _notice("violation", message, details, frame)]


def _plan(state: State, update: Frame, frame: Frame) -> Items:
    return [Draft(plan_notice(entries_in(update["entries"])), frame)]


# --- the end --------------------------------------------------------------------------------------------


def _answered(state: State, frame: Frame) -> Items:
    if "error" in frame:
        error = error_of(state.runtime, frame["error"], state.log_in, state.reading.crashed)
        return [*cut_off(state, frame), Failed(error=error, raw=frame)]
    reason = as_dict(frame.get("result")).get("stopReason")
    if not isinstance(reason, str):
        # In later versions of the protocol the answer only says that the prompt was taken.
        state.acknowledged = True
        return [*state.signals.keep(PROMPT, frame)]
    return _finished(state, reason, frame)


def _state_changed(state: State, update: Frame, frame: Frame) -> Items:
    if state.acknowledged and update.get("state") == "idle":
        return _finished(state, str(update.get("stopReason") or "end_turn"), frame)
    return [*state.signals.keep("state_update", frame)]


def _finished(state: State, reason: str, frame: Frame) -> Items:
    return [*cut_off(state, frame, reason), *_used(state, frame), Finished(stop_reason=reason, raw=frame)]


def _used(state: State, frame: Frame) -> Items:
    """Return what an agent says that its turn took, if nobody else counts it."""
    told = {name: at_place(frame.get("result"), place) for name, place in state.reading.used.items()}
    counts = {name: count for name, count in told.items() if isinstance(count, int)}
    if not counts:
        return []
    if not all(0 <= count <= MAX_TOKENS for count in counts.values()):
        return _unknown(state, "counts that cannot be", frame)
    used = UsageReported(
        model=state.model,
        input=counts.get("input", 0),
        output=counts.get("output", 0),
        cache_read=counts.get("cache_read", 0),
        cache_write=counts.get("cache_write", 0),
        reasoning=counts.get("reasoning", 0),
        cost_usd=None,
        source="runtime",
    )
    return [Draft(used, frame)]


_HANDLERS: dict[str, Callable[[State, Frame, Frame], Items]] = {
    "agent_message_chunk": _chunk("text"),
    "agent_thought_chunk": _chunk("reasoning"),
    "user_message_chunk": _echo,
    "tool_call": _call,
    "tool_call_update": _call,
    "plan": _plan,
    "state_update": _state_changed,
}


def _unknown(state: State, what: str, frame: Frame) -> Items:
    return [*state.signals.unknown(what, frame, state.runtime)]


def _notice(kind: str, message: str, details: dict[str, Any], frame: Frame) -> Draft:
    return Draft(RuntimeNotice(kind=kind, message=message, details=details), frame)
