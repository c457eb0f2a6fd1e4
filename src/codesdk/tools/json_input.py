"""The JSON Schema of a tool's input → a check that says in plain words what is wrong with an input.

For tools without an input struct: an application's own schema, or an MCP server's. References must stay
inside the schema, so that none causes a request. `jsonschema` is loaded with the first one.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, cast

from codesdk.tools.schema import say

MAX_WORDS = 300
_KIND = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}

Check = Callable[[Any], str | None]
"""Takes an input; returns what is wrong with it, for a model to read, or None."""


def schema_check(name: str, schema: dict[str, Any], *, foreign: bool = False) -> Check:
    """Return the check. Raise `ValueError`, naming the tool, if the schema is not a valid object schema.

    The regular expressions of a `foreign` schema are not run: one can be made to take forever.
    """
    try:
        return _schema_check(name, schema, foreign)
    except (RecursionError, ArithmeticError):
        raise ValueError(
            f"the input schema of {name} is nested too deeply, or has a number that is too large"
        ) from None


def _schema_check(name: str, schema: dict[str, Any], foreign: bool) -> Check:
    exceptions, validators = _load("jsonschema.exceptions"), _load("jsonschema.validators")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "its top"
        raise ValueError(
            f"the input schema of {name} is not valid at {where}: {_short(error.message)}"
        ) from None
    if schema.get("type") != "object":
        raise ValueError(f'the input schema of {name} must have "type": "object"')
    # Without this registry the library would fetch what a reference names.
    if foreign:
        _require_one_dialect(name, schema)
        kind = _without_patterns(kind)
    validator = kind(schema, registry=_load("jsonschema_specifications").REGISTRY)
    _require_references(name, schema)

    def check(arguments: Any) -> str | None:
        try:
            found: Any = exceptions.best_match(validator.iter_errors(arguments))
        except RecursionError:
            return say(name, schema, None, "it is nested too deeply")
        except ArithmeticError:
            return say(name, schema, None, "a number in it is too large")
        return None if found is None else say(name, schema, found.json_path[1:].lstrip("."), _words(found))

    return check


def _without_patterns(kind: Any) -> Any:
    """Return a validator that skips what would run a regular expression. The tool's own server checks it."""

    def skip(validator: Any, value: Any, instance: Any, schema: Any) -> tuple[()]:
        return ()

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        known = kind.VALIDATORS["additionalProperties"]
        return () if "patternProperties" in schema else known(validator, value, instance, schema)

    skipped = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties"), skip)
    return _load("jsonschema.validators").extend(kind, {**skipped, "additionalProperties": additional})


def _require_one_dialect(name: str, schema: dict[str, Any]) -> None:
    """Refuse a part with a `$schema` of its own: the library would check it with a validator that skips nothing."""
    waiting: list[Any] = list(schema.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            if isinstance(entries.get("$schema"), str):
                raise ValueError(f"a part of the input schema of {name} has a $schema of its own")
            waiting += entries.values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)


def _load(module: str) -> Any:
    """Import a library that few tools need and that has no type information."""
    return import_module(module)


def _require_references(name: str, schema: dict[str, Any]) -> None:
    referencing, drafts = _load("referencing"), _load("referencing.jsonschema")
    whole = referencing.Resource.from_contents(schema, default_specification=drafts.DRAFT202012)
    resolver = referencing.Registry().with_resource("", whole).resolver()
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ValueError(
                f"the input schema of {name} refers to {_short(reference)}; nothing is fetched, so put it into"
                " the schema's $defs and refer to it there"
            )
        try:
            resolver.lookup(reference)
        except referencing.exceptions.Unresolvable:
            raise ValueError(
                f"the input schema of {name} refers to {_short(reference)}, which it does not have"
            ) from None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key in ("$ref", "$dynamicRef") and isinstance(item, str):
                yield item
            else:
                yield from _references(item)


def _words(error: Any) -> str:
    """Return a validation error in the same words as errors of our own structs."""
    instance: Any = error.instance
    if error.validator == "required":
        missing = next(field for field in error.validator_value if field not in instance)
        return f"the required field {missing} is missing"
    if error.validator == "additionalProperties" and error.validator_value is False:
        known: Any = error.schema.get("properties", {})
        unknown = next((field for field in instance if field not in known), None)
        return f"the field {_short(str(unknown))} is unknown"
    if error.validator == "type":
        wanted: Any = error.validator_value
        names = wanted if isinstance(wanted, str) else " or ".join(cast("list[str]", wanted))
        return f"expected {names}, got {_KIND.get(cast('Any', type(instance)), 'something else')}"
    return _short(str(error.message))


def _short(text: str) -> str:
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"
