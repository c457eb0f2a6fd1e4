"""`SqliteLog`: the event log in one SQLite file."""

import asyncio
from collections.abc import Awaitable, Sequence

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
from codesdk.store.sqlite import reading
from codesdk.store.sqlite.database import Database
from codesdk.store.sqlite.writer import Append, Delete


class SqliteLog(Database):
    """An `EventLog` in a file."""

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
        return await self.change(lambda tables: tables.create(session, owner))

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

    async def head(self, session_id: str) -> int:
        """Return the last committed seq, 0 if there is none."""
        return await self.ask(reading.head, session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return up to `limit` frames of a session after a seq."""
        return await self.ask(reading.read, session_id, _bounded(after_seq), _bounded(limit))

    async def read_all(self, after_cursor: int, limit: int, *, deltas: bool = True) -> list[StoredFrame]:
        """Return up to `limit` frames of all sessions after a cursor, in commit order."""
        return await self.ask(reading.read_all, _bounded(after_cursor), _bounded(limit), deltas)

    async def cursor_of(self, subscriber: str) -> int:
        """Return a subscriber's stored cursor, 0 if none."""
        return await self.ask(reading.cursor_of, subscriber)

    async def session(self, session_id: str) -> SessionRow | None:
        """Return a session's row."""
        return await self.ask(reading.session, session_id)

    async def sessions(
        self, *, after: str | None, limit: int, principal: str | None, status: SessionStatus | None
    ) -> list[SessionRow]:
        """Return sessions, newest first, older than the id `after`."""
        return await self.ask(reading.sessions, after, _bounded(limit), principal, status)

    async def count_sessions(self, status: SessionStatus) -> int:
        """Return how many sessions have that status."""
        return await self.ask(reading.count_sessions, status)

    async def last_owner(self) -> str | None:
        """Return who owns the newest session, or None if there is none."""
        return await self.ask(reading.last_owner)

    async def interrupted(self, owner: str) -> list[str]:
        """Return the ids of an owner's sessions that a crash may have interrupted."""
        return await self.ask(reading.interrupted, owner)

    async def snapshot(self, session_id: str) -> Snapshot | None:
        """Return a session's last snapshot."""
        return await self.ask(reading.snapshot, session_id)

    async def task(self, task_id: str, principal: str) -> TaskRow | None:
        """Return a task's row."""
        return await self.ask(reading.task, task_id, principal)

    async def tasks(self, session_id: str, *, limit: int) -> list[TaskRow]:
        """Return the tasks of a session, newest first."""
        return await self.ask(reading.tasks, session_id, _bounded(limit))

    async def task_at(self, session_id: str, seq: int) -> TaskRow | None:
        """Return the task that was running at `seq`."""
        return await self.ask(reading.task_at, session_id, _bounded(seq))

    async def messages(self, session_id: str, *, before: int | None, limit: int) -> list[MessageRow]:
        """Return the last transcript messages below an index, in ascending order."""
        return await self.ask(reading.messages, session_id, before, _bounded(limit))

    async def approvals(self, *, principal: str | None, session_id: str | None) -> list[ApprovalRow]:
        """Return the approvals that are not closed, oldest first."""
        return await self.ask(reading.approvals, principal, session_id)

    async def key(self, principal: str, route: str, key: str) -> KeyRow | None:
        """Return what was done under an idempotency key."""
        return await self.ask(reading.key, principal, route, key)

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        """Return an artifact's row."""
        return await self.ask(reading.artifact, artifact_id)

    async def artifacts(self, scope: str, *, after: str | None, limit: int) -> list[ArtifactRow]:
        """Return the artifacts of a session in the order of their ids."""
        return await self.ask(reading.artifacts, scope, after, _bounded(limit))

    async def bytes_of(self, session_id: str) -> int:
        """Return about how many bytes a session takes, including its artifacts."""
        return await self.ask(reading.bytes_of, session_id)

    async def referenced(self, hashes: Sequence[str]) -> set[str]:
        """Return which of the content hashes some artifact row still names."""
        return await self.ask(reading.referenced, hashes)


def _bounded(number: int) -> int:
    """Clamp a number to what SQLite can hold. Zero, not negative: SQLite takes a negative limit as none."""
    return min(max(number, 0), reading.LARGEST)
