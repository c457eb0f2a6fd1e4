"""OpenAI Chat Completions ↔ the gateway's own types: the codec, and the parsing of requests.

Answers are written and read in `chat_answer`. OpenCode speaks this format, and everything
that calls itself OpenAI-compatible.
"""

from typing import Any

import msgspec

from codesdk.gateway.wires.chat_answer import ChatDecoder, ChatEncoder, encode_completion
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
    Route,
)
from codesdk.gateway.wires.fields import (
    input_of,
    items,
    list_at,
    mapping,
    refuse_files,
    refuse_stored,
    string,
    string_at,
)
from codesdk.gateway.wires.openai_terms import is_streamed, write_error
from codesdk.gateway.wires.sse import frame

_PATHS = ("/v1/chat/completions", "/chat/completions")
_LIMIT = 128_000
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")


def _route(method: str, path: str, query: str) -> Route | None:
    """Return the route of a path, or None if it is not one of this format's."""
    return Route(kind="generate") if method == "POST" and path in _PATHS else None


def _parse(route: Route, body: dict[str, Any]) -> Ask:
    """Parse a request. Raise `ValueError`, naming the field, if no provider would accept it."""
    stream = is_streamed(body)
    messages = list_at(body.get("messages"), "messages")
    if not messages:
        raise ValueError("messages: should have at least one message")
    return Ask(
        wire="chat",
        kind=route.kind,
        model=string_at(body.get("model"), "model"),
        stream=stream,
        messages=[_message(mapping(message), number) for number, message in enumerate(messages)],
        tools=[*_tools(body.get("tools")), *_functions(body.get("functions"))],
        body=body,
    )


def _error(fault: Fault) -> tuple[dict[str, str], bytes]:
    limit = fault.limit or _LIMIT
    too_long = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
        f"{max(fault.tokens or 0, limit + 1)} tokens. Please reduce the length of the messages."
    )
    return write_error(fault, "messages", too_long)


def _message(message: dict[str, Any], number: int) -> AskMessage:
    where, place = f"messages[{number}]", f"/messages/{number}"
    match message.get("role"):
        case "system" | "developer":
            return AskMessage("system", _content(message, where), place)
        case "user":
            return AskMessage("user", _content(message, where), place)
        case "assistant":
            return AskMessage("assistant", _assistant(message, where), place)
        case "tool" | "function":
            return AskMessage("tool", [_result(message, where)], place)
        case _:
            raise ValueError(f"{where}.role: must be system, developer, user, assistant or tool")


def _content(message: dict[str, Any], where: str) -> list[AskBlock]:
    value: object = message.get("content")
    if isinstance(value, str):
        return [AskText(value)]
    where = f"{where}.content"
    return [_part(mapping(part), f"{where}[{n}]") for n, part in enumerate(list_at(value, where))]


def _part(part: dict[str, Any], where: str) -> AskBlock:
    kind = string_at(part.get("type"), f"{where}.type")
    if kind in ("text", "refusal"):
        return AskText(string(part.get(kind)))
    refuse_files(part, where)
    return AskOther(kind)


def _assistant(message: dict[str, Any], where: str) -> list[AskBlock]:
    """Return what the model said before: reasoning, text and calls, each of which may be absent."""
    blocks: list[AskBlock] = []
    refuse_stored(mapping(message.get("audio")).get("id"), f"{where}.audio.id")
    if any(message.get(key) for key in _REASONING_KEYS):  # compatible servers differ in its name
        blocks.append(AskOther("reasoning"))
    if message.get("content"):
        blocks.extend(_content(message, where))
    if refusal := string(message.get("refusal")):
        blocks.append(AskText(refusal))
    for number, call in enumerate(items(message.get("tool_calls"))):
        blocks.append(_call(mapping(call), f"{where}.tool_calls[{number}]"))
    if legacy := mapping(message.get("function_call")):
        name = string(legacy.get("name"))
        blocks.append(AskCall(name, name, input_of(string(legacy.get("arguments")))))
    return blocks


def _call(call: dict[str, Any], where: str) -> AskCall:
    call_id = string_at(call.get("id"), f"{where}.id")
    if custom := mapping(call.get("custom")):
        return AskCall(call_id, string(custom.get("name")), string(custom.get("input")))
    function = mapping(call.get("function"))
    name = string_at(function.get("name"), f"{where}.function.name")
    return AskCall(call_id, name, input_of(string(function.get("arguments"))))


def _result(message: dict[str, Any], where: str) -> AskResult:
    """Return a tool's result. Functions, the predecessors of tools, are identified only by name."""
    key = "tool_call_id" if message.get("role") == "tool" else "name"
    call_id = string_at(message.get(key), f"{where}.{key}")
    texts = [block.text for block in _content(message, where) if isinstance(block, AskText)]
    return AskResult(call_id, "".join(texts))


def _tools(tools: object) -> list[str]:
    found = [] if tools is None else list_at(tools, "tools")
    return [_tool(mapping(tool), f"tools[{number}]") for number, tool in enumerate(found)]


def _tool(tool: dict[str, Any], where: str) -> str:
    kind = string_at(tool.get("type"), f"{where}.type")
    if kind not in ("function", "custom"):
        return kind
    return string_at(mapping(tool.get(kind)).get("name"), f"{where}.{kind}.name")


def _functions(functions: object) -> list[str]:
    """Return the tools of a request that still calls them functions."""
    return [string(mapping(function).get("name")) for function in items(functions)]


CODEC = Codec(
    wire="chat",
    route=_route,
    parse=_parse,
    encoder=ChatEncoder,
    whole=encode_completion,
    # Never called: this format has no route for it.
    count=lambda tokens: msgspec.json.encode({"input_tokens": tokens}),
    error=_error,
    broken_frame=frame(
        "", b'{"id":"chatcmpl-broken","object":"chat.completion.chunk","choices":[{"delta":{"'
    ),
    decoder=ChatDecoder,
)
