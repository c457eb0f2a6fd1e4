"""OpenAI Responses ↔ the gateway's own types: the codec, and the parsing of requests.

Answers are written in `responses_stream` and read in `responses_seen`. Codex speaks this format, and
OpenCode with OpenAI's own provider.
"""

from typing import Any, Literal, cast

import msgspec

from codesdk.gateway.wires.exchange import (
    Ask,
    AskBlock,
    AskCall,
    AskMessage,
    AskOther,
    AskResult,
    AskText,
    Codec,
    Route,
)
from codesdk.gateway.wires.fields import (
    input_of,
    items,
    list_at,
    mapping,
    object_at,
    refuse_files,
    refuse_stored,
    string,
    string_at,
)
from codesdk.gateway.wires.openai_terms import is_streamed, write_error
from codesdk.gateway.wires.responses_seen import ResponsesDecoder
from codesdk.gateway.wires.responses_stream import ResponsesEncoder, encode_response
from codesdk.gateway.wires.responses_tools import joined, offered_tools
from codesdk.gateway.wires.sse import frame

Role = Literal["system", "user", "assistant", "tool"]

_PATHS = {
    "/responses": Route(kind="generate"),
    "/responses/input_tokens": Route(kind="count_tokens", stream=False),
}
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_STORED = ("previous_response_id", "conversation", "prompt")
_TEXTS = ("input_text", "output_text", "text")
_TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."

_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "tool_search_call": "arguments",
}
"""The types of items that are calls, and the field that holds the input."""

_RESULTS = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
)


def _route(method: str, path: str, query: str) -> Route | None:
    """Return the route of a path, or None if it is not one of this format's."""
    return _PATHS.get(path.removeprefix("/v1")) if method == "POST" else None


def _parse(route: Route, body: dict[str, Any]) -> Ask:
    """Parse a request. Raise `ValueError`, naming the field, if no provider would accept it."""
    is_count = route.kind == "count_tokens"
    if body.get("background"):  # it goes on after its answer, where nobody sees what it costs
        raise ValueError("background: this gateway passes on only requests that are answered at once")
    for name in _STORED:
        refuse_stored(body.get(name), name)
    stream = is_streamed(body)
    model: object = body.get("model")
    return Ask(
        wire="responses",
        kind=route.kind,
        model=string(model) if is_count else string_at(model, "model"),
        stream=stream and not is_count,
        messages=[*_instructions(body.get("instructions")), *_input(body, is_count)],
        tools=offered_tools(body),
        body=body,
    )


def _instructions(value: object) -> list[AskMessage]:
    if value is None or value == "":
        return []
    if not isinstance(value, str):
        raise ValueError("instructions: must be a string")
    return [AskMessage("system", [AskText(value)], "/instructions")]


def _input(body: dict[str, Any], is_count: bool) -> list[AskMessage]:
    value: object = body.get("input")
    if isinstance(value, str):
        return [AskMessage("user", [AskText(value)], "/input")]
    if value is None and is_count:
        return []
    return [_item(object_at(item, f"input[{n}]"), n) for n, item in enumerate(list_at(value, "input"))]


def _item(fields: dict[str, Any], number: int) -> AskMessage:
    where, place = f"input[{number}]", f"/input/{number}"
    kind = string(fields.get("type")) or ("message" if "role" in fields else "item_reference")
    if kind == "message":
        role = _ROLES.get(string(fields.get("role")))
        if role is None:
            raise ValueError(f"{where}.role: must be user, assistant, system or developer")
        return AskMessage(role, _content(fields.get("content"), f"{where}.content"), place)
    if kind in _CALLS:
        return AskMessage("assistant", [_call(kind, fields, where)], place)
    if kind in _RESULTS:
        return AskMessage("tool", [_result(fields, where)], place)
    refuse_files(fields, where)
    return AskMessage(_ROLES.get(string(fields.get("role")), "assistant"), [AskOther(kind)], place)


def _content(value: object, where: str) -> list[AskBlock]:
    if isinstance(value, str):
        return [AskText(value)]
    return [_part(mapping(part), f"{where}[{n}]") for n, part in enumerate(list_at(value, where))]


def _part(part: dict[str, Any], where: str) -> AskBlock:
    kind = string_at(part.get("type"), f"{where}.type")
    if kind in _TEXTS:
        return AskText(string(part.get("text")))
    if kind == "refusal":
        return AskText(string(part.get("refusal")))
    refuse_files(part, where)
    return AskOther(kind)


def _call(kind: str, fields: dict[str, Any], where: str) -> AskCall:
    name = string(fields.get("name")) or kind.removesuffix("_call")
    value: object = fields.get(_CALLS[kind])
    if kind == "function_call" and isinstance(value, str):
        value = input_of(value)
    return AskCall(_call_id(fields, where), joined(name, fields.get("namespace")), value)


def _result(fields: dict[str, Any], where: str) -> AskResult:
    return AskResult(
        _call_id(fields, where),
        _result_text(fields.get("output"), f"{where}.output"),
        fields.get("status") == "failed",
    )


def _call_id(fields: dict[str, Any], where: str) -> str:
    return string_at(fields.get("call_id") or fields.get("id"), f"{where}.call_id")


def _result_text(output: object, where: str) -> str:
    """Return the text of a result: a string, or its parts joined; a shell's parts are its two streams."""
    if isinstance(output, list):
        refuse_files(cast("object", output), where)
        parts = [mapping(part) for part in items(cast("object", output))]
        return "".join(string(part.get(key)) for part in parts for key in ("text", "stdout", "stderr"))
    return string(output)


CODEC = Codec(
    wire="responses",
    route=_route,
    parse=_parse,
    encoder=ResponsesEncoder,
    whole=encode_response,
    count=lambda tokens: msgspec.json.encode({"object": "response.input_tokens", "input_tokens": tokens}),
    error=lambda fault: write_error(fault, "input", _TOO_LONG),
    # Codex skips it, the official client does not.
    broken_frame=frame("response.output_text.delta", b'{"type":"response.output_text.delta","delta":"'),
    decoder=ResponsesDecoder,
)
