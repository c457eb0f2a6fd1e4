"""Tools whose input is given as a JSON Schema: checked when they are added, and each input in plain words."""

import socket
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from tests.tools.calling import call, ready

from codesdk.contract.ports import ToolRun
from codesdk.contract.tools import Subjects, ToolAnnotations, ToolSpec
from codesdk.tools import Tool, ToolContext, ToolRegistry
from codesdk.tools.json_input import schema_check

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": ["integer", "null"]},
        "unit": {"enum": ["C", "F"]},
        "places": {"type": "array", "items": {"$ref": "#/$defs/place"}},
        "anything": True,
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}
TAKES = (
    'It takes: city (string, required), days (integer or null), unit (one of "C", "F"), places (array),'
    " anything (any value)."
)


def tool(schema: dict[str, Any]) -> Tool:
    async def forecast(arguments: Any, context: ToolContext) -> Any:
        return {"got": arguments}

    spec = ToolSpec(
        name="weather.get", description="Tell the weather.", input_schema=schema, tool_class="network"
    )
    return Tool(spec=spec, function=forecast, subjects=lambda arguments: Subjects(hosts=[arguments["city"]]))


@pytest.fixture
def registry() -> ToolRegistry:
    return ToolRegistry([tool(SCHEMA)])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "The required field city is missing."),
        ({"city": 1}, "city: expected string, got integer."),
        ({"city": "Oslo", "days": True}, "days: expected integer or null, got boolean."),
        ({"city": "Oslo", "day": 1}, "The field day is unknown."),
        ({"city": "O"}, "city: 'O' is too short."),
        ({"city": "Oslo", "unit": "K"}, "unit: 'K' is not one of ['C', 'F']."),
        ({"city": "Oslo", "places": [{"x": 1}, {}]}, "places[1]: the required field x is missing."),
        ({"city": "Oslo", "places": [{"x": "1"}]}, "places[0].x: expected number, got string."),
        ([], "Expected object, got array."),
        (None, "Expected object, got null."),
    ],
)
async def test_an_input_that_does_not_fit_is_explained_and_not_passed_on(
    registry, tmp_path, arguments, problem
):
    words = f"The input of weather.get is not valid. {problem} {TAKES}"
    assert registry.check("weather.get", arguments) == words
    run = await registry.run(call("weather.get", tmp_path, arguments), lambda *_: None)
    assert run == ToolRun(result=words, is_error=True)


async def test_an_input_that_fits_reaches_the_function_as_it_came(registry, tmp_path):
    arguments = {"city": "Oslo", "days": None, "places": [{"x": 1.5, "more": [1]}], "anything": {"a": None}}
    assert registry.check("weather.get", arguments) is None
    assert ready(registry, "weather.get", arguments).subjects == Subjects(hosts=["Oslo"])
    run = await registry.run(call("weather.get", tmp_path, arguments), lambda *_: None)
    assert run == ToolRun(result={"got": arguments})


BAD_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"type": "objekt"}, "is not valid at type: 'objekt' is not valid under any of the given schemas"),
    ({"type": "object", "required": "a"}, "is not valid at required: 'a' is not of type 'array'"),
    ({"type": "object", "properties": {"a": {"pattern": "("}}}, "is not valid at properties/a/pattern"),
    ({"properties": {}}, 'must have "type": "object"'),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "refers to #/$defs/b, which it does not have"),
    ({"type": "object", "$ref": "https://example.org/x.json"}, "refers to https://example.org/x.json; nothing is fetched"),
    ({"type": "object", "allOf": [{"$ref": "other.json#/a"}]}, "refers to other.json#/a; nothing is fetched"),
    ({"type": "object", "items": [{"$dynamicRef": "file:///etc/passwd"}]}, "is not valid at items"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "why"), BAD_SCHEMAS)
def test_a_schema_that_will_not_do_is_refused_when_the_tool_is_added(schema, why, monkeypatch):
    def no_request(*_: object) -> None:
        raise AssertionError("a request was made")

    monkeypatch.setattr(socket, "getaddrinfo", no_request)
    registry = ToolRegistry()
    with pytest.raises(ValueError, match=r"the input schema of weather\.get ") as caught:
        registry.add(tool(schema))
    assert why in str(caught.value)
    assert registry.specs() == []


def test_a_reference_inside_is_followed_even_to_itself():
    schema = {
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "name": {"$ref": "#name"}},
        "$defs": {"n": {"$anchor": "name", "type": "string"}},
        "additionalProperties": False,
    }
    registry = ToolRegistry([tool(schema)])
    assert registry.check("weather.get", {"child": {"child": {"name": "x"}}}) is None
    assert (registry.check("weather.get", {"child": {"child": {"name": 1}}}) or "").startswith(
        "The input of weather.get is not valid. child.child.name: expected string, got integer."
    )
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"child": deep}
    assert (registry.check("weather.get", deep) or "").startswith(
        "The input of weather.get is not valid. It is nested too deeply."
    )


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", "https://example.org/unknown"])
def test_a_schema_may_name_its_dialect(draft):
    registry = ToolRegistry([tool({"$schema": draft, "type": "object", "properties": {"a": {"const": 1}}})])
    assert registry.check("weather.get", {"a": 1}) is None
    assert registry.check("weather.get", {"a": 2}) is not None


def test_a_long_schema_and_a_long_value_are_said_in_short():
    schema = {"type": "object", "properties": {f"f{n}": {"enum": ["x" * 1_000]} for n in range(100)}}
    words = ToolRegistry([tool(schema)]).check("weather.get", {"f0": "y" * 10_000}) or ""
    assert words.startswith("The input of weather.get is not valid. f0: 'yyyy")
    assert words.endswith(", and 70 more.")


def test_the_library_is_loaded_with_the_first_such_tool_only():
    code = "import sys, codesdk.tools; codesdk.tools.builtin_registry(); print('jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class Weather(msgspec.Struct):
    """How it is."""

    degrees: float
    wind: list[int] = []


class Where(msgspec.Struct):
    """A place."""

    city: str


def test_what_a_function_returns_and_what_an_app_says_of_it_is_part_of_the_offer():
    registry = ToolRegistry()
    notes = ToolAnnotations(title="Weather", idempotent=True)

    @registry.tool(
        name="app.weather",
        tool_class="network",
        annotations=notes,
        subjects=lambda where: Subjects(hosts=[where.city]),
    )
    async def weather(where: Where, context: ToolContext) -> Weather:
        """Tell the weather."""
        return Weather(20.5)

    (spec,) = registry.specs()
    assert spec.annotations == notes
    assert spec.output_schema == {
        "type": "object",
        "properties": {
            "degrees": {"type": "number"},
            "wind": {"type": "array", "items": {"type": "integer"}, "default": []},
        },
        "required": ["degrees"],
    }
    assert ready(registry, "app.weather", {"city": "Oslo"}).subjects == Subjects(hosts=["Oslo"])


FOREVER = "(a+)+$"
SLOW = "a" * 60 + "!"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {SLOW: {"pattern": FOREVER}}},
        {"patternProperties": {FOREVER: False}},
        {"patternProperties": {FOREVER: {}}, "additionalProperties": False},
        {"patternProperties": {FOREVER: {}}, "unevaluatedProperties": False},
        {"propertyNames": {"pattern": FOREVER}},
    ],
)
def test_a_regular_expression_of_a_foreign_schema_is_not_run(schema):
    check = schema_check("mcp.outside.slow", {"type": "object", **schema}, foreign=True)
    assert check({SLOW: SLOW}) is None


def test_what_a_foreign_schema_says_without_regular_expressions_counts():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    check = schema_check("mcp.outside.plain", schema, foreign=True)
    assert [check({"a": "x"}), check({"b": 1})] == [
        None,
        "The input of mcp.outside.plain is not valid. The field b is unknown. It takes: a (string).",
    ]


def test_an_input_that_is_too_large_to_be_checked_is_refused():
    check = schema_check("a.b", {"type": "object", "properties": {"n": {"multipleOf": 0.5}}})
    words = "A number in it is too large."
    assert check({"n": 10**400}) == f"The input of a.b is not valid. {words} It takes: n (any value)."


@pytest.mark.parametrize("pattern", ["a{99999999999999}", "(" * 5_000 + ")" * 5_000])
def test_a_schema_whose_regular_expression_cannot_be_compiled_is_refused(pattern):
    with pytest.raises(ValueError, match=r"the input schema of a\.b is "):
        schema_check("a.b", {"type": "object", "properties": {"n": {"pattern": pattern}}})


def test_a_part_of_a_foreign_schema_cannot_choose_a_dialect_that_runs_regular_expressions():
    part = {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": FOREVER}
    with pytest.raises(ValueError, match=r"a part of the input schema of a\.b has a \$schema of its own"):
        schema_check("a.b", {"type": "object", "properties": {"a": part}}, foreign=True)
