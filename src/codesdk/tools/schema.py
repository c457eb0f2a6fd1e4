"""A tool's input type → the JSON Schema that models get, and validation errors in plain words.

The schema has no references, unions or free-form maps: some providers refuse those.
"""

import json
import re
from itertools import islice
from typing import Any, cast

import msgspec

from codesdk.contract.validation import split_error

_FIELDS_SHOWN = 30
_CHOICE_CHARS = 100

# msgspec's words → those of JSON Schema, which is what a model knows.
_IN_WORDS = [
    (re.compile(r"^Object missing required field `(.*)`"), r"the required field \1 is missing"),
    (re.compile(r"^Object contains unknown field `(.*)`"), r"the field \1 is unknown"),
    (re.compile(r"^Expected"), "expected"),
    (re.compile(r"^Invalid"), "invalid"),
    (re.compile(r"`int`"), "integer"),
    (re.compile(r"`float`"), "number"),
    (re.compile(r"`str`"), "string"),
    (re.compile(r"`bool`"), "boolean"),
    (re.compile(r"`"), ""),
]


def input_schema(input_type: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a struct. Raise `TypeError`, naming the field, if a provider would refuse it."""
    schema = output_schema(input_type)
    _require_plain(schema, input_type.__name__)
    return schema


def output_schema(output_type: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a tool's result. Models do not get it, so it may have any shape."""
    schema = msgspec.json.schema(output_type)
    inlined = cast("dict[str, Any]", _inline(schema, schema.get("$defs", {}), ()))
    inlined.pop("description", None)  # the class's docstring; the tool has its own
    return inlined


def explain(name: str, schema: dict[str, Any], problem: str) -> str:
    """Return a validation error as a sentence that a model can act on."""
    what, where = split_error(problem)
    for pattern, words in _IN_WORDS:
        what = pattern.sub(words, what)
    return say(name, schema, where, what)


def say(name: str, schema: dict[str, Any], where: str | None, what: str) -> str:
    """Return an error as sentences: what is wrong, where, and what the tool takes."""
    place = f"{where}: {what}" if where else f"{what[:1].upper()}{what[1:]}"
    return f"The input of {name} is not valid. {place}. {_fields(schema)}"


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    known = schema.get("properties", {})
    fields = [
        f"{name} ({_kind(field)}{', required' if name in required else ''})"
        for name, field in islice(known.items(), _FIELDS_SHOWN)
    ]
    more = f", and {len(known) - _FIELDS_SHOWN} more" if len(known) > _FIELDS_SHOWN else ""
    return f"It takes: {', '.join(fields)}{more}." if fields else "It takes no fields."


def _kind(field: Any) -> str:
    """Return a field's type in words. Foreign schemas may not state it."""
    entries = cast("dict[str, Any]", field) if isinstance(field, dict) else {}
    if "enum" in entries:
        choices = (json.dumps(value) for value in entries["enum"][:_FIELDS_SHOWN])
        return "one of " + ", ".join(choice[:_CHOICE_CHARS] for choice in choices)
    kind: Any = entries.get("type", "any value")
    return " or ".join(map(str, cast("list[Any]", kind))) if isinstance(kind, list) else str(kind)


def _inline(value: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Replace references by their definitions; drop titles, which only name our classes."""
    if isinstance(value, list):
        return [_inline(item, definitions, inside) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    reference = entries.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        if name in inside:
            raise TypeError(f"{name} contains itself; a tool's input must have a fixed depth")
        return _inline(definitions[name], definitions, (*inside, name))
    return {
        key: _inline_properties(item, definitions, inside)
        if key == "properties"
        else _inline(item, definitions, inside)
        for key, item in entries.items()
        if key not in ("$defs", "title")
    }


def _inline_properties(
    properties: dict[str, Any], definitions: dict[str, Any], inside: tuple[str, ...]
) -> Any:
    """Inline each property by name: one may be called `title`, and only the keyword must be dropped."""
    return {name: _inline(field, definitions, inside) for name, field in properties.items()}


def _require_plain(schema: dict[str, Any], place: str) -> None:
    if "anyOf" in schema or "oneOf" in schema or isinstance(schema.get("type"), list):
        raise TypeError(f"{place} is a union; give it one type and a default instead")
    if "type" not in schema and "enum" not in schema:
        raise TypeError(f"{place} can be anything; say what it is")
    if schema.get("type") == "object":
        if "properties" not in schema or isinstance(schema.get("additionalProperties"), dict):
            raise TypeError(f"{place} is a free-form map; use a struct, or a list of pairs")
        for name, field in schema["properties"].items():
            _require_plain(field, f"{place}.{name}")
    if schema.get("type") == "array":
        _require_plain(schema.get("items", {}), f"{place}[]")
