"""Writes the contract's structs as JSON Schema (2020-12), one document per event type, for clients in any language.

`scripts/export-schema` writes them to `docs/schema`. Nothing at run time validates with them: the codec does.
A schema describes what this version writes and, like a reader, allows unknown fields.
"""

import json
from typing import Any, cast

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import (
    CONTRACT_VERSION,
    EVENT_TYPES,
    EVENTS,
    SCHEMA_VERSION,
    TERMINAL_TYPES,
    KnownEvent,
)
from codesdk.contract.messages import Message

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TIME_PATTERN = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"


def event_schemas() -> dict[str, Schema]:
    """Return the schema of each event type: the envelope with this `type` and this payload."""
    return {event.type: _event_schema(event) for event in EVENTS}


def schema_files() -> dict[str, str]:
    """Return every file of the exported folder: its name and its text."""
    documents = {f"{name}.json": schema for name, schema in event_schemas().items()}
    documents["error.json"] = _struct_schema("error", ErrorInfo)
    documents["message.json"] = _struct_schema("message", Message)
    documents["index.json"] = _index()
    return {name: json.dumps(document, indent=2) + "\n" for name, document in documents.items()}


def _index() -> dict[str, Any]:
    return {
        "contract_version": CONTRACT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "events": {name: f"{name}.json" for name in EVENT_TYPES},
        "terminal": sorted(TERMINAL_TYPES),
        "error": "error.json",
        "message": "message.json",
    }


def _event_schema(event: type[KnownEvent]) -> Schema:
    definitions = _definitions(event)
    schema = definitions.pop(event.__name__)
    schema["properties"] |= {
        "schema_version": {"const": SCHEMA_VERSION},
        "seq": {"type": "integer", "minimum": 1},
        "time": {"type": "string", "pattern": TIME_PATTERN},
        "type": {"const": event.type},
    }
    description = definitions[EVENT_TYPES[event.type].__name__]["description"]
    return _document(event.type, {"title": "", "description": description} | schema, definitions)


def _struct_schema(name: str, struct: type) -> Schema:
    definitions = _definitions(struct)
    schema = definitions.pop(struct.__name__)
    return _document(name, schema, definitions)


def _document(name: str, schema: Schema, definitions: dict[str, Schema]) -> Schema:
    head = {"$schema": DIALECT, "$id": f"urn:codesdk:schema:{SCHEMA_VERSION}:{name}"}
    return head | schema | {"title": name, "$defs": dict(sorted(definitions.items()))}


def _definitions(struct: type) -> dict[str, Schema]:
    _, definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    # A word of OpenAPI that strict validators of the dialect refuse.
    return {name: tidy(schema, "discriminator") for name, schema in definitions.items()}


def tidy(node: Any, without: str | None = None) -> Any:
    """Return a schema without a word, and the same on every Python: the indent of docstrings differs by version."""
    if isinstance(node, list):
        return [tidy(item, without) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    plain = {key: tidy(value, without) for key, value in cast("Schema", node).items() if key != without}
    if isinstance(text := plain.get("description"), str):
        plain["description"] = " ".join(text.split())
    return plain
