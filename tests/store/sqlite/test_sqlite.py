"""What the log in a file adds: durability levels, damage, full disks, versions, readers beside the writer."""

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.store.samples import damaged, message, opened, seqs, session, texts

from codesdk.contract.errors import NotFound, StorageFailure
from codesdk.contract.records import Changes
from codesdk.store.sqlite import checkpoint as merging
from codesdk.store.sqlite.log import SqliteLog
from codesdk.store.sqlite.schema import MIGRATIONS, UNRELEASED
from codesdk.store.sqlite.tables import Tables

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codesdk.db"


async def fill(path: Path, *names: str, frames: int = 100, size: int = 400) -> None:
    """Write sessions with frames `seq xxx…` and close the file."""
    log = await SqliteLog.open(path)
    for name in names or ("ses_1",):
        await log.create(session(name), "me")
        data = [str(seq).encode().ljust(size, b"x") for seq in range(1, frames + 1)]
        await log.append(name, 1, 1, data, durable=False)
    await log.close()


def execute(path: Path, statement: str, *values: object) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute(statement, values)
    db.close()


def query(path: Path, statement: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def spoil_page(path: Path, number: int) -> None:
    """Overwrite the header of a page, as a bad disk would."""
    data = bytearray(path.read_bytes())
    at = (number - 1) * 4096
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)


def page_of(path: Path, marker: bytes) -> int:
    return path.read_bytes().index(marker) // 4096 + 1


# --- batches -------------------------------------------------------------------------------------


async def test_what_waits_together_is_committed_together(path: Path):
    log = await SqliteLog.open(path)
    await asyncio.gather(*(log.create(session(f"ses_{number}"), "me") for number in range(50)))
    before = log.stats.batches
    await asyncio.gather(*(log.append(f"ses_{n}", 1, 1, [b"a"], durable=False) for n in range(50)))
    assert (log.stats.batches - before, log.stats.frames_written) == (1, 50)
    await log.close()


async def test_a_batch_is_bounded_but_a_long_append_stays_whole(path: Path):
    log = await SqliteLog.open(path)
    await log.create(session(), "me")
    before = log.stats.batches
    appends = [log.append("ses_1", 1, 1 + 900 * n, [b"a"] * 900, durable=False) for n in range(4)]
    await asyncio.gather(*appends)
    await log.append("ses_1", 1, 3601, [b"a"] * 5000, durable=False)
    assert log.stats.batches - before == 3
    assert await log.head("ses_1") == 8600
    await log.close()


@pytest.mark.parametrize(
    ("setting", "levels"), [("auto", [1, 2, 1]), ("full", [2, 2, 2]), ("normal", [1, 1, 1])]
)
async def test_only_what_asks_for_it_waits_for_the_disk(path: Path, setting: str, levels: list[int]):
    log = await SqliteLog.open(path, synchronous=setting)  # type: ignore[arg-type]
    await log.create(session(), "me")
    found: list[int] = []

    def look(tables: object) -> None:
        found.append(tables._db.execute("PRAGMA synchronous").fetchone()[0])  # type: ignore[attr-defined]

    log_writer = log._writer
    assert log_writer is not None
    flush = log_writer._tables.flush

    def spy() -> int:
        look(log_writer._tables)
        return flush()

    log_writer._tables.flush = spy
    for seq, durable in enumerate([False, True, False], 1):
        await log.append("ses_1", 1, seq, [b"a"], durable=durable)
    assert found == levels
    await log.close()


async def test_a_page_is_read_without_reading_the_whole_log(path: Path):
    await fill(path, "ses_1", "ses_2", frames=3000)
    log = await SqliteLog.open(path)
    for seq in (0, 1500, 2990):
        await log.read("ses_2", seq, 10)
    await log.read_all(4000, 10)
    await log.head("ses_1")
    await log.append("ses_1", 1, 3001, [b"a"], durable=False)
    assert log.stats.rows_read <= 41
    await log.close()


async def test_a_deleted_session_is_out_of_sight_while_its_events_are_removed(path: Path):
    await fill(path, "ses_1", "ses_2", frames=7000)
    log = await SqliteLog.open(path)
    gone = asyncio.create_task(log.delete("ses_1"))
    await asyncio.sleep(0)
    await log.append(
        "ses_2", 1, 7001, [b"a"], durable=False
    )  # comes after the delete, does not wait for its end
    assert await log.session("ses_1") is None
    assert {frame.session_id for frame in await log.read_all(0, 20_000)} == {"ses_2"}
    await gone
    await log.close()
    assert query(path, "SELECT count(*) FROM events") == [(7001,)]


async def test_a_delete_that_was_cut_off_goes_on_at_the_next_start(path: Path):
    await fill(path, "ses_1", frames=7000)
    execute(path, "INSERT INTO graves SELECT key FROM sessions")
    execute(path, "DELETE FROM sessions")
    execute(path, "UPDATE meta SET value = 7000")
    log = await SqliteLog.open(path)
    await log.create(session(), "me")
    await log.append("ses_1", 1, 1, [b"new"], durable=False)
    await log.delete("ses_1")
    await log.close()
    assert query(path, "SELECT count(*) FROM events") == [(0,)]
    assert query(path, "SELECT count(*) FROM graves") == [(0,)]


async def test_a_delete_that_fails_half_way_is_reported_and_finished_at_the_next_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    await fill(path, frames=5000)
    log = await SqliteLog.open(path)

    def fail(tables: Tables, key: int) -> bool:
        raise sqlite3.OperationalError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "purge", fail)
        with pytest.raises(StorageFailure, match=r"The database .* refused"):
            await log.delete("ses_1")
    assert await log.session("ses_1") is None
    await log.close()
    log = await SqliteLog.open(path)
    await log.create(session(), "me")
    await log.delete("ses_1")  # waits its turn behind the one left over
    await log.close()
    assert query(path, "SELECT count(*) FROM events") == [(0,)]


async def test_cursors_go_on_after_a_restart_even_if_the_last_events_are_deleted(path: Path):
    await fill(path, "ses_1", "ses_2", frames=10)
    log = await SqliteLog.open(path)
    await log.delete("ses_2")
    await log.close()
    log = await SqliteLog.open(path)
    await log.append("ses_1", 1, 11, [b"a"], durable=False)
    assert (await log.read("ses_1", 10, 1))[0].cursor > 20
    await log.close()


async def test_a_closed_file_stands_alone(path: Path):
    await fill(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert mode_of(path) == 0o600


# --- damage --------------------------------------------------------------------------------------


async def test_a_changed_row_is_named_and_hides_no_other(path: Path):
    await fill(path, frames=10)
    execute(path, "UPDATE events SET frame = X'00' WHERE seq = 3")
    execute(path, "UPDATE events SET crc = 'x' WHERE seq = 5")
    execute(path, "UPDATE events SET frame = CAST(X'FF' AS TEXT) WHERE seq = 7")
    log = await SqliteLog.open(path)
    for frames in (await log.read("ses_1", 0, 20), await log.read_all(0, 20)):
        assert seqs(frames) == list(range(1, 11))
        assert damaged(frames) == [3, 5, 7]
        assert frames[2].data == b"\x00"
    assert await log.head("ses_1") == 10
    await log.append("ses_1", 1, 11, [b"a"], durable=False)
    await log.close()


async def test_a_row_without_data_is_named(path: Path):
    await fill(path, frames=3)
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, 'frame BLOB NOT NULL', 'frame BLOB')")
    db.commit()
    db.close()
    execute(path, "UPDATE events SET frame = NULL WHERE seq = 2")
    log = await SqliteLog.open(path)
    frames = await log.read("ses_1", 0, 9)
    assert damaged(frames) == [2]
    assert frames[1].data == b""
    await log.close()


async def test_a_damaged_page_hides_only_its_own_rows(path: Path):
    await fill(path, "ses_1", "ses_2", frames=100)
    spoil_page(path, page_of(path, b"50".ljust(400, b"x")))
    async with opened("sqlite", path.parent) as log:
        frames = await log.read("ses_1", 0, 200)
        assert seqs(frames) == list(range(1, 101))
        lost = damaged(frames)
        assert 50 in lost
        assert len(lost) < 20
        assert all(frame.data.startswith(str(frame.seq).encode()) for frame in frames if not frame.damage)
        everything = await log.read_all(0, 500)
        assert [(f.session_id, f.seq) for f in everything if f.damage] == [("ses_1", seq) for seq in lost]
        assert len(everything) == 200
        assert damaged(await log.read("ses_2", 0, 200)) == []
        assert seqs(await log.read("ses_1", 45, 3)) == [46, 47, 48]
        await log.append("ses_2", 1, 101, [b"a"], durable=False)


async def test_a_damaged_index_costs_time_but_no_rows(path: Path):
    await fill(path, frames=2000, size=40)
    db = sqlite3.connect(path)
    root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_by_seq'").fetchone()[0]
    db.close()
    spoil_page(path, root)
    log = await SqliteLog.open_reader(path)
    frames = await log.read("ses_1", 0, 500)
    assert (seqs(frames), damaged(frames)) == (list(range(1, 501)), [])
    assert len(await log.read_all(0, 5000)) == 2000
    await log.close()


async def test_a_file_cut_short_is_refused_with_advice(path: Path):
    await fill(path, frames=500)
    write(path, content_of(path)[: 20 * 4096])
    for opening in (SqliteLog.open(path), SqliteLog.open_reader(path)):
        with pytest.raises(StorageFailure, match=r"is damaged .*Restore it"):
            await opening


async def test_a_damaged_row_does_not_hide_the_rest_of_a_list(path: Path):
    await fill(path, "ses_1", "ses_2", frames=1)
    execute(path, "UPDATE sessions SET row = X'00' WHERE id = 'ses_1'")
    log = await SqliteLog.open(path)
    assert await log.sessions(after=None, limit=9, principal=None, status=None) == [session("ses_2")]
    with pytest.raises(StorageFailure, match="SessionRow is damaged"):
        await log.session("ses_1")
    await log.append("ses_1", 1, 2, [], durable=False, changes=Changes(messages=[message(0), message(1)]))
    execute(path, "UPDATE messages SET row = X'00' WHERE place = 0")
    with pytest.raises(StorageFailure, match="MessageRow is damaged"):
        await log.messages("ses_1", before=None, limit=9)
    await log.close()


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 500, b"\x00" * 5000, b"SQLite format 3\x00" + b"\xff" * 5000]
)
async def test_garbage_is_refused_and_left_alone(path: Path, content: bytes):
    write(path, content)
    with pytest.raises(StorageFailure, match=r"not a database|damaged"):
        await SqliteLog.open(path)
    with pytest.raises(StorageFailure, match=r"not a database|damaged"):
        await SqliteLog.open_reader(path)
    assert content_of(path) == content


async def test_a_database_of_another_program_is_refused_and_left_alone(path: Path):
    execute(path, "CREATE TABLE theirs (x)")
    before = content_of(path)
    with pytest.raises(StorageFailure, match="another program"):
        await SqliteLog.open(path)
    assert content_of(path) == before


# --- full and read-only disks --------------------------------------------------------------------


async def test_a_full_disk_fails_what_does_not_fit_and_spares_the_neighbours(path: Path):
    log = await SqliteLog.open(path, max_pages=60)
    for name in ("ses_1", "ses_2"):
        await log.create(session(name), "me")
    results = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False),
        log.append("ses_1", 1, 2, [b"x" * 1_000_000], durable=False),
        log.append("ses_2", 1, 1, [b"b"], durable=True),
        log.append("ses_1", 1, 3, [b"c"], durable=False),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == [
        "NoneType",
        "StorageFailure",
        "NoneType",
        "Conflict",
    ]
    failure = results[1]
    assert isinstance(failure, StorageFailure)
    assert "full" in failure.message
    assert "Free some space" in failure.message
    assert failure.retryable
    await log.append("ses_1", 1, 2, [b"again"], durable=False)
    assert (texts(await log.read("ses_1", 0, 9)), await log.head("ses_2")) == ([b"a", b"again"], 1)
    await log.close()


@pytest.mark.parametrize("between", [0, 2_500])
@pytest.mark.slow
async def test_a_session_whose_first_events_do_not_fit_is_not_created(path: Path, between: int):
    """Also when more is queued between the two than one batch takes."""
    log = await SqliteLog.open(path, max_pages=200)
    await log.create(session("ses_1"), "me")
    creating = [asyncio.ensure_future(log.create(session(name), "me")) for name in ("ses_2", "ses_3")]
    await asyncio.sleep(0)  # both are queued, not yet sent
    results = await asyncio.gather(
        *(log.append("ses_1", 1, number + 1, [b"a"], durable=False) for number in range(between)),
        log.append("ses_2", 1, 1, [b"x" * 1_000_000], durable=True),
        log.append("ses_3", 1, 1, [b"b"], durable=True),
        *creating,
        return_exceptions=True,
    )
    kinds = [type(result).__name__ for result in results[between:]]
    assert kinds == ["StorageFailure", "NoneType", "StorageFailure", "int"]
    assert await log.session("ses_2") is None
    assert await log.head("ses_1") == between
    assert (await log.create(session("ses_2"), "me"), await log.head("ses_3")) == (1, 1)
    await log.close()


async def test_a_full_disk_recovers_when_something_is_deleted(path: Path):
    log = await SqliteLog.open(path, max_pages=200)
    for name in ("ses_1", "ses_2"):
        await log.create(session(name), "me")
    await log.append("ses_1", 1, 1, [b"x" * 500_000], durable=False)
    with pytest.raises(StorageFailure, match="full"):
        await log.append("ses_2", 1, 1, [b"x" * 500_000], durable=False)
    await log.delete("ses_1")
    await log.append("ses_2", 1, 1, [b"x" * 500_000], durable=False)
    assert await log.head("ses_2") == 1
    await log.close()


async def test_a_directory_that_is_not_there_is_a_clear_failure(tmp_path: Path):
    with pytest.raises(StorageFailure, match="No such file"):
        await SqliteLog.open(tmp_path / "missing" / "codesdk.db")
    with pytest.raises(NotFound, match="no database"):
        await SqliteLog.open_reader(tmp_path / "codesdk.db")


async def test_a_file_that_becomes_read_only_is_a_clear_failure(path: Path):
    log = await SqliteLog.open(path)
    await log.create(session(), "me")
    assert log._writer is not None
    await log.change(lambda tables: tables._db.execute("PRAGMA query_only = ON"))
    with pytest.raises(StorageFailure, match="read-only"):
        await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.close()


async def test_a_frame_that_is_no_bytes_fails_alone_and_the_writer_lives(path: Path):
    log = await SqliteLog.open(path)
    for name in ("ses_1", "ses_2"):
        await log.create(session(name), "me")
    results = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a", "text"], durable=False),  # type: ignore[list-item]
        log.append("ses_2", 1, 1, [b"b"], durable=False),
        log.create(session("ses_\ud800"), "me"),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == ["InvalidRequest", "NoneType", "InvalidRequest"]
    assert (await log.head("ses_1"), await log.head("ses_2")) == (0, 1)
    await log.close()


# --- versions ------------------------------------------------------------------------------------


async def test_a_newer_file_is_refused_and_left_alone(path: Path):
    await fill(path)
    execute(path, "PRAGMA user_version = 99")
    before = content_of(path)
    for opening in (SqliteLog.open(path), SqliteLog.open_reader(path)):
        with pytest.raises(StorageFailure, match=r"newer CodeSDK .*Upgrade"):
            await opening
    assert content_of(path) == before


async def test_an_older_file_is_upgraded_and_keeps_its_content(path: Path):
    await fill(path, frames=3)
    step = ("ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",)
    log = await SqliteLog.open(path, migrations=[*MIGRATIONS, step])
    assert seqs(await log.read("ses_1", 0, 9)) == [1, 2, 3]
    await log.close()
    assert query(path, "PRAGMA user_version") == [(UNRELEASED + len(MIGRATIONS) + 1,)]
    assert query(path, "SELECT mood FROM sessions") == [("calm",)]


@pytest.mark.parametrize("version", range(1, UNRELEASED + 1))
@pytest.mark.slow
async def test_a_file_from_before_the_first_release_is_refused_in_one_sentence_and_left_alone(
    path: Path, version: int
):
    await fill(path)
    execute(path, f"PRAGMA user_version = {version}")
    before = content_of(path)
    for opening in (SqliteLog.open(path), SqliteLog.open_reader(path)):
        with pytest.raises(StorageFailure, match=r"before its first release.*Choose another data directory"):
            await opening
    assert content_of(path) == before


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(path: Path):
    await fill(path, frames=3)
    steps = [*MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN mood TEXT", "SELECT nonsense")]
    with pytest.raises(StorageFailure):
        await SqliteLog.open(path, migrations=steps)
    log = await SqliteLog.open(path)
    assert seqs(await log.read("ses_1", 0, 9)) == [1, 2, 3]
    await log.close()
    [(kept,)] = query(path, "SELECT sql FROM sqlite_master WHERE name = 'sessions'")
    assert "mood" not in kept


async def test_a_reader_does_not_upgrade(path: Path):
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id = 1129530448")
    db.close()
    with pytest.raises(StorageFailure, match="older CodeSDK"):
        await SqliteLog.open_reader(path)


# --- readers -------------------------------------------------------------------------------------


async def test_a_reader_sees_what_the_writer_commits(path: Path):
    log = await SqliteLog.open(path)
    await log.create(session(), "me")
    reader = await SqliteLog.open_reader(path)
    waiter = asyncio.create_task(reader.changed(60))
    await asyncio.sleep(0)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await waiter
    assert texts(await reader.read_all(0, 9)) == [b"a"]
    await reader.changed(0.001)
    with pytest.raises(StorageFailure, match="reading only"):
        await reader.append("ses_1", 1, 2, [b"b"], durable=False)
    await reader.close()
    with pytest.raises(StorageFailure, match="closed"):
        await reader.changed(1)
    with pytest.raises(StorageFailure, match="closed"):
        await reader.head("ses_1")
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    await log.close()


async def test_a_log_survives_that_its_loop_ends_without_closing_it(path: Path):
    def run() -> None:
        async def leave() -> None:
            log = await SqliteLog.open(path)
            await log.create(session(), "me")
            log.append("ses_1", 1, 1, [b"a"], durable=False)
            log._post()

        asyncio.run(leave())

    await asyncio.to_thread(run)
    reader = await SqliteLog.open_reader(path)
    assert await reader.session("ses_1") == session()
    await reader.close()


def count_without_log(path: Path, copy: Path) -> int:
    copy.write_bytes(path.read_bytes())
    db = sqlite3.connect(copy)
    (count,) = db.execute("SELECT count(*) FROM events").fetchone()
    db.close()
    return count


async def test_the_write_ahead_log_is_merged_beside_the_writer_and_begun_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(merging, "MERGE_PAGES", 200)
    merged: list[str] = []
    merge = merging.merge

    def noted(db: sqlite3.Connection) -> None:
        merged.append(threading.current_thread().name)
        merge(db)

    monkeypatch.setattr(merging, "merge", noted)
    log = await SqliteLog.open(path)
    await log.create(session(), "me")
    seq = 0
    while merged.count("codesdk-writer") < 2:  # each event on its own, as when they come at a pace
        seq += 1
        await log.append("ses_1", 1, seq, [b"x" * 1_000], durable=False)
    in_file = count_without_log(path, tmp_path / "copy.db")
    frames = await log.read("ses_1", 0, seq + 1)
    await log.close()
    assert seqs(frames) == list(range(1, seq + 1))
    assert merged.count("codesdk-merger") >= 2
    assert 0 < in_file <= seq


@pytest.mark.slow
async def test_a_merge_that_fails_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "MERGE_PAGES", 20)
    tried: list[object] = []

    def refuse(place: object, mode: str) -> sqlite3.Connection:
        tried.append(place)
        raise sqlite3.OperationalError("disk I/O error")

    log = await SqliteLog.open(path)
    monkeypatch.setattr(merging, "connect", refuse)
    await log.create(session(), "me")
    for seq in range(1, 101):
        await log.append("ses_1", 1, seq, [b"x"], durable=False)
    monkeypatch.undo()
    assert len(await log.read("ses_1", 0, 200)) == 100
    await log.close()
    assert tried


@pytest.mark.slow
async def test_without_a_thread_to_be_had_the_writer_merges(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "MERGE_PAGES", 20)
    log = await SqliteLog.open(path)

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(merging.threading, "Thread", NoThread)
    await log.create(session(), "me")
    for seq in range(1, 101):
        await log.append("ses_1", 1, seq, [b"x"], durable=False)
    monkeypatch.undo()
    assert len(await log.read("ses_1", 0, 200)) == 100
    await log.close()
