"""Space that deleted sessions leave is given back to the disk, while others write."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from tests.store.samples import session

from codesdk.store.sqlite.log import SqliteLog
from codesdk.store.sqlite.schema import MIGRATIONS, migrate

pytestmark = pytest.mark.anyio

FRAME = b"x" * 4_000


async def fill(log: SqliteLog, name: str, frames: int = 2_000) -> None:
    await log.create(session(name), "me")
    await log.append(name, 1, 1, [FRAME] * frames, durable=False)


@pytest.mark.slow
async def test_the_file_shrinks_while_a_session_goes_on_writing(tmp_path: Path):
    path = tmp_path / "log.db"
    log = await SqliteLog.open(path)
    for number in range(3):
        await fill(log, f"ses_old{number}")
    await log.create(session("ses_live"), "me")
    done = False
    written = 0

    async def write() -> None:
        nonlocal written
        while not done:
            await log.append("ses_live", 1, written + 1, [b"y"], durable=False)
            written += 1

    writing = asyncio.create_task(write())
    for number in range(3):
        await log.delete(f"ses_old{number}")
    before = written
    # Not the size of the file, which has only what was merged into it so far.
    unused = await log.unused_bytes()
    assert unused > 20_000_000
    assert await log.vacuum() == 0
    during = written - before
    done = True
    await writing
    assert await log.vacuum() == 0  # what a reader of before held back
    assert path.stat().st_size < unused / 10
    assert during > 10  # appends came between the steps
    frames = await log.read("ses_live", 0, written + 1)
    assert [frame.seq for frame in frames] == list(range(1, written + 1))
    await log.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


@pytest.mark.slow
async def test_a_file_of_an_older_version_is_left_alone_unless_it_may_be_rewritten(tmp_path: Path):
    path = tmp_path / "log.db"
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db, path, MIGRATIONS)  # as it was done before files could give pages back
    assert db.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    db.close()
    log = await SqliteLog.open(path)
    await fill(log, "ses_old")
    await fill(log, "ses_new", 10)
    await log.delete("ses_old")
    assert await log.vacuum() > 7_000_000
    full = path.stat().st_size
    assert full > 7_000_000
    assert await log.vacuum(rewrite=True) == 0
    assert path.stat().st_size < full / 10
    assert len(await log.read("ses_new", 0, 100)) == 10
    await fill(log, "ses_next")
    await log.delete("ses_next")
    assert await log.vacuum() == 0  # now it gives back bit by bit
    await log.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    db.close()


async def test_the_size_of_a_session_counts_its_events_and_artifacts(tmp_path: Path):
    log = await SqliteLog.open(tmp_path / "log.db")
    await fill(log, "ses_1", 5)
    assert await log.bytes_of("ses_1") == 20_000
    assert await log.bytes_of("ses_2") == 0
    await log.close()
