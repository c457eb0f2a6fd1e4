"""The JSON Schema of a tool's input → a check that says in plain words what is wrong with an input.

For tools without an input struct: an application's own schema, or an MCP server's. The schema is compiled
once, here; the check runs on the loop, so its work is bounded in steps.
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
    try:
        compiled = compile_schema(schema)
    except BadSchema as error:
        raise ValueError(
            f"the input schema of {name} cannot be used at {error.place or 'its top'}: {error}"
        ) from None
    if schema.get("type") != "object":
        raise ValueError(f'the input schema of {name} must have "type": "object"')

    def check(arguments: Any) -> str | None:
        try:
            found = compiled.problem(arguments, Work())
        except RecursionError:
            return say(name, schema, None, "it is nested too deeply")
        except TooMuchWork:
            return say(
                name, schema, None, f"checking it takes more than {MAX_STEPS:,} steps; send less at once"
            )
        return None if found is None else say(name, schema, found.place, found.words)

    return check
