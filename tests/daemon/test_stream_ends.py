"""A daemon that is killed or told to end while many sessions stream: what clients saw goes on, and every task has an end."""

import asyncio
import contextlib
import random
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.crowd import Crowd
from tests.daemon.readers import SMALL_BUFFER, Cut, Reader
from tests.daemon.rig import Daemon, daemon

pytestmark = pytest.mark.anyio

SESSIONS = 16
ENDLESS = {"turns": [{"steps": [{"burst": {"count": 10_000_000, "size": 5}}]}]}


async def streaming(running: Daemon) -> list[Reader]:
    """Return readers of sessions that stream without end, each in the middle of it."""
    crowd = Crowd(running, ENDLESS)
    sessions = await crowd.create(SESSIONS)
    readers = [await Reader(running.url, session).open() for session in sessions]
    await crowd.start(sessions)
    await asyncio.gather(*(reader.read(lambda it=reader: it.seq > 50) for reader in readers))
    return readers


def quiet_port() -> str:
    """Return a free port of those that the kernel gives to nobody by itself: it is still free after a restart."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return str(port)


def last_event(running: Daemon, reader: Reader) -> Any:
    """Return the stored event that a reader saw last; there must be none behind it."""
    page = running.get(f"/v1/sessions/{reader.session}/events", after_seq=reader.seq - 1)
    assert [event["seq"] for event in page["events"]] == [reader.seq]
    return page["events"][0]


async def test_all_clients_go_on_without_a_gap_when_the_daemon_is_killed_and_comes_back(tmp_path: Path):
    up = asyncio.Event()
    up.set()
    port = quiet_port()
    with daemon(tmp_path / "data", "--port", port) as running:
        readers = await streaming(running)
        following = [asyncio.create_task(reader.follow(up)) for reader in readers]
        up.clear()
        running.process.kill()
        await asyncio.to_thread(running.process.wait, 60)
    with daemon(tmp_path / "data", "--port", port) as again:
        up.set()
        await asyncio.gather(*following)
        assert {reader.connections for reader in readers} == {2}
        assert [reader.ends for reader in readers] == [["task.failed"]] * SESSIONS
        codes = [last_event(again, reader)["payload"]["error"]["code"] for reader in readers]
        assert codes == ["INTERRUPTED"] * SESSIONS
        counts = await Crowd(again, ENDLESS).checked(reader.session for reader in readers)
        assert counts == [reader.seq for reader in readers]


async def test_a_daemon_that_is_told_to_end_under_load_gives_every_task_its_end(tmp_path: Path):
    with daemon(tmp_path / "data", "--grace", "1") as running:
        readers = await streaming(running)
        stalled = await Reader(running.url, readers[0].session, buffer=SMALL_BUFFER).open()
        running.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*(to_the_end(reader) for reader in readers))
        assert await asyncio.to_thread(running.process.wait, 120) == 0
        stalled.close()
    with daemon(tmp_path / "data") as again:
        for reader in readers:
            reader.url = again.url
        await asyncio.gather(*(rest(reader) for reader in [*readers, Reader(again.url, stalled.session)]))
        assert [reader.ends for reader in readers] == [["task.stopped"]] * SESSIONS
        reasons = {last_event(again, reader)["payload"]["reason"] for reader in readers}
        assert reasons == {"the daemon is shutting down"}
        counts = await Crowd(again, ENDLESS).checked(reader.session for reader in readers)
        assert counts == [reader.seq for reader in readers]


async def to_the_end(reader: Reader) -> None:
    """Read until the daemon has nothing more to say."""
    try:
        while await reader.take():
            pass
    except Cut:
        pass
    finally:
        reader.close()


async def rest(reader: Reader) -> None:
    """Fetch what is left, if anything is."""
    if not reader.ended:
        await reader.open()
        await reader.read()
        reader.close()
