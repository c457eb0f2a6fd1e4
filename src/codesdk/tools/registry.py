"""Tools by name: a function and its input type → a tool that can be offered, checked and run.

Implements `ToolRunner` for the engine. Knows nothing of policy, approvals or the log.
"""

import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Required, TypedDict, TypeVar, Unpack, cast, get_type_hints

import msgspec

from codesdk import foreign
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.ports import PreparedCall, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.tools import (
    ANSWER_TOOL,
    ExecutionEnv,
    Question,
    SandboxSummary,
    Subjects,
    ToolAnnotations,
    ToolClass,
    ToolSpec,
)
from codesdk.tools.names import wire_name
from codesdk.tools.schema import explain, input_schema, output_schema

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_HOST = SandboxSummary(network=True)
_log = logging.getLogger(__name__)


class ToolError(Exception):
    """The tool failed. The message is the result that the model reads."""


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool gets besides its input."""

    call: ToolInvocation
    output: ToolSink


ToolFunction = Callable[[Any, ToolContext], Awaitable[Any]]
SubjectsOf = Callable[[Any], Subjects]
"""Returns what a call touches, given its converted input."""
AsksOf = Callable[[Any], Question]
"""Returns what a call asks a person, given its converted input."""
F = TypeVar("F", bound=ToolFunction)


class Offer(TypedDict, total=False):
    """How a function is offered as a tool. Without a `description`, its docstring is taken."""

    name: Required[str]
    tool_class: Required[ToolClass]
    safe_replay: bool
    description: str | None
    sandbox: SandboxSummary
    annotations: ToolAnnotations
    subjects: SubjectsOf | None
    asks: AsksOf | None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: how it is offered, what it takes, what it does, and where it runs.

    Without an `input_type`, its function gets the input unconverted, checked against the spec's JSON Schema.
    """

    spec: ToolSpec
    function: ToolFunction
    input_type: type[msgspec.Struct] | None = None
    execution_env: ExecutionEnv = "codesdk_host"
    sandbox: SandboxSummary = _HOST
    subjects: SubjectsOf | None = None
    asks: AsksOf | None = None
    """For a tool that is not run but answered by a person."""
    close_session: Callable[[str], Awaitable[None]] | None = None


class ToolRegistry:
    """The tools of an application. Their names are unique, on the wire too."""

    def __init__(self, tools: Sequence[Tool] | Callable[[], Sequence[Tool]] = ()) -> None:
        """Take tools, or a function that is asked for them when the first is needed."""
        self._load = tools if callable(tools) else None
        self._loaded: dict[str, Tool] = {}
        self._checks: dict[str, Callable[[Any], str | None]] = {}
        for tool in () if callable(tools) else tools:
            self.add(tool)

    @property
    def _tools(self) -> dict[str, Tool]:
        if self._load is not None:
            tools = self._load()  # may fail, for want of memory or descriptors, and is tried again then
            self._load = None
            for tool in tools:
                self.add(tool)
        return self._loaded

    def add(self, tool: Tool) -> None:
        """Add a tool. Raise `ValueError` if its name is invalid or taken, or its JSON Schema is invalid."""
        name = tool.spec.name
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a tool name: write it like workspace.read, in lower case")
        if name == ANSWER_TOOL:
            raise ValueError(f"the tool {name} cannot be added: tasks with an output schema have it already")
        # `a.b_c` and `a_b.c` differ here, but not on the wire, where the dot becomes an underscore.
        taken = next((known for known in self._tools if wire_name(known) == wire_name(name)), None)
        if taken is not None:
            raise ValueError(f"the tool {name} cannot be added: {taken} has the same name for a model")
        if tool.input_type is None:
            # Here, because tools with a struct, as ours are, do not need it.
            from codesdk.tools.json_input import schema_check

            self._checks[name] = schema_check(name, tool.spec.input_schema)
        self._tools[name] = tool

    def tool(self, **offer: Unpack[Offer]) -> Callable[[F], F]:
        """Register `async def f(args: SomeStruct, context: ToolContext)` as a tool.

        The struct is the tool's input; the docstring describes the tool to the model. The return value is the
        result and may be a `ToolRun`. For an error that the model should read, raise `ToolError`.
        """

        def register(function: F) -> F:
            self.add(make_tool(function, **offer))
            return function

        return register

    def specs(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._tools.values()]

    def check(self, name: str, arguments: Any) -> str | None:
        """Return what is wrong with an input, for the model to read, or None."""
        taken = self._take(name, arguments)
        return taken if isinstance(taken, str) else None

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        """Validate an input. Return the call, ready to run, or what is wrong, for the model to read."""
        taken = self._take(name, arguments)
        if isinstance(taken, str):
            return taken
        tool, value = taken
        return PreparedCall(
            run=functools.partial(_run, tool, value),
            execution_env=tool.execution_env,
            sandbox=tool.sandbox,
            subjects=Subjects() if tool.subjects is None else tool.subjects(value),
            question=None if tool.asks is None else tool.asks(value),
        )

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        """Run a call without a decision on it. An invalid input is a result with `is_error`."""
        taken = self._take(call.name, call.input)
        return (
            ToolRun(result=taken, is_error=True)
            if isinstance(taken, str)
            else await _run(*taken, call, output)
        )

    def _take(self, name: str, arguments: Any) -> tuple[Tool, Any] | str:
        """Return a tool and its converted input, or what is wrong with the call."""
        tool = self._tools.get(name)
        if tool is None:
            offered = ", ".join(sorted(self._tools)) or "none"
            return f"There is no tool named {name}. The tools are: {offered}."
        if tool.input_type is None:
            return self._checks[name](arguments) or (tool, arguments)
        try:
            return tool, msgspec.convert(arguments, tool.input_type, strict=True)
        except msgspec.ValidationError as error:
            return explain(name, tool.spec.input_schema, str(error))

    async def close_session(self, session_id: str) -> None:
        """Release what tools hold for a session."""
        for tool in self._tools.values():
            if tool.close_session is not None:
                await _release(tool.spec.name, tool.close_session, session_id)


async def _release(name: str, close: Callable[[str], Awaitable[None]], session_id: str) -> None:
    """Release what one tool holds. Its failure must not keep the others from releasing theirs."""
    try:
        await foreign.call(close, session_id)
    except Exception:  # noqa: BLE001 - whatever it raises
        _log.exception("The tool %s did not release what it holds for session %s", name, session_id)


async def _run(tool: Tool, value: Any, call: ToolInvocation, output: ToolSink) -> ToolRun:
    """Run a tool. Any failure except cancellation is a result with `is_error`."""
    try:
        result = await foreign.call(tool.function, value, ToolContext(call, output))
    except ToolError as error:
        return ToolRun(result=str(error), is_error=True)
    except CodeSDKError as error:
        return ToolRun(result=error.message, is_error=True)
    except Exception as error:  # noqa: BLE001 - whatever an app's tool raises must not end the task
        _log.exception("The tool %s failed", call.name)
        message = f"The tool {call.name} failed unexpectedly ({_kind(error)}). Its log has the details."
        return ToolRun(result=message, is_error=True)
    return result if isinstance(result, ToolRun) else ToolRun(result=result)


def _kind(error: Exception) -> str:
    """Return the name of what a tool raised, and not its text, which may quote anything."""
    source = error.__cause__ if isinstance(error, foreign.ForeignCrash) else None
    return type(source or error).__name__


def make_tool(function: ToolFunction, **offer: Unpack[Offer]) -> Tool:
    """Return a function as a tool. Raise `TypeError` if its signature or input type is not valid."""
    name = offer["name"]
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"the tool {name} must be an async function")
    input_type = _input_type(function, name)
    text = offer.get("description") or inspect.getdoc(function)
    if not text:
        raise TypeError(f"the tool {name} needs a docstring: it tells the model what the tool does")
    return Tool(
        spec=ToolSpec(
            name=name,
            description=text,
            input_schema=input_schema(input_type),
            tool_class=offer["tool_class"],
            safe_replay=offer.get("safe_replay", False),
            output_schema=_returned(function),
            annotations=offer.get("annotations", ToolAnnotations()),
            interactive=offer.get("asks") is not None,
        ),
        input_type=input_type,
        function=function,
        sandbox=offer.get("sandbox", _HOST),
        subjects=offer.get("subjects"),
        asks=offer.get("asks"),
    )


def _input_type(function: ToolFunction, name: str) -> type[msgspec.Struct]:
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) != 2:
        raise TypeError(f"the tool {name} must take two parameters: its input and the context")
    hint = cast("Any", get_type_hints(function).get(parameters[0]))
    if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        raise TypeError(f"the first parameter of the tool {name} must be annotated with a msgspec.Struct")
    return hint


def _returned(function: ToolFunction) -> dict[str, Any] | None:
    """Return the schema of a function's result, if its return annotation is a struct of the application."""
    hint = cast("Any", get_type_hints(function).get("return"))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint is not ToolRun:
        return output_schema(hint)
    return None
