"""Durable subscribers: every event of their types from the store, also over restarts, and nobody waits for them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from codesdk import CodeSDK, NotFound, StorageFailure
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.log import subscription as module
from codesdk.engine.log.subscription import PAGE_FRAMES, Subscription
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.memory import MemoryLog
from codesdk.testing.log_checks import session as session_row

TYPES = {"session.created", "task.started", "task.completed"}


class Collector:
    """Takes events, unless it is told to fail or to wait."""

    name = "collector"
    types = TYPES
    gather_s = 0.05

    def __init__(self) -> None:
        self.pages: list[list[Event]] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.tries = 0
        self.asked = asyncio.Event()

    async def take(self, events: Sequence[Event]) -> None:
        self.tries += 1
        self.asked.set()
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.pages.append(list(events))

    @property
    def taken(self) -> list[Event]:
        return [event for page in self.pages for event in page]


def runtime() -> ScriptedRuntime:
    return ScriptedRuntime(parse_object({"turns": [{"steps": [{"text": "Hello."}]}]}, "hello"))


def opened(path: Path, *subscribers: Collector):
    return CodeSDK.open(path, runtimes={"scripted": runtime()}, subscribers=subscribers)


async def stored(sdk: CodeSDK) -> list[Event]:
    """Return what a subscriber should have been given, in commit order."""
    frames = await sdk.archive.log.read_all(0, 100_000)
    return [event for event in (decode(frame.data) for frame in frames) if event.type in TYPES]


async def one_task(sdk: CodeSDK, workspace: Path) -> str:
    session = await sdk.create_session(runtime="scripted", workspace=workspace)
    await (await session.start("Say hello.")).result()
    return session.id


async def test_a_subscriber_is_given_all_of_its_types_once_also_what_came_before_it(tmp_path: Path):
    first, second = Collector(), Collector()
    async with opened(tmp_path) as sdk:
        await one_task(sdk, tmp_path)
    async with opened(tmp_path, first) as sdk:
        await one_task(sdk, tmp_path)
        await sdk.engine.settle_subscribers()
        assert first.taken == await stored(sdk)
        await one_task(sdk, tmp_path)
    async with opened(tmp_path, second) as sdk:  # goes on where the first one was when it was closed
        await one_task(sdk, tmp_path)
        await sdk.engine.settle_subscribers()
        assert first.taken + second.taken == await stored(sdk)
        assert len(second.taken) == 3


async def test_a_page_that_was_not_taken_comes_again_and_whoever_waits_for_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "RETRY_S", 0)
    collector = Collector()
    collector.error = OSError("no room")
    async with opened(tmp_path, collector) as sdk:
        session_id = await one_task(sdk, tmp_path)
        with pytest.raises(StorageFailure, match="collector does not take events: no room"):
            await sdk.engine.settle_subscribers()
        with pytest.raises(StorageFailure):  # its events would be gone before anybody took them
            await sdk.delete_session(session_id)
        assert (await sdk.session(session_id)).id == session_id
        collector.error = None
        await sdk.delete_session(session_id)
        with pytest.raises(NotFound):
            await sdk.session(session_id)
        assert [event.type for event in collector.taken] == [
            "session.created",
            "task.started",
            "task.completed",
        ]
    told = [record for record in caplog.records if record.name == "codesdk.subscribers"]
    assert len(told) == 1
    assert collector.tries > 2


async def test_no_session_waits_for_a_subscriber_that_takes_its_time(tmp_path: Path):
    collector = Collector()
    collector.open.clear()
    async with opened(tmp_path, collector) as sdk:
        for _ in range(3):
            await one_task(sdk, tmp_path)
        await collector.asked.wait()
        assert collector.pages == []
        collector.open.set()
        await sdk.engine.settle_subscribers()
        assert collector.taken == await stored(sdk)


async def test_closing_waits_for_a_subscriber_only_so_long_and_the_rest_comes_at_the_next_start(
    tmp_path: Path,
):
    slow, next_one = Collector(), Collector()
    slow.open.clear()
    async with opened(tmp_path) as sdk:
        await one_task(sdk, tmp_path)
        log = sdk.archive.log
        first = Subscription(log, slow)
        first.start()
        await slow.asked.wait()
        await first.close(timeout_s=0)
        assert slow.pages == []
        second = Subscription(log, next_one)
        second.start()
        await second.close()
        assert next_one.taken == await stored(sdk)
        await second.settle()  # closed: there is nothing to wait for


async def test_a_subscriber_is_given_no_more_than_a_page_at_a_time_and_passes_over_what_cannot_be_read():
    log, collector = MemoryLog(), Collector()
    await log.create(session_row(), "me")
    async with CodeSDK.open(runtimes={"scripted": runtime()}) as sdk:
        await one_task(sdk, Path.cwd())
        (started,) = [event for event in await stored(sdk) if event.type == "task.started"]
        frame = next(f.data for f in await sdk.archive.log.read_all(0, 99) if decode(f.data) == started)
    frames = [frame] * (2 * PAGE_FRAMES) + [b"no event"] + [frame]
    await log.append("ses_1", 1, 1, frames, durable=False)
    feeding = Subscription(log, collector)
    feeding.start()
    await feeding.settle()
    await feeding.close()
    assert [len(page) for page in collector.pages] == [PAGE_FRAMES, PAGE_FRAMES, 1]
    assert await log.cursor_of("collector") == len(frames)


async def test_from_now_on_is_the_moment_that_it_was_placed():
    log = MemoryLog()
    await log.keep_cursor("another", 5)
    subscription = Subscription(log, Collector(), from_start=False)
    await subscription.place()
    assert await log.cursor_of("collector") == await log.last_cursor() == 0
    assert await log.cursor_of("nobody") is None


class Sorter(Collector):
    """Takes pages side by side, each when it is let go, except for those that fail."""

    def __init__(self, *fails: int) -> None:
        super().__init__()
        self.gates: list[asyncio.Event] = []
        self.fails = fails

    async def take(self, events: Sequence[Event]) -> None:
        number = len(self.gates)
        self.gates.append(asyncio.Event())
        self.asked.set()
        await self.gates[number].wait()
        if number in self.fails:
            raise StorageFailure("not now")
        self.pages.append(list(events))
        self.asked.set()

    async def begun(self, count: int, taken: int = 0) -> None:
        """Wait until so many pages were given in all, and so many of them were taken."""
        while len(self.gates) < count or len(self.pages) < taken:
            self.asked.clear()
            await self.asked.wait()


async def log_of_pages(count: int) -> MemoryLog:
    """Return a log with so many whole pages of events."""
    log = MemoryLog()
    await log.create(session_row(), "me")
    async with CodeSDK.open(runtimes={"scripted": runtime()}) as sdk:
        await one_task(sdk, Path.cwd())
        (started,) = [event for event in await stored(sdk) if event.type == "task.started"]
        frame = next(f.data for f in await sdk.archive.log.read_all(0, 99) if decode(f.data) == started)
    await log.append("ses_1", 1, 1, [frame] * (count * PAGE_FRAMES), durable=False)
    return log


async def test_pages_side_by_side_and_the_cursor_waits_for_the_first_of_them():
    log, sorter = await log_of_pages(3), Sorter()
    feeding = Subscription(log, sorter, ahead=3)
    feeding.start()
    await sorter.begun(3)
    settled = asyncio.create_task(feeding.settle())
    for gate in sorter.gates[1:]:
        gate.set()
    await sorter.begun(3, taken=2)
    assert (feeding.cursor, settled.done()) == (0, False)
    sorter.gates[0].set()
    await settled
    assert await log.cursor_of("collector") == 3 * PAGE_FRAMES
    await feeding.close()


async def test_no_more_pages_side_by_side_than_allowed():
    log, sorter = await log_of_pages(3), Sorter()
    feeding = Subscription(log, sorter, ahead=2)
    feeding.start()
    await sorter.begun(2)
    sorter.gates[1].set()
    await sorter.begun(2, taken=1)
    assert len(sorter.gates) == 2
    sorter.gates[0].set()
    await sorter.begun(3)
    sorter.gates[2].set()
    await feeding.settle()
    await feeding.close()


async def test_after_a_page_that_fails_all_that_follow_it_come_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    log, sorter = await log_of_pages(3), Sorter(1)
    feeding = Subscription(log, sorter, ahead=3)
    feeding.start()
    await sorter.begun(3)
    for gate in sorter.gates:
        gate.set()
    await sorter.begun(5)
    assert feeding.cursor == PAGE_FRAMES
    for gate in sorter.gates:
        gate.set()
    await feeding.settle()
    assert [len(page) for page in sorter.pages] == [PAGE_FRAMES] * 4
    assert await log.cursor_of("collector") == 3 * PAGE_FRAMES
    await feeding.close()


async def test_what_is_under_way_when_it_is_closed_comes_after_the_next_start():
    log, sorter, later = await log_of_pages(2), Sorter(), Collector()
    feeding = Subscription(log, sorter, ahead=2)
    feeding.start()
    await sorter.begun(2)
    sorter.gates[1].set()
    await feeding.close(timeout_s=0.0)
    again = Subscription(log, later)
    again.start()
    await again.settle()
    await again.close()
    assert len(later.taken) == 2 * PAGE_FRAMES
