"""Content-addressed bytes: the same tests in memory, in files and split over a database and files, and what only a disk can do."""

import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.store.samples import session

from codesdk.contract.canonical import content_hash
from codesdk.contract.errors import NotFound, StorageFailure
from codesdk.contract.ports import Blobs
from codesdk.store.blobs import FileBlobs, MemoryBlobs
from codesdk.store.sqlite.log import SqliteLog
from codesdk.store.sqlite.split_blobs import SMALL_BYTES, SplitBlobs

pytestmark = pytest.mark.anyio


@pytest.fixture
async def split(tmp_path: Path) -> AsyncIterator[SplitBlobs]:
    log = await SqliteLog.open(tmp_path / "codesdk.db")
    yield SplitBlobs(log, FileBlobs(tmp_path / "blobs"))
    await log.close()


@pytest.fixture(params=["memory", "files", "split"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, split: SplitBlobs) -> Blobs:
    kinds: dict[str, Blobs] = {
        "memory": MemoryBlobs(),
        "files": FileBlobs(tmp_path / "blobs"),
        "split": split,
    }
    return kinds[request.param]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def file_of(root: Path, name: str) -> Path:
    return root / name[7:9] / name[9:]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*/*"))


def age(path: Path, seconds: float) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


async def nothing(hashes: Sequence[str]) -> set[str]:
    return set()


async def test_bytes_come_back_by_their_hash(blobs: Blobs):
    for data in (b"", b"hello", bytes(range(256)) * 100, b"large" * 100_000):
        name = await blobs.put(data)
        assert name == content_hash(data)
        assert await blobs.get(name) == data
        assert await blobs.has(name)
        assert await blobs.put(data) == name


@pytest.mark.parametrize(
    ("start", "end"), [(0, 3), (2, None), (2, 4), (4, 2), (3, 99), (99, None), (99, 120), (0, 0), (-3, 2)]
)
@pytest.mark.slow
async def test_a_range_is_cut_as_a_slice(blobs: Blobs, start: int, end: int | None):
    name = await blobs.put(b"abcdef")
    assert await blobs.get(name, start, end) == b"abcdef"[max(start, 0) : end]


@pytest.mark.parametrize(
    "name", [content_hash(b"x"), "sha256:../../etc/passwd", "", "md5:00", "sha256:" + "A" * 64]
)
@pytest.mark.slow
async def test_what_is_not_there_or_no_hash_is_not_found(blobs: Blobs, name: str):
    assert not await blobs.has(name)
    with pytest.raises(NotFound):
        await blobs.get(name)
    with pytest.raises(NotFound):
        await blobs.get(name, 1, 2)


async def test_a_sweep_removes_what_nobody_keeps(blobs: Blobs):
    kept, gone = await blobs.put(b"kept"), await blobs.put(b"gone")

    async def keep(hashes: Sequence[str]) -> set[str]:
        assert set(hashes) == {kept, gone}
        return {kept, "sha256:unknown"}

    assert await blobs.sweep(keep, 0) == 1
    assert (await blobs.has(kept), await blobs.has(gone)) == (True, False)
    assert await blobs.get(await blobs.put(b"gone")) == b"gone"


async def test_a_sweep_leaves_what_is_young_and_what_is_put_again_meanwhile(blobs: Blobs):
    young = await blobs.put(b"young")
    assert await blobs.sweep(nothing, 3600) == 0
    assert await blobs.has(young)


async def test_a_put_during_a_sweep_keeps_its_blob(root: Path):
    blobs = FileBlobs(root)
    name = await blobs.put(b"data")
    age(file_of(root, name), 100)

    async def keep(hashes: Sequence[str]) -> set[str]:
        assert list(hashes) == [name]
        await blobs.put(b"data")
        return set()

    assert await blobs.sweep(keep, 50) == 0
    assert await blobs.get(name) == b"data"


async def test_a_sweep_asks_in_pages_and_takes_stale_temporary_files_along(root: Path):
    blobs = FileBlobs(root)
    for number in range(1203):
        data = str(number).encode()
        write(file_of(root, content_hash(data)), data)
    write(root / "ab" / ".tmp-broken", b"half")
    write(root / "ab" / "notes.txt", b"not ours")
    pages: list[int] = []

    async def keep(hashes: Sequence[str]) -> set[str]:
        pages.append(len(hashes))
        return set()

    assert await blobs.sweep(keep, -60) == 1203
    assert (sum(pages), max(pages), names(root)) == (1203, 500, ["notes.txt"])


async def test_a_sweep_of_nothing_is_nothing(root: Path):
    assert await FileBlobs(root).sweep(nothing, 0) == 0


async def test_files_are_for_their_owner_and_nothing_else_is_left(root: Path):
    name = await FileBlobs(root).put(b"data")
    path = file_of(root, name)
    assert [mode_of(place) for place in (path, path.parent, root)] == [0o600, 0o700, 0o700]
    assert names(root) == [path.name]


@pytest.mark.parametrize("damage", [b"dat", b"DATA", b""])
async def test_a_damaged_blob_is_never_handed_out_whole(root: Path, damage: bytes):
    blobs = FileBlobs(root)
    name = await blobs.put(b"data")
    write(file_of(root, name), damage)
    with pytest.raises(StorageFailure, match="damaged"):
        await blobs.get(name)


async def test_a_blob_cut_short_is_mended_by_putting_it_again(root: Path):
    blobs = FileBlobs(root)
    name = await blobs.put(b"data")
    write(file_of(root, name), b"da")
    await blobs.put(b"data")
    assert await blobs.get(name) == b"data"


async def test_a_write_that_fails_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch):
    blobs = FileBlobs(root)
    write(root / content_hash(b"second")[7:9] / "neighbour", b"first")
    before = names(root)

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageFailure, match="No space left"):
        await blobs.put(b"second")
    assert names(root) == before


async def test_a_root_that_cannot_be_made_is_a_clear_failure(tmp_path: Path):
    write(tmp_path / "file", b"")
    with pytest.raises(StorageFailure, match="4 bytes cannot be stored"):
        await FileBlobs(tmp_path / "file" / "blobs").put(b"data")
    with pytest.raises(StorageFailure, match="cannot be read"):
        await FileBlobs(tmp_path / "file").get(content_hash(b"data"))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=50)))
@pytest.mark.slow
async def test_any_bytes_are_kept_once(tmp_path: Path, contents: list[bytes]):
    root = tmp_path / str(hash(tuple(contents)))
    blobs = FileBlobs(root)
    found = {await blobs.put(data): data for data in contents}
    assert len(names(root)) == len(set(contents))
    assert [await blobs.get(name) for name in found] == list(found.values())


# --- split over a database and files ------------------------------------------------------------------------------


def rows(tmp_path: Path) -> dict[str, bytes]:
    db = sqlite3.connect(tmp_path / "codesdk.db")
    try:
        return dict(db.execute("SELECT hash, data FROM blobs"))
    finally:
        db.close()


def change(tmp_path: Path, statement: str, *values: object) -> None:
    db = sqlite3.connect(tmp_path / "codesdk.db")
    with db:
        assert db.execute(statement, values).rowcount == 1
    db.close()


async def test_small_contents_are_rows_and_large_ones_files(split: SplitBlobs, tmp_path: Path, root: Path):
    small, large = b"s" * SMALL_BYTES, b"l" * (SMALL_BYTES + 1)
    assert [await split.put(data) for data in (small, large, small)][:2] == [
        content_hash(small),
        content_hash(large),
    ]
    assert rows(tmp_path) == {content_hash(small): small}
    assert names(root) == [content_hash(large)[9:]]


async def test_what_was_a_file_before_is_found_and_swept_there(split: SplitBlobs, root: Path):
    name = await FileBlobs(root).put(b"from before")
    assert await split.has(name)
    assert (await split.get(name), await split.get(name, 5)) == (b"from before", b"before")
    assert await split.sweep(nothing, 0) == 1
    assert not await split.has(name)


@pytest.mark.parametrize("damage", [b"dat", b"DATA", b""])
async def test_a_damaged_row_is_never_handed_out_whole(split: SplitBlobs, tmp_path: Path, damage: bytes):
    name = await split.put(b"data")
    change(tmp_path, "UPDATE blobs SET data = ? WHERE hash = ?", damage, name)
    with pytest.raises(StorageFailure, match="damaged"):
        await split.get(name)


async def test_a_row_cut_short_is_mended_by_putting_it_again(split: SplitBlobs, tmp_path: Path):
    name = await split.put(b"data")
    change(tmp_path, "UPDATE blobs SET data = ? WHERE hash = ?", b"da", name)
    await split.put(b"data")
    assert await split.get(name) == b"data"


async def test_a_put_during_a_sweep_keeps_its_row(split: SplitBlobs, tmp_path: Path):
    name = await split.put(b"data")
    change(tmp_path, "UPDATE blobs SET put_at = put_at - 100 WHERE hash = ?", name)

    async def keep(hashes: Sequence[str]) -> set[str]:
        assert list(hashes) == [name]
        await split.put(b"data")
        return set()

    assert await split.sweep(keep, 50) == 0
    assert await split.get(name) == b"data"


async def test_a_sweep_of_rows_asks_in_pages(split: SplitBlobs, tmp_path: Path):
    kept = {await split.put(str(number).encode()) for number in range(1203) if number % 3}
    gone = {await split.put(str(number).encode()) for number in range(0, 1203, 3)}
    pages: list[int] = []

    async def keep(hashes: Sequence[str]) -> set[str]:
        pages.append(len(hashes))
        return kept

    assert await split.sweep(keep, 0) == len(gone)
    assert (sum(pages), max(pages), set(rows(tmp_path))) == (1203, 500, kept)


@pytest.mark.slow
async def test_a_row_is_there_whenever_a_later_commit_is(tmp_path: Path):
    """Both go into one write-ahead log, in the order in which they were asked for."""
    log = await SqliteLog.open(tmp_path / "codesdk.db")
    blobs = SplitBlobs(log, FileBlobs(tmp_path / "blobs"))
    await log.create(session(), "me")
    for seq in range(1, 40):
        data = str(seq).encode() * 500
        await blobs.put(data)
        await log.append("ses_1", 1, seq, [content_hash(data).encode()], durable=False)
    wal = (tmp_path / "codesdk.db-wal").read_bytes()
    found = 0
    for cut in range(0, len(wal) + 1, len(wal) // 60):
        torn = tmp_path / str(cut)
        torn.mkdir()
        (torn / "codesdk.db").write_bytes((tmp_path / "codesdk.db").read_bytes())
        (torn / "codesdk.db-wal").write_bytes(wal[:cut])
        db = sqlite3.connect(torn / "codesdk.db")
        if db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'blobs'").fetchone() == (1,):
            named = {row[0].decode() for row in db.execute("SELECT frame FROM events")}
            assert named <= set(rows(torn))
            found = max(found, len(named))
        db.close()
    await log.close()
    assert found > 30
