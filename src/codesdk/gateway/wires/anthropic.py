"""Anthropic Messages: a request body → an `Ask`, a `Fault` → the error that Anthropic would send.

Answers are written and read in `anthropic_answer`. `formats` loads `CODEC`.
"""

from typing import Any

import msgspec

from codesdk.gateway.wires.anthropic_answer import AnthropicDecoder, AnthropicEncoder, encode_message
from codesdk.gateway.wires.exchange import (
    Ask,
    AskBlock,
    AskCall,
    AskMessage,
    AskOther,
    AskResult,
    AskText,
    Codec,
    Fault,
    FaultKind,
    Route,
)
from codesdk.gateway.wires.fields import (
    items,
    list_at,
    mapping,
    object_at,
    refuse_files,
    refuse_stored,
    string,
    string_at,
)
from codesdk.gateway.wires.sse import frame

CONTEXT_LIMIT = 200_000
REQUEST_ID = "req_codesdk_gateway"

_PATHS = {
    "/v1/messages": Route(kind="generate"),
    "/v1/messages/count_tokens": Route(kind="count_tokens", stream=False),
}
_ERROR_TYPES: dict[FaultKind, str] = {
    "invalid": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "context_too_large": "invalid_request_error",
    "server": "api_error",
    "unavailable": "api_error",
    "overloaded": "overloaded_error",
}
_QUOTA_TYPES = {400: "invalid_request_error", 402: "billing_error", 403: "permission_error"}


def _route(method: str, path: str, query: str) -> Route | None:
    """Return the route of a path, or None. The query (`beta=true`) changes nothing."""
    return _PATHS.get(path) if method == "POST" else None


def _parse(route: Route, body: dict[str, Any]) -> Ask:
    """Parse a request of either path. Raise `ValueError`, naming the field, if it is not valid."""
    model = string_at(body.get("model"), "model")
    refuse_stored(body.get("container"), "container")
    if route.kind == "generate":
        _check_max_tokens(body.get("max_tokens"))
    return Ask(
        wire="anthropic",
        kind=route.kind,
        model=model,
        stream=route.kind == "generate" and _is_streamed(body.get("stream")),
        messages=[*_system(body.get("system")), *_messages(body.get("messages"))],
        tools=_tools(body.get("tools")),
        body=body,
    )


def _check_max_tokens(value: object) -> None:
    if value is None:
        raise ValueError("max_tokens: field required")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("max_tokens: should be a whole number")


def _is_streamed(value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise ValueError("stream: should be true or false")
    return value is True


def _system(value: object) -> list[AskMessage]:
    """Return one message for each text, so that each has its own place."""
    if value is None:
        return []
    if isinstance(value, str):
        return [AskMessage("system", [AskText(value)], "/system")]
    blocks = _blocks(list_at(value, "system"), "system")
    return [AskMessage("system", [block], f"/system/{n}") for n, block in enumerate(blocks)]


def _messages(value: object) -> list[AskMessage]:
    messages = list_at(value, "messages")
    if not messages:
        raise ValueError("messages: at least one message is required")
    return [_message(object_at(message, f"messages.{n}"), n) for n, message in enumerate(messages)]


def _message(message: dict[str, Any], number: int) -> AskMessage:
    place = f"messages.{number}"
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise ValueError(f"{place}.role: should be 'user', 'assistant' or 'system'")
    content = message.get("content")
    if isinstance(content, str):
        blocks: list[AskBlock] = [AskText(content)]
    else:
        blocks = _blocks(list_at(content, f"{place}.content"), f"{place}.content")
    return AskMessage(role, blocks, f"/messages/{number}")


def _blocks(blocks: list[Any], place: str) -> list[AskBlock]:
    return [_block(object_at(block, f"{place}.{n}"), f"{place}.{n}") for n, block in enumerate(blocks)]


def _block(block: dict[str, Any], place: str) -> AskBlock:
    kind = string_at(block.get("type"), f"{place}.type")
    if kind == "text":
        text = block.get("text")
        if not isinstance(text, str):
            raise ValueError(f"{place}.text: should be a string")
        return AskText(text)
    if kind == "tool_use":
        name = string_at(block.get("name"), f"{place}.name")
        return AskCall(string_at(block.get("id"), f"{place}.id"), name, block.get("input"))
    if kind == "tool_result":
        call_id = string_at(block.get("tool_use_id"), f"{place}.tool_use_id")
        text = _result_text(block.get("content"), f"{place}.content")
        return AskResult(call_id, text, block.get("is_error") is True)
    refuse_files(block, place)
    return AskOther(kind)


def _result_text(content: object, place: str) -> str:
    """Return the texts of a tool result, without its images and references."""
    if isinstance(content, str):
        return content
    refuse_files(content, place)
    blocks = (mapping(block) for block in items(content))
    return "\n".join(string(block.get("text")) for block in blocks if block.get("type") == "text")


def _tools(value: object) -> list[str]:
    """Return the tools that have a name; a server's whole toolset has none."""
    tools = [] if value is None else list_at(value, "tools")
    offered: list[str] = []
    for number, tool in enumerate(tools):
        tool = object_at(tool, f"tools.{number}")
        if tool.get("type", "custom") == "custom" or "name" in tool:
            offered.append(string_at(tool.get("name"), f"tools.{number}.name"))
    return offered


def _error(fault: Fault) -> tuple[dict[str, str], bytes]:
    error = {"type": _error_type(fault), "message": _error_message(fault)}
    body = {"type": "error", "error": error, "request_id": REQUEST_ID}
    return {"request-id": REQUEST_ID}, msgspec.json.encode(body)


def _error_type(fault: Fault) -> str:
    if fault.kind == "quota":
        return _QUOTA_TYPES.get(fault.status, "rate_limit_error")
    if fault.kind == "server" and fault.status == 504:
        return "timeout_error"
    return _ERROR_TYPES[fault.kind]


def _error_message(fault: Fault) -> str:
    if fault.kind != "context_too_large":
        return fault.message
    limit = fault.limit or CONTEXT_LIMIT
    # The provider's own words: clients recognize the case by them.
    return f"prompt is too long: {max(fault.tokens or 0, limit + 1)} tokens > {limit} maximum"


CODEC = Codec(
    wire="anthropic",
    route=_route,
    parse=_parse,
    encoder=AnthropicEncoder,
    whole=encode_message,
    count=lambda tokens: msgspec.json.encode({"input_tokens": tokens}),
    error=_error,
    broken_frame=frame("content_block_delta", b'{"type":"content_block_delta","index":0,"delta":{"type":"te'),
    decoder=AnthropicDecoder,
)
