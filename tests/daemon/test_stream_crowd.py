"""Many sessions that stream at once, each to its client, beside clients that hardly read."""

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest
from tests.counts import COUNTS
from tests.daemon.crowd import Crowd
from tests.daemon.readers import SMALL_BUFFER, Memory, Reader
from tests.daemon.rig import daemon

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def script(*steps: Any) -> dict[str, Any]:
    return {"turns": [{"steps": list(steps)}]}


def burst(count: int) -> dict[str, Any]:
    return {"burst": {"count": count, "size": 5}}


IN_TWO_PARTS = script(burst(10), {"await_steer": True}, burst(60))
CROWD_MB = 200
"""What a thousand live sessions with their connections may cost."""


@pytest.fixture(autouse=True)
def _enough_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))


def test_a_daemon_takes_as_many_clients_as_it_may_have_files(tmp_path: Path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] // 2, before[1]))
    try:
        with daemon(tmp_path / "data") as running:
            found = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found == (before[1], before[1])


async def test_a_crowd_of_clients_loses_nothing_beside_one_that_stalls_and_one_that_sips(
    tmp_path: Path,
):
    with daemon(tmp_path / "data") as running:
        memory = Memory(running.process.pid)
        stalled, sipping = [
            await Reader(running.url, running.session(script(burst(count))), buffer=SMALL_BUFFER).open()
            for count in (COUNTS.stall_events, 20_000)
        ]
        crowd, enough = Crowd(running, IN_TWO_PARTS), asyncio.Event()
        pause = asyncio.create_task(asyncio.sleep(COUNTS.stall_s))
        sips = asyncio.create_task(sipping.sip(enough))
        await crowd.start([stalled.session, sipping.session])

        await stream_to_all(crowd, running.url)
        await pause
        assert stalled.seq == 0
        await stalled.read()
        enough.set()
        assert await sips > 1
        tasks = running.get(f"/v1/sessions/{stalled.session}/tasks")["tasks"]
        assert (stalled.ends, stalled.seq) == (["task.completed"], tasks[0]["ended_seq"])
        assert stalled.seq > COUNTS.stall_events
        assert memory.grown_mb < CROWD_MB
        stalled.close()
        sipping.close()


async def stream_to_all(crowd: Crowd, url: str) -> None:
    """Stream to all clients, which are in the middle of it at one moment; none may miss anything."""
    sessions = await crowd.create(COUNTS.crowd)
    readers = [await Reader(url, session).open() for session in sessions]
    tasks = await crowd.start(sessions)
    await asyncio.gather(*(reader.read(lambda it=reader: it.seq >= 13) for reader in readers))
    assert not any(reader.ended for reader in readers)
    await asyncio.gather(crowd.steer(sessions), *(reader.read() for reader in readers))
    assert [reader.ends for reader in readers] == [["task.completed"]] * COUNTS.crowd
    assert [reader.seq for reader in readers] == await crowd.ends(tasks)
    await crowd.checked(sessions[::50])
    for reader in readers:
        reader.close()
