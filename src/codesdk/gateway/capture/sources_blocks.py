"""A model request → its blocks, each with the JSON pointer of its string or object.

Walks the body along the messages that the codec found, so the four formats differ here only in the names of
their fields. `sources` finds the origin of each block.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from codesdk.contract.canonical import CanonicalError, canonical
from codesdk.gateway.wires.exchange import Ask, AskCall, AskMessage
from codesdk.gateway.wires.fields import items, mapping, string
from codesdk.gateway.wires.responses_tools import CARRIERS, joined

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["text", "tool", "other"]

_TEXT_TYPES = (None, "text", "input_text", "output_text")
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_RESPONSES = ("functionResponse", "function_response")
_CALL_IDS = ("tool_use_id", "call_id", "tool_call_id", "id", "name")


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One block. `text` is its content: a string unchanged, anything else as canonical JSON.

    `part` is its role in the request: input, something the session itself produced, (a part of) the result
    of a call, or an offered tool. `tool` is the wire name of the tool that is offered or was called.
    """

    place: str
    role: Role | None
    kind: Kind
    part: Literal["input", "session", "result", "tool"]
    text: str
    tool: str = ""
    description: str = ""


def blocks_of(ask: Ask) -> Iterator[Block]:
    """Yield every block in the order in which it reaches the model: tools, system texts, messages."""
    yield from _tools(ask)
    calls = {b.id: b.name for m in ask.messages for b in m.blocks if isinstance(b, AskCall)}
    for message in ask.messages:
        yield from _message(message, _at(ask.body, message.place), calls)


def _tools(ask: Ask) -> Iterator[Block]:
    if ask.wire == "gemini":
        yield from _gemini_tools(ask.body)
        return
    yield from _tool_list(ask.body.get("tools"), "/tools", None)
    if ask.wire == "chat":
        yield from _tool_list(ask.body.get("functions"), "/functions", None)
    if ask.wire == "responses":
        for number, item in enumerate(items(ask.body.get("input"))):
            if mapping(item).get("type") in CARRIERS:
                yield from _tool_list(mapping(item).get("tools"), f"/input/{number}/tools", None)


def _tool_list(tools: object, place: str, namespace: str | None) -> Iterator[Block]:
    for number, tool in enumerate(items(tools)):
        here, fields = f"{place}/{number}", mapping(tool)
        if fields.get("type") == "namespace":
            # The namespace has a description of its own that the model reads, so it is a block as well.
            about = {key: value for key, value in fields.items() if key != "tools"}
            yield _tool(about, here, "")
            yield from _tool_list(fields.get("tools"), f"{here}/tools", string(fields.get("name")))
        else:
            inner = mapping(fields.get("function")) or mapping(fields.get("custom")) or fields
            name = joined(string(inner.get("name")), namespace)
            yield _tool(fields, here, name, string(inner.get("description")))


def _gemini_tools(body: dict[str, Any]) -> Iterator[Block]:
    prefix, asked = "", body
    for key in ("generateContentRequest", "generate_content_request"):
        if key in body:
            prefix, asked = f"/{key}", mapping(body[key])
    for number, tool in enumerate(items(asked.get("tools"))):
        for key, value in mapping(tool).items():
            here = f"{prefix}/tools/{number}/{_escape(key)}"
            if key in _DECLARATIONS:
                yield from _tool_list(value, here, None)
            else:
                yield _tool(value, here, key)


def _tool(value: object, place: str, name: str, description: str = "") -> Block:
    return Block(
        place=place,
        role=None,
        kind="tool",
        part="tool",
        text=_json(value),
        tool=name,
        description=description,
    )


def _message(message: AskMessage, node: object, calls: dict[str, str]) -> Iterator[Block]:
    place, role, fields = message.place, message.role, mapping(node)
    if fields.get("type") in CARRIERS:
        return  # its tools were already yielded as blocks
    if role == "assistant":
        yield Block(place=place, role=role, kind="other", part="session", text="")
    elif isinstance(node, str):
        yield Block(place=place, role=role, kind="text", part="input", text=node)
    elif role == "tool" and "parts" not in fields:  # the whole item or message is a result
        key = "output" if "output" in fields else "content"
        yield from _result(fields.get(key), f"{place}/{key}", _called(fields, calls))
    elif "parts" in fields or "role" in fields:
        key = "parts" if "parts" in fields else "content"
        yield from _content(fields.get(key), f"{place}/{key}", role, calls)
    else:
        yield from _part(fields, place, role, calls)


def _content(value: object, place: str, role: Role, calls: dict[str, str]) -> Iterator[Block]:
    if isinstance(value, str):
        yield Block(place=place, role=role, kind="text", part="input", text=value)
    for number, part in enumerate(items(value)):
        yield from _part(mapping(part), f"{place}/{number}", role, calls)


def _part(part: dict[str, Any], place: str, role: Role, calls: dict[str, str]) -> Iterator[Block]:
    text = part.get("text")
    if part.get("type") == "tool_result":
        yield from _result(part.get("content"), f"{place}/content", _called(part, calls))
    elif key := next((key for key in _RESPONSES if key in part), None):
        response = mapping(part[key])
        for inner in ("response", "parts"):
            yield from _result(response.get(inner), f"{place}/{key}/{inner}", _called(response, calls))
    elif isinstance(text, str) and part.get("type") in _TEXT_TYPES and part.get("thought") is not True:
        yield Block(place=f"{place}/text", role=role, kind="text", part="input", text=text)
    else:
        yield Block(place=place, role=role, kind="other", part="input", text=_json(part))


def _result(value: object, place: str, tool: str) -> Iterator[Block]:
    """Yield the texts of a result one by one: a runtime may insert its own between them."""
    if isinstance(value, str):
        yield Block(place=place, role="tool", kind="text", part="result", text=value, tool=tool)
        return
    numbered = ((str(number), item) for number, item in enumerate(items(value)))
    for key, item in [*numbered, *mapping(value).items()]:
        here, fields = f"{place}/{_escape(key)}", mapping(item)
        texts = [name for name in ("text", "stdout", "stderr") if isinstance(fields.get(name), str)]
        if isinstance(item, str):
            yield from _result(item, here, tool)
        elif texts:
            for name in texts:
                yield from _result(fields[name], f"{here}/{name}", tool)
        else:
            yield Block(place=here, role="tool", kind="other", part="result", text=_json(item), tool=tool)


def _called(fields: dict[str, Any], calls: dict[str, str]) -> str:
    """Return the wire name of the tool whose result this is, empty if the request does not say."""
    # Each format has its own field for the id of the call; Gemini's older requests only have the name.
    for key in _CALL_IDS:
        if (found := calls.get(string(fields.get(key)))) is not None:
            return found
    return string(fields.get("name"))


def _at(body: object, pointer: str) -> object:
    node = body
    for key in pointer.split("/")[1:]:
        rows = items(node)
        node = rows[int(key)] if rows else mapping(node).get(key)
    return node


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _json(value: object) -> str:
    try:
        return canonical(value).decode()
    except CanonicalError:  # a number that has no canonical form
        return msgspec.json.encode(value, order="sorted").decode()
