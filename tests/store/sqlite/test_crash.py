"""A writer that is killed at any moment has lost nothing that it had reported as committed."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.samples import damaged, seqs

from codesdk.local.directory import DataDir

pytestmark = pytest.mark.anyio

SOURCE = str(Path(__file__).parents[3] / "src")

WRITER = """
import asyncio, os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from codesdk.contract.records import Changes
from codesdk.local.directory import DataDir
from tests.store.samples import session

async def write(log, name):
    if await log.session(name) is None:
        await log.create(session(name), "me")
    epoch = await log.take(name, "me")
    seq = await log.head(name)
    while True:
        size = 1 + seq % 7
        frames = [f"{name} {seq + n + 1}".encode() for n in range(size)]
        changes = Changes(session=session(name, title=str(seq + size)), snapshot=str(seq + size).encode())
        await log.append(name, epoch, seq + 1, frames, durable=seq % 5 == 0, changes=changes)
        seq += size
        os.write(1, f"{name} {seq}\\n".encode())

async def main():
    data = await DataDir.open_writer(Path(sys.argv[1]))
    await asyncio.gather(*(write(data.log, f"ses_{n}") for n in range(5)))

asyncio.run(main())
"""


async def run_and_kill(path: Path, lines: int) -> dict[str, int]:
    """Let a process write until it has reported some commits, then kill it; return the last it reported."""
    root = str(Path(SOURCE).parent)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), SOURCE, root, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    reported: dict[str, int] = {}
    for _ in range(lines):
        name, seq = (await child.stdout.readline()).split()
        reported[name.decode()] = int(seq)
    child.kill()
    for line in (await child.stdout.read()).splitlines(keepends=True):
        if line.endswith(b"\n"):
            name, seq = line.split()
            reported[name.decode()] = int(seq)
    await child.wait()
    return reported


async def test_what_was_reported_is_there_after_a_kill_and_has_no_gaps(tmp_path: Path):
    chance = random.Random(7)
    for _ in range(6):
        reported = await run_and_kill(tmp_path, chance.randrange(1, 400))
        data = await DataDir.open_writer(tmp_path)
        for name, seq in reported.items():
            frames = await data.log.read(name, 0, 1_000_000)
            assert seqs(frames) == list(range(1, len(frames) + 1))
            assert len(frames) >= seq
            assert damaged(frames) == []
            assert all(frame.data == f"{name} {frame.seq}".encode() for frame in frames)
            snapshot, row = await data.log.snapshot(name), await data.log.session(name)
            assert snapshot is not None
            assert row is not None
            assert (snapshot.seq, int(snapshot.state), row.title) == (
                len(frames),
                len(frames),
                str(len(frames)),
            )
        everything = await data.log.read_all(0, 1_000_000)
        assert len({frame.cursor for frame in everything}) == len(everything)
        await data.close()
