"""A function and what it takes → a tool: how a model is told of it, its input checked, its result a `ToolOutput`.

Built-in tools, those of plugins and those of applications are all made here. `executor` runs them.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, get_type_hints, overload

import msgspec

from codesdk.contract.errors import CodeSDKError
from codesdk.foreign import ForeignCrash
from codesdk.minicode.types import ToolDefinition, ToolOutput
from codesdk.tools import ToolError, explain, input_schema, schema_check

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
ToolFunction = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=ToolFunction)


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call is made. A tool gets it by a parameter of this type."""

    session_id: str
    call_id: str
    cwd: str
    """The directory of the session, with all links resolved."""


class BadInput(Exception):
    """The input does not fit; the message is for the model."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that can be offered, checked and run."""

    definition: ToolDefinition
    take: Callable[[Any], dict[str, Any]]
    """Check an input and return what the function gets. Raise `BadInput`."""
    function: ToolFunction
    context: str | None = None
    """The parameter that gets the `ToolContext`, if there is one."""
    timeout_ms: int | None = None
    """How long it may take; None for as long as the configuration says."""

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        return self.definition.name


@overload
def define_tool(function: ToolFunction) -> Tool: ...
@overload
def define_tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: dict[str, Any] | None = None,
    timeout_ms: int | None = None,
) -> Callable[[ToolFunction], Tool]: ...
def define_tool(
    function: ToolFunction | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: dict[str, Any] | None = None,
    timeout_ms: int | None = None,
) -> Tool | Callable[[ToolFunction], Tool]:
    """Make a tool of an async function: `@define_tool`, or `@define_tool(name=…)`.

    Its parameters are the tool's input, its docstring tells the model what the tool does. With an `input_schema`
    the function gets the checked object as its one argument instead. It may return a `ToolOutput`, a text, or
    anything that is JSON. What it raises becomes an output that is not `ok`; the words of a `ToolError` are
    for the model. Raise `TypeError` or `ValueError` if no tool can be made of it.
    """

    def make(function: ToolFunction) -> Tool:
        called = name or getattr(function, "__name__", "")
        text = description or inspect.getdoc(function)
        if not _NAME.fullmatch(called):
            raise ValueError(
                f"{called!r} is not a tool name: write it like find_orders, with at most 64 characters"
            )
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"the tool {called} must be an async function")
        if not text:
            raise TypeError(f"the tool {called} needs a docstring: it tells the model what the tool does")
        made = _from_parameters if input_schema is None else _from_schema
        schema, take, context = made(called, function, input_schema or {})
        return Tool(
            definition=ToolDefinition(name=called, description=text, input_schema=schema),
            take=take,
            function=function,
            context=context,
            timeout_ms=timeout_ms,
        )

    return make if function is None else make(function)


def output_of(result: Any) -> ToolOutput:
    """Return what a function gave back as an output. Raise `TypeError` if it is not JSON."""
    if isinstance(result, ToolOutput):
        # A struct takes whatever it is given; what is not JSON could be neither stored nor shown.
        return msgspec.convert(msgspec.to_builtins(result), ToolOutput)
    if isinstance(result, str):
        return ToolOutput(ok=True, output_message=result)
    if result is None:
        return ToolOutput(ok=True, output_message="Done.")
    return ToolOutput(ok=True, output_message=msgspec.json.encode(result).decode(), details=result)


def failure(name: str, error: Exception) -> ToolOutput:
    """Return what a tool raised as an output."""
    if is_expected(error):
        return ToolOutput(ok=False, output_message=str(error))
    # Its kind and not its text, which may quote anything.
    cause = error.__cause__ if isinstance(error, ForeignCrash) else None
    kind = type(cause or error).__name__
    words = f"The tool {name} failed unexpectedly ({kind}). Its log has the details."
    return ToolOutput(ok=False, output_message=words)


def is_expected(error: Exception) -> bool:
    """Return whether the words of what a tool raised are meant for the model."""
    return isinstance(error, ToolError | BadInput | CodeSDKError)


_Made = tuple[dict[str, Any], Callable[[Any], dict[str, Any]], str | None]


def _from_parameters(name: str, function: ToolFunction, _: dict[str, Any]) -> _Made:
    """Return schema, check and context of a function with typed parameters."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"the tool {name} cannot have the parameter {parameter}: give it a name")
        kind = hints.get(parameter.name)
        if kind is None:
            raise TypeError(f"the parameter {parameter.name} of the tool {name} needs a type")
        if kind is ToolContext:
            context = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, parameter.default))
    made = msgspec.defstruct("Input", fields, kw_only=True, frozen=True, forbid_unknown_fields=True)
    schema = _plain_schema(name, made)

    def take(value: Any) -> dict[str, Any]:
        try:
            found = msgspec.convert(value, made)
        except msgspec.ValidationError as error:
            raise BadInput(explain(name, schema, str(error))) from None
        except RecursionError:
            raise BadInput(f"The input of {name} is nested too deeply.") from None
        return {field: getattr(found, field) for field in made.__struct_fields__}

    return schema, take, context


def _plain_schema(name: str, made: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        return input_schema(made)
    except TypeError as error:
        raise TypeError(f"the tool {name}: {str(error).removeprefix('Input.')}") from None


def _from_schema(name: str, function: ToolFunction, schema: dict[str, Any]) -> _Made:
    """Return schema, check and context of a function that gets the whole input."""
    hints = get_type_hints(function)
    names = list(inspect.signature(function).parameters)
    context = next((each for each in names if hints.get(each) is ToolContext), None)
    taken = [each for each in names if each != context]
    if len(taken) != 1:
        raise TypeError(f"the tool {name} has a schema, so it takes its input as one parameter")
    check = schema_check(name, schema)

    def take(value: Any) -> dict[str, Any]:
        problem = check(value)
        if problem is not None:
            raise BadInput(problem)
        return {taken[0]: value}

    return schema, take, context
