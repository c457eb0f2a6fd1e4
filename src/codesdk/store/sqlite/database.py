"""One SQLite file, written by one thread and read by a few others. `log` and `split_blobs` are built on it.

Changes of one step of the loop go to the writer together; reads have their own connections and see what is
committed. The loop never waits for the disk.
"""

import asyncio
import functools
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.ports import Synchronous
from codesdk.store import refusals
from codesdk.store.sqlite.connection import connect_reader, connect_writer, explain
from codesdk.store.sqlite.requests import Append, Call, Close, Outcome, Request, Vacuum
from codesdk.store.sqlite.schema import MIGRATIONS, Migration
from codesdk.store.sqlite.tables import Tables
from codesdk.store.sqlite.writer import Writer, WriterStats

T = TypeVar("T")

_READERS = 4
_POLL_S = 0.025


class Stats(WriterStats):
    """What a log did so far, for tests and measurements."""

    rows_read: int = 0


class Database:
    """An open file. Open it with `open` or `open_reader`, on the loop that will use it.

    Only one consumer may call `changed`; it must wake others itself.
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
    ) -> Self:
        """Open a file for writing, creating or upgrading it. Nobody else may have it open for writing.

        `auto` makes a commit survive a power failure if something in it asks for that, `full` every commit,
        `normal` none; all survive a crash of the process. `max_pages` limits the size of the file.
        """
        log = cls(path, len(migrations))

        def start() -> None:
            db = connect_writer(path, migrations, max_pages)
            log._writer = Writer(db, path, log._report, synchronous, log.stats)

        await log._start(start)
        return log

    @classmethod
    async def open_reader(cls, path: Path) -> Self:
        """Open a file for reading only, possibly beside a writer. Raise `NotFound` if it is missing."""
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

    async def change(
        self, run: Callable[[Tables], T], *, durable: bool = True, creates: str | None = None
    ) -> T:
        """Change the tables in the writer's thread, in order of calls. Done when it is committed.

        A change that `creates` a session fails with the session's first append, if that is queued by then.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self._send(done, Call(done, run, durable, creates))
        return await done

    async def vacuum(self, *, rewrite: bool = False) -> int:
        """Return free space to the file system while others write. Return how many bytes stay unused.

        A file of an older version must be rewritten, which delays appends; only if `rewrite` allows it.
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

    def _send(self, done: asyncio.Future[Any], request: Request) -> None:
        """Add a request to the batch that goes to the writer at the end of this step of the loop."""
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
        """Pass a batch of results to the loop. Called in the writer's thread."""
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
                # What this writer queues from now on is queued in knowledge of the failure.
                self._rounds[outcome.request.writer] = outcome.request.round + 1
            if not done.done():
                done.set_exception(outcome.error)
        self._dirty.set()

    # --- reading ---------------------------------------------------------------------------------

    async def ask(self, question: Callable[..., tuple[T, int]], *values: Any, **named: Any) -> T:
        """Run a query in a reader thread, which keeps its connection."""
        if self._closed:
            raise refusals.closed()
        asked = functools.partial(self._answer, question, *values, **named)
        answer, rows = await self._loop.run_in_executor(self._readers, asked)
        self.stats.rows_read += rows
        return answer

    def _answer(self, question: Callable[..., tuple[T, int]], *values: Any, **named: Any) -> tuple[T, int]:
        try:
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = connect_reader(self._path, self._known_version)
                self._connections.append(db)
            return question(db, *values, **named)
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

    async def changed(self, timeout_s: float) -> None:
        """Wait until something was committed since the last call, at most `timeout_s`."""
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


class _Watch:
    """Notices commits of other processes by a counter that SQLite keeps."""

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
