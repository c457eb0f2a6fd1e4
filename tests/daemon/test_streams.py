"""Streams of a real daemon: none of their events is lost or comes twice, whatever the client or the network does."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.stored import store_history
from tests.counts import COUNTS
from tests.daemon.readers import SMALL_BUFFER, CuttingProxy, Memory, Reader
from tests.daemon.rig import Daemon, daemon

pytestmark = pytest.mark.anyio

CLIENT = Path(__file__).with_name("eventsource.mjs")
CHECKED_MB = 40
"""More than this a burst, however long, must not take: a backlog, a ring and some pages."""
STALL_MB = 12
"""More than this a stalled reader must not add to a burst like the one before."""


def burst(count: int, size: int = 5) -> dict[str, Any]:
    return {"loop": True, "turns": [{"steps": [{"burst": {"count": count, "size": size}}]}]}


def start(running: Daemon, session: str) -> str:
    return running.post(f"/v1/sessions/{session}/tasks", {"message": "Go."})["task_id"]


def head(running: Daemon, session: str) -> int:
    """Return how many events are stored, each of which is checked."""
    report = running.get(f"/v1/sessions/{session}/verify")
    assert report["findings"] == []
    return report["events"]


@asynccontextmanager
async def reading(running: Daemon, session: str, after_seq: int = 0, **how: Any) -> AsyncGenerator[Reader]:
    reader = Reader(running.url, session, after_seq, **how)
    try:
        yield await reader.open()
    finally:
        reader.close()


async def test_a_client_of_others_gets_every_event_once_through_a_proxy_that_cuts(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session(burst(6_000))
        start(running, session)
        async with CuttingProxy(running.url, 300 * 520).running() as proxy:
            url = f"{proxy.url}/v1/sessions/{session}/events"
            client = await asyncio.create_subprocess_exec(
                "node", str(CLIENT), url, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await client.communicate()
        lines = [line.split() for line in said.decode().splitlines()]
        assert client.returncode == 0
        assert [(int(given), int(seq)) for given, seq, _ in lines] == [
            (seq, seq) for seq in range(1, head(running, session) + 1)
        ]
        assert lines[-1][2] == "task.completed"
        assert proxy.cuts >= 15


async def test_a_burst_of_20_000_events_reaches_its_client_whole(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session(burst(20_000))
        async with reading(running, session) as reader:
            memory = Memory(running.process.pid)
            start(running, session)
            await reader.read()
        assert (reader.seq, reader.ends) == (head(running, session), ["task.completed"])
        assert reader.seq > 20_000
        assert memory.grown_mb < CHECKED_MB


async def test_a_reader_that_stalls_for_three_seconds_of_a_burst_loses_nothing_and_costs_nothing(
    tmp_path: Path,
):
    with daemon(tmp_path / "data") as running:
        session = running.session(burst(20_000))
        async with (
            reading(running, session) as brisk,
            reading(running, session, buffer=SMALL_BUFFER) as stalled,
        ):
            start(running, session)
            await asyncio.gather(brisk.read(), stalled.read())
            before, memory = stalled.seq, Memory(running.process.pid)
            start(running, session)
            await asyncio.gather(brisk.read(lambda: len(brisk.ends) == 2), asyncio.sleep(3))
            assert stalled.seq == before
            grown_mb = memory.grown_mb
            await stalled.read(lambda: len(stalled.ends) == 2)
        assert (stalled.seq, stalled.ends) == (brisk.seq, ["task.completed"] * 2)
        assert stalled.seq == head(running, session)
        assert grown_mb < STALL_MB


async def test_a_reader_that_comes_back_gets_all_that_it_missed(tmp_path: Path):
    seen, missed = 100, COUNTS.missed_events
    session = await store_history(tmp_path / "data", seen + missed)
    with daemon(tmp_path / "data") as running:
        memory = Memory(running.process.pid)
        async with reading(running, session, seen) as reader:
            await reader.read(lambda: reader.seq == seen + missed)
            start(running, session)
            await reader.read()
        assert running.get(f"/v1/sessions/{session}/tasks")["tasks"][0]["ended_seq"] == reader.seq
        assert memory.grown_mb < CHECKED_MB
