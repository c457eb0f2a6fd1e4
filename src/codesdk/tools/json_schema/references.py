"""`#/$defs/place` or `#place` → the schema it means, inside the same document. Nothing is ever fetched."""

from typing import Any, cast
from urllib.parse import unquote

from codesdk.tools.json_schema.shapes import BadSchema, short


class References:
    """The places of one schema that others of it can refer to."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._anchors: dict[str, Any] | None = None

    def target(self, reference: str, place: str) -> Any:
        """Return the schema that is meant. Raise `BadSchema` if it is elsewhere or nowhere."""
        if not reference.startswith("#"):
            raise BadSchema(
                place,
                f"it refers to {short(reference)}; nothing is fetched, so put it into the schema's $defs and refer"
                " to it there",
            )
        fragment = unquote(reference[1:])
        try:
            if fragment.startswith("/") or not fragment:
                return self._pointed(fragment)
            return self._anchored()[fragment]
        except (KeyError, IndexError, ValueError, TypeError):
            raise BadSchema(place, f"it refers to {short(reference)}, which it does not have") from None

    def _pointed(self, pointer: str) -> Any:
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = cast("list[Any]", found)[int(name)] if isinstance(found, list) else found[name]
        if not isinstance(found, dict | bool):
            raise TypeError
        return cast("Any", found)

    def _anchored(self) -> dict[str, Any]:
        """Return the schemas that have names, by name. Up to draft 7, `$id` gave them, with a #."""
        if self._anchors is None:
            self._anchors = {}
            waiting: list[Any] = [self._root]
            while waiting:
                value = waiting.pop()
                if isinstance(value, dict):
                    schema = cast("dict[str, Any]", value)
                    for name in (schema.get("$anchor"), schema.get("$id")):
                        if isinstance(name, str):
                            self._anchors.setdefault(name.removeprefix("#"), schema)
                    waiting += schema.values()
                elif isinstance(value, list):
                    waiting += cast("list[Any]", value)
        return self._anchors
