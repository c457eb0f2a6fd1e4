"""The result of a task: its schema, its tool, and what agents are told of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tools.calling import call

from codesdk.contract.ports import PreparedCall
from codesdk.contract.tools import ANSWER_TOOL
from codesdk.tools.answer import ACCEPTED, AnswerTools, OutputSchema, is_strict, listed_tools
from codesdk.tools.ask import ask_tool
from codesdk.tools.builtin import builtin_registry
from codesdk.tools.registry import ToolRegistry

STARS = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}


def strict(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def test_a_problem_is_a_sentence_with_its_place():
    schema = OutputSchema({**STARS, "additionalProperties": False})
    assert schema.problem({"stars": 3}) is None
    assert schema.problem({"stars": "x"}) == "stars: expected integer, got string."
    assert schema.problem([]) == "Expected object, got array."
    assert schema.problem({"stars": 1, "more": 2}) == "The field more is unknown."


@pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"type": "object", "required": 3}])
def test_what_is_no_schema_of_an_object_is_refused(schema: dict[str, Any]):
    with pytest.raises(ValueError, match="the output schema"):
        OutputSchema(schema)


def test_work_on_a_result_is_bounded():
    value: Any = 1
    for _ in range(2_000):
        value = [value]
    lists = {"l": {"items": {"$ref": "#/$defs/l"}}}
    nested = {"type": "object", "properties": {"a": {"$ref": "#/$defs/l"}}, "$defs": lists}
    assert OutputSchema(nested).problem({"a": value}) == "It is nested too deeply."
    many = {"type": "object", "properties": {"a": {"uniqueItems": True, "items": {"type": "integer"}}}}
    assert "steps" in str(OutputSchema(many).problem({"a": list(range(300_000))}))


async def test_the_tool_takes_what_fits_and_does_nothing_else(tmp_path: Path):
    tools = AnswerTools(builtin_registry(), STARS)
    assert [spec.name for spec in tools.specs()][-1] == ANSWER_TOOL
    assert tools.specs()[-1].input_schema == STARS
    refused = tools.prepare(ANSWER_TOOL, {"stars": None})
    assert refused == (
        "The input of task.answer is not valid. stars: expected integer, got null. It takes: stars (integer, required)."
    )
    ready = tools.prepare(ANSWER_TOOL, {"stars": 3})
    assert isinstance(ready, PreparedCall)
    run = await ready.run(call(ANSWER_TOOL, tmp_path, {"stars": 3}), lambda *_: None)
    assert (run.result, run.is_error, ready.sandbox.network) == (ACCEPTED, False, False)
    assert isinstance(tools.prepare("workspace.read", {"path": "a"}), PreparedCall)


def test_agents_are_always_told_of_it_and_it_takes_any_object_there():
    own = builtin_registry().specs()
    listed = listed_tools(own)
    assert listed[:-1] == list(own)
    assert (listed[-1].name, OutputSchema(listed[-1].input_schema).problem({"a": [1]})) == (ANSWER_TOOL, None)
    assert listed_tools(AnswerTools(builtin_registry(), STARS).specs()) == listed


def test_no_application_can_have_a_tool_of_this_name():
    ask = ask_tool()
    mine = msgspec.structs.replace(ask, spec=msgspec.structs.replace(ask.spec, name=ANSWER_TOOL))
    with pytest.raises(ValueError, match="tasks with an output schema have it already"):
        ToolRegistry([mine])


@pytest.mark.parametrize(
    ("schema", "is_it"),
    [
        (strict(), True),
        (strict(a={"type": "string", "enum": ["x"]}, b={"type": ["integer", "null"]}), True),
        (strict(a={"type": "array", "items": strict(b={"type": "number", "minimum": 0})}), True),
        ({**strict(a={"$ref": "#/$defs/a"}), "$defs": {"a": strict(b={"type": "boolean"})}}, True),
        (strict(a={"anyOf": [{"type": "string"}, {"type": "null"}]}), True),
        (STARS, False),
        ({**STARS, "additionalProperties": False, "required": []}, False),
        ({**strict(), "additionalProperties": {"type": "string"}}, False),
        (strict(a=STARS), False),
        (strict(a={"type": "array", "items": STARS}), False),
        (strict(a={"anyOf": [STARS]}), False),
        ({**strict(a={"$ref": "#/$defs/a"}), "$defs": {"a": STARS}}, False),
        (strict(a={"type": "string", "minLength": 1}), False),
        (strict(a={"properties": {}}), False),
        (strict(a=True), False),
        ({**strict(), "anyOf": [strict()]}, False),
        ({**strict(), "allOf": [strict()]}, False),
    ],
)
def test_only_what_every_provider_takes_is_strict(schema: dict[str, Any], is_it: bool):
    OutputSchema(schema)
    assert is_strict(schema) is is_it
