"""`task.answer`: the result of a task with an output schema. Its input is the result, checked like any tool's input.

`OutputSchema` is such a schema, checked and compiled; `AnswerTools` adds the tool to those that a session has anyway.
"""

from collections.abc import Sequence
from typing import Any, cast

from codesdk.contract.ports import PreparedCall, ToolInvocation, ToolRun, ToolRunner, ToolSink
from codesdk.contract.tools import ANSWER_TOOL, SandboxSummary, ToolAnnotations, ToolSpec
from codesdk.tools.schema import say

ACCEPTED = "The result is accepted. The task is done: end your turn."
_DESCRIPTION = (
    "Give the result of this task. The input is the result: nothing else that you say counts as one. Call it once, when"
    " the work is done. If it is refused, mend what is named and call it again. If you call it again after it was"
    " accepted, the last result counts."
)
_LISTED = (
    "Give the result of a task that asks for it in a certain form. The input is the result. Call it only if the user's"
    " message says so; other tasks do not take it."
)
_STRICT = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"$ref", "$defs", "description", "title", "pattern", "format", "minItems", "maxItems", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
"""The keywords that providers take in a schema for their models' answers."""


class OutputSchema:
    """The schema of a task's result. Raises `ValueError` if it is not one of an object, or cannot be checked."""

    def __init__(self, schema: dict[str, Any]) -> None:
        from codesdk.tools.json_input import problem_finder  # few tasks owe a result with a schema

        self.schema = schema
        self._find = problem_finder("the output schema", schema)

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a result, as a sentence, or None."""
        found = self._find(value)
        if found is None:
            return None
        place, words = found
        return f"{place}: {words}." if place else f"{words[:1].upper()}{words[1:]}."

    def refusal(self, value: Any) -> str | None:
        """Return what the model is told about the input of a call, or None if it is a result."""
        found = self._find(value)
        return None if found is None else say(ANSWER_TOOL, self.schema, *found)


class AnswerTools:
    """The tools of a session and `task.answer`, for one task. Implements `ToolRunner`."""

    def __init__(self, base: ToolRunner, schema: dict[str, Any]) -> None:
        self._base = base
        self._output = OutputSchema(schema)
        self._spec = _spec(_DESCRIPTION, schema)

    def specs(self) -> Sequence[ToolSpec]:
        return [*self._base.specs(), self._spec]

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        if name != ANSWER_TOOL:
            return self._base.prepare(name, arguments)
        refusal = self._output.refusal(arguments)
        if refusal is not None:
            return refusal
        sandbox = SandboxSummary(network=False)
        return PreparedCall(run=_accept, execution_env="codesdk_host", sandbox=sandbox)

    async def close_session(self, session_id: str) -> None:
        await self._base.close_session(session_id)


def listed_tools(offered: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools that an agent is told of, which may keep the list for many tasks.

    So it always has `task.answer`, for any object: an agent that does not know the tool would not pass its call on. Its
    model is offered it by the gateway, in tasks with a schema only, and with that schema.
    """
    others = [spec for spec in offered if spec.name != ANSWER_TOOL]
    return [*others, _spec(_LISTED, {"type": "object", "properties": {}, "additionalProperties": True})]


def is_strict(schema: dict[str, Any]) -> bool:
    """Return whether providers take a schema for their models' answers: all fields required, and no others."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            return False
        keywords = cast("dict[str, Any]", part)
        if not keywords.keys() <= _STRICT or not _is_closed(keywords):
            return False
        for keyword in ("properties", "$defs"):
            waiting += keywords.get(keyword, {}).values()
        waiting += keywords.get("anyOf", [])
        waiting += [keywords["items"]] if "items" in keywords else []
    return "anyOf" not in schema


def _is_closed(schema: dict[str, Any]) -> bool:
    """Return whether a schema leaves no field open, if it is one of an object."""
    if schema.get("type") != "object":
        return "properties" not in schema
    fields = schema.get("properties", {})
    return schema.get("additionalProperties") is False and set(schema.get("required", [])) == set(fields)


def _spec(description: str, schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=ANSWER_TOOL,
        description=description,
        input_schema=schema,
        tool_class="read_only",
        annotations=ToolAnnotations(title="Give the result", idempotent=True),
    )


async def _accept(call: ToolInvocation, output: ToolSink) -> ToolRun:
    """Do nothing: that the call completed is what makes its input the result."""
    return ToolRun(result=ACCEPTED)
