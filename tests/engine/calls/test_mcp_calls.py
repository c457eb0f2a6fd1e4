"""Calls that a runtime announces in its stream and makes over MCP: they meet in one attempt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from codesdk import CodeSDK, Conflict, Session
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.runtime import ToolDropped, ToolReply
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.testing.fakes import FAKE_CAPABILITIES, FakeRuntime, FakeTools, call, done, memory_sdk, message

OVER_MCP = msgspec.structs.replace(FAKE_CAPABILITIES, tool_execution_model="external_mcp")
READ, WRITE = "fake.read", "fake.write"


class Rig:
    """A running task of a runtime that makes its calls over MCP."""

    def __init__(self, sdk: CodeSDK, session: Session, runtime: FakeRuntime, tools: FakeTools) -> None:
        self.sdk, self.session, self.runtime, self.tools = sdk, session, runtime, tools

    def emit(self, *items: Any) -> None:
        self.runtime.tasks[-1].emit(*items)

    def over_mcp(
        self, name: str, arguments: Any = None, call_id: str | None = "c1"
    ) -> "asyncio.Future[ToolReply]":
        given = {} if arguments is None else arguments
        calls = self.sdk.engine.tool_calls
        return calls.call(self.session.id, name, given, runtime_tool_call_id=call_id)

    async def seen(self, kind: str, number: int = 1) -> Any:
        """Wait for an event of a type, the first or a later one."""
        found = 0
        async for event in self.session.events():
            found += event.type == kind
            if found == number:
                return event
        raise AssertionError(kind)

    async def end(self) -> list[Event]:
        """Let the task end, check the log, and return its events."""
        self.emit(message("Done."), done())
        await self.seen("task.completed")
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        assert await verify_session(log, blobs, self.session.id) == []
        assert (await replay_session(log, blobs, self.session.id))[1] == []
        return [decode(frame.data) async for frame in self.sdk.archive.frames(self.session.id)]


@asynccontextmanager
async def rig(mode: Any = "yolo", **options: Any) -> AsyncIterator[Rig]:
    runtime, tools = FakeRuntime(capabilities=OVER_MCP), FakeTools()
    async with memory_sdk(runtimes=[runtime], tools=tools) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode=mode, **options)
        await session.start("Go")
        await runtime.started()
        yield Rig(sdk, session, runtime, tools)


def calls(events: list[Event]) -> list[tuple[str, str | None]]:
    return [
        (event.type.removeprefix("tool.call."), getattr(event.payload, "runtime_tool_call_id", None))
        for event in events
        if event.type.startswith("tool.call.") and event.type != "tool.call.policy_evaluated"
    ]


ONE_CALL = [("requested", "c1"), ("approved", "c1"), ("started", "c1"), ("completed", "c1")]


async def test_an_announced_call_runs_once_when_it_is_made_over_mcp():
    async with rig() as r:
        r.tools.give(READ, "the text")
        r.emit(call(READ, {"path": "a"}))
        await r.seen("tool.call.requested")
        assert r.tools.runs == []
        assert await r.over_mcp(READ, {"path": "a"}) == ToolReply(result="the text", is_error=False)
        events = await r.end()
        assert calls(events) == ONE_CALL
        assert [e.payload.message_id for e in events if e.type == "tool.call.requested"] == ["m1"]


async def test_a_call_that_comes_before_its_announcement_waits_for_it_and_has_its_place():
    async with rig() as r:
        coming = r.over_mcp(READ, {"path": "a"})
        await asyncio.sleep(0)
        r.emit(call(READ, {"path": "a"}))
        await coming
        events = await r.end()
        assert calls(events) == ONE_CALL
        assert [e.payload.message_id for e in events if e.type == "tool.call.requested"] == ["m1"]


async def test_a_call_whose_announcement_comes_too_late_is_one_call_all_the_same():
    async with rig() as r:
        await r.over_mcp(READ, {"path": "a"})
        r.emit(call(READ, {"path": "a"}))
        events = await r.end()
        assert calls(events) == ONE_CALL
        assert [e for e in events if e.type == "runtime.notice"] == []


async def test_without_an_id_calls_are_matched_by_name_and_input_in_order():
    async with rig() as r:
        r.emit(
            call(READ, {"path": "a"}, "c1"), call(READ, {"path": "b"}, "c2"), call(READ, {"path": "a"}, "c3")
        )
        await r.seen("tool.call.requested", 3)
        for path in ("b", "a", "a"):
            await r.over_mcp(READ, {"path": path}, None)
        events = await r.end()
        assert [i for kind, i in calls(events) if kind == "started"] == ["c2", "c1", "c3"]


async def test_the_same_call_again_joins_the_first_and_gets_its_result():
    async with rig() as r:
        r.tools.hold(READ)
        first, second = r.over_mcp(READ), r.over_mcp(READ)
        await r.seen("tool.call.started")
        r.tools.release(READ)
        assert await first == await second == await r.over_mcp(READ)
        assert calls(await r.end()) == ONE_CALL


async def test_a_call_with_another_input_than_was_announced_is_a_call_of_its_own():
    async with rig() as r:
        r.emit(call(READ, {"path": "a"}))
        await r.seen("tool.call.requested")
        await r.over_mcp(READ, {"path": "/etc/shadow"})
        events = await r.end()
        assert [run.invocation.input for run in r.tools.runs] == [{"path": "/etc/shadow"}]
        assert calls(events)[-1] == ("denied", "c1")


async def test_a_question_is_asked_inside_the_call_and_a_denial_is_its_answer():
    async with rig("ask") as r:
        coming = r.over_mcp(WRITE)
        asked = await r.seen("approval.requested")
        await r.session.deny(asked.payload.tool_call_id, "Not today.")
        assert await coming == ToolReply(result="Not today.", is_error=True)
        assert calls(await r.end()) == [("requested", "c1"), ("denied", "c1")]


async def test_a_client_that_leaves_while_a_question_waits_has_its_call_denied_and_a_later_answer_is_a_conflict():
    async with rig("ask") as r:
        coming = r.over_mcp(WRITE)
        asked = await r.seen("approval.requested")
        coming.cancel()
        denied = await r.seen("tool.call.denied")
        assert "no longer waits" in denied.payload.reason
        with pytest.raises(Conflict):
            await r.session.approve(asked.payload.tool_call_id)
        await r.end()


async def test_a_client_that_leaves_while_the_tool_runs_has_it_cancelled():
    async with rig() as r:
        r.tools.hold(WRITE)
        coming = r.over_mcp(WRITE)
        await r.seen("tool.call.started")
        coming.cancel()
        ended = await r.seen("tool.call.completed")
        assert (ended.payload.is_error, ended.payload.outcome) == (True, "known")
        await r.end()


async def test_one_of_two_clients_that_leaves_does_not_take_the_call_from_the_other():
    async with rig() as r:
        r.tools.hold(READ)
        first, second = r.over_mcp(READ), r.over_mcp(READ)
        await r.seen("tool.call.started")
        first.cancel()
        await asyncio.wait([first])
        r.tools.release(READ)
        assert (await second).is_error is False
        await r.end()


async def test_an_announced_call_that_never_comes_is_denied_by_the_runtime():
    async with rig() as r:
        r.emit(
            call(READ, {}, "c1"),
            call("fake.unknown", {}, "c2"),
            ToolDropped(runtime_tool_call_id="c2", reason="No."),
        )
        await r.seen("tool.call.denied")
        events = await r.end()
        denied = {e.payload.runtime_tool_call_id: e.payload for e in events if e.type == "tool.call.denied"}
        assert [denied[i].by.kind for i in ("c1", "c2")] == ["runtime", "runtime"]
        assert denied["c2"].reason == "No."
        assert r.tools.runs == []


async def test_an_unknown_tool_is_refused_and_recorded():
    async with rig() as r:
        reply = await r.over_mcp("no.such", {})
        assert reply.is_error
        assert "There is no tool no.such" in reply.result
        assert calls(await r.end()) == [("requested", "c1"), ("denied", "c1")]


async def test_a_stop_reaches_the_runtime_before_the_denial_of_the_call_that_waited():
    async with rig("ask") as r:
        order: list[str] = []
        waiting, told = r.over_mcp(WRITE), r.runtime.tasks[-1].stop
        waiting.add_done_callback(lambda _: order.append("answered"))
        await r.seen("approval.requested")

        async def stop(reason: str) -> None:
            await r.seen("tool.call.denied")
            for _ in range(50):  # time enough to answer, if anything would
                await asyncio.sleep(0)
            order.append("told to stop")
            await told(reason)

        r.runtime.tasks[-1].stop = stop
        await r.session.stop()
        assert (await waiting).is_error
        assert order == ["told to stop", "answered"]
        r.emit(done())
        await r.seen("task.stopped")


async def test_a_stop_answers_what_waits_and_takes_no_more():
    async with rig("ask") as r:
        coming = r.over_mcp(WRITE)
        await r.seen("approval.requested")
        await r.session.stop()
        assert (await coming).is_error
        [late] = await asyncio.gather(r.over_mcp(READ, {}, "c9"), return_exceptions=True)
        assert isinstance(late, Conflict) or (isinstance(late, ToolReply) and late.is_error)
        r.emit(done())
        await r.seen("task.stopped")
        assert [run.invocation.name for run in r.tools.runs] == []


async def test_between_tasks_no_tool_is_called():
    async with rig() as r:
        await r.end()
        with pytest.raises(Conflict, match="no running task"):
            await r.over_mcp(READ, {}, "c5")


@pytest.mark.parametrize(
    ("capture", "word", "words"),
    [("exact", "deferred", "listed with each exact request"), ("compiled", "disabled", "reads nothing")],
)
async def test_the_compiled_input_says_where_the_sources_are_listed(capture: Any, word: str, words: str):
    capabilities = msgspec.structs.replace(FAKE_CAPABILITIES, input_capture=capture)
    runtime = FakeRuntime([message("Done."), done()], capabilities=capabilities)
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await (await session.start("Go")).result()
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        [compiled] = [e.payload for e in events if e.type == "model.input"]
        said = msgspec.json.decode(await sdk.read_artifact(compiled.implicit_sources_ref.artifact_id))
        assert (sorted(said), said[word]) == ([word, "reason"], True)
        assert words in said["reason"]
