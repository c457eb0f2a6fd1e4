"""`SqliteLog`: the event log in one SQLite file."""

import asyncio
import functools
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from codesdk.contract.ports import Blobs
from codesdk.contract.records import ArtifactRow, Changes, KeyRow, SessionRow
from codesdk.store.sqlite import reading
from codesdk.store.sqlite.database import Database
from codesdk.store.sqlite.jobs import SqliteJobs
from codesdk.store.sqlite.requests import Append, Delete
from codesdk.store.sqlite.split_blobs import SplitBlobs

P = ParamSpec("P")
T = TypeVar("T")


def _asks(
    question: Callable[Concatenate[sqlite3.Connection, P], tuple[T, int]],
) -> Callable[Concatenate[Database, P], "CoroutineType[Any, Any, T]"]:
    """Return a query as a method: run in a reader's thread, on its connection."""

    @functools.wraps(question)
    async def ask(self: Database, *values: P.args, **named: P.kwargs) -> T:
        return await self.ask(question, *values, **named)

    return ask


class SqliteLog(SqliteJobs):
    """A `StoredLog` in a file."""

    def blobs(self, files: Blobs) -> Blobs:
        """Return blobs of which the small ones are rows of the same file."""
        return SplitBlobs(self, files)

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
        return await self.change(lambda tables: tables.create(session, owner), creates=session.session_id)

    async def take(self, session_id: str, owner: str) -> int:
        """Raise a session's epoch, so that appends under the old one are refused."""
        return await self.change(lambda tables: tables.take(session_id, owner))

    async def add_artifact(self, row: ArtifactRow, key: KeyRow | None = None) -> None:
        """Record an artifact that no event mentions yet, and its idempotency key."""
        await self.change(lambda tables: tables.add_artifact(row, key))

    async def trim_uploads(self, before: str, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove files that were uploaded before a time. Sessions that use them have their own rows.

        Return how many, and their total size. The next sweep removes their bytes.
        """
        found = await self.ask(reading.uploads, before)
        if found and not dry_run:
            await self.change(lambda tables: tables.drop_uploads([name for name, _ in found], before))
        return len(found), sum(size for _, size in found)

    async def keep_cursor(self, subscriber: str, cursor: int) -> None:
        """Store a subscriber's cursor."""
        await self.change(lambda tables: tables.keep_cursor(subscriber, cursor), durable=False)

    async def delete(self, session_id: str) -> None:
        """Remove a session. It disappears at once; its events are removed step by step while others write."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._send(done, Delete(done, session_id))
        await done

    # --- reading ---------------------------------------------------------------------------------

    head = _asks(reading.head)
    read = _asks(reading.read)
    read_all = _asks(reading.read_all)
    cursor_of = _asks(reading.cursor_of)
    last_cursor = _asks(reading.last_cursor)
    session = _asks(reading.session)
    sessions = _asks(reading.sessions)
    count_sessions = _asks(reading.count_sessions)
    last_owner = _asks(reading.last_owner)
    interrupted = _asks(reading.interrupted)
    snapshot = _asks(reading.snapshot)
    task = _asks(reading.task)
    tasks = _asks(reading.tasks)
    task_at = _asks(reading.task_at)
    messages = _asks(reading.messages)
    approvals = _asks(reading.approvals)
    key = _asks(reading.key)
    artifact = _asks(reading.artifact)
    artifacts = _asks(reading.artifacts)
    referenced = _asks(reading.referenced)
    bytes_of = _asks(reading.bytes_of)
    unused_bytes = _asks(reading.unused_bytes)
