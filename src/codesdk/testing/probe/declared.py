"""The body of a model request → the tools that it offers, whatever its format. Pure; what cannot be read is left out."""

from collections.abc import Iterator
from typing import Any

from codesdk.contract.models import Wire
from codesdk.runtimes import as_dict, as_list
from codesdk.testing.probe.seen import Offered


def declared(wire: Wire, body: dict[str, Any]) -> Iterator[Offered]:
    """Yield the tools of a request."""
    brought = [tool for item in _objects(body.get("input")) for tool in _objects(item.get("tools"))]
    for tool in [*_objects(body.get("tools")), *brought]:
        if wire == "gemini":
            for inner in _objects(tool.get("functionDeclarations")):
                yield from _offered(inner, inner.get("parametersJsonSchema") or inner.get("parameters"))
        elif wire == "chat":
            function = as_dict(tool.get("function")) or as_dict(tool.get("custom"))
            yield from _offered(function, function.get("parameters"))
        elif tool.get("type") == "namespace":
            for inner in _objects(tool.get("tools")):
                yield from _offered(inner, inner.get("parameters"), str(tool.get("name")))
        else:
            yield from _offered(tool, tool.get("input_schema") or tool.get("parameters"))


def _offered(tool: dict[str, Any], schema: Any, namespace: str | None = None) -> Iterator[Offered]:
    # A provider's own tool has a type, and no name.
    name = tool.get("name") or tool.get("type")
    if isinstance(name, str):
        properties = as_dict(as_dict(schema).get("properties"))
        required = as_list(as_dict(schema).get("required"))
        yield Offered(
            name=name,
            namespace=namespace,
            arguments={key: _kind(value) for key, value in properties.items()},
            required=tuple(word for word in required if isinstance(word, str)),
        )


def _kind(schema: Any) -> str:
    return str(as_dict(schema).get("type") or "any").lower()


def _objects(value: Any) -> list[dict[str, Any]]:
    return [as_dict(item) for item in as_list(value)]
