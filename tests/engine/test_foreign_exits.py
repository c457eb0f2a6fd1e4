"""Foreign code that raises what ends a process, a generator or a task: only that part fails, and all else goes on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.engine.rig import Rig, rig

from codesdk.contract import events as ev
from codesdk.contract.actions import EquipSession
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.ports import PolicyQuestion, PreparedCall, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.tools import Evaluation
from codesdk.contract.workspace import Workspace
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, done, message
from codesdk.tools import ToolContext, ToolRegistry

EXITS: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
exits = pytest.mark.parametrize("kind", EXITS)

Raise = Callable[..., Any]


def raiser(kind: type[BaseException]) -> Raise:
    def fail(*_: Any, **__: Any) -> Any:
        raise kind("3")

    return fail


def async_raiser(kind: type[BaseException]) -> Raise:
    async def fail(*_: Any, **__: Any) -> Any:
        raise kind("3")

    return fail


def said(kind: type[BaseException]) -> str:
    return "it was cancelled from inside" if kind is asyncio.CancelledError else f"{kind.__name__}: 3"


def another_session_works(r: Rig) -> None:
    """Check that the process lives and that a session of another runtime goes on."""
    session = r.open(runtime="healthy")
    task = r.start(session)
    r.settle()
    assert r.story(session, task)[-1] == "task.completed"


def healthy() -> FakeRuntime:
    return FakeRuntime([message("Well."), done()], name="healthy")


class Leaving(FakeRuntime):
    """A runtime of which one part raises."""

    def __init__(self, part: str, kind: type[BaseException]) -> None:
        super().__init__()
        self.part, self.kind = part, kind

    async def start_task(self, host: Any, task: Any) -> FakeTask:
        if self.part == "start_task":
            raise self.kind("3")
        started = await super().start_task(host, task)
        if self.part != "close_session":
            setattr(started, self.part, raiser(self.kind))
        return started

    async def close_session(self, session_id: str) -> None:
        if self.part == "close_session":
            raise self.kind("3")


def end_with(part: str, kind: type[BaseException]) -> Any:
    """Run a task of a runtime whose part raises while another session works; return how it ended."""
    with rig(runtime=Leaving(part, kind), runtimes=[healthy()]) as r:
        session = r.open("auto")
        task = r.start(session)
        r.settle()
        if part == "send_tool_result":
            r.emit(call("fake.read"))
        elif part == "stop":
            r.get(task.stop())
            r.pass_time(30)
        elif part.startswith("close"):
            r.emit(done())
        (end,) = r.ended(session)
        r.get(session.close())
        another_session_works(r)
        return end


@pytest.mark.parametrize("part", ["start_task", "events", "send_tool_result"])
@exits
def test_an_adapter_that_raises_an_exit_fails_its_task_only(part: str, kind: type[BaseException]):
    code = "RUNTIME_UNAVAILABLE" if part == "start_task" else "RUNTIME_CRASHED"
    error = end_with(part, kind).error
    assert (error.code, said(kind) in error.message) == (code, True)


@exits
def test_a_stream_that_raises_an_exit_fails_its_task_only(kind: type[BaseException]):
    with rig(runtimes=[healthy()]) as r:
        session = r.open()
        r.start(session)
        r.emit(kind("3"))
        (end,) = r.ended(session)
        assert (end.error.code, said(kind) in end.error.message) == ("RUNTIME_CRASHED", True)
        another_session_works(r)


@pytest.mark.parametrize(
    ("part", "ending"),
    [("stop", ev.TaskStopped), ("close", ev.TaskCompleted), ("close_session", ev.TaskCompleted)],
)
@exits
def test_an_adapter_that_raises_an_exit_when_its_task_ends_changes_no_ending(
    part: str, ending: type[Any], kind: type[BaseException]
):
    assert isinstance(end_with(part, kind), ending)


@exits
def test_an_adapter_that_cannot_say_what_it_can_do_is_refused(kind: type[BaseException]):
    adapter = FakeRuntime()
    with rig(runtime=adapter, runtimes=[healthy()]) as r:
        session = r.open()
        adapter.capabilities = raiser(kind)
        assert r.refused(session.start("Go"), CodeSDKError) == "RUNTIME_CRASHED"
        assert r.ended(session) == []
        another_session_works(r)


class Tools(FakeTools):
    """Tools of which one part raises."""

    def __init__(self, part: str, kind: type[BaseException]) -> None:
        super().__init__()
        self.part, self.kind = part, kind

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        return raiser(self.kind)() if self.part == "input" else super().prepare(name, arguments)

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        raise self.kind("3")


@exits
def test_a_tool_that_raises_an_exit_has_failed_and_its_task_goes_on(kind: type[BaseException]):
    with rig(tools=Tools("run", kind), runtimes=[healthy()]) as r:
        session = r.open("auto")
        r.start(session)
        r.emit(call("fake.read"))
        completed = r.one(session, ev.ToolCallCompleted)
        assert (completed.is_error, completed.result_preview) == (True, f"The tool failed: {said(kind)}")
        r.emit(done())
        assert [type(end) for end in r.ended(session)] == [ev.TaskCompleted]
        another_session_works(r)


@exits
def test_a_tool_that_raises_an_exit_while_it_looks_at_its_input_fails_the_task_only(
    kind: type[BaseException],
):
    with rig(tools=Tools("input", kind), runtimes=[healthy()]) as r:
        session = r.open("auto")
        r.start(session)
        r.emit(call("fake.read"))
        (end,) = r.ended(session)
        assert (end.error.code, said(kind) in end.error.message) == ("INTERNAL", True)
        assert len(r.all(session, ev.ToolCallDenied)) == 1
        another_session_works(r)


@exits
async def test_a_function_that_is_a_tool_fails_as_with_any_error(kind: type[BaseException]):
    class Nothing(msgspec.Struct):
        pass

    registry = ToolRegistry()

    @registry.tool(name="app.leave", tool_class="read_only")
    async def leave(args: Nothing, context: ToolContext) -> str:
        """Leave."""
        raise kind("3")

    prepared = registry.prepare("app.leave", {})
    assert isinstance(prepared, PreparedCall)
    invocation = ToolInvocation(
        session_id="ses_1",
        task_id=None,
        tool_call_id="call_1",
        attempt=1,
        name="app.leave",
        input={},
        workspace=Workspace("/"),
    )
    run = await prepared.run(invocation, lambda stream, text: None)
    assert (run.is_error, kind.__name__ in run.result) == (True, True)


@exits
def test_a_policy_that_raises_an_exit_fails_the_task_and_denies_the_call(kind: type[BaseException]):
    class Leaving:
        def evaluate(self, question: PolicyQuestion) -> Evaluation:
            raise kind("3")

    with rig(policy=Leaving(), runtimes=[healthy()]) as r:
        session = r.open("auto")
        r.start(session)
        r.emit(call("fake.read"))
        (end,) = r.ended(session)
        assert (end.error.code, said(kind) in end.error.message) == ("INTERNAL", True)
        assert len(r.all(session, ev.ToolCallDenied)) == 1
        another_session_works(r)


class Watching:
    """An observer and a subscriber that raises in each call."""

    name = "watching"
    types = ("task.completed",)
    gather_s = 0.05

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.asked = 0

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        self.asked += 1
        raise self.kind("3")

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        raise self.kind("3")

    async def take(self, events: Sequence[Event]) -> None:
        self.asked += 1
        if self.asked == 1:
            raise self.kind("3")


@exits
def test_an_observer_that_raises_an_exit_is_dropped(kind: type[BaseException]):
    watching = Watching(kind)
    with rig(observers=[watching], runtimes=[healthy()]) as r:
        another_session_works(r)
        assert watching.asked == 1


@exits
def test_a_subscriber_that_raises_an_exit_gets_its_events_again(kind: type[BaseException]):
    watching = Watching(kind)
    with rig(subscribers=[watching], runtimes=[healthy()]) as r:
        another_session_works(r)
        r.pass_time(5)
        assert watching.asked == 2


@exits
def test_an_equipper_that_raises_an_exit_fails_the_action_only(kind: type[BaseException]):
    class Leaving:
        prepare = staticmethod(async_raiser(kind))

    with rig(equipper=Leaving(), runtimes=[healthy()]) as r:
        session = r.open()
        action = EquipSession(session_id=session.id, script={"turns": []})
        assert r.refused(r.sdk.service.execute(action), CodeSDKError) == "INTERNAL"
        another_session_works(r)


PROGRAM = """
import asyncio
from codesdk.testing.fakes import FakeTools, call, done, memory_sdk, FakeRuntime

async def main():
    tools = FakeTools()
    tools.hold()
    async with memory_sdk(runtimes=[FakeRuntime([call("fake.read"), done()])], tools=tools) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="auto")
        await session.start("Go")
        await tools.started()
        print("running", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_ctrl_c_still_ends_a_program_whose_tool_is_running():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"running\n"
        os.kill(program.pid, signal.SIGINT)
        _, errors = program.communicate(timeout=30)
        assert (program.returncode, errors.strip().splitlines()[-1]) == (-signal.SIGINT, b"KeyboardInterrupt")
