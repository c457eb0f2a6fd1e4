"""OpenAI Chat Completions ↔ the gateway's own types: the codec, and the parsing of requests.

Answers are written in `chat_stream` and read in `chat_seen`. OpenCode speaks this format, and everything
that calls itself OpenAI-compatible.
"""

from collections.abc import Iterable
from typing import Any

from codesdk.gateway.wires.arguments import input_of
from codesdk.gateway.wires.chat_seen import ChatDecoder
from codesdk.gateway.wires.chat_stream import ChatEncoder, completion
from codesdk.gateway.wires.exchange import (
    Ask,
    AskBlock,
    AskCall,
    AskMessage,
    AskOther,
    AskResult,
    AskText,
    Decoder,
    Encoder,
    Fault,
    OfferedTool,
    Part,
    Route,
    Wire,
)
from codesdk.gateway.wires.fields import items, list_at, mapping, string, string_at
from codesdk.gateway.wires.openai_terms import encode, headers_of, say
from codesdk.gateway.wires.sse import frame

_PATHS = ("/v1/chat/completions", "/chat/completions")
_LIMIT = 128_000
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")


class ChatCodec:
    """The format of `POST /v1/chat/completions`."""

    wire: Wire = "chat"

    def route(self, method: str, path: str, query: str = "") -> Route | None:
        """Return the route of a path, or None if it is not one of this format's."""
        return Route(wire="chat", kind="generate") if method == "POST" and path in _PATHS else None

    def parse(self, route: Route, body: dict[str, Any]) -> Ask:
        """Parse a request. Raise `ValueError`, naming the field, if no provider would accept it."""
        stream: object = body.get("stream")
        if stream is not None and not isinstance(stream, bool):
            raise ValueError("stream: must be true or false")
        messages = list_at(body.get("messages"), "messages")
        if not messages:
            raise ValueError("messages: should have at least one message")
        return Ask(
            wire="chat",
            kind=route.kind,
            model=string_at(body.get("model"), "model"),
            stream=bool(stream),
            messages=[_message(mapping(message), number) for number, message in enumerate(messages)],
            tools=[*_tools(body.get("tools")), *_functions(body.get("functions"))],
            body=body,
        )

    def encoder(self, ask: Ask, answer_id: str) -> Encoder:
        """Return an encoder for one streamed answer."""
        return ChatEncoder(ask, answer_id)

    def whole(self, ask: Ask, answer_id: str, parts: Iterable[Part]) -> bytes:
        """Return an unstreamed answer."""
        return encode(completion(ask, answer_id, parts))

    def count(self, ask: Ask, tokens: int) -> bytes:
        """Return a count. Never called: this format has no route for it."""
        return encode({"input_tokens": tokens})

    def error(self, fault: Fault) -> tuple[dict[str, str], bytes]:
        """Return headers and body of an error."""
        return headers_of(fault), encode({"error": _say(fault)})

    def broken_frame(self) -> bytes:
        """Return a frame whose data is truncated JSON."""
        return frame("", b'{"id":"chatcmpl-broken","object":"chat.completion.chunk","choices":[{"delta":{"')

    def stream_error(self, fault: Fault) -> bytes:
        """Return the frame that reports an error in the middle of a stream."""
        return frame("", encode({"error": _say(fault)}))

    def decoder(self) -> Decoder:
        """Return a decoder for one answer."""
        return ChatDecoder()


CODEC = ChatCodec()


def _say(fault: Fault) -> dict[str, Any]:
    limit = fault.limit or _LIMIT
    too_long = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
        f"{max(fault.tokens or 0, limit + 1)} tokens. Please reduce the length of the messages."
    )
    return say(fault, "messages", too_long)


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
    return AskOther(kind)


def _assistant(message: dict[str, Any], where: str) -> list[AskBlock]:
    """Return what the model said before: reasoning, text and calls, each of which may be absent."""
    blocks: list[AskBlock] = []
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


def _tools(tools: object) -> list[OfferedTool]:
    found = [] if tools is None else list_at(tools, "tools")
    return [_tool(mapping(tool), f"tools[{number}]") for number, tool in enumerate(found)]


def _tool(tool: dict[str, Any], where: str) -> OfferedTool:
    kind = string_at(tool.get("type"), f"{where}.type")
    described = mapping(tool.get(kind))
    if kind not in ("function", "custom"):
        return OfferedTool(kind)
    name = string_at(described.get("name"), f"{where}.{kind}.name")
    return OfferedTool(name, string(described.get("description")))


def _functions(functions: object) -> list[OfferedTool]:
    """Return the tools of a request that still calls them functions."""
    known = [mapping(function) for function in items(functions)]
    return [OfferedTool(string(each.get("name")), string(each.get("description"))) for each in known]
