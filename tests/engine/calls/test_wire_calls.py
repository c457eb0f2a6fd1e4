"""Calls that the gateway kept from a runtime: on record as denied, never run, and no part of the model's words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.engine.acting import live_session
from tests.engine.world import World

from codesdk import CodeSDK, Session
from codesdk.contract.codec import decode
from codesdk.contract.events import Event, OutputCompleted
from codesdk.contract.messages import Text, text_of
from codesdk.contract.models import ModelAnswered, ModelAsked
from codesdk.contract.ownership import WireCall
from codesdk.contract.runtime import Draft
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.engine.models.requests import SessionTap
from codesdk.store.blobs import MemoryBlobs
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, delta, done, memory_sdk, message

REASON = "There is no tool Bash here."


class Rig:
    """A running task, and its session's tap."""

    def __init__(
        self, sdk: CodeSDK, session: Session, task: FakeTask, tap: SessionTap, tools: FakeTools
    ) -> None:
        self.sdk, self.session, self.task, self.tap, self.tools = sdk, session, task, tap, tools
        self._open: list[str] = []

    async def opened(self) -> str:
        request_id = await self.tap.opened(ModelAsked(purpose="main", model="m", content=1))
        assert isinstance(request_id, str)
        self._open.append(request_id)
        return request_id

    async def deny(self, request_id: str, **changes: Any) -> str:
        """Have a call denied; return its mark."""
        made = denied(self.tap.mark(), request_id, **changes)
        await self.tap.denied(made)
        return made.mark

    def close(self) -> None:
        """End the requests: the end of the task waits for them."""
        for request_id in self._open:
            self.tap.closed(request_id, ModelAnswered(status="completed", duration_ms=1))
        self._open = []

    async def finish(self, *said: Any) -> None:
        self.close()
        self.task.emit(*(said or [message("Done.")]), done())
        await self.over("task.completed")

    async def over(self, kind: str) -> Any:
        async for event in self.session.events():
            if event.type == kind:
                return event.payload
        raise AssertionError(kind)

    async def checked(self) -> list[Event]:
        """Return the events, after verify and replay have found nothing."""
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        assert await verify_session(log, blobs, self.session.id) == []
        assert (await replay_session(log, blobs, self.session.id))[1] == []
        return [decode(frame.data) async for frame in self.sdk.archive.frames(self.session.id)]


def denied(mark: str, request_id: str, **changes: Any) -> WireCall:
    made = WireCall(
        request_id=request_id,
        name="Bash",
        input={"command": "id"},
        model_call_id="toolu_1",
        reason=REASON,
        mark=mark,
        item={"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "id"}},
        step=0,
    )
    return msgspec.structs.replace(made, **changes)


@asynccontextmanager
async def rig(**options: Any) -> AsyncIterator[Rig]:
    runtime, tools = FakeRuntime(), FakeTools()
    async with memory_sdk(runtimes=[runtime], tools=tools) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="yolo", **options)
        await session.start("Go")
        task = await runtime.started()
        tap = (await live_session(sdk.engine, session.id)).resources.tap
        yield Rig(sdk, session, task, tap, tools)


def of_calls(events: list[Event]) -> list[Any]:
    return [event.payload for event in events if event.type.startswith("tool.call.")]


async def test_a_denied_call_is_requested_judged_by_codesdk_and_denied_and_nothing_runs():
    async with rig() as r:
        mark = await r.deny(await r.opened())
        await r.finish()
        requested, opinion, decision = of_calls(await r.checked())
        assert (requested.name, requested.tool_class, requested.input) == (
            "Bash",
            "dangerous",
            {"command": "id"},
        )
        assert requested.runtime_tool_call_id is None
        assert (opinion.source, opinion.result, opinion.rule, opinion.reason) == (
            "codesdk",
            "deny",
            "wire",
            REASON,
        )
        assert (decision.by.kind, decision.reason) == ("policy", REASON)
        assert requested.tool_call_id in mark
        assert r.tools.runs == []


async def test_its_raw_message_says_which_request_and_which_call_of_the_model_it_was():
    async with rig() as r:
        request_id = await r.opened()
        mark = await r.deny(request_id)
        await r.finish()
        [raw] = [e.runtime.raw for e in await r.checked() if e.type == "tool.call.requested"]
        assert (raw["request_id"], raw["model_call_id"], raw["mark"]) == (request_id, "toolu_1", mark)
        assert raw["item"]["name"] == "Bash"


async def test_it_is_no_violation_and_the_model_may_use_the_same_id_for_a_call_that_runs():
    async with rig() as r:
        await r.deny(await r.opened(), model_call_id="c1")
        r.task.emit(call("fake.read", {}, "c1"))
        await r.task.reply("c1")
        await r.finish()
        events = await r.checked()
        assert [e.payload.kind for e in events if e.type == "runtime.notice"] == []
        assert [e.type for e in events if e.type.endswith((".denied", "call.completed"))] == [
            "tool.call.denied",
            "tool.call.completed",
        ]


async def test_the_result_of_the_task_lists_the_denial():
    async with rig() as r:
        await r.deny(await r.opened())
        await r.finish()
        [end] = [e.payload for e in await r.checked() if e.type == "task.completed"]
        assert (end.work.calls, [d.name for d in end.work.denials]) == (1, ["Bash"])


async def test_a_mark_is_no_part_of_what_the_model_said_however_it_is_cut():
    async with rig() as r:
        r.task.emit(delta("Before ", "m1"))  # the block is open before there is a mark
        mark = await r.deny(await r.opened())
        half = len(mark) // 2
        r.task.emit(delta(f"and {mark[:half]}", "m1"), delta(f"{mark[half:]}after.", "m1"))
        said: list[Any] = [Text(text=f"Before and {mark}after."), Text(text=mark)]
        await r.finish(Draft(OutputCompleted(message_id="m1", content=said)))
        events = await r.checked()
        assert (
            "".join(e.payload.delta for e in events if e.type == "model.output.delta") == "Before and after."
        )
        [completed] = [e.payload for e in events if e.type == "model.output.completed"]
        assert completed.content == [Text(text="Before and after.")]
        rows = await r.sdk.archive.log.messages(r.session.id, before=None, limit=100)
        assert mark not in str(rows)
        assert [text_of(row.message.content) for row in rows][-1] == "Before and after."


async def test_a_message_that_is_cut_off_has_no_mark_either():
    async with rig() as r:
        mark = await r.deny(await r.opened())
        await r.finish(delta(f"So {mark} far", "m1"))
        [cut] = [e.payload for e in await r.checked() if e.type == "model.output.completed"]
        assert (cut.partial, text_of(cut.content)) == (True, "So  far")


async def test_what_looks_like_a_mark_and_was_never_issued_stays():
    async with rig() as r:
        foreign = r.tap.mark().replace("call_", "kall_")
        await r.finish(message(f"See {foreign}."))
        [said] = [e.payload for e in await r.checked() if e.type == "model.output.completed"]
        assert text_of(said.content) == f"See {foreign}."


async def test_a_call_that_comes_after_the_end_of_its_task_is_noted_outside_of_any():
    async with rig() as r:
        request_id = await r.opened()
        await r.finish()
        await r.deny(request_id)
        [note] = [e for e in await r.checked() if e.type == "runtime.notice"]
        assert (note.payload.kind, note.trace.task_id) == ("denied_call", None)
        assert note.payload.details == {"tool": "Bash", "rule": "wire", "request_id": request_id}


async def test_the_end_of_a_task_waits_for_a_call_that_is_being_recorded():
    async with rig() as r:
        request_id = await r.opened()
        r.close()
        r.task.emit(message("Done."), done())
        await r.deny(request_id, input={"text": "x" * 100_000})  # stored apart, which takes a while
        await r.over("task.completed")
        types = [e.type for e in await r.checked()]
        assert types.index("tool.call.denied") < types.index("task.completed")


@pytest.mark.parametrize(
    "changes",
    [{"name": "x" * 300}, {"name": ""}, {"input": {"deep": None}}, {"name": "half\ud800"}],
    ids=["long-name", "no-name", "deep-input", "half-a-character"],
)
async def test_a_call_that_cannot_be_recorded_as_one_is_noted(changes: dict[str, Any]):
    if "input" in changes:
        value: Any = {}
        for _ in range(2000):
            value = {"a": value}
        changes = {"input": value, "item": {}}
    async with rig() as r:
        await r.deny(await r.opened(), **changes)
        await r.finish()
        events = await r.checked()
        assert of_calls(events) == []
        assert [e.payload.kind for e in events if e.type == "runtime.notice"] == ["denied_call"]


async def test_tools_are_offered_only_while_a_task_runs_and_does_not_sum_up():
    async with rig() as r:
        assert "fake.read" in [spec.name for spec in r.tap.tools()]
        await r.finish()
        assert r.tap.tools() == ()


@pytest.mark.slow
async def test_a_model_that_comes_to_no_answer_ends_the_task():
    async with rig() as r:
        r.tap.give_up("It calls Bash for ever.")
        error = (await r.over("task.failed")).error
        assert (error.code, error.message) == ("MODEL_ERROR", "It calls Bash for ever.")
        await r.checked()


async def test_a_request_of_an_unknown_kind_is_noted_with_the_tools_that_it_lost():
    async with rig() as r:
        request_id = await r.opened()
        r.tap.aside(request_id, ["Bash"])
        r.tap.converse()  # else the task has failed for want of tools
        await r.finish()
        [note] = [e.payload for e in await r.checked() if e.type == "runtime.notice"]
        assert note.kind == "hidden_request"
        assert note.details == {"request_id": request_id, "purpose": "unknown", "tools": ["Bash"]}


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "stored-apart"])
async def test_denied_calls_are_known_after_a_restart(size: int):
    log, blobs = MemoryLog(), MemoryBlobs()
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime], log=log, blobs=blobs) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="yolo")
        await session.start("Go")
        task = await runtime.started()
        tap = (await live_session(sdk.engine, session.id)).resources.tap
        assert await tap.denials() == ()
        request_id = await tap.opened(ModelAsked(purpose="main", model="m", content=1))
        assert isinstance(request_id, str)
        made = denied(tap.mark(), request_id, input={"command": "x" * size})
        await tap.denied(made)
        tap.closed(request_id, ModelAnswered(status="completed", duration_ms=1))
        task.emit(message("Done."), done())
        async for event in session.events():
            if event.type == "task.completed":
                break
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime], log=log, blobs=blobs) as sdk:
        session = await sdk.session(session.id)
        started = await session.start("Again")
        task = await runtime.started()
        tap = (await live_session(sdk.engine, session.id)).resources.tap
        assert await tap.denials() == [made]
        task.emit(message(f"{made.mark}Yes."), done())
        assert (await started.result()).text == "Yes."


@pytest.mark.slow
async def test_without_raw_messages_the_marks_are_known_but_not_the_calls():
    async with rig(settings={"raw_capture": False}) as r:
        mark = await r.deny(await r.opened())
        assert await r.tap.denials() == []
        assert mark in (await live_session(r.sdk.engine, r.session.id)).scope.marks.issued


async def test_a_task_that_begins_while_the_last_one_is_put_away_has_its_calls_recorded():
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="yolo")
        tap = (await live_session(sdk.engine, session.id)).resources.tap
        for number in range(1, 4):
            started = await session.start("Go")
            task = await runtime.started(number)
            request_id = await tap.opened(ModelAsked(purpose="main", model="m", content=1))
            assert isinstance(request_id, str)
            await tap.denied(denied(tap.mark(), request_id))
            tap.closed(request_id, ModelAnswered(status="completed", duration_ms=1))
            task.emit(message("Done."), done())
            await started.result()
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        assert [event.type for event in events].count("tool.call.denied") == 3


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "stored-apart"])
@pytest.mark.parametrize("turns", range(8))
@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_log_that_holds(turns: int, size: int):
    world = World(sqlite=True)
    try:
        session_id = world.create(permission_mode="yolo")
        world.start(session_id)
        tap = world.session(session_id).resources.tap

        async def deny() -> None:
            request_id = await tap.opened(ModelAsked(purpose="main", model="m", content=1))
            assert isinstance(request_id, str)
            await tap.denied(denied(tap.mark(), request_id, input={"command": "x" * size}))

        world.do(deny(), turns)
        world.crash()
        world.start(session_id, "again")  # also if the call was left open: then a recovery closed it
        world.check_all()
        assert "tool.call.started" not in world.types(session_id)
    finally:
        world.discard()
