"""The JSON Schema of a tool's input → a check that says in plain words what is wrong with an input.

For tools without an input struct: an application's own schema, an MCP server's, or that of a task's result. The
schema is compiled once, here; the check runs on the loop, so its work is bounded in steps.
"""

from collections.abc import Callable
from typing import Any

from codesdk.tools.json_schema.compiler import compile_schema
from codesdk.tools.json_schema.shapes import BadSchema
from codesdk.tools.json_schema.work import MAX_STEPS, TooMuchWork, Work
from codesdk.tools.schema import say

Check = Callable[[Any], str | None]
"""Takes an input; returns what is wrong with it, for a model to read, or None."""


def schema_check(name: str, schema: dict[str, Any]) -> Check:
    """Return the check. Raise `ValueError`, naming the tool, if the schema cannot be used for an object."""
    find = problem_finder(f"the input schema of {name}", schema)

    def check(arguments: Any) -> str | None:
        found = find(arguments)
        return None if found is None else say(name, schema, *found)

    return check


def problem_finder(what: str, schema: dict[str, Any]) -> Callable[[Any], tuple[str | None, str] | None]:
    """Return what finds the place and the words of the first problem in a value.

    Raise `ValueError`, naming the schema as `what`, if it cannot be used for an object.
    """
    try:
        compiled = compile_schema(schema)
    except BadSchema as error:
        raise ValueError(f"{what} cannot be used at {error.place or 'its top'}: {error}") from None
    if schema.get("type") != "object":
        raise ValueError(f'{what} must have "type": "object"')

    def find(value: Any) -> tuple[str | None, str] | None:
        try:
            found = compiled.problem(value, Work())
        except RecursionError:
            return None, "it is nested too deeply"
        except TooMuchWork:
            return None, f"checking it takes more than {MAX_STEPS:,} steps; send less at once"
        return None if found is None else (found.place, found.words)

    return find
