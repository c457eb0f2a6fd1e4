"""Reading is not owning: two engines on one log, of which one writes and the other looks, follows and lists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.actions import Caller
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import TERMINAL_TYPES
from codesdk.contract.ports import EventLog
from codesdk.contract.settings import Limits
from codesdk.engine import Engine, EngineService, Ports
from codesdk.handles import Handles
from codesdk.policy import ModePolicy
from codesdk.store import MemoryBlobs, MemoryLog, SqliteLog
from codesdk.testing.fakes import FakeRuntime, FakeTools, FrozenStamper, delta, done, message

pytestmark = pytest.mark.anyio


class Node:
    """An engine under a name of its own, on a log that it shares."""

    def __init__(self, log: EventLog, blobs: MemoryBlobs, owner: str, stamper: FrozenStamper) -> None:
        self.runtime = FakeRuntime()
        ports = Ports(
            log=log,
            blobs=blobs,
            tools=FakeTools(),
            policy=ModePolicy(),
            stamper=stamper,
            limits=Limits(),
            identify=lambda workspace: workspace,
            alone=False,
        )
        self.engine = Engine(ports, lambda _: self.runtime, owner=owner)
        self.handles = Handles(EngineService(self.engine, Caller()))


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    opened: Any = MemoryLog() if request.param == "memory" else await SqliteLog.open(tmp_path / "codesdk.db")
    yield opened
    await opened.close()


@asynccontextmanager
async def nodes(log: EventLog) -> AsyncIterator[tuple[Node, Node]]:
    blobs, stamper = MemoryBlobs(), FrozenStamper()
    writer, reader = Node(log, blobs, "a", stamper), Node(log, blobs, "b", stamper)
    await writer.engine.open()
    await reader.engine.open()
    try:
        yield writer, reader
    finally:
        await reader.engine.close()
        await writer.engine.close()


async def test_the_other_engine_reads_follows_and_lists_without_touching_the_epoch(log: EventLog):
    async with nodes(log) as (writer, reader):
        session = await writer.handles.create_session(runtime="fake", workspace="/workspace")
        seen: list[int] = []

        async def follow() -> None:
            async for event in (await reader.handles.session(session.id)).events():
                seen.append(event.seq)
                if event.type in TERMINAL_TYPES:
                    return

        following = asyncio.create_task(follow())
        task = await session.start("Go")
        assert [row.session_id for row in await reader.handles.sessions()] == [session.id]
        elsewhere = await reader.handles.session(session.id)
        assert (await elsewhere.info()).active_task_id == task.id
        assert await elsewhere.grants() == []
        assert await elsewhere.approvals() == []
        (await writer.runtime.started()).emit(delta("Hel"), message("Hello"), done())
        assert (await task.result()).text == "Hello"  # its epoch is what it was, or the log would refuse it
        assert (await elsewhere.task(task.id).result()).text == "Hello"
        await asyncio.wait_for(following, 30)
        assert seen == list(range(1, await writer.handles.service.head(session.id) + 1))
        assert reader.engine.loaded.sessions == 0, "nothing was taken over"


async def test_an_action_takes_a_session_over_and_the_one_who_had_it_can_write_no_more(log: EventLog):
    async with nodes(log) as (first, second):
        session = await first.handles.create_session(runtime="fake", workspace="/workspace")
        await (await second.handles.session(session.id)).close("mine now")
        with pytest.raises(CodeSDKError):
            await session.start("Go")
        assert (await session.info()).status == "closed"


async def test_who_starts_recovers_only_what_it_held_itself(log: EventLog):
    blobs, stamper = MemoryBlobs(), FrozenStamper()
    before = {name: Node(log, blobs, name, stamper) for name in ("a", "b")}
    sessions: dict[str, str] = {}
    for name, node in before.items():
        await node.engine.open()
        session = await node.handles.create_session(runtime="fake", workspace="/workspace")
        await session.start("Go")
        sessions[name] = session.id
    # Both die here; only one comes back.
    again = Node(log, blobs, "a", stamper)
    await again.engine.open()
    active = {name: (await again.handles.service.session(of)).active_task_id for name, of in sessions.items()}
    assert (active["a"], active["b"] is not None) == (None, True)
    await (await again.handles.session(sessions["b"])).close()
    assert (await again.handles.service.session(sessions["b"])).active_task_id is None
    types = [event.type async for event in _stored(again, sessions["b"])]
    assert types[-3:] == ["session.recovered", "task.failed", "session.closed"]
    await again.engine.close()
    for node in before.values():
        await node.engine.close()


async def _stored(node: Node, session_id: str) -> AsyncIterator[Any]:
    for seq in range(1, await node.handles.service.head(session_id) + 1):
        yield await node.handles.service.event(session_id, seq)
