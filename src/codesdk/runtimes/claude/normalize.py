"""Frames that claude writes → items of the runtime protocol. Pure: no clock, no randomness, no I/O.

A model message comes as raw stream events, with one `assistant` frame for each block when it is whole; `message`
joins them into one. A run ends with `idle`, not with `result`: input that was added meanwhile makes another result.
Control requests are not for here: `process` answers them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import Reasoning, Text
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    RuntimeItem,
    ToolAnnouncement,
    ToolDropped,
)
from codesdk.runtimes.claude import NAME
from codesdk.runtimes.claude.errors import error_of
from codesdk.runtimes.claude.message import Frame, OpenMessage
from codesdk.runtimes.claude.native import ended, subjects_of
from codesdk.runtimes.program.signals import Signals
from codesdk.tools import PREFIX, SERVER

_QUIET = frozenset(
    {
        "session_state_changed",
        "status",
        "thinking_tokens",
        "permission_denied",
        "ui_invalidate",
        "turn_duration",
    }
)
"""Kinds of system frames that say nothing that is not said elsewhere."""
_NO_TOOLS = frozenset({"failed", "needs-auth", "disabled"})


class ClaudeState:
    """What is remembered between the frames of one task."""

    def __init__(
        self,
        tools: Mapping[str, str],
        natives: Sequence[str] = (),
        workspace: str = "",
        *,
        login: bool = False,
    ) -> None:
        self.tools = tools
        """The session's own tools, by the names that the model knows them by."""
        self.natives = frozenset(natives)
        """Claude's own tools that the session enables."""
        self.workspace = workspace
        self.login = login
        """Whether claude uses an account of its own."""
        self.waiting: set[str] = set()
        """The ids of the inputs that claude has not taken up."""
        self.message: OpenMessage | None = None
        self.result: Frame | None = None
        self.reason: str | None = None
        self.known: tuple[str | None, str | None] = (None, None)
        self.foreign: dict[str, str] = {}
        self.signals = Signals("claude")


def normalize(state: ClaudeState, raw: Any) -> list[RuntimeItem]:
    """Return what a frame means. Must not raise: a frame that is not understood becomes a notice that holds it."""
    frame: Frame = raw if isinstance(raw, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    kind = frame.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return [*state.signals.unknown(_name(kind), raw)]
    try:
        return list(reader(state, frame))
    except (KeyError, TypeError, AttributeError, ValueError):
        return [*state.signals.unknown(f"a {kind} of another shape", raw)]


def _stream_event(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    event: Frame = frame["event"]
    kind = event["type"]
    message = state.message
    if kind == "message_start":
        yield from _close(state, frame)
        start: Frame = event["message"]
        state.message = OpenMessage(start["id"], start.get("model"), streams=True)
        return
    if message is None:
        return
    if kind == "content_block_start":
        message.begin_block(event)
    elif kind == "content_block_delta":
        yield from message.delta(event, frame)
    elif kind == "message_delta":
        message.stop_reason = event["delta"].get("stop_reason")
        message.usage = event.get("usage") or {}
    elif kind == "message_stop":
        yield from _close(state, frame)


def _close(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    """Complete the open message, if there is one."""
    message, state.message = state.message, None
    if message is not None:
        yield from message.close(frame)


def _assistant(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    told: Frame = frame["message"]
    if told.get("model") == "<synthetic>":  # claude's own words about a failure; its result says the same
        state.reason = frame.get("error") or state.reason
        return
    if frame.get("parent_tool_use_id") is not None:
        yield _notice("subagent", "A subagent of claude answered.", {}, frame)
        return
    if state.message is None or state.message.id != told["id"]:
        yield from _close(state, {})
        state.message = OpenMessage(told["id"], told.get("model"), streams=False)
        state.message.stop_reason, state.message.usage = told.get("stop_reason"), told.get("usage") or {}
    message = state.message
    message.partial = message.partial or bool(frame.get("aborted"))
    for block in told["content"]:
        yield from _block(state, message, block, frame)
        message.blocks += 1


def _block(state: ClaudeState, message: OpenMessage, block: Frame, frame: Frame) -> Iterator[RuntimeItem]:
    match block["type"]:
        case "text":
            message.content.append(Text(text=block["text"]))
        case "thinking":
            if block["thinking"]:
                message.content.append(Reasoning(text=block["thinking"]))
        case "redacted_thinking":
            pass
        case "tool_use":
            yield _announce(state, message, block, frame)
        case _:
            yield from state.signals.unknown(f"a block {block['type']}", frame)


def _announce(state: ClaudeState, message: OpenMessage, block: Frame, frame: Frame) -> ToolAnnouncement:
    name: str = block["name"]
    own = state.tools.get(name)
    if own is None:
        state.foreign[block["id"]] = name
    native = name in state.natives
    return ToolAnnouncement(
        name=own or name.removeprefix(PREFIX),
        input=block["input"],
        runtime_tool_call_id=block["id"],
        message_id=message.id,
        index=message.blocks,
        raw=frame,
        origin="native" if native else None,
        subjects=subjects_of(name, block["input"], state.workspace) if native else None,
    )


def _user(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    if frame.get("isReplay"):
        return
    if state.message is not None and not state.message.streams:
        yield from _close(state, {})
    content: Any = frame["message"]["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if block["type"] == "tool_result":
            yield from _tool_result(state, block, frame)
        elif block["type"] == "text":
            said = {"text": block["text"]}
            yield _notice("hidden_input", "claude put words of its own into the conversation.", said, frame)


def _tool_result(state: ClaudeState, block: Frame, frame: Frame) -> Iterator[RuntimeItem]:
    """End a call of claude's own tool. Drop one of ours that ended with an error.

    If the call never reached us, claude refused it by itself, and this is the only place that says so.
    """
    call_id: str = block["tool_use_id"]
    foreign = state.foreign.pop(call_id, None)
    if foreign is not None and (foreign in state.natives or not block.get("is_error")):
        yield ended(foreign, call_id, _plain(block.get("content")), bool(block.get("is_error")))
    if foreign in state.natives:
        return
    if block.get("is_error"):
        reason = (
            _plain(block.get("content")).removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
        )
        yield ToolDropped(runtime_tool_call_id=call_id, reason=reason or "claude refused this call.")
    elif foreign is not None:
        message = f"claude ran {foreign} itself, which this session does not allow. The task is stopped."
        yield _notice("violation", message, {"tool": foreign}, frame)
        error = ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False, runtime=NAME)
        yield Failed(error=error, raw=frame)


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content or ())


def _system(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    kind: str = frame["subtype"]
    if kind == "init":
        yield from _init(state, frame)
    elif kind == "session_state_changed" and frame["state"] == "idle":
        yield from _idle(state)
    elif kind == "api_retry":
        yield _retry(frame)
    elif kind == "compact_boundary" or (kind == "status" and frame.get("status") == "compacting"):
        yield _notice("compaction", "claude shortens the conversation.", {}, frame)
    elif kind == "informational":
        yield _notice("warning", str(frame["content"]), {"level": frame.get("level")}, frame)
    elif kind == "model_refusal_no_fallback":
        details = {"explanation": frame.get("api_refusal_explanation")}
        yield _notice("warning", "The model declined to answer.", details, frame)
    elif kind not in _QUIET:
        yield from state.signals.unknown(f"the message {kind}", frame)


def _init(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    """Take in how claude is set up. It says so at the beginning of each turn."""
    known = (frame["session_id"], frame.get("model"))
    if known != state.known:
        state.known = known
        yield Identified(runtime_session_id=known[0], model=known[1])
    status = {server["name"]: server["status"] for server in frame.get("mcp_servers", [])}.get(SERVER)
    if state.tools and status in _NO_TOOLS:
        message = "claude could not reach the session's tools. Start the task again."
        error = ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=True, runtime=NAME)
        yield Failed(error=error, raw=frame)


def _retry(frame: Frame) -> Draft:
    details = {name: frame.get(name) for name in ("attempt", "max_retries", "retry_delay_ms", "error_status")}
    why = frame.get("error_status") or "the connection broke"
    return _notice("retry", f"claude asks the model again ({why}).", details, frame)


def _result(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    yield from _close(state, {})
    state.result = frame


def _lifecycle(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    if frame["state"] in ("completed", "cancelled"):
        state.waiting.discard(frame["command_uuid"])
    yield from ()


def _idle(state: ClaudeState) -> Iterator[RuntimeItem]:
    """End the task, unless claude has not taken up all of its input yet."""
    result = state.result
    if result is None or state.waiting:
        return
    if not result.get("is_error"):
        yield Finished(stop_reason=result.get("stop_reason") or "end_turn", raw=result)
    elif str(result.get("terminal_reason")).startswith("aborted"):
        yield Finished(stop_reason="stopped", raw=result)
    else:
        yield Failed(error=error_of(result, state.reason, login=state.login), raw=result)


def _silent(state: ClaudeState, frame: Frame) -> Iterator[RuntimeItem]:
    yield from ()


def _notice(kind: str, message: str, details: dict[str, Any], frame: Any) -> Draft:
    return Draft(RuntimeNotice(kind=kind, message=message, details=details), frame)


def _name(kind: Any) -> str:
    return f"the message {kind}" if isinstance(kind, str) else "something that is no message"


_READERS: dict[str, Callable[[ClaudeState, Frame], Iterator[RuntimeItem]]] = {
    "stream_event": _stream_event,
    "assistant": _assistant,
    "user": _user,
    "system": _system,
    "result": _result,
    "command_lifecycle": _lifecycle,
    "tool_progress": _silent,
    "transcript_mirror": _silent,
    "control_cancel_request": _silent,
}
