"""Gemini generateContent: a request body → an `Ask`, a `Fault` → the error that Google would send.

The path gives model and method; the query says whether a stream is events or a JSON array. Answers are
written and read in `gemini_answer`. `formats` loads `CODEC`.
"""

import re
from typing import Any, Literal
from urllib.parse import parse_qs

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
    Fault,
    FaultKind,
    Route,
)
from codesdk.gateway.wires.fields import (
    list_at,
    mapping,
    object_at,
    refuse_files,
    refuse_stored,
    string,
    string_at,
)
from codesdk.gateway.wires.gemini_answer import GeminiDecoder, GeminiEncoder, encode_answer

CONTEXT_LIMIT = 1_048_576

_PATH = re.compile(
    r"/v1(?:beta|alpha)?/(?:models|tunedModels)/([^/:]+):(generateContent|streamGenerateContent|countTokens)"
)
_STATUSES: dict[FaultKind, str] = {
    "invalid": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "permission": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "too_large": "INVALID_ARGUMENT",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "quota": "RESOURCE_EXHAUSTED",
    "context_too_large": "INVALID_ARGUMENT",
    "server": "INTERNAL",
    "unavailable": "UNAVAILABLE",
    "overloaded": "UNAVAILABLE",
}
_ROLES: dict[str, Literal["user", "assistant", "tool", "system"]] = {
    "": "user",
    "user": "user",
    "model": "assistant",
    "function": "tool",
    "system": "system",
}
_WORDS = re.compile(r"(?<=[a-z])[A-Z]")
_FILES = ("fileData", "file_data")
_RESPONSES = ("functionResponse", "function_response")
_NOT_CONTENT = {"thought", "thoughtSignature", "thought_signature", "partMetadata", "part_metadata"}


def _route(method: str, path: str, query: str) -> Route | None:
    """Return the route of a path, or None if it is not a known method of a model."""
    found = _PATH.fullmatch(path) if method == "POST" else None
    if found is None:
        return None
    return Route(
        kind="count_tokens" if found[2] == "countTokens" else "generate",
        model=found[1],
        stream=found[2] == "streamGenerateContent",
        sse=parse_qs(query).get("alt") == ["sse"],
    )


def _parse(route: Route, body: dict[str, Any]) -> Ask:
    """Parse a request. Raise `ValueError`, naming the field.

    A count request may wrap the request it counts.
    """
    asked, place = body, ""
    wrapped = _field(body, "generateContentRequest")
    if route.kind == "count_tokens" and wrapped is not None:
        asked, place = object_at(wrapped, "generateContentRequest"), "/generateContentRequest"
    for name in ("cachedContent", "cached_content"):
        refuse_stored(asked.get(name), name)
    return Ask(
        wire="gemini",
        kind=route.kind,
        model=route.model or "",
        stream=route.stream is True,
        messages=[*_system(asked, place), *_contents(asked, place)],
        tools=_tools(asked),
        body=body,
        sse=route.sse,
    )


def _field(value: dict[str, Any], name: str) -> Any:
    """Return a field by either of the spellings that Google accepts: `inlineData`, `inline_data`."""
    if name in value:
        return value[name]
    return value.get(_WORDS.sub(lambda letter: "_" + letter[0].lower(), name))


def _system(asked: dict[str, Any], place: str) -> list[AskMessage]:
    """Return one message for each text, so that each has its own place."""
    instruction = _field(asked, "systemInstruction")
    place = f"{place}/{'systemInstruction' if 'systemInstruction' in asked else 'system_instruction'}"
    if instruction is None:
        return []
    if isinstance(instruction, str):
        return [AskMessage("system", [AskText(instruction)], place)]
    blocks = _parts(object_at(instruction, "systemInstruction"), "systemInstruction")
    return [AskMessage("system", [block], f"{place}/parts/{n}") for n, block in enumerate(blocks)]


def _contents(asked: dict[str, Any], place: str) -> list[AskMessage]:
    contents = list_at(asked.get("contents"), "contents")
    if not contents:
        raise ValueError("contents: must not be empty")
    messages: list[AskMessage] = []
    for number, content in enumerate(contents):
        content = object_at(content, f"contents[{number}]")
        role = _ROLES.get(string(content.get("role")))
        if role is None:
            raise ValueError(f"contents[{number}].role: should be 'user' or 'model'")
        messages.append(
            AskMessage(role, _parts(content, f"contents[{number}]"), f"{place}/contents/{number}")
        )
    return messages


def _parts(content: dict[str, Any], place: str) -> list[AskBlock]:
    parts = list_at(content.get("parts"), f"{place}.parts")
    return [
        _part(object_at(part, f"{place}.parts[{n}]"), f"{place}.parts[{n}]") for n, part in enumerate(parts)
    ]


def _part(part: dict[str, Any], place: str) -> AskBlock:
    _refuse_files(part, place)
    if (call := _field(part, "functionCall")) is not None:
        call = object_at(call, f"{place}.functionCall")
        name = string_at(call.get("name"), f"{place}.functionCall.name")
        # Older requests have no call ids; the name then links a result to its call.
        return AskCall(string(call.get("id")) or name, name, call.get("args") or {})
    if (response := _field(part, "functionResponse")) is not None:
        return _result(object_at(response, f"{place}.functionResponse"), f"{place}.functionResponse")
    text = part.get("text")
    if text is None:
        return AskOther(next((name for name in part if name not in _NOT_CONTENT), "empty"))
    if not isinstance(text, str):
        raise ValueError(f"{place}.text: should be a string")
    return AskOther("thought") if part.get("thought") is True else AskText(text)


def _refuse_files(part: dict[str, Any], place: str) -> None:
    """Raise `ValueError` for a file that is stored at Google. Both spellings are looked at, since both may be there."""
    for name in _FILES:
        if name in part:
            refuse_files(part[name], f"{place}.{name}")
    for name in _RESPONSES:
        if name in part:
            refuse_files(mapping(part[name]).get("parts"), f"{place}.{name}.parts")


def _result(result: dict[str, Any], place: str) -> AskResult:
    """Return a result. By convention `output` or `error` is the text; anything else is returned as JSON."""
    name = string_at(result.get("name"), f"{place}.name")
    call_id = string(result.get("id")) or name
    response = mapping(result.get("response"))
    for key in ("error", "output", "result"):
        value = response.get(key)
        if len(response) == 1 and value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            return AskResult(call_id, text, is_error=key == "error")
    return AskResult(call_id, msgspec.json.encode(response).decode(), is_error="error" in response)


def _tools(asked: dict[str, Any]) -> list[str]:
    """Return the functions, and Google's own tools by field name."""
    tools = [] if asked.get("tools") is None else list_at(asked.get("tools"), "tools")
    offered: list[str] = []
    for number, tool in enumerate(tools):
        tool = object_at(tool, f"tools[{number}]")
        functions = _field(tool, "functionDeclarations")
        place = f"tools[{number}].functionDeclarations"
        for n, function in enumerate([] if functions is None else list_at(functions, place)):
            function = object_at(function, f"{place}[{n}]")
            offered.append(string_at(function.get("name"), f"{place}[{n}].name"))
        offered += [name for name in tool if name not in ("functionDeclarations", "function_declarations")]
    return offered


def _count(tokens: int) -> bytes:
    details = [{"modality": "TEXT", "tokenCount": tokens}]
    return msgspec.json.encode({"totalTokens": tokens, "promptTokensDetails": details})


def _error(fault: Fault) -> tuple[dict[str, str], bytes]:
    """Return headers and body of an error. The time to retry is in the body."""
    status = _STATUSES[fault.kind]
    if fault.kind == "quota" and fault.status == 403:
        status = "PERMISSION_DENIED"
    elif fault.kind == "server" and fault.status == 504:
        status = "DEADLINE_EXCEEDED"
    error: dict[str, Any] = {"code": fault.status, "message": _error_message(fault), "status": status}
    if (delay := fault.retry_after) is not None:
        error["details"] = [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{delay}s"},
        ]
    return {"content-type": "application/json; charset=UTF-8"}, msgspec.json.encode({"error": error})


def _error_message(fault: Fault) -> str:
    if fault.kind != "context_too_large":
        return fault.message
    limit = fault.limit or CONTEXT_LIMIT
    tokens = max(fault.tokens or 0, limit + 1)
    return f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."


CODEC = Codec(
    wire="gemini",
    route=_route,
    parse=_parse,
    encoder=GeminiEncoder,
    whole=encode_answer,
    count=_count,
    error=_error,
    broken_frame=b'data: {"candidates": [{"content": {"parts": [{"text": "cut\r\n\r\n',
    decoder=GeminiDecoder,
)
