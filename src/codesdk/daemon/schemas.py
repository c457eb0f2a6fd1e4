"""The contract's structs → the schemas of the OpenAPI document, as generators of clients take them.

What msgspec says of a struct is right for a validator; a generator needs more, or the types it makes cannot be used:
free-form maps must say so, a default is said in words (as a keyword it makes a field required), and a union with a tag
is a `oneOf` with a discriminator. The events are such a union.
"""

import json
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from codesdk.contract.api import EventPage
from codesdk.contract.events import EVENT_TYPES, EVENTS
from codesdk.contract.schema import Schema, tidy

REF = "#/components/schemas/{name}"
EVENT = "Event"
_SHORT = {
    "codesdk.contract.events.RuntimeInfo": "EventRuntime",
    "codesdk.contract.api.RuntimeInfo": "RuntimeInfo",
}
"""Two structs have one name. msgspec then adds those of their modules, which nobody wants to read in a client."""
_EVENTS_WORDS = (
    "One event of a session, told apart by `type`. A later version may write types that are not listed here:"
    " accept them and pass them on."
)


def ref_to(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": REF.format(name=name)}


def component_schemas(kinds: Iterable[Any]) -> dict[str, Schema]:
    """Return the schemas of structs and of all that they hold, those of the events among them, by name."""
    named = {kind.__name__: kind for kind in (*kinds, *EVENTS)}
    _, found = msgspec.json.schema_components([named[name] for name in sorted(named)], ref_template=REF)
    schemas = {_SHORT.get(name, name): _usable(tidy(schema)) for name, schema in found.items()}
    for event in EVENTS:
        schema = schemas[event.__name__]
        schema["description"] = found[EVENT_TYPES[event.type].__name__]["description"]
        schema["properties"]["seq"]["minimum"] = 1
    schemas[EVENT] = _event_schema()
    schemas[EventPage.__name__]["properties"]["events"]["items"] = ref_to(EVENT)
    return dict(sorted(schemas.items()))


def _event_schema() -> Schema:
    mapping = {event.type: REF.format(name=event.__name__) for event in EVENTS}
    return {
        "title": EVENT,
        "description": _EVENTS_WORDS,
        "oneOf": [ref_to(event.__name__) for event in EVENTS],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def _usable(node: Any) -> Any:
    """Return a schema as generators take it, all the way down."""
    if isinstance(node, list):
        return [_usable(item) for item in cast("list[Any]", node)]
    if isinstance(node, str):
        name = node.rpartition("/")[2]
        return REF.format(name=_SHORT[name]) if name in _SHORT else node
    if not isinstance(node, dict):
        return node
    given = cast("Schema", node)
    schema = {key: _usable(value) for key, value in given.items() if key not in ("default", "properties")}
    if "properties" in given:  # whose keys are names, whatever they are
        schema["properties"] = {name: _usable(below) for name, below in given["properties"].items()}
    if "default" in given:
        schema |= _in_words(schema, given["default"])
    if schema.get("type") == "object" and not {"properties", "additionalProperties"} & schema.keys():
        schema["additionalProperties"] = True
    if "type" not in schema and schema.get("enum") and all(isinstance(one, str) for one in schema["enum"]):
        schema["type"] = "string"
    if "discriminator" in schema and "anyOf" in schema:
        schema["oneOf"] = schema.pop("anyOf")
    return schema


def _in_words(schema: Schema, default: Any) -> Schema:
    """Return a description that says the default, where it says something: an empty one is what one expects."""
    if default in (None, {}, []) or isinstance(default, dict):
        return {}
    words = f"{schema.get('description', '')} Default: {json.dumps(default)}.".strip()
    return {"description": words}
