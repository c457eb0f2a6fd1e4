"""The fakes that applications test with: they do what their page says, and fit the ports they stand for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from codesdk import NotFound, user
from codesdk.contract.events import OutputCompleted, OutputDelta
from codesdk.contract.ids import is_id
from codesdk.contract.messages import Text
from codesdk.contract.ports import Stamper, ToolInvocation, ToolRun, ToolRunner
from codesdk.contract.runtime import (
    Draft,
    Finished,
    Runtime,
    RuntimeItem,
    RuntimeTask,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.workspace import Workspace
from codesdk.testing.fakes import (
    READ,
    WRITE,
    FakeRuntime,
    FakeTask,
    FakeTools,
    FrozenStamper,
    call,
    delta,
    done,
    memory_sdk,
    message,
    tool_spec,
)

pytestmark = pytest.mark.anyio


def silent(stream: Any, text: str) -> None:
    """Take a tool's output and forget it."""


def invocation(name: str = READ.name, value: Any = None) -> ToolInvocation:
    return ToolInvocation(
        session_id="ses_1",
        task_id="task_1",
        tool_call_id="call_1",
        attempt=1,
        name=name,
        input=value or {},
        workspace=Workspace("."),
    )


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_fakes_fit_the_ports():
    runtime: Runtime = FakeRuntime()
    tools: ToolRunner = FakeTools()
    stamper: Stamper = FrozenStamper()
    task: RuntimeTask = FakeTask(None, None, [])  # type: ignore[arg-type]
    assert runtime.name == "fake"
    assert tools.specs() == [READ, WRITE]
    assert stamper.now() == "2026-01-01T00:00:00.001Z"
    assert task.events() is not None


def test_what_a_runtime_says_is_short_to_write():
    assert delta("a") == Draft(OutputDelta(kind="text_delta", block_id="m1.0", message_id="m1", delta="a"))
    assert message("a", "m2") == Draft(OutputCompleted(message_id="m2", content=[Text(text="a")]))
    assert call("fake.read", {"p": 1}) == ToolAnnouncement(
        name="fake.read", input={"p": 1}, runtime_tool_call_id="c1", message_id="m1"
    )
    assert done() == Finished(stop_reason="end_turn")


def test_times_and_ids_are_the_same_every_time():
    one, two = (FrozenStamper("2030-05-06T07:08:09.000Z", step_ms=1000) for _ in range(2))
    assert [one.now(), one.now()] == ["2030-05-06T07:08:10.000Z", "2030-05-06T07:08:11.000Z"]
    two.now()
    two.now()
    made = one.mint("task"), one.mint("call")
    assert made == (two.mint("task"), two.mint("call"))
    assert is_id("task", made[0])
    assert is_id("call", made[1])


async def test_a_runtime_plays_a_list_of_items():
    async with memory_sdk(runtimes=[FakeRuntime([delta("Hi"), message("Hi"), done()])]) as sdk:
        session = await sdk.create_session(runtime="fake")
        assert (await (await session.start("Say hi")).result()).text == "Hi"


async def test_a_runtime_plays_a_function_that_waits_for_replies_steering_and_stops():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        yield call("fake.read", {"path": "a.txt"})
        reply = await task.reply("c1")
        assert reply == ToolReply(result="contents", is_error=False)
        await task.until(lambda: bool(task.steered))
        yield message(f"{task.steered[0].content[0].text}!", "m2")  # type: ignore[union-attr]
        await task.until(lambda: task.stopped is not None)
        yield done("stopped")

    tools = FakeTools()
    tools.give("fake.read", "contents")
    runtime = FakeRuntime(play)
    async with memory_sdk(runtimes=[runtime], tools=tools) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="yolo")
        task = await session.start("go")
        await runtime.started()
        await task.steer("louder")
        async for event in task.events():
            if event.type == "model.output.completed":
                await task.stop("enough")
        assert [each.content for each in await session.transcript()][-1] == [Text(text="louder!")]


async def test_a_runtime_without_a_play_says_what_the_test_tells_it():
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake")
        task = await session.start("go")
        running = await runtime.started()
        assert running.input.messages == [user("go")]
        running.emit(message("told"), done())
        assert (await task.result()).text == "told"
        await session.close()
    assert runtime.closed_sessions[0] == session.id


async def test_a_tool_answers_with_what_it_was_given():
    tools = FakeTools(tool_spec("mail.send", "network"))
    assert await tools.run(invocation("mail.send"), silent) == ToolRun(result="ok")
    tools.give("mail.send", ToolRun(result="sent", exit_code=0))
    assert await tools.run(invocation("mail.send"), silent) == ToolRun(result="sent", exit_code=0)
    tools.give("mail.send", NotFound("no such address"))
    with pytest.raises(NotFound):
        await tools.run(invocation("mail.send"), silent)
    assert [each.name for each in tools.invocations] == ["mail.send"] * 3


async def test_a_held_tool_waits_until_it_is_ended():
    tools = FakeTools()
    tools.hold(WRITE.name)
    heard: list[tuple[str, str]] = []
    running = asyncio.ensure_future(tools.run(invocation(WRITE.name), lambda *said: heard.append(said)))
    await settle()
    assert not running.done()
    tools.runs[0].say("half way")
    tools.runs[0].finish("written")
    assert await running == ToolRun(result="written")
    assert heard == [("stdout", "half way")]
    assert (await tools.run(invocation(READ.name), silent)).result == "ok"


async def test_releasing_ends_what_waits_with_what_was_given():
    tools = FakeTools()
    tools.hold()
    tools.give(READ.name, "contents")
    running = [asyncio.ensure_future(tools.run(invocation(), silent)) for _ in range(2)]
    await settle()
    tools.release()
    assert [await run for run in running] == [ToolRun(result="contents")] * 2
    assert all(run.over for run in tools.runs)


async def test_a_cancelled_call_is_known_as_such():
    tools = FakeTools()
    tools.hold()
    running = asyncio.ensure_future(tools.run(invocation(), silent))
    await settle()
    running.cancel()
    await settle()
    assert running.cancelled()
    assert tools.runs[0].cancelled


def test_an_input_can_be_made_invalid():
    tools = FakeTools()
    assert tools.check(READ.name, {"path": "a"}) is None
    assert tools.check(READ.name, {"invalid": "no such file"}) == "no such file"
    assert tools.check(READ.name, "a") == "fake.read takes an object."


async def test_two_runs_of_the_same_test_give_the_same_events():
    async def events() -> list[Any]:
        turns = [[{"text": "Hello"}, {"call": {"tool": "fake.read"}}], [{"text": "Bye"}]]
        async with memory_sdk(turns) as sdk:
            session = await sdk.create_session(runtime="scripted", permission_mode="yolo", workspace="/")
            task = await session.start("go")
            return [event async for event in task.events()]

    assert await events() == await events()
