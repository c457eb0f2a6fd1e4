"""Sessions as files: kept over restarts, never half written, never overwritten by mistake."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from codesdk.contract.errors import Busy, Conflict, InvalidRequest, NotFound, StorageFailure
from codesdk.contract.messages import text_of, user
from codesdk.minicode.storage import DamagedSession, FsSessionRepository, sessions
from codesdk.minicode.types import SessionRepository, SessionState, SessionSummary, Usage


def state(session_id: str = "one", *texts: str, updated_at: int = 1) -> SessionState:
    return SessionState(
        id=session_id,
        cwd="/work",
        created_at=1,
        updated_at=updated_at,
        provider="openai",
        model="m",
        messages=[user(text) for text in texts],
        metadata={"title": "A"},
        usage_totals=Usage(input=3),
    )


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def modes_in(directory: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.iterdir())]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "sessions"


@pytest.fixture
def repository(directory: Path) -> SessionRepository:
    return FsSessionRepository(directory)


async def test_a_session_is_there_again_in_another_process(repository: SessionRepository, directory: Path):
    await repository.create(state("one", "hello"))
    code = (
        "import asyncio, sys, pathlib\n"
        "from codesdk.minicode.storage import FsSessionRepository\n"
        "found = asyncio.run(FsSessionRepository(pathlib.Path(sys.argv[1])).load('one'))\n"
        "print(found.messages[0].content[0].text, found.usage_totals.input)\n"
    )
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(directory), stdout=subprocess.PIPE
    )
    assert await ran.communicate() == (b"hello 3\n", None)
    assert await repository.load("one") == state("one", "hello")


async def test_files_are_for_their_owner_only_and_nothing_else_is_left(
    repository: SessionRepository, directory: Path
):
    await repository.create(state())
    await repository.save(state("one", "more"), state())
    assert names_in(directory) == [".lock", "one.json"]
    assert modes_in(directory) == [0o700, 0o600, 0o600]


async def test_what_is_not_there_is_not_found(repository: SessionRepository):
    for ask in (repository.load("none"), repository.delete("none")):
        with pytest.raises(NotFound):
            await ask
    assert await repository.list() == []
    await repository.create(state())
    await repository.delete("one")
    with pytest.raises(NotFound):
        await repository.delete("one")


async def test_an_id_is_taken_once(repository: SessionRepository):
    await repository.create(state("one", "first"))
    with pytest.raises(Conflict):
        await repository.create(state("one", "second"))
    assert await repository.load("one") == state("one", "first")


async def test_sessions_are_listed_with_the_last_one_used_first(repository: SessionRepository):
    for name, time in [("a", 5), ("b", 9), ("c", 7)]:
        await repository.create(state(name, updated_at=time))
    assert [each.id for each in await repository.list()] == ["b", "c", "a"]
    assert (await repository.list())[0] == SessionSummary(
        id="b", cwd="/work", provider="openai", model="m", created_at=1, updated_at=9
    )


@pytest.mark.parametrize(
    "session_id",
    ["", ".", "..", "../one", "a/b", "/etc/passwd", "a.json", "a\0b", "-a", "a" * 101, "ä", "a\n"],
)
async def test_no_id_leads_out_of_the_directory(
    repository: SessionRepository, session_id: str, tmp_path: Path
):
    bad = msgspec.structs.replace(state(), id=session_id)
    for ask in (
        repository.load(session_id),
        repository.delete(session_id),
        repository.create(bad),
        repository.save(bad, bad),
    ):
        with pytest.raises(InvalidRequest, match="cannot be a session's id"):
            await ask
    assert names_in(tmp_path) == []


DAMAGED = {
    "empty": b"",
    "cut off": sessions._encode(state())[:-9],
    "without a version": msgspec.json.encode(state()),
    "no session": b'{"version": 1}',
    "another type": b'{"version": 1, "id": 5}',
    "not UTF-8": b'{"version": 1, "id": "\xff"}',
    "an unknown provider": sessions._encode(state()).replace(b'"openai"', b'"acme"'),
    "a list": b"[]",
    "too deep": b"[" * 100_000,
    "an old version": msgspec.json.encode(json.loads(sessions._encode(state())) | {"version": 0}),
    "another session": sessions._encode(state("two")),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
async def test_a_damaged_file_is_reported_and_kept(directory: Path, data: bytes):
    repository = FsSessionRepository(directory)
    await repository.create(state("good"))
    path = directory / "one.json"
    path.write_bytes(data)
    with pytest.raises(StorageFailure) as raised:
        await repository.load("one")
    assert raised.value.message.startswith(f"The session file {path} is damaged: ")
    assert raised.value.message.endswith("It was left as it is. Mend it, or delete the session.")
    with pytest.raises(Conflict):
        await repository.create(state())
    with pytest.raises((StorageFailure, Conflict)):
        await repository.save(state("one", "new"), state())
    assert path.read_bytes() == data
    assert "good" in [each.id for each in await repository.list()]


async def test_the_list_tells_of_damaged_files_and_of_newer_ones(
    directory: Path, caplog: pytest.LogCaptureFixture
):
    repository = FsSessionRepository(directory)
    await repository.create(state("good"))
    (directory / "bad.json").write_text("{")
    (directory / "new.json").write_text('{"version": 2, "id": "new"}')
    found, damaged = await repository.survey()
    assert [each.id for each in found] == ["good"]
    assert list(damaged) == [
        DamagedSession(
            path=str(directory / "bad.json"),
            problem=f"The session file {directory / 'bad.json'} is damaged: Input data was truncated. It was left"
            " as it is. Mend it, or delete the session.",
        ),
        DamagedSession(
            path=str(directory / "new.json"),
            problem=f"The session file {directory / 'new.json'} is of version 2, and this program knows 1. It was"
            " left as it is. Open it with a newer CodeSDK.",
        ),
    ]
    assert [each.id for each in await repository.list()] == ["good"]
    assert caplog.messages == [each.problem for each in damaged]


async def test_a_file_of_a_newer_version_is_never_overwritten(repository: SessionRepository, directory: Path):
    await repository.create(state())
    path = directory / "one.json"
    newer = json.dumps(json.loads(sessions._encode(state())) | {"version": 2, "extra": True})
    path.write_text(newer)
    for ask in (repository.load("one"), repository.save(state("one", "x"), state())):
        with pytest.raises(StorageFailure, match="is of version 2, and this program knows 1"):
            await ask
    assert path.read_text() == newer


async def test_the_second_of_two_writers_is_told_and_nothing_is_lost(directory: Path):
    ours, theirs = FsSessionRepository(directory), FsSessionRepository(directory)
    await ours.create(state())
    await theirs.save(state("one", "theirs"), state())
    with pytest.raises(Conflict, match="Another process has changed the session one meanwhile"):
        await ours.save(state("one", "ours"), state())
    assert await ours.load("one") == state("one", "theirs")
    await ours.delete("one")
    with pytest.raises(Conflict, match="was deleted meanwhile"):
        await theirs.save(state("one", "again"), state("one", "theirs"))


async def test_a_file_that_says_the_same_in_other_words_is_the_same(
    repository: SessionRepository, directory: Path
):
    await repository.create(state())
    path = directory / "one.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    await repository.save(state("one", "next"), state())
    assert await repository.load("one") == state("one", "next")


WRITER = """
import asyncio, sys, pathlib
from codesdk.contract.errors import Conflict
from codesdk.contract.messages import user
from codesdk.minicode.storage import FsSessionRepository
import msgspec

async def main():
    repository = FsSessionRepository(pathlib.Path(sys.argv[1]))
    done = told = 0
    while done < 20:
        before = await repository.load("one")
        after = msgspec.structs.replace(before, messages=[*before.messages, user(f"{sys.argv[2]} {done}")])
        try:
            await repository.save(after, before)
            done += 1
        except Conflict:
            told += 1
    print(done)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_processes_that_write_one_session_at_once_lose_nothing(
    repository: SessionRepository, directory: Path
):
    await repository.create(state())
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(directory), name, stdout=subprocess.PIPE
        )
        for name in ("a", "b", "c")
    ]
    for writer in writers:
        out, _ = await writer.communicate()
        assert out == b"20\n"
    said = sorted(text_of(message.content) for message in (await repository.load("one")).messages)
    assert said == sorted(f"{name} {number}" for name in "abc" for number in range(20))


async def test_a_lock_that_is_never_let_go_is_not_waited_for_for_ever(
    repository: SessionRepository, directory: Path, monkeypatch: pytest.MonkeyPatch
):
    import fcntl

    await repository.create(state())
    monkeypatch.setattr(sessions, "LOCK_WAIT_S", 0.0)
    with (directory / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="Another process holds the lock"):
            await repository.save(state("one", "x"), state())


async def test_a_directory_that_cannot_be_used_is_one_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    repository = FsSessionRepository(tmp_path / "file" / "sessions")
    with pytest.raises(StorageFailure, match="Not a directory"):
        await repository.create(state())


async def test_a_write_that_fails_leaves_the_old_session(
    repository: SessionRepository, directory: Path, monkeypatch: pytest.MonkeyPatch
):
    await repository.create(state("one", "old"))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailure, match="No space left on device"):
        await repository.save(state("one", "new"), state("one", "old"))
    monkeypatch.undo()
    assert await repository.load("one") == state("one", "old")
    assert names_in(directory) == [".lock", "one.json"]
