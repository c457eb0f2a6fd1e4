"""The table of operations → an OpenAPI 3.1 document."""

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from codesdk import __version__
from codesdk.contract.api import Problem
from codesdk.contract.schema import Schema
from codesdk.daemon.operations.operation import Operation
from codesdk.daemon.problems import MEDIA_TYPE
from codesdk.daemon.routing import names_in
from codesdk.daemon.schemas import EVENT, REF, component_schemas, ref_to

_IDS = {
    "session_id": "The session's id",
    "task_id": "The task's id",
    "tool_call_id": "The id of the tool call, or of the question about a budget",
    "approval_id": "The id of the question, which is that of its approval",
    "suggest_id": "The id of the request for suggestions",
    "artifact_id": "The artifact's id",
    "job_id": "The id of the job",
    "tool": "The tool's name",
    "runtime": "The runtime's name or alias",
    "login_id": "The login's id",
    "provider": "The provider's name",
}
_MADE = {"SessionRow": "session_id", "TaskRow": "task_id", "ArtifactRef": "artifact_id"}
_LAST_EVENT_ID: Schema = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "Of a stream that broke off: it continues after this event. Counts more than `after_seq`.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,16}$"},
}
# Not parameters: each operation would have the three, and none does anything else because of them.
_ABOUT = (
    "Coding agents behind one recorded, policed and testable interface. Every operation also takes the headers"
    " `X-Request-Id`, `X-Client-Id` and `traceparent`, which say in logs and traces which request it was."
)
_PROBLEMS = {
    "400": "The request is not valid",
    "401": "A token is missing, wrong, revoked or expired",
    "403": "The token, or the operator, does not allow it",
    "404": "It does not exist, or the caller may not see it",
    "409": "The state has moved on, or the idempotency key was used for another request",
    "413": "The body is too long",
    "415": "The body is of another media type",
    "421": "The Host header is not a name of this daemon",
    "429": "A limit is reached; Retry-After says when to try again",
    "503": "The daemon is shutting down, or something it needs is not available",
    "507": "The data directory could not be read or written",
}


def describe(operations: Iterable[Operation]) -> Schema:
    """Return the whole document."""
    operations = list(operations)
    named: dict[str, Any] = {Problem.__name__: Problem}
    for operation in operations:
        kinds: tuple[Any, ...] = (operation.body, operation.answer)
        named |= {kind.__name__: kind for kind in kinds if _is_struct(kind)}
    paths: Schema = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, operations)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "codesdkd",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": component_schemas(named.values()),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _operation(operation: Operation, all_of_them: list[Operation]) -> Schema:
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": [*_path_parameters(operation.path), *_query_parameters(operation.query)],
        "responses": {str(operation.status): _response(operation, all_of_them), **_problems(operation)},
    }
    if operation.scope is not None:
        described["description"] = f"Needs the scope `{operation.scope}`."
        # Or none at all: a daemon without tokens is open to its own machine.
        described["security"] = [{"token": []}, {}]
    if operation.body is not None:
        described["requestBody"] = _body(operation.body)
    if operation.name == "readEvents":
        described["parameters"].append(_LAST_EVENT_ID)
    if operation.method == "POST" or operation.action is not None:
        described["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "The same request under the same key is carried out once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
            }
        )
    return described


def _body(body: Any) -> Schema:
    if body == "bytes":
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        return {"required": True, "content": content}
    required = any(field.required for field in msgspec.structs.fields(body))
    return {
        "required": required,
        "content": {"application/json": {"schema": ref_to(body.__name__)}},
    }


def _response(operation: Operation, all_of_them: list[Operation]) -> Schema:
    described: Schema = {"description": operation.summary}
    if links := _links(operation, all_of_them):
        described["links"] = links
    if operation.answer is not None:
        schema = (
            ref_to(operation.answer.__name__)
            if _is_struct(operation.answer)
            else {"type": "object", "additionalProperties": True}
            if operation.answer is dict
            else {"type": "string"}
        )
        described["content"] = {operation.media_type: {"schema": schema}}
    if operation.name == "readEvents":
        words = f"Server-sent events: the data of each is an `{EVENT}` as JSON, its id the event's seq."
        stream = {"schema": {"type": "string", "description": words}}
        described["content"]["text/event-stream"] = stream
    return described


def _links(made_by: Operation, operations: list[Operation]) -> Schema:
    """Return links from the id of a new object to all operations whose path needs only that id."""
    name = _MADE.get(getattr(made_by.answer, "__name__", "")) if made_by.method == "POST" else None
    return {
        f"{operation.name}Of": {
            "operationId": operation.name,
            "parameters": {name: f"$response.body#/{name}"},
        }
        for operation in operations
        if name is not None and names_in(operation.path) == [name]
    }


def _problems(operation: Operation) -> Schema:
    content = {MEDIA_TYPE: {"schema": ref_to(Problem.__name__)}}
    found = {status: {"description": words, "content": content} for status, words in _PROBLEMS.items()}
    if operation.name == "readArtifact":
        found |= {
            "206": {"description": "The range that was asked for"},
            "304": {"description": "The client has it already"},
            "416": {"description": "The range is not in the artifact", "content": content},
        }
    return found


def _path_parameters(path: str) -> list[Schema]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _IDS[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in names_in(path)
    ]


def _query_parameters(query: type[msgspec.Struct]) -> list[Schema]:
    _, definitions = msgspec.json.schema_components([query], ref_template=REF)
    properties = cast("dict[str, Schema]", definitions[query.__name__].get("properties", {}))
    return [_query_parameter(name, schema) for name, schema in properties.items()]


def _query_parameter(name: str, schema: Schema) -> Schema:
    """Return a parameter. Its schema does not mention null: a parameter is left out instead."""
    described = schema.get("description", "")
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    plain = options[0] if len(options) == 1 else schema
    plain = {key: value for key, value in plain.items() if key not in ("default", "description")}
    if None in plain.get("enum", []):
        plain = plain | {"enum": [value for value in plain["enum"] if value is not None]}
    if schema.get("default") is not None:
        plain = plain | {"default": schema["default"]}
    return {"name": name, "in": "query", "required": False, "description": described, "schema": plain}
