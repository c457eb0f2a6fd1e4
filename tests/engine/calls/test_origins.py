"""The three origins of a call: chosen call by call, seen through by one path, whatever else the runtime does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.engine.calls import walk
from tests.engine.calls.walk import WALKS, Path, Tracer, announced, idle

from codesdk import CodeSDK, Session
from codesdk.contract.codec import decode
from codesdk.contract.runtime import Ruling, ToolAnnouncement, ToolDropped, ToolEnded, ToolReply
from codesdk.engine.calls import inputs
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.testing.fakes import (
    FAKE_CAPABILITIES,
    WRITE,
    FakeRuntime,
    FakeTask,
    FakeTools,
    call,
    done,
    memory_sdk,
    message,
)

MOST_HOPS = {"stream": 15, "mcp": 24, "native": 21}
"""Half of what the walks were before they became one: 30, 48 and 43."""


class Rig:
    """A running task of a runtime that hands calls over in its stream, as far as its capabilities say."""

    def __init__(self, sdk: CodeSDK, session: Session, task: FakeTask, tools: FakeTools) -> None:
        self.sdk, self.session, self.task, self.tools = sdk, session, task, tools

    async def seen(self, kind: str, number: int = 1) -> Any:
        """Wait for an event of a type, and return its payload."""
        found = 0
        async for event in self.session.events():
            found += event.type == kind
            if found == number:
                return event.payload
        raise AssertionError(kind)

    def over_mcp(self, name: str, call_id: str) -> "asyncio.Future[ToolReply]":
        calls = self.sdk.engine.tool_calls
        return calls.call(self.session.id, name, {}, runtime_tool_call_id=call_id)

    async def end(self, how: str = "task.completed") -> list[tuple[str, str, str]]:
        """End the task, check its log, and return what became of each call: id, decision, who ran it."""
        self.task.emit(message("Done."), done())
        await self.seen(how)
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        assert await verify_session(log, blobs, self.session.id) == []
        assert (await replay_session(log, blobs, self.session.id))[1] == []
        events = [decode(frame.data) async for frame in self.sdk.archive.frames(self.session.id)]
        return [
            (
                getattr(event.payload, "runtime_tool_call_id", None) or "",
                event.type.removeprefix("tool.call."),
                getattr(event.payload, "executed_by", ""),
            )
            for event in events
            if event.type in ("tool.call.denied", "tool.call.completed")
        ]


@asynccontextmanager
async def rig(mode: Any = "yolo", model: Any = "stream", **options: Any) -> AsyncIterator[Rig]:
    natives: Any = options.pop("declared", {})
    capabilities = msgspec.structs.replace(
        FAKE_CAPABILITIES, tool_execution_model=model, native_tools=natives
    )
    runtime, tools = FakeRuntime(capabilities=capabilities), FakeTools()
    async with memory_sdk(runtimes=[runtime], tools=tools) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode=mode, **options)
        await session.start("Go")
        yield Rig(sdk, session, await runtime.started(), tools)


def native(name: str = "Bash", call_id: str = "n1", **more: Any) -> ToolAnnouncement:
    given = {"command": "ls"}
    return ToolAnnouncement(name=name, input=given, runtime_tool_call_id=call_id, origin="native", **more)


def ended(call_id: str = "n1") -> ToolEnded:
    return ToolEnded(runtime_tool_call_id=call_id, result="a.txt")


async def test_a_runtime_mixes_all_three_origins_in_one_task():
    async with rig(model="hybrid", declared={"Bash": "dangerous"}, native_tools=["Bash"]) as r:
        r.task.emit(call("fake.read", {}, "s1"), call("fake.read", {}, "m1", origin="mcp"), native())
        assert await r.task.reply("s1") == ToolReply(result="ok", is_error=False)
        assert await r.over_mcp("fake.read", "m1") == ToolReply(result="ok", is_error=False)
        assert await r.task.host.may_run(native()) == Ruling(rule="mode:yolo")
        r.task.emit(ended())
        assert await r.end() == [
            ("s1", "completed", "codesdk"),
            ("m1", "completed", "codesdk"),
            ("n1", "completed", "runtime"),
        ]
        assert len(r.tools.runs) == 2
        assert list(r.task.replies) == ["s1"]


@pytest.mark.parametrize(
    ("model", "origin"),
    [("stream", "stream"), ("hybrid", "stream"), ("external_mcp", "mcp"), ("runtime_internal", "native")],
)
async def test_what_a_runtime_usually_does_is_the_origin_of_a_call_that_does_not_say(model: Any, origin: str):
    async with rig(model=model, declared={"fake.read": "read_only"}, native_tools=["fake.read"]) as r:
        r.task.emit(call("fake.read", {}, "c1"))
        await r.seen("tool.call.requested")
        if origin == "stream":
            await r.task.reply("c1")
        elif origin == "mcp":
            await r.over_mcp("fake.read", "c1")
        else:
            r.task.emit(ended("c1"))
        by = "runtime" if origin == "native" else "codesdk"
        assert await r.end() == [("c1", "completed", by)]


async def test_a_runtime_without_mcp_asks_before_it_runs_a_tool_of_its_own():
    async with rig("ask", declared={"Bash": "dangerous"}, native_tools=["Bash"]) as r:
        asking = asyncio.create_task(r.task.host.may_run(native()))
        asked = await r.seen("approval.requested")
        await r.session.approve(asked.tool_call_id)
        assert await asking == Ruling()
        assert (await r.seen("tool.call.started")).execution_env == "runtime_internal"
        refused = asyncio.create_task(r.task.host.may_run(native(call_id="n2")))
        asked = await r.seen("approval.requested", 2)
        await r.session.deny(asked.tool_call_id, "Not that.")
        assert await refused == Ruling(denied="Not that.")
        r.task.emit(ended())
        assert await r.end() == [("n2", "denied", ""), ("n1", "completed", "runtime")]


@pytest.mark.parametrize("mode", ["ask", "auto", "yolo"])
async def test_a_tool_that_nobody_declared_is_asked_about_as_dangerous_in_every_mode(mode: Any):
    async with rig(mode) as r:
        asking = asyncio.create_task(r.task.host.may_run(native("Deploy")))
        asked = await r.seen("approval.requested")
        requested = await r.seen("tool.call.requested")
        assert (requested.name, requested.tool_class) == ("Deploy", "dangerous")
        first = await r.seen("tool.call.policy_evaluated")
        assert (first.result, first.rule) == ("ask", "mode:native_tools:undeclared")
        await r.session.approve(asked.tool_call_id)
        assert await asking == Ruling()
        r.task.emit(ended())
        assert await r.end() == [("n1", "completed", "runtime")]


async def test_a_tool_that_nobody_declared_does_not_run_where_nobody_can_be_asked():
    async with rig("yolo", interaction_mode="non_interactive") as r:
        assert "Nobody can be asked" in str((await r.task.host.may_run(native("Deploy"))).denied)
        assert await r.end() == [("n1", "denied", "")]


async def test_a_declared_tool_that_the_session_did_not_enable_is_denied_without_a_question():
    async with rig("yolo", declared={"Bash": "dangerous"}) as r:
        ruling = await r.task.host.may_run(native())
        assert "is not enabled in this session" in str(ruling.denied)
        assert ruling.rule == "native:off"
        assert await r.end() == [("n1", "denied", "")]


async def test_a_tool_that_ran_without_the_question_it_needed_ends_the_task():
    async with rig("yolo") as r:
        r.task.emit(native("Deploy"), ended())
        notice = await r.seen("runtime.notice")
        assert (notice.kind, notice.details["tool"]) == ("violation", "Deploy")
        assert await r.end("task.failed") == [("n1", "completed", "runtime")]


async def test_the_same_question_again_waits_for_the_same_answer():
    async with rig("ask", declared={"Bash": "dangerous"}, native_tools=["Bash"]) as r:
        first = asyncio.create_task(r.task.host.may_run(native()))
        asked = await r.seen("approval.requested")
        second = asyncio.create_task(r.task.host.may_run(native()))
        await idle()
        await r.session.approve(asked.tool_call_id)
        assert [await first, await second] == [Ruling(), Ruling()]
        r.task.emit(ended())
        assert await r.end() == [("n1", "completed", "runtime")]


async def test_a_question_about_another_input_than_was_announced_is_a_call_of_its_own():
    async with rig("yolo", declared={"Bash": "dangerous"}, native_tools=["Bash"]) as r:
        r.task.emit(msgspec.structs.replace(native(), input={"command": "ls"}))
        await r.seen("tool.call.requested")
        other = msgspec.structs.replace(native(), input={"command": "rm -rf /"})
        assert (await r.task.host.may_run(other)).denied is None
        r.task.emit(ended())
        assert await r.end() == [("n1", "denied", ""), ("n1", "completed", "runtime")]


async def test_what_is_told_of_a_call_that_never_was_is_noted():
    async with rig() as r:
        r.task.emit(ended("nope"), ToolDropped(runtime_tool_call_id="nope", reason="No."))
        notices = [await r.seen("runtime.notice", number) for number in (1, 2)]
        assert [notice.kind for notice in notices] == ["unknown_frame", "unknown_frame"]
        assert await r.end() == []


async def test_an_approved_call_whose_client_leaves_before_its_turn_never_runs():
    async with rig() as r:
        r.tools.hold(WRITE.name)
        first, second = r.over_mcp(WRITE.name, "w1"), r.over_mcp(WRITE.name, "w2")
        await r.tools.started()
        await r.seen("tool.call.approved", 2)
        second.cancel()
        skipped = await r.seen("tool.call.completed")
        assert (skipped.runtime_tool_call_id, skipped.is_error) == ("w2", True)
        assert skipped.result_preview == "Not run: The runtime no longer waits for this call."
        r.tools.release()
        assert (await first).is_error is False
        assert [run.invocation.name for run in r.tools.runs] == [WRITE.name]
        await r.end()


@pytest.mark.parametrize("origin", WALKS)
async def test_a_call_takes_at_most_two_tasks_and_half_of_the_hops_it_took(origin: str):
    traced = await WALKS[origin]()
    assert len(traced.tasks) <= 2, traced.tasks
    assert len(traced.hops) <= MOST_HOPS[origin], "\n".join(traced.hops)


async def test_an_input_is_redacted_hashed_and_validated_once(monkeypatch: pytest.MonkeyPatch):
    hashed: list[Any] = []
    hash_json = inputs.hash_json
    monkeypatch.setattr(inputs, "hash_json", lambda value: hashed.append(value) or hash_json(value))
    async with walk.running() as (_, _, task):
        before = Path.made
        task.emit(announced("stream"))
        assert await task.reply("c1") == ToolReply(result="the text of a", is_error=False)
        assert Path.made - before == 1
        assert hashed == [{"path": "a"}]


async def test_the_tracer_sees_a_task_and_a_hop():
    async with walk.running() as (_, _, task):
        with Tracer() as tracer:
            task.emit(announced("stream"))
            await task.reply("c1")
        assert "codesdk.engine.calls.calls → codesdk.engine.calls.ledger request" in tracer.hops
        assert tracer.tasks == ["Calls._answer", "call"]
