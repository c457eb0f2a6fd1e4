"""The tools that a Responses request offers, and how to write a call of each.

Outside this format, a tool in a namespace is called `namespace__name`, like MCP's flat names; on the wire
the two are separate. `responses` lists the tools, `responses_stream` looks up how to write a call.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from codesdk.gateway.wires.fields import items, list_at, mapping, string, string_at

_NAMED = ("function", "custom", "namespace")
CARRIERS = ("additional_tools", "tool_search_output")
"""Types of input items that bring more tools."""


class Spelling(NamedTuple):
    """A tool's name as the wire spells it. The input of a custom tool is free text."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


def joined(name: str, namespace: object) -> str:
    """Return the single name of a tool that may be in a namespace."""
    if not isinstance(namespace, str) or not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


def offered_tools(body: dict[str, Any]) -> list[str]:
    """Return the names of the offered tools. Raise `ValueError` if one has none."""
    return [name for name, _ in _walk(body)]


def spellings(body: dict[str, Any]) -> dict[str, Spelling]:
    """Return how to write a call of each tool, by its single name."""
    return dict(_walk(body))


def _walk(body: dict[str, Any]) -> Iterator[tuple[str, Spelling]]:
    """Yield name and spelling of each tool: those of the request, then those of its items."""
    yield from _walk_list(body.get("tools"), "tools", None)
    for number, item in enumerate(items(body.get("input"))):
        fields = mapping(item)
        if fields.get("type") in CARRIERS:
            yield from _walk_list(fields.get("tools"), f"input[{number}].tools", None)


def _walk_list(tools: object, place: str, namespace: str | None) -> Iterator[tuple[str, Spelling]]:
    for number, tool in enumerate([] if tools is None else list_at(tools, place)):
        fields = mapping(tool)
        kind = string_at(fields.get("type"), f"{place}[{number}].type")
        name = string(fields.get("name")) or string(fields.get("server_label"))
        if kind in _NAMED:
            string_at(name or None, f"{place}[{number}].name")
        if kind == "namespace":
            yield from _walk_list(fields.get("tools"), f"{place}[{number}].tools", name)
            continue
        name = name or kind  # OpenAI's own tools are known by their type
        yield joined(name, namespace), Spelling(name, namespace, kind == "custom")
