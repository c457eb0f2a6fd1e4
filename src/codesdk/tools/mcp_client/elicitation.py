"""What an MCP server asks during a call: its form → questions to a person, one per field, and the answers → its content.

Only flat forms of texts, choices, numbers and booleans are shown. Whatever else is asked for is declined.
"""

from collections.abc import Mapping
from typing import Any, cast

import mcp_types as types

from codesdk.contract.ports import AskUser
from codesdk.contract.tools import Expects, Question

MAX_FIELDS = 8
MAX_TEXT_CHARS = 4_000
MAX_OPTIONS = 64
MAX_OPTION_CHARS = 200
_KINDS: dict[str, Expects] = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}
DECLINED = types.ElicitResult(action="decline")


async def elicit(server: str, params: types.ElicitRequestParams, ask: AskUser) -> types.ElicitResult:
    """Ask a person what a server asks, field by field. The first one without an answer declines the rest."""
    fields = questions_of(server, params) if isinstance(params, types.ElicitRequestFormParams) else None
    if fields is None:
        return DECLINED
    content: dict[str, Any] = {}
    for name, question in fields.items():
        answer = await ask(question)
        if answer is None or (name == "" and answer != "true"):
            return DECLINED
        if name and (answer or not question.optional):
            content[name] = _value(question.expects, answer)
    return types.ElicitResult(action="accept", content=content)


def questions_of(server: str, params: types.ElicitRequestFormParams) -> dict[str, Question] | None:
    """Return the questions of a form by its fields, or None if it cannot be shown. One without fields asks yes or no."""
    schema: Any = params.requested_schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or len(params.message) > MAX_TEXT_CHARS
    ):
        return None
    named = cast("dict[str, Any]", properties)
    if len(named) > MAX_FIELDS:
        return None
    if not named:
        return {"": Question(text=params.message, expects="boolean", asker=server)}
    found: dict[str, Question] = {}
    for name, field in named.items():
        shown = _shown(name, cast("dict[str, Any]", field)) if name and isinstance(field, dict) else None
        if shown is None:
            return None
        words, options, expects = shown
        found[name] = Question(
            text=f"{params.message}\n\n{words}",
            options=options,
            expects=expects,
            optional=name not in required,
            asker=server,
        )
    return found


def _shown(name: str, field: Mapping[str, Any]) -> tuple[str, list[str], Expects] | None:
    """Return what a person is shown of a field, or None if that is not all that it means."""
    kind = field.get("type")
    expects = _KINDS.get(kind) if isinstance(kind, str) else None
    options = _options(field)
    if expects is None or options is None or (options and expects != "text"):
        return None
    texts = [field.get("title") or name, field.get("description")]
    if not all(text is None or (isinstance(text, str) and len(text) <= MAX_TEXT_CHARS) for text in texts):
        return None
    return ": ".join(filter(None, texts)), options, "choice" if options else expects


def _options(field: Mapping[str, Any]) -> list[str] | None:
    """Return what can be chosen in a field, nothing if it is free, or None if that cannot be shown."""
    given: Any = field.get("enum")
    if given is None and "oneOf" in field:
        choices: Any = field["oneOf"]
        if not isinstance(choices, list):
            return None
        given = [_const(one) for one in cast("list[Any]", choices)]
    if given is None:
        return []
    if not isinstance(given, list) or not 0 < len(cast("list[Any]", given)) <= MAX_OPTIONS:
        return None
    options = cast("list[Any]", given)
    return (
        options if all(isinstance(one, str) and 0 < len(one) <= MAX_OPTION_CHARS for one in options) else None
    )


def _const(choice: Any) -> Any:
    return cast("dict[str, Any]", choice).get("const") if isinstance(choice, dict) else None


def _value(expects: Expects, answer: str) -> str | int | float | bool:
    if expects == "boolean":
        return answer == "true"
    if expects == "integer":
        return int(answer)
    return float(answer) if expects == "number" else answer
