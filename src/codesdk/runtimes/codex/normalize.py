"""Frames of `codex app-server` → drafts, announcements and the end of a task. Pure: no clock, no randomness, no I/O.

Codex speaks of items, the contract of messages. A message is the answer to one model request: its reasoning and texts
until its first tool call starts, its token counts come, or the turn ends; `state` puts it together. A known frame
without an event of ours is kept as a signal, an unknown one as a notice.
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
    Identified,
    RuntimeItem,
    ToolAnnouncement,
    ToolDropped,
)
from codesdk.runtimes.codex.errors import error_of
from codesdk.runtimes.codex.native import ASK, KINDS, QUESTIONS, USER_INPUT, OwnCall, ended, violating
from codesdk.runtimes.codex.state import QUIET, BlockKind, State
from codesdk.runtimes.program.endings import shorten
from codesdk.runtimes.program.jsonrpc import Frame, as_dict
from codesdk.tools import SERVER

Items = list[RuntimeItem]

_OWN_ITEMS = frozenset({"userMessage", "functionCallOutput", "plan", "hookPrompt"})
_NOTICES = {
    "warning": "warning",
    "configWarning": "warning",
    "guardianWarning": "warning",
    "deprecationNotice": "warning",
    "thread/compacted": "compaction",
}
_ITSELF = "codex"
_RESOURCE_READERS = frozenset({"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"})
"""Tools that codex always offers with an MCP server. They are harmless: ours has no resources."""
_OWNED_QUESTIONS = "mcpServer/elicitation/request"


def normalize(state: State, frame: Frame) -> Items:
    """Return what a frame means, and remember in `state` what later ones need. Must not raise."""
    method, params = str(frame.get("method")), as_dict(frame.get("params"))
    if _is_of_another_turn(state, params):
        return [*state.signals.keep(method, frame)]
    try:
        if "id" in frame:
            return _question(state, method, params, frame)
        handler = _HANDLERS.get(method)
        if handler is not None:
            return handler(state, params, frame)
    except (KeyError, TypeError, AttributeError):
        return [*state.signals.unknown(f"a {method} of another shape", frame)]
    if method in QUIET:
        return [*state.signals.keep(method, frame)]
    if method in _NOTICES:
        message = params.get("message") or params.get("summary") or method
        return [_notice(_NOTICES[method], shorten(str(message)), {"method": method}, frame)]
    return [*state.signals.unknown(f"the message {method}", frame)]


def cut_off(state: State, frame: Frame | None = None) -> Items:
    """Return the end of a message that gets no end of its own: a turn that was interrupted leaves items open."""
    dropped = [
        ToolDropped(runtime_tool_call_id=call, reason="The turn ended before codex made this call.")
        for call in sorted(state.open_calls)
    ]
    state.open_calls = set()
    partial = any(not block.done for block in state.blocks.values())
    return [*state.complete(frame, "interrupted" if partial else "end_turn", partial=partial), *dropped]


# --- items ----------------------------------------------------------------------------------------------


def _item_started(state: State, params: Frame, frame: Frame) -> Items:
    item = params["item"]
    kind = item["type"]
    if kind in ("agentMessage", "reasoning"):
        state.open_block(item["id"], "text" if kind == "agentMessage" else "reasoning")
        return []
    if kind == "mcpToolCall":
        return _call(state, item, frame)
    if kind in KINDS and state.natives:
        return _own_call(state, item, frame)
    if kind in _OWN_ITEMS:
        return _own_item(state, kind, frame)
    if kind == "contextCompaction":
        return [_notice("compaction", "codex shortens its history.", {}, frame)]
    what = f"{kind} {item.get('command') or item.get('query') or ''}".strip()
    return [*violating(item, frame), *_violation(state, what, frame)]


def _item_completed(state: State, params: Frame, frame: Frame) -> Items:
    item = params["item"]
    kind = item["type"]
    if kind == "agentMessage":
        state.close_block(item["id"], "text", item["text"])
        return []
    if kind == "reasoning":
        told = "\n".join(item.get("content") or item.get("summary") or [])
        state.close_block(item["id"], "reasoning", told)
        return []
    if kind == "mcpToolCall":
        return _call_ended(state, item)
    if kind in KINDS and state.natives:
        return _own_call_ended(state, item, frame)
    if kind == "dynamicToolCall" or (kind not in _OWN_ITEMS and kind != "contextCompaction"):
        return [] if state.violation else _violation(state, kind, frame)
    return _own_item(state, kind, frame)


def _own_item(state: State, kind: str, frame: Frame) -> Items:
    """Keep an item that is not part of a message. What the user said is ours, and recorded already."""
    return [] if kind == "userMessage" else [*state.signals.keep(f"{frame['method']} {kind}", frame)]


def _delta(kind: BlockKind) -> Callable[[State, Frame, Frame], Items]:
    def take(state: State, params: Frame, frame: Frame) -> Items:
        item_id, text = params["itemId"], params["delta"]
        state.open_block(item_id, kind).text += text
        payload = OutputDelta(
            kind="text_delta" if kind == "text" else "reasoning_delta",
            block_id=item_id,
            message_id=state.message_id,
            delta=text,
        )
        return [Draft(payload, frame)]

    return take


def _call(state: State, item: Frame, frame: Frame) -> Items:
    if item["server"] == _ITSELF and item["tool"] in _RESOURCE_READERS:
        message = f"codex looked for resources with its own tool {item['tool']}. Ours has none."
        return [_notice("native_tool", message, {"tool": item["tool"], "executed_by": "runtime"}, frame)]
    if item["server"] != SERVER:
        return _violation(state, f"the tool {item['tool']} of the server {item['server']}", frame)
    ended = state.complete(frame, "tool_use")
    call = ToolAnnouncement(
        name=state.tools.get(item["tool"], item["tool"]),
        input=item["arguments"],
        runtime_tool_call_id=item["id"],
        message_id=state.message_id,
        index=len(state.blocks) + state.calls,
        raw=frame,
    )
    state.calls += 1
    state.open_calls.add(item["id"])
    return [*ended, call]


def _call_ended(state: State, item: Frame) -> Items:
    """Drop a call that failed. If it never reached us, only this says why."""
    state.open_calls.discard(item["id"])
    if item.get("status") != "failed":
        return []
    reason = as_dict(item.get("error")).get("message") or "codex did not make this call."
    return [ToolDropped(runtime_tool_call_id=item["id"], reason=shorten(str(reason)))]


def _own_call(state: State, item: Frame, frame: Frame) -> Items:
    items: Items = [*state.complete(frame, "tool_use")]
    state.own[item["id"]] = OwnCall(item, state.message_id, len(state.blocks) + state.calls)
    state.calls += 1
    return items


def _own_call_ended(state: State, item: Frame, frame: Frame) -> Items:
    begun = [] if item["id"] in state.own else _own_call(state, item, frame)
    own = state.own.pop(item["id"])
    unasked = [] if own.announced else [own.announce(state.workspace, None, frame)]
    return [*begun, *unasked, ended(item)]


def _own_question(state: State, params: Frame, frame: Frame) -> Items:
    """Announce a call of its own that codex asks about; the driver gets the decision. A second question is declined."""
    own = state.own.get(params["itemId"])
    if own is None or own.announced is not None:
        return []
    return [own.announce(state.workspace, params.get("reason"), frame)]


def _typed(state: State, params: Frame, frame: Frame) -> Items:
    """Codex typed into a running command, which nobody was asked about. Only to look for output is allowed."""
    return _violation(state, f"write_stdin {params['stdin']}", frame) if params.get("stdin") else []


# --- messages and turns ---------------------------------------------------------------------------------


def _usage(state: State, params: Frame, frame: Frame) -> Items:
    """Take the counts of one model request. They come at its end, so its message is complete."""
    last = params["tokenUsage"]["last"]
    cached, written = last.get("cachedInputTokens", 0), last.get("cacheWriteInputTokens", 0)
    reasoning = last.get("reasoningOutputTokens", 0)
    if not all(
        0 <= count <= MAX_TOKENS
        for count in (cached, written, reasoning, last["inputTokens"], last["outputTokens"])
    ):
        return [*state.signals.unknown("counts that cannot be", frame)]
    usage = UsageReported(
        model=state.model,
        input=max(0, last["inputTokens"] - cached - written),
        output=max(0, last["outputTokens"] - reasoning),
        cache_read=cached,
        cache_write=written,
        reasoning=reasoning,
        cost_usd=None,
        source="runtime",
    )
    ended = state.complete(frame, "end_turn")
    if state.completed:
        state.next_message()
    return [*ended, Draft(usage, frame)]


def _error(state: State, params: Frame, frame: Frame) -> Items:
    """An attempt failed. What it streamed without finishing comes again, so it is retracted."""
    if not params.get("willRetry"):
        return []  # the end of the turn repeats it
    failure = as_dict(params.get("error"))
    unfinished = [key for key, block in state.blocks.items() if not block.done and block.text]
    state.blocks = {key: block for key, block in state.blocks.items() if block.done}
    message = f"codex asks the model again: {shorten(str(failure.get('message')))}"
    items: Items = [_notice("retry", message, dict(error_of(failure).details or {}), frame)]
    if unfinished and not state.completed:
        retracted = OutputRetracted(block_ids=unfinished, reason="The connection to the model broke.")
        items.insert(0, Draft(retracted, frame))
    return items


def _turn_completed(state: State, params: Frame, frame: Frame) -> Items:
    turn = params["turn"]
    if turn["id"] != state.turn_id:
        return [*state.signals.keep("turn/completed", frame)]
    items = cut_off(state, frame)
    if turn["status"] == "failed":
        return [*items, Failed(error=error_of(turn.get("error"), login=state.login), raw=frame)]
    reason = "end_turn" if turn["status"] == "completed" else str(turn["status"])
    return [*items, Finished(stop_reason=reason, raw=frame)]


def _rerouted(state: State, params: Frame, frame: Frame) -> Items:
    state.model = str(params["toModel"])
    message = f"The provider answers with {state.model} in place of {params['fromModel']}."
    return [_notice("mode", message, {}, frame), Identified(model=state.model)]


def _question(state: State, method: str, params: Frame, frame: Frame) -> Items:
    """A request of codex that was answered already: owned tools were allowed, everything else declined."""
    if method == _OWNED_QUESTIONS and params.get("serverName") == SERVER:
        return [*state.signals.keep(method, frame)]
    if method in QUESTIONS and state.natives:
        return _own_question(state, params, frame)
    if method == USER_INPUT and ASK in state.natives:
        return []  # the task asks, and the engine records it
    return _violation(state, f"{method}, which was declined", frame)


def _plan(state: State, params: Frame, frame: Frame) -> Items:
    """Return codex's plan. It says `inProgress`, and knows no priorities."""
    steps = [
        {"content": step["step"], "status": str(step["status"]).replace("inProgress", "in_progress")}
        for step in params["plan"]
    ]
    return [Draft(plan_notice(entries_in(steps)), frame)]


_HANDLERS: dict[str, Callable[[State, Frame, Frame], Items]] = {
    "item/started": _item_started,
    "item/completed": _item_completed,
    "item/commandExecution/terminalInteraction": _typed,
    "item/agentMessage/delta": _delta("text"),
    "item/reasoning/textDelta": _delta("reasoning"),
    "item/reasoning/summaryTextDelta": _delta("reasoning"),
    "thread/tokenUsage/updated": _usage,
    "turn/completed": _turn_completed,
    "turn/plan/updated": _plan,
    "error": _error,
    "model/rerouted": _rerouted,
}


# --- small parts ----------------------------------------------------------------------------------------


def _is_of_another_turn(state: State, params: Frame) -> bool:
    turn = params.get("turnId")
    return turn is not None and turn != state.turn_id


def _violation(state: State, what: str, frame: Frame) -> Items:
    state.violation = state.violation or what
    details = {"what": what, "executed_by": "runtime"}
    return [
        _notice("violation", f"codex did something by itself that is switched off: {what}.", details, frame)
    ]


def _notice(kind: str, message: str, details: dict[str, Any], frame: Frame) -> Draft:
    return Draft(RuntimeNotice(kind=kind, message=message, details=details), frame)
