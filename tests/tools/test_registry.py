"""The registry: how a function becomes a tool, how inputs are judged, what a run gives back."""

import asyncio
import logging
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from tests.tools.calling import where

from codesdk.contract.errors import Busy
from codesdk.contract.ports import ToolInvocation, ToolRun, ToolRunner
from codesdk.contract.tools import SandboxSummary, ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.tools import Tool, ToolContext, ToolError, ToolRegistry, builtin_registry


class Point(msgspec.Struct):
    """A place."""

    x: int
    title: str = ""


class AddInput(msgspec.Struct, forbid_unknown_fields=True):
    """Numbers to add."""

    a: Annotated[int, Meta(ge=0, description="The first.")]
    b: int = 1
    how: Literal["up", "down"] = "up"
    points: list[Point] = []


def invocation(name: str, arguments: Any) -> ToolInvocation:
    return ToolInvocation(
        session_id="ses_1",
        task_id="task_1",
        tool_call_id="call_1",
        attempt=1,
        name=name,
        input=arguments,
        workspace=Workspace("."),
    )


def ignore(stream: Any, text: str) -> None:
    pass


@pytest.fixture
def registry() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool(name="app.add", tool_class="read_only", safe_replay=True)
    async def add(args: AddInput, context: ToolContext) -> int:
        """Add two numbers."""
        context.output("progress", "adding")
        return args.a + args.b

    return registry


def test_a_function_becomes_a_tool_that_can_be_offered(registry):
    runner: ToolRunner = registry
    assert runner.specs() == [
        ToolSpec(
            name="app.add",
            description="Add two numbers.",
            tool_class="read_only",
            safe_replay=True,
            input_schema={
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "minimum": 0, "description": "The first."},
                    "b": {"type": "integer", "default": 1},
                    "how": {"enum": ["down", "up"], "default": "up"},
                    "points": {
                        "type": "array",
                        "default": [],
                        "items": {
                            "type": "object",
                            "description": "A place.",
                            "properties": {
                                "x": {"type": "integer"},
                                "title": {"type": "string", "default": ""},
                            },
                            "required": ["x"],
                        },
                    },
                },
                "required": ["a"],
                "additionalProperties": False,
            },
        )
    ]
    assert where(runner, "app.add", {"a": 1}) == ("codesdk_host", SandboxSummary(network=True))


def test_the_decorator_gives_the_function_back():
    async def nothing(args: Point, context: ToolContext) -> None:
        """Do nothing."""

    assert ToolRegistry().tool(name="app.nothing", tool_class="write")(nothing) is nothing


TAKES = 'It takes: a (integer, required), b (integer), how (one of "down", "up"), points (array).'


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"a": 1}, None),
        ({"a": 1, "b": 2, "how": "down", "points": [{"x": 1}]}, None),
        ({}, f"The input of app.add is not valid. The required field a is missing. {TAKES}"),
        ({"a": "1"}, f"The input of app.add is not valid. a: expected integer, got string. {TAKES}"),
        ({"a": True}, f"The input of app.add is not valid. a: expected integer, got boolean. {TAKES}"),
        ({"a": -1}, f"The input of app.add is not valid. a: expected integer >= 0. {TAKES}"),
        (
            {"a": 1, "c": 2},
            f"The input of app.add is not valid. The field c is unknown. {TAKES}",
        ),
        (
            {"a": 1, "how": "left"},
            f"The input of app.add is not valid. how: invalid enum value 'left'. {TAKES}",
        ),
        (
            {"a": 1, "points": [{"x": 1}, {"x": None}]},
            f"The input of app.add is not valid. points[1].x: expected integer, got null. {TAKES}",
        ),
        ([], f"The input of app.add is not valid. Expected object, got array. {TAKES}"),
        (None, f"The input of app.add is not valid. Expected object, got null. {TAKES}"),
        ("a", f"The input of app.add is not valid. Expected object, got string. {TAKES}"),
    ],
)
async def test_a_bad_input_is_explained_before_and_instead_of_a_run(registry, arguments, problem):
    assert registry.check("app.add", arguments) == problem
    if problem is not None:
        run = await registry.run(invocation("app.add", arguments), ignore)
        assert run == ToolRun(result=problem, is_error=True)


async def test_a_tool_that_is_not_there_is_said_to_be_not_there(registry):
    problem = "There is no tool named app.sub. The tools are: app.add."
    assert registry.check("app.sub", {}) == problem
    assert await registry.run(invocation("app.sub", {}), ignore) == ToolRun(result=problem, is_error=True)
    assert registry.prepare("app.sub", {}) == problem
    assert ToolRegistry().check("a.b", {}) == "There is no tool named a.b. The tools are: none."


async def test_a_run_gives_the_result_and_its_output(registry):
    output: list[tuple[str, str]] = []
    run = await registry.run(invocation("app.add", {"a": 2}), lambda *part: output.append(part))
    assert (run, output) == (ToolRun(result=3), [("progress", "adding")])


async def test_a_whole_run_is_passed_on_as_it_is():
    registry, whole = ToolRegistry(), ToolRun(result="x", exit_code=3)

    @registry.tool(name="app.run", tool_class="dangerous")
    async def run(args: Point, context: ToolContext) -> ToolRun:
        """Run."""
        return whole

    assert await registry.run(invocation("app.run", {"x": 1}), ignore) is whole


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ToolError("Not now."), "Not now."),
        (Busy("Too many."), "Too many."),
        (KeyError("secret"), "The tool app.fail failed unexpectedly (KeyError). Its log has the details."),
    ],
)
async def test_whatever_a_tool_raises_is_a_result_that_says_so(error, result, caplog):
    registry = ToolRegistry()

    @registry.tool(name="app.fail", tool_class="write", description="Fail.")
    async def fail(args: Point, context: ToolContext) -> None:
        raise error

    with caplog.at_level(logging.CRITICAL):
        run = await registry.run(invocation("app.fail", {"x": 1}), ignore)
    assert run == ToolRun(result=result, is_error=True)


async def test_cancelling_a_run_cancels_the_tool():
    registry, running, ended = ToolRegistry(), asyncio.Event(), asyncio.Event()

    @registry.tool(name="app.wait", tool_class="write")
    async def wait(args: Point, context: ToolContext) -> None:
        """Wait."""
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(registry.run(invocation("app.wait", {"x": 1}), ignore))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize(
    "name", ["add", "App.add", "app.", ".add", "app add.x", "app-x.add", "app.add\n", "1.2"]
)
def test_a_name_must_have_a_namespace_and_be_plain(name):
    async def add(args: Point, context: ToolContext) -> None:
        """Add."""

    with pytest.raises(ValueError, match="is not a tool name: write it like"):
        ToolRegistry().tool(name=name, tool_class="write")(add)


def test_two_tools_cannot_look_the_same_to_a_model(registry):
    async def other(args: Point, context: ToolContext) -> None:
        """Add."""

    registry.tool(name="app.add_all", tool_class="write")(other)
    for name, taken in (("app.add", "app.add"), ("app_add.all", "app.add_all")):
        with pytest.raises(
            ValueError, match=f"{name} cannot be added: {taken} has the same name for a model"
        ):
            registry.tool(name=name, tool_class="write")(other)


def not_async(args: Point, context: ToolContext) -> None:
    """Add."""


async def one_parameter(args: Point) -> None:
    """Add."""


async def no_struct(args: dict[str, int], context: ToolContext) -> None:
    """Add."""


async def no_words(args: Point, context: ToolContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (not_async, "must be an async function"),
        (one_parameter, "must take two parameters: its input and the context"),
        (no_struct, "must be annotated with a msgspec.Struct"),
        (no_words, "needs a docstring"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Any, reason):
    with pytest.raises(TypeError, match=reason):
        ToolRegistry().tool(name="app.add", tool_class="write")(function)


class Tree(msgspec.Struct):
    children: list["Tree"]


Refused = {
    "T.a is a union; give it one type and a default instead": int | None,
    "T.b is a union; give it one type and a default instead": int | str,
    "T.c is a free-form map; use a struct, or a list of pairs": dict[str, int],
    "T.d can be anything; say what it is": Any,
    r"T.e\[\] is a union; give it one type and a default instead": list[int | None],
    r"T.f\[\] can be anything; say what it is": list,
    "Tree contains itself; a tool's input must have a fixed depth": Tree,
}


@pytest.mark.parametrize(("reason", "kind"), Refused.items())
def test_an_input_that_some_provider_would_refuse_is_refused_at_once(reason, kind):
    field = reason[2] if reason.startswith("T.") else "z"
    struct = msgspec.defstruct("T", [(field, kind)])

    async def tool(args: Any, context: ToolContext) -> None:
        """Do."""

    tool.__annotations__["args"] = struct
    with pytest.raises(TypeError, match=reason):
        ToolRegistry().tool(name="app.do", tool_class="write")(tool)


def test_the_built_in_tools_say_honestly_where_they_run():
    registry = builtin_registry()
    assert [(spec.name, spec.tool_class, spec.safe_replay) for spec in registry.specs()] == [
        ("workspace.read", "read_only", True),
        ("workspace.write", "write", False),
        ("workspace.edit", "write", False),
        ("workspace.list", "read_only", True),
        ("workspace.glob", "read_only", True),
        ("workspace.search", "read_only", True),
        ("patch.apply", "write", False),
        ("user.ask", "read_only", False),
    ]
    here = SandboxSummary(network=False, mounts=["workspace"])
    inputs: dict[str, Any] = {
        "workspace.read": {"path": "a"},
        "workspace.write": {"path": "a", "content": ""},
        "workspace.edit": {"path": "a", "old": "b", "new": "c"},
        "workspace.list": {},
        "workspace.glob": {"pattern": "*"},
        "workspace.search": {"pattern": "x"},
        "patch.apply": {"patch": "x"},
    }
    for name, given in inputs.items():
        assert where(registry, name, given) == ("codesdk_host", here)
    nowhere = SandboxSummary(network=False)
    assert where(registry, "user.ask", {"question": "?"}) == ("codesdk_host", nowhere)


def test_tools_that_are_given_as_a_function_are_made_once_and_when_the_first_is_needed():
    own = ToolRegistry()
    made: list[int] = []

    @own.tool(name="math.add", tool_class="read_only")
    async def add(args: AddInput, context: ToolContext) -> int:
        """Add."""
        return args.a + args.b

    def load() -> list[Tool]:
        made.append(1)
        return list(own._tools.values())

    registry = ToolRegistry(load)
    assert made == []
    with pytest.raises(ValueError, match=r"math\.add has the same name"):
        registry.tool(name="math.add", tool_class="read_only")(add)
    assert [spec.name for spec in registry.specs()] == ["math.add"]
    assert made == [1]


def test_tools_that_cannot_be_made_now_are_made_the_next_time():
    own = ToolRegistry()
    faults: list[OSError] = [OSError("no descriptor left")]

    @own.tool(name="math.add", tool_class="read_only")
    async def add(args: AddInput, context: ToolContext) -> int:
        """Add."""
        return args.a + args.b

    def load() -> list[Tool]:
        if faults:
            raise faults.pop()
        return list(own._tools.values())

    registry = ToolRegistry(load)
    with pytest.raises(OSError, match="no descriptor left"):
        registry.specs()
    assert [spec.name for spec in registry.specs()] == ["math.add"]
