"""A function becomes a tool: its schema, its checks, and what its result becomes."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from codesdk.minicode.tools.define import BadInput, Tool, ToolContext, define_tool, output_of
from codesdk.minicode.types import ToolDefinition, ToolOutput


class Item(msgspec.Struct):
    sku: str
    count: int = 1


@define_tool
async def order(
    customer: Annotated[str, Meta(min_length=1, description="Who orders.")],
    items: list[Item],
    context: ToolContext,
    speed: Literal["slow", "fast"] = "slow",
) -> str:
    """Order something."""
    return f"{customer} {len(items)} {speed} {context.session_id}"


def test_typed_parameters_are_the_schema_and_the_context_is_not():
    assert order.definition == ToolDefinition(
        name="order",
        description="Order something.",
        input_schema={
            "type": "object",
            "properties": {
                "customer": {"type": "string", "minLength": 1, "description": "Who orders."},
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                        "required": ["sku"],
                    },
                },
                "speed": {"enum": ["fast", "slow"], "default": "slow"},
            },
            "required": ["customer", "items"],
            "additionalProperties": False,
        },
    )
    assert order.context == "context"


def test_an_input_is_converted_and_its_defaults_filled_in():
    assert order.take({"customer": "Ann", "items": [{"sku": "a"}]}) == {
        "customer": "Ann",
        "items": [Item("a", 1)],
        "speed": "slow",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "The required field customer is missing"),
        ({"customer": "", "items": []}, "customer: expected string of length >= 1"),
        ({"customer": "a", "items": [{"sku": 1}]}, "items[0].sku: expected string, got integer"),
        ({"customer": "a", "items": [], "more": 1}, "The field more is unknown"),
        ([], "Expected object, got array"),
        (None, "Expected object, got null"),
    ],
)
def test_a_bad_input_is_explained_to_the_model(given: Any, words: str):
    with pytest.raises(BadInput) as raised:
        order.take(given)
    assert str(raised.value) == (
        f"The input of order is not valid. {words}."
        ' It takes: customer (string, required), items (array, required), speed (one of "fast", "slow").'
    )


def test_a_given_schema_is_checked_and_the_whole_input_handed_over():
    schema = {"type": "object", "properties": {"celsius": {"type": "number"}}, "required": ["celsius"]}

    @define_tool(name="to_fahrenheit", description="Convert.", input_schema=schema, timeout_ms=50)
    async def convert(given: dict[str, Any], where: ToolContext) -> float:
        return given["celsius"] * 1.8 + 32

    assert (convert.name, convert.context, convert.timeout_ms) == ("to_fahrenheit", "where", 50)
    assert convert.take({"celsius": 3}) == {"given": {"celsius": 3}}
    with pytest.raises(BadInput, match="celsius: expected number, got string"):
        convert.take({"celsius": "3"})


def refused(function: Any, **options: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as raised:
        define_tool(**options)(function)
    return str(raised.value)


def test_a_function_that_can_be_no_tool_is_refused_with_the_reason():
    async def fine(value: str) -> None:
        """Do."""

    async def untyped(value) -> None:
        """Do."""

    async def rest(*values: str) -> None:
        """Do."""

    async def union(value: str | int) -> None:
        """Do."""

    async def silent(value: str) -> None: ...

    def plain(value: str) -> None:
        """Do."""

    assert refused(fine, name="not a name").startswith("'not a name' is not a tool name")
    assert refused(untyped) == "the parameter value of the tool untyped needs a type"
    assert refused(rest).startswith("the tool rest cannot have the parameter *values: str")
    assert refused(union) == "the tool union: value is a union; give it one type and a default instead"
    assert refused(silent).startswith("the tool silent needs a docstring")
    assert refused(plain) == "the tool plain must be an async function"
    assert "must have" in refused(fine, input_schema={})
    assert refused(order.function, name="two", input_schema={"type": "object"}).startswith(
        "the tool two has a schema"
    )


def test_what_a_function_returns_becomes_an_output():
    whole = ToolOutput(ok=False, output_message="no", details={"a": [1]}, meta={"b": 2})
    assert output_of(whole) == whole
    assert output_of("text") == ToolOutput(ok=True, output_message="text")
    assert output_of(None) == ToolOutput(ok=True, output_message="Done.")
    assert output_of({"a": 1}) == ToolOutput(ok=True, output_message='{"a":1}', details={"a": 1})
    odd: Any = 5
    for bad in (
        object(),
        ToolOutput(ok=True, output_message=odd),
        ToolOutput(ok=True, output_message="", details=object()),
    ):
        with pytest.raises((TypeError, msgspec.ValidationError)):
            output_of(bad)


def test_a_tool_can_still_be_called_by_its_function():
    assert isinstance(order, Tool)
    assert order.function.__name__ == "order"
