"""A process killed while jobs are queued and run: none is lost or doubled, and each ends in exactly one way."""

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.counts import COUNTS
from tests.extensions.jobs_rig import Watched
from tests.extensions.jobs_worker import MOMENTS
from tests.extensions.rig import Extensions, extended, settle

from codesdk import CodeSDK
from codesdk.contract.jobs import JobRow

pytestmark = pytest.mark.anyio

WORKER = str(Path(__file__).with_name("jobs_worker.py"))
TALK = [[{"text": "Hello."}]]
COUNT = 6
ATTEMPTS = 4
# Every third fails the first time, and every sixth each time. What is noted is on disk before the handler goes on.
COUNTING = f"""
import os
SEEN = {{seen!r}}
async def handle(event, tools):
    for n in range({COUNT}):
        await tools.enqueue_job({{{{"type": "count", "payload": {{{{"n": n}}}}, "identity": f"{{{{event.correlation_id}}}}:{{{{n}}}}"}}}})
def run(event, tools):
    n, attempt = event.payload["data"]["n"], event.payload["job"]["attempt"]
    file = os.open(SEEN, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{{{{n}}}} {{{{attempt}}}}\\n".encode())
    os.close(file)
    if n == 5 or (n % 3 == 0 and attempt == 1):
        raise OSError("not this time")
def register(registry):
    registry.on("turn.completed", handle)
    registry.job("count", run, attempts={ATTEMPTS}, backoff_ms=1)
"""


class Place:
    """A data directory that several processes work on, one after the other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.seen = home / "seen.txt"
        self.ext = Extensions(home / "extensions")
        self.ext.write("counter", COUNTING.format(seen=str(self.seen)), actions=["queue.enqueue"])

    async def kill(self, moment: str, nth: int) -> None:
        """Let a worker go its way until it is killed."""
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, WORKER, str(self.home), str(self.ext.root), moment, str(nth)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == -signal.SIGKILL, ran.stderr

    async def finish(self) -> list[JobRow]:
        """Let all jobs come to their end, and return them."""
        async with extended(self.ext, self.home, TALK, stored=True) as sdk:
            watched = Watched(sdk)
            await settle(sdk)
            rows = await watched.drained(sdk)
            await self.check(sdk, rows)
            return rows

    async def check(self, sdk: CodeSDK, rows: list[JobRow]) -> None:
        """Check what must be so however often and wherever a process died."""
        assert len({row.identity for row in rows}) == len(rows)
        runs = [tuple(map(int, line.split())) for line in self.seen.read_text().splitlines()]
        for row in rows:
            n = (await sdk.job(row.job_id)).payload["n"]
            attempts = [attempt for number, attempt in runs if number == n]
            # One that was running at each of many deaths has used up its attempts, too.
            gave_up = n == 5 or row.attempts == ATTEMPTS
            assert row.state in (("completed", "failed") if gave_up else ("completed",))
            assert 1 <= row.attempts <= ATTEMPTS
            if row.state == "completed":
                assert attempts
            assert max(attempts, default=1) <= ATTEMPTS


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.slow
async def test_every_job_ends_once_wherever_the_process_dies(tmp_path: Path, moment: str, nth: int):
    place = Place(tmp_path)
    await place.kill(moment, nth)
    rows = await place.finish()
    # The event was dispatched again, and its jobs are still one for each identity.
    assert len(rows) == COUNT
    assert sorted(row.state for row in rows) == ["completed"] * 5 + ["failed"]


@pytest.mark.parametrize("seed", COUNTS.kill_seeds)
@pytest.mark.slow
async def test_jobs_survive_one_death_after_the_other(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    place = Place(tmp_path)
    deaths = 5
    for _ in range(deaths):
        # Each worker runs a task of its own, so that there are always jobs to die at.
        await place.kill(chance.choice(MOMENTS[:6]), chance.randint(1, 5))
    rows = await place.finish()
    assert len(rows) <= deaths * COUNT


async def test_a_job_that_ends_its_process_each_time_is_given_up(tmp_path: Path):
    place = Place(tmp_path)
    source = """
import os, signal
async def handle(event, tools):
    await tools.enqueue_job({"type": "count", "identity": "deadly"})
def run(event, tools):
    os.kill(os.getpid(), signal.SIGKILL)
def register(registry):
    registry.on("turn.completed", handle)
    registry.job("count", run, attempts=2)
"""
    place.ext.write("counter", source, actions=["queue.enqueue"])
    await place.kill("never", 1)
    await place.kill("never", 1)
    async with extended(place.ext, tmp_path, TALK, stored=True) as sdk:
        watched = Watched(sdk)
        await settle(sdk)
        (row,) = await watched.drained(sdk)
        assert (row.state, row.attempts, row.error) == ("failed", 2, "The process ended while it ran.")
