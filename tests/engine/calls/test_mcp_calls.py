"""Calls that a runtime announces in its stream and makes over MCP: they meet in one attempt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from codesdk import CodeSDK, Conflict, Session
from codesdk.contract.codec import decode
from codesdk.contract.events import Event, OutputCompleted
from codesdk.contract.messages import Message, Reasoning, Text, ToolResult, ToolUse
from codesdk.contract.runtime import Draft, ToolAnnouncement, ToolDropped, ToolReply
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.engine.log.transcript import MAX_HELD
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

    async def end(self, message_id: str = "m1") -> list[Event]:
        """Let the task end, check the log, and return its events."""
        self.emit(message("Done.", message_id), done())
        await self.seen("task.completed")
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        assert await verify_session(log, blobs, self.session.id) == []
        assert (await replay_session(log, blobs, self.session.id))[1] == []
        return [decode(frame.data) async for frame in self.sdk.archive.frames(self.session.id)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no announcement: one that comes after its call is then late on any machine."""
    monkeypatch.setattr("codesdk.engine.calls.matching.JOIN_S", 0.0)


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


async def test_a_call_that_comes_before_its_announcement_waits_for_it_and_has_its_place(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("codesdk.engine.calls.matching.JOIN_S", 60.0)
    async with rig() as r:
        coming = r.over_mcp(READ, {"path": "a"})
        await asyncio.sleep(0)
        r.emit(call(READ, {"path": "a"}))
        await coming
        events = await r.end()
        assert calls(events) == ONE_CALL
        assert [e.payload.message_id for e in events if e.type == "tool.call.requested"] == ["m1"]


def shape(messages: list[Message]) -> list[tuple[str, list[str]]]:
    """Roles, and blocks as their text, the input of a call or the result of one."""
    return [(each.role, [str(_shown(block)) for block in each.content]) for each in messages]


def _shown(block: Any) -> Any:
    if isinstance(block, ToolUse):
        return block.input["path"]
    return block.result if isinstance(block, ToolResult) else block.text


def told(path: str, call_id: str, index: int, message_id: str = "m1") -> ToolAnnouncement:
    return msgspec.structs.replace(call(READ, {"path": path}, call_id, message_id), index=index)


def thought(text: str, message_id: str = "m1") -> Draft:
    content = [Reasoning(text="Hm."), Text(text=text)]
    return Draft(OutputCompleted(message_id=message_id, content=content))


@pytest.mark.parametrize("call_id", ["c1", None], ids=["by its id", "by name and input"])
async def test_a_call_whose_announcement_comes_too_late_is_one_call_in_the_message_that_made_it(
    call_id: str | None,
):
    async with rig() as r:
        await r.over_mcp(READ, {"path": "a"}, call_id)
        r.emit(thought("I look."), told("a", "c1", 2), ToolDropped(runtime_tool_call_id="c1", reason="No."))
        events = await r.end("m2")
        assert calls(events) == [(kind, call_id) for kind, _ in ONE_CALL] + [("announced", "c1")]
        [placed] = [e.payload for e in events if e.type == "tool.call.announced"]
        assert (placed.message_id, placed.index) == ("m1", 2)
        assert [e for e in events if e.type == "runtime.notice"] == []
        assert shape(await r.session.transcript()) == [
            ("user", ["Go"]),
            ("assistant", ["Hm.", "I look.", "a"]),
            ("tool", ["ok"]),
            ("assistant", ["Done."]),
        ]


async def test_all_that_a_runtime_tells_may_come_after_all_that_it_does():
    async with rig() as r:
        for path in ("a", "b", "c"):
            await r.over_mcp(READ, {"path": path}, None)
        r.emit(thought("Two."), told("b", "c2", 3), told("a", "c1", 2))
        r.emit(told("c", "c3", 2, "m2"), thought("One.", "m2"))
        await r.end("m3")
        assert shape(await r.session.transcript()) == [
            ("user", ["Go"]),
            ("assistant", ["Hm.", "Two.", "a", "b"]),
            ("tool", ["ok", "ok"]),
            ("assistant", ["Hm.", "One.", "c"]),
            ("tool", ["ok"]),
            ("assistant", ["Done."]),
        ]


async def test_a_message_that_was_complete_before_its_call_was_made_gets_it_all_the_same():
    async with rig() as r:
        r.emit(thought("I look."))
        await r.seen("model.output.completed")
        await r.over_mcp(READ, {"path": "a"}, None)
        r.emit(told("a", "c1", 2))
        await r.end("m2")
        assert shape(await r.session.transcript())[1:3] == [
            ("assistant", ["Hm.", "I look.", "a"]),
            ("tool", ["ok"]),
        ]


async def test_a_call_that_is_announced_while_it_waits_for_an_answer_has_the_runtimes_id_from_then_on():
    async with rig("ask") as r:
        coming = r.over_mcp(READ, {"path": "a"}, None)
        asked = await r.seen("approval.requested")
        r.emit(told("a", "c1", 0))
        await r.seen("tool.call.announced")
        await r.session.approve(asked.payload.tool_call_id)
        await coming
        events = await r.end("m2")
        assert calls(events) == [
            ("requested", None),
            ("announced", "c1"),
            ("approved", "c1"),
            ("started", "c1"),
            ("completed", "c1"),
        ]


async def test_calls_that_are_never_announced_do_not_keep_a_task_from_being_stored():
    async with rig() as r:
        r.emit(thought("I look."))
        await r.seen("model.output.completed")
        for _ in range(MAX_HELD + 2):
            await r.over_mcp(READ, {"path": "a"}, None)
        await r.seen("tool.call.completed", MAX_HELD + 2)
        assert shape(await r.session.transcript()) == [
            ("user", ["Go"]),
            ("assistant", ["Hm.", "I look."]),
            ("assistant", ["a"]),
            ("tool", ["ok"]),
            ("assistant", ["a"]),
            ("tool", ["ok"]),
        ]
        await r.end("m2")
        assert len(await r.session.transcript()) == 1 + 1 + 2 * (MAX_HELD + 2) + 1


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
