"""`SqliteLog`: the event log in one SQLite file, written by one thread and read by a few others.

Appends of one step of the loop travel to the writer together; reads have connections of their own and see
what is committed. The loop never waits for the disk.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    Changes,
    KeyRow,
    MessageRow,
    SessionRow,
    SessionStatus,
    Snapshot,
    StoredFrame,
    TaskRow,
)
from codesdk.store import reading, refusals
from codesdk.store.connection import Synchronous, connect_reader, connect_writer, explain
from codesdk.store.schema import MIGRATIONS, Migration
from codesdk.store.writer import Append, Call, Close, Delete, Outcome, Request, Vacuum, Writer, WriterStats

T = TypeVar("T")

_READERS = 4
_POLL_S = 0.025


class Stats(WriterStats):
    """What a log did so far, for tests and measurements."""

    rows_read: int = 0


class SqliteLog:
    """An `EventLog` in a file. Open it with `open` or `open_reader`, on the loop that will use it.

    One consumer calls `changed`; it wakes others itself.
    """

    def __init__(self, path: Path, known: int) -> None:
        self.stats = Stats()
        self._path = path
        self._known_version = known
        self._loop = asyncio.get_running_loop()
        self._writer: Writer | None = None
        self._outbox: list[Request] = []
        self._rounds: dict[tuple[str, int], int] = {}
        self._dirty = asyncio.Event()
        self._closed = False
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="codesdk-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._watch: _Watch | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        synchronous: Synchronous = "auto",
        migrations: Sequence[Migration] = MIGRATIONS,
        max_pages: int | None = None,
    ) -> "SqliteLog":
        """Open a file for writing, making or upgrading it. No one else may have it open for writing.

        `auto` makes a commit survive a power cut if something in it asks for that, `full` every commit, `normal`
        none; all survive the end of the process. `max_pages` limits the size of the file.
        """
        log = cls(path, len(migrations))

        def start() -> None:
            db = connect_writer(path, migrations, max_pages)
            log._writer = Writer(db, path, log._report, synchronous, log.stats)

        await log._start(start)
        return log

    @classmethod
    async def open_reader(cls, path: Path) -> "SqliteLog":
        """Open a file for reading only; a writer may be at work. `NotFound` if there is none."""
        log = cls(path, len(MIGRATIONS))

        def start() -> None:
            log._watch = _Watch(connect_reader(path))

        await log._start(start)
        return log

    async def _start(self, start: Callable[[], None]) -> None:
        try:
            await self._loop.run_in_executor(self._readers, start)
        except Exception as error:
            self._readers.shutdown(wait=False)
            raise explain(error, self._path) from error

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self,
        session_id: str,
        epoch: int,
        first_seq: int,
        frames: Sequence[bytes],
        *,
        durable: bool,
        changes: Changes | None = None,
    ) -> Awaitable[None]:
        """Queue frames and row changes; the result is done when they are committed."""
        done: asyncio.Future[None] = self._loop.create_future()
        round_ = self._rounds.get((session_id, epoch), 0) if self._rounds else 0
        self._send(done, Append(done, session_id, epoch, first_seq, frames, durable, changes, round_))
        return done

    async def create(self, session: SessionRow, owner: str) -> int:
        """Register a session before its first append."""
        return await self._call(lambda tables: tables.create(session, owner))

    async def take(self, session_id: str, owner: str) -> int:
        """Raise a session's epoch, so that appends under the old one are refused."""
        return await self._call(lambda tables: tables.take(session_id, owner))

    async def add_artifact(self, row: ArtifactRow, key: KeyRow | None = None) -> None:
        """Record an artifact that no event mentions yet, and the key that it was asked for under."""
        await self._call(lambda tables: tables.add_artifact(row, key))

    async def delete(self, session_id: str) -> None:
        """Remove a session. It is out of sight at once; its events go bit by bit, while others write."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._send(done, Delete(done, session_id))
        await done

    async def vacuum(self, *, rewrite: bool = False) -> int:
        """Give free space back to the disk while others write. Return how many bytes of the file stay unused.

        A file of an older version can only be written anew, which holds up appends: if `rewrite` allows it.
        """
        done: asyncio.Future[int] = self._loop.create_future()
        self._send(done, Vacuum(done, rewrite))
        return await done

    async def close(self) -> None:
        """Commit what is queued, merge the write-ahead log into the file and close it."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close_readers)
        if self._writer is not None:
            done: asyncio.Future[None] = self._loop.create_future()
            self._outbox.append(Close(done))
            self._post()
            await done
            await asyncio.to_thread(self._writer.join)

    async def _call(self, run: Callable[[Any], T]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self._send(done, Call(done, run))
        return await done

    def _send(self, done: asyncio.Future[Any], request: Request) -> None:
        """Put a request into the parcel that leaves for the writer at the end of this step of the loop."""
        if self._closed:
            done.set_exception(refusals.closed())
        elif self._writer is None:
            done.set_exception(refusals.read_only())
        else:
            if not self._outbox:
                self._loop.call_soon(self._post)
            self._outbox.append(request)

    def _post(self) -> None:
        if self._outbox and self._writer is not None:
            parcel, self._outbox = self._outbox, []
            self._writer.put(parcel)

    def _report(self, outcomes: list[Outcome]) -> None:
        """Bring a batch of results to the loop; called in the writer's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, outcomes)
        except RuntimeError:
            pass  # the loop ended before the log was closed; what is committed is committed

    def _settle(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            done: asyncio.Future[Any] = outcome.request.token
            if outcome.error is None:
                if not done.done():
                    done.set_result(outcome.value)
                continue
            if isinstance(outcome.request, Append):
                self._rounds[outcome.request.writer] = outcome.request.round + 1
            if not done.done():
                done.set_exception(outcome.error)
        self._dirty.set()

    # --- reading ---------------------------------------------------------------------------------

    async def _ask(self, question: Callable[..., tuple[T, int]], *values: Any) -> T:
        """Put a question to the tables, in a thread that keeps its connection."""
        if self._closed:
            raise refusals.closed()
        answer, rows = await self._loop.run_in_executor(self._readers, self._answer, question, values)
        self.stats.rows_read += rows
        return answer

    def _answer(self, question: Callable[..., tuple[T, int]], values: tuple[Any, ...]) -> tuple[T, int]:
        try:
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = connect_reader(self._path, self._known_version)
                self._connections.append(db)
            return question(db, *values)
        except CodeSDKError:
            raise
        except Exception as error:
            raise explain(error, self._path) from error

    def _close_readers(self) -> None:
        self._readers.shutdown(wait=True)
        for db in self._connections:
            db.close()
        if self._watch is not None:
            self._watch.close()

    async def head(self, session_id: str) -> int:
        """Return the last committed seq, 0 if there is none."""
        return await self._ask(reading.head, session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return up to `limit` frames of a session after a seq."""
        return await self._ask(reading.read, session_id, _bounded(after_seq), _bounded(limit))

    async def read_all(self, after_cursor: int, limit: int) -> list[StoredFrame]:
        """Return up to `limit` frames of all sessions after a cursor, in commit order."""
        return await self._ask(reading.read_all, _bounded(after_cursor), _bounded(limit))

    async def changed(self, timeout_s: float) -> None:
        """Return when something was committed since the last call, or after the time."""
        if self._closed:
            raise refusals.closed()
        try:
            async with asyncio.timeout(timeout_s):
                if self._watch is None:
                    await self._dirty.wait()
                    self._dirty.clear()
                else:
                    await self._poll(self._watch)
        except TimeoutError:
            pass

    async def _poll(self, watch: "_Watch") -> None:
        while not self._closed:
            if await self._loop.run_in_executor(self._readers, watch.has_changed):
                return
            await asyncio.sleep(_POLL_S)
        raise refusals.closed()

    async def session(self, session_id: str) -> SessionRow | None:
        """Return a session's row."""
        return await self._ask(reading.session, session_id)

    async def sessions(
        self, *, after: str | None, limit: int, principal: str | None, status: SessionStatus | None
    ) -> list[SessionRow]:
        """Return sessions, newest first, older than the id `after`."""
        return await self._ask(reading.sessions, after, _bounded(limit), principal, status)

    async def count_sessions(self, status: SessionStatus) -> int:
        """Return how many sessions have that status."""
        return await self._ask(reading.count_sessions, status)

    async def interrupted(self) -> list[str]:
        """Return the ids of sessions that a crash may have interrupted."""
        return await self._ask(reading.interrupted)

    async def snapshot(self, session_id: str) -> Snapshot | None:
        """Return a session's last snapshot."""
        return await self._ask(reading.snapshot, session_id)

    async def task(self, task_id: str) -> TaskRow | None:
        """Return a task's row."""
        return await self._ask(reading.task, task_id)

    async def tasks(self, session_id: str, *, limit: int) -> list[TaskRow]:
        """Return the tasks of a session, newest first."""
        return await self._ask(reading.tasks, session_id, _bounded(limit))

    async def task_at(self, session_id: str, seq: int) -> TaskRow | None:
        """Return the task that was running at `seq`."""
        return await self._ask(reading.task_at, session_id, _bounded(seq))

    async def messages(self, session_id: str, *, before: int | None, limit: int) -> list[MessageRow]:
        """Return the last transcript messages below an index, in ascending order."""
        return await self._ask(reading.messages, session_id, before, _bounded(limit))

    async def approvals(self, *, principal: str | None, session_id: str | None) -> list[ApprovalRow]:
        """Return the approvals that are not closed, oldest first."""
        return await self._ask(reading.approvals, principal, session_id)

    async def key(self, principal: str, route: str, key: str) -> KeyRow | None:
        """Return what was done under an idempotency key."""
        return await self._ask(reading.key, principal, route, key)

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        """Return an artifact's row."""
        return await self._ask(reading.artifact, artifact_id)

    async def artifacts(self, scope: str, *, after: str | None, limit: int) -> list[ArtifactRow]:
        """Return the artifacts of a session in the order of their ids."""
        return await self._ask(reading.artifacts, scope, after, _bounded(limit))

    async def bytes_of(self, session_id: str) -> int:
        """Return about how much a session takes, its artifacts included."""
        return await self._ask(reading.bytes_of, session_id)

    async def unused_bytes(self) -> int:
        """Return how much of the file is free for what comes, and could be given back by `vacuum`."""
        return await self._ask(reading.unused_bytes)

    async def referenced(self, hashes: Sequence[str]) -> set[str]:
        """Return those of the content hashes that some artifact row still names."""
        return await self._ask(reading.referenced, hashes)


class _Watch:
    """Tells whether another process has committed, by a counter that SQLite keeps."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._guard = threading.Lock()
        self._version = self._read()

    def has_changed(self) -> bool:
        with self._guard:
            before, self._version = self._version, self._read()
            return self._version != before

    def close(self) -> None:
        self._db.close()

    def _read(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])


def _bounded(number: int) -> int:
    """Keep a number within what SQLite can hold; below zero means nothing, not everything."""
    return min(max(number, 0), reading.LARGEST)
