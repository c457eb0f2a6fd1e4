"""A session that goes on with another runtime: from the transcript, and back."""

import asyncio
from typing import Literal

import pytest

from codesdk import Busy, Conflict, InvalidRequest, SessionSettings
from codesdk.contract.codec import decode
from codesdk.contract.messages import text_of
from codesdk.contract.options import RuntimeOptions
from codesdk.contract.runtime import Identified
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.testing.fakes import FakeRuntime, done, memory_sdk, message


async def test_the_other_runtime_has_the_transcript_and_nothing_of_the_first_ones_own():
    one = FakeRuntime(
        [Identified(runtime_session_id="one-1", model="m1"), message("Hello from one."), done()], name="one"
    )
    two = FakeRuntime([message("Hello from two."), done()], name="two")
    async with memory_sdk(runtimes=[one, two]) as sdk:
        session = await sdk.create_session(runtime="one")
        await (await session.start("First")).result()
        await session.move("two")
        await (await session.start("Second")).result()
        given = two.tasks[0].input
        assert (given.runtime_session_id, given.model) == (None, None)
        assert [text_of(m.content) for m in given.messages] == ["First", "Hello from one.", "Second"]
        assert one.closed_sessions == [session.id]
        await session.move("one", model="m9")
        await (await session.start("Third")).result()
        given = one.tasks[1].input
        assert (given.runtime_session_id, given.model) == (None, "m9")
        assert text_of(given.messages[-2].content) == "Hello from two."
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        moves = [e.payload for e in events if e.type == "session.resumed"]
        assert [(m.runtime, m.lost[0]) for m in moves] == [("two", "reasoning"), ("one", "reasoning")]
        assert [e.runtime.name for e in events if e.type == "task.completed"] == ["one", "two", "one"]
        assert (await session.info()).runtime == "one"
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []
        assert (await replay_session(log, blobs, session.id))[1] == []


async def test_a_session_at_work_is_not_moved_and_nowhere_is_no_place_to_go():
    one, two = FakeRuntime(name="one"), FakeRuntime(name="two")
    async with memory_sdk(runtimes=[one, two]) as sdk:
        session = await sdk.create_session(runtime="one", settings=SessionSettings(stop_grace_s=0.1))
        with pytest.raises(InvalidRequest, match="already"):
            await session.move("one")
        await session.start("First")
        await one.started()
        with pytest.raises(Busy):
            await session.move("two")


class _Slow(FakeRuntime):
    """A runtime that takes its time to let go of a session."""

    def __init__(self) -> None:
        super().__init__([done()], name="one")
        self.closing, self.may_close = asyncio.Event(), asyncio.Event()

    async def close_session(self, session_id: str) -> None:
        self.closing.set()
        await self.may_close.wait()
        await super().close_session(session_id)


@pytest.mark.parametrize("other", ["two", "three"])
@pytest.mark.parametrize("meanwhile", ["nothing", "a task"])
async def test_of_two_moves_at_once_one_wins_and_the_other_is_refused(meanwhile: str, other: str):
    one, two, three = _Slow(), FakeRuntime([done()], name="two"), FakeRuntime([done()], name="three")
    async with memory_sdk(runtimes=[one, two, three]) as sdk:
        session = await sdk.create_session(runtime="one")
        await (await session.start("First")).result()
        moving = asyncio.create_task(session.move("two"))
        await one.closing.wait()
        started = None
        if meanwhile == "a task":
            started = asyncio.create_task(session.start("Second"))
        with pytest.raises(Busy, match="is being moved") as refused:
            await session.move(other)
        assert refused.value.code == "SESSION_BUSY"
        one.may_close.set()
        await moving
        if started is not None:
            await (await started).result()
        assert [len(runtime.tasks) for runtime in (one, two, three)] == [1, int(started is not None), 0]
        assert (await session.info()).runtime == "two"
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        assert [e.payload.runtime for e in events if e.type == "session.resumed"] == ["two"]
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []
        assert (await replay_session(log, blobs, session.id))[1] == []


async def test_a_session_that_is_closed_while_it_is_moved_stays_where_it_was():
    one = _Slow()
    async with memory_sdk(runtimes=[one, FakeRuntime(name="two")]) as sdk:
        session = await sdk.create_session(runtime="one")
        await (await session.start("First")).result()
        moving = asyncio.create_task(session.move("two"))
        await one.closing.wait()
        closing = asyncio.create_task(session.close())
        await anext(e async for e in session.events() if e.type == "session.closed")
        one.may_close.set()
        with pytest.raises(Conflict, match="is closed"):
            await moving
        await closing
        assert (await session.info()).runtime == "one"
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []


class _Two(RuntimeOptions, frozen=True, kw_only=True):
    effort: Literal["low", "high"] | None = None
    depth: int = 0


async def test_options_that_the_other_runtime_does_not_take_are_lost_and_the_log_says_so():
    """Each is judged by itself: the name may be the same and the values others."""
    one, two = FakeRuntime([done()], name="one"), FakeRuntime([done()], name="two", options=_Two)
    config = {"effort": "low", "depth": "deep", "persona": "pirate"}
    async with memory_sdk(runtimes=[one, two]) as sdk:
        session = await sdk.create_session(
            runtime="one", settings=SessionSettings(runtime_config=config, stop_grace_s=7)
        )
        await session.move("two")
        await (await session.start("Go")).result()
        assert two.tasks[0].input.runtime_config == {"effort": "low"}
        fork = await session.fork()
        await (await fork.start("Go")).result()
        assert two.tasks[1].input.runtime_config == {"effort": "low"}
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        (moved,) = [e.payload for e in events if e.type == "session.resumed"]
        assert moved.lost[2:] == ["the option depth", "the option persona"]
        assert moved.runtime_config == {"effort": "low"}
        (started,) = [e.payload for e in events if e.type == "task.started"]
        assert started.runtime_config == {"effort": "low"}
        await fork.move("one")
        with pytest.raises(InvalidRequest, match=r"unknown field `no_such`\. It takes effort, depth\."):
            await fork.move("two", runtime_config={"no_such": 1})
        assert (await fork.info()).runtime == "one"
        await fork.move("two", runtime_config={"effort": "high", "depth": 2})
        await (await fork.start("Go")).result()
        assert two.tasks[2].input.runtime_config == {"effort": "high", "depth": 2}
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []
        assert (await replay_session(log, blobs, session.id))[1] == []


async def test_options_for_the_other_runtime_have_a_largest_size():
    async with memory_sdk(runtimes=[FakeRuntime(name="one"), FakeRuntime(name="two")]) as sdk:
        session = await sdk.create_session(runtime="one")
        with pytest.raises(InvalidRequest, match=r"The runtime_config may have 262,144 bytes"):
            await session.move("two", runtime_config={"k": "x" * 262_144})
        assert (await session.info()).runtime == "one"
