"""The messages of the adapter protocol → one JSON Schema document, for adapters in any language.

The document itself describes a message that one side sends by itself; `methods` says who sends which, and names the
definitions of params and results. `scripts/export-schema` writes it to `docs/schema`.
"""

import json
from typing import Any

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.schema import DIALECT, tidy
from codesdk.runtimes.external.messages import METHODS, PROTOCOL_VERSION, Method

FILE = "adapter-protocol.json"
_AT = "#/$defs/{name}"


def adapter_schema_files() -> dict[str, str]:
    """Return the exported file: its name and its text."""
    return {FILE: json.dumps(adapter_schema(), indent=2) + "\n"}


def adapter_schema() -> dict[str, Any]:
    """Return the document."""
    kinds = [kind for method in METHODS for kind in (method.params, method.result) if kind is not None]
    _, definitions = msgspec.json.schema_components([*kinds, ErrorInfo], ref_template=_AT)
    return {
        "$schema": DIALECT,
        "$id": f"urn:codesdk:schema:adapter-protocol:{PROTOCOL_VERSION}",
        "title": "adapter-protocol",
        "description": "A message of the CodeSDK adapter protocol: a request or a notification.",
        "protocol_version": PROTOCOL_VERSION,
        "methods": {method.name: _method(method) for method in METHODS},
        "anyOf": [_message(method) for method in METHODS],
        "$defs": {name: tidy(definitions[name], "discriminator") for name in sorted(definitions)},
    }


def _method(method: Method) -> dict[str, Any]:
    kind = "notification" if method.result is None else "request"
    named = {"caller": method.caller, "kind": kind, "params": _ref(method.params)}
    return named if method.result is None else {**named, "result": _ref(method.result)}


def _message(method: Method) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "jsonrpc": {"const": "2.0"},
        "method": {"const": method.name},
        "params": _ref(method.params),
    }
    required = ["jsonrpc", "method", "params"]
    if method.result is not None:
        properties["id"] = {"type": ["integer", "string"]}
        required.append("id")
    return {"type": "object", "properties": properties, "required": required}


def _ref(kind: Any) -> dict[str, str]:
    return {"$ref": _AT.format(name=kind.__name__)}
