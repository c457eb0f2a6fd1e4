"""Frames of `codex app-server` → drafts, announcements and the end of a task. Pure: no clock, no randomness, no I/O.

Codex speaks of items; the contract of messages. A message is what one model request answered: its reasoning and texts
until its first tool call starts, its token counts are told, or the turn ends. A frame that no event of ours stands for is
kept as a signal (`codex_signals`), one that nobody knows as a notice.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import msgspec

from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RuntimeNotice,
    UsageReported,
)
from codesdk.contract.messages import AssistantBlock, Reasoning, Text
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    RuntimeItem,
    ToolAnnouncement,
    ToolDropped,
)
from codesdk.runtimes.codex.config import SERVER
from codesdk.runtimes.codex.errors import error_of, shorten
from codesdk.runtimes.codex.native import KINDS, QUESTIONS, OwnCall, ended, violating
from codesdk.runtimes.codex.signals import QUIET, Signals

Frame = dict[str, Any]
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
"""What codex always offers as soon as there is an MCP server. It can only reach ours, which has tools and nothing else."""
_OWNED_QUESTIONS = "mcpServer/elicitation/request"


class Block(msgspec.Struct):
    """A reasoning or text item of the message that is being put together."""

    kind: Literal["text", "reasoning"]
    text: str = ""
    done: bool = False


class State(msgspec.Struct, kw_only=True):
    """What must be remembered from frame to frame of one turn."""

    turn_id: str
    model: str
    tools: Mapping[str, str]
    """Our names of the tools, by those on the wire."""
    number: int = 0
    blocks: dict[str, Block] = {}
    calls: int = 0
    completed: bool = False
    open_calls: set[str] = set()
    signals: Signals = msgspec.field(default_factory=Signals)
    natives: frozenset[str] = frozenset()
    """Codex's own tools that the session enables. If there are any, codex asks about calls of all of them."""
    workspace: str = ""
    own: dict[str, OwnCall] = {}
    """Calls of codex's own tools that are not over."""
    violation: str | None = None
    """The first thing that codex did by itself although it must not; the driver ends the turn then."""

    @property
    def message_id(self) -> str:
        """The id of the message that is being put together."""
        return f"{self.turn_id}.{self.number}"


def normalize(state: State, frame: Frame) -> Items:
    """Return what a frame means, and remember in `state` what later ones need. Must not raise."""
    method, params = str(frame.get("method")), _dict(frame.get("params"))
    if _is_of_another_turn(state, params):
        return [*state.signals.keep(method, frame)]
    try:
        if "id" in frame:
            return _question(state, method, params, frame)
        handler = _HANDLERS.get(method)
        if handler is not None:
            return handler(state, params, frame)
    except (KeyError, TypeError, AttributeError):
        return [_unknown(f"a {method} of another shape", frame)]
    if method in QUIET:
        return [*state.signals.keep(method, frame)]
    if method in _NOTICES:
        message = params.get("message") or params.get("summary") or method
        return [_notice(_NOTICES[method], shorten(str(message)), {"method": method}, frame)]
    return [_unknown(f"the message {method}", frame)]


def cut_off(state: State, frame: Frame | None = None) -> Items:
    """Return the end of a message that gets no end of its own: a turn that was interrupted leaves items open."""
    dropped = [
        ToolDropped(runtime_tool_call_id=call, reason="The turn ended before codex made this call.")
        for call in sorted(state.open_calls)
    ]
    state.open_calls = set()
    partial = any(not block.done for block in state.blocks.values())
    return [*_complete(state, frame, "interrupted" if partial else "end_turn", partial), *dropped]


# --- items ----------------------------------------------------------------------------------------------


def _item_started(state: State, params: Frame, frame: Frame) -> Items:
    item = params["item"]
    kind = item["type"]
    if kind in ("agentMessage", "reasoning"):
        return _open_block(state, item["id"], "text" if kind == "agentMessage" else "reasoning")
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
        return _close_block(state, item["id"], "text", item["text"])
    if kind == "reasoning":
        told = "\n".join(item.get("content") or item.get("summary") or [])
        return _close_block(state, item["id"], "reasoning", told)
    if kind == "mcpToolCall":
        return _call_ended(state, item)
    if kind in KINDS and state.natives:
        return _own_call_ended(state, item, frame)
    if kind == "dynamicToolCall" or (kind not in _OWN_ITEMS and kind != "contextCompaction"):
        return [] if state.violation else _violation(state, kind, frame)
    return _own_item(state, kind, frame)


def _own_item(state: State, kind: str, frame: Frame) -> Items:
    """An item that is no part of a message. What the user said is ours, and written down already."""
    return [] if kind == "userMessage" else [*state.signals.keep(f"{frame['method']} {kind}", frame)]


def _open_block(state: State, item_id: str, kind: Literal["text", "reasoning"]) -> Items:
    if state.completed:
        _next_message(state)
    state.blocks.setdefault(item_id, Block(kind))
    return []


def _close_block(state: State, item_id: str, kind: Literal["text", "reasoning"], text: str) -> Items:
    """Take an item as it counts. What was not streamed is one delta, so that the deltas make up the text."""
    _open_block(state, item_id, kind)
    block = state.blocks[item_id]
    block.text, block.done = text or block.text, True
    return []


def _delta(kind: Literal["text", "reasoning"]) -> Callable[[State, Frame, Frame], Items]:
    def take(state: State, params: Frame, frame: Frame) -> Items:
        item_id, text = params["itemId"], params["delta"]
        _open_block(state, item_id, kind)
        state.blocks[item_id].text += text
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
    ended = _complete(state, frame, "tool_use", partial=False)
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
    """A call that failed may never have come to us: then this is why."""
    state.open_calls.discard(item["id"])
    if item.get("status") != "failed":
        return []
    reason = _dict(item.get("error")).get("message") or "codex did not make this call."
    return [ToolDropped(runtime_tool_call_id=item["id"], reason=shorten(str(reason)))]


def _own_call(state: State, item: Frame, frame: Frame) -> Items:
    items = _complete(state, frame, "tool_use", partial=False)
    state.own[item["id"]] = OwnCall(item, state.message_id, len(state.blocks) + state.calls)
    state.calls += 1
    return items


def _own_call_ended(state: State, item: Frame, frame: Frame) -> Items:
    begun = [] if item["id"] in state.own else _own_call(state, item, frame)
    own = state.own.pop(item["id"])
    unasked = [] if own.announced else [own.announce(state.workspace, None, frame)]
    return [*begun, *unasked, ended(item)]


def _own_question(state: State, params: Frame, frame: Frame) -> Items:
    """A question about a call of its own, which the driver has decided. A second one about the same call is declined."""
    own = state.own.get(params["itemId"])
    if own is None or own.announced is not None:
        return []
    return [own.announce(state.workspace, params.get("reason"), frame)]


def _typed(state: State, params: Frame, frame: Frame) -> Items:
    """Codex typed something into a command that runs: nobody was asked about that. To look for output is no such thing."""
    return _violation(state, f"write_stdin {params['stdin']}", frame) if params.get("stdin") else []


# --- messages and turns ---------------------------------------------------------------------------------


def _complete(state: State, frame: Frame | None, stop_reason: str, partial: bool) -> Items:
    """Write the message down, unless that was done or there is none."""
    if state.completed or (not state.blocks and stop_reason != "tool_use"):
        return []
    state.completed = True
    content: list[AssistantBlock] = [
        Text(text=block.text) if block.kind == "text" else Reasoning(text=block.text)
        for block in state.blocks.values()
        if block.text
    ]
    payload = OutputCompleted(
        message_id=state.message_id, content=content, partial=partial, stop_reason=stop_reason
    )
    return [Draft(payload, frame)]


def _next_message(state: State) -> None:
    state.number += 1
    state.blocks = {}
    state.calls = 0
    state.completed = False


def _usage(state: State, params: Frame, frame: Frame) -> Items:
    """The counts of one model request, which has ended with them."""
    last = params["tokenUsage"]["last"]
    cached, written = last.get("cachedInputTokens", 0), last.get("cacheWriteInputTokens", 0)
    reasoning = last.get("reasoningOutputTokens", 0)
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
    ended = _complete(state, frame, "end_turn", partial=False)
    if state.completed:
        _next_message(state)
    return [*ended, Draft(usage, frame)]


def _error(state: State, params: Frame, frame: Frame) -> Items:
    """An attempt that failed. What it streamed without finishing comes again, so it is taken back."""
    if not params.get("willRetry"):
        return []  # the end of the turn says it again
    failure = _dict(params.get("error"))
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
        return [*items, Failed(error=error_of(turn.get("error")), raw=frame)]
    reason = "end_turn" if turn["status"] == "completed" else str(turn["status"])
    return [*items, Finished(stop_reason=reason, raw=frame)]


def _rerouted(state: State, params: Frame, frame: Frame) -> Items:
    state.model = str(params["toModel"])
    message = f"The provider answers with {state.model} in place of {params['fromModel']}."
    return [_notice("mode", message, {}, frame), Identified(model=state.model)]


def _question(state: State, method: str, params: Frame, frame: Frame) -> Items:
    """A request of codex, answered already: an owned tool may go on, everything else was declined."""
    if method == _OWNED_QUESTIONS and params.get("serverName") == SERVER:
        return [*state.signals.keep(method, frame)]
    if method in QUESTIONS and state.natives:
        return _own_question(state, params, frame)
    return _violation(state, f"{method}, which was declined", frame)


_HANDLERS: dict[str, Callable[[State, Frame, Frame], Items]] = {
    "item/started": _item_started,
    "item/completed": _item_completed,
    "item/commandExecution/terminalInteraction": _typed,
    "item/agentMessage/delta": _delta("text"),
    "item/reasoning/textDelta": _delta("reasoning"),
    "item/reasoning/summaryTextDelta": _delta("reasoning"),
    "thread/tokenUsage/updated": _usage,
    "turn/completed": _turn_completed,
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


def _unknown(what: str, frame: Frame) -> Draft:
    return _notice("unknown_frame", f"codex sent {what}, which CodeSDK does not know.", {}, frame)


def _notice(kind: str, message: str, details: dict[str, Any], frame: Frame) -> Draft:
    return Draft(RuntimeNotice(kind=kind, message=message, details=details), frame)


def _dict(value: Any) -> Frame:
    return cast("Frame", value) if isinstance(value, dict) else {}
