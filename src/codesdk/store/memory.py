"""`MemoryLog`: the event log in dicts, for tests and for sessions that need not be kept.

Behaves like the log on disk, including its asynchrony: an append is committed in a later step of the loop,
together with all others queued by then, and reads see only what is committed.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

import msgspec

from codesdk.contract.codec import is_delta
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.jobs import KEEP_FINISHED, MAX_WAITING, JobRow
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
from codesdk.store import refusals
from codesdk.store.memory_jobs import MemoryJobs
from codesdk.store.rows import PackedChanges, is_pending, pack, pack_changes, unpack

Fault = Callable[[str], Exception | None]


class _Session(msgspec.Struct):
    row: bytes
    principal: str
    owner: str
    epoch: int = 1
    cursors: list[int] = []
    snapshot: Snapshot | None = None
    messages: dict[int, bytes] = {}
    pending: bool = True

    @property
    def head(self) -> int:
        return len(self.cursors)


class _Append(msgspec.Struct):
    session_id: str
    epoch: int
    first_seq: int
    frames: Sequence[bytes]
    changes: Changes | None
    done: asyncio.Future[None]


class MemoryLog(MemoryJobs):
    """An `EventLog` that lives as long as the object.

    `fault` is called before each append is committed; an exception that it returns makes that append fail.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        self.fault = fault
        self._sessions: dict[str, _Session] = {}
        self._frames: list[StoredFrame] = []  # all sessions, in commit order
        self._tasks: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._approvals: dict[str, tuple[str, bytes]] = {}
        self._artifacts: dict[str, ArtifactRow] = {}
        self._keys: dict[tuple[str, str, str], tuple[str, str, bytes]] = {}
        self._cursor = 0
        self._kept_cursors: dict[str, int] = {}
        self._queue: list[_Append] = []
        self._dirty = asyncio.Event()
        self._closed = False

    # --- writing ---------------------------------------------------------------------------------

    async def create(self, session: SessionRow, owner: str) -> int:
        """Register a session before its first append."""
        await self._settle()
        if session.session_id in self._sessions:
            raise refusals.exists(session.session_id)
        self._sessions[session.session_id] = _Session(
            row=pack(session), principal=session.principal, owner=owner
        )
        self._dirty.set()
        return 1

    async def take(self, session_id: str, owner: str) -> int:
        """Raise a session's epoch, so that appends under the old one are refused."""
        await self._settle()
        session = self._sessions.get(session_id)
        if session is None:
            raise refusals.missing(session_id)
        session.owner = owner
        session.epoch += 1
        self._dirty.set()
        return session.epoch

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
        """Queue frames and row changes; they are committed in the next step of the loop."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._closed:
            done.set_exception(refusals.closed())
            return done
        if not self._queue:
            loop.call_soon(self._commit)
        self._queue.append(_Append(session_id, epoch, first_seq, frames, changes, done))
        return done

    async def add_artifact(self, row: ArtifactRow, key: KeyRow | None = None) -> None:
        """Record an artifact that no event mentions yet, and its idempotency key."""
        await self._settle()
        self._artifacts[row.ref.artifact_id] = row
        if key is not None:
            self._keys[(key.principal, key.route, key.key)] = ("", key.body_hash, pack(key))
        self._dirty.set()

    async def add_job(self, row: JobRow, payload: bytes, *, room: int = MAX_WAITING) -> JobRow:
        """Store a job, or return the one that has its identity already."""
        await self._settle()
        if row.source_session_id not in self._sessions:
            raise refusals.missing(row.source_session_id)
        return await super().add_job(row, payload, room=room)

    async def replace_job(self, old: JobRow, new: JobRow, *, keep: int = KEEP_FINISHED) -> bool:
        """Store a job's new row if its stored one is `old`."""
        await self._settle()
        return await super().replace_job(old, new, keep=keep)

    async def keep_cursor(self, subscriber: str, cursor: int) -> None:
        """Store a subscriber's cursor."""
        await self._settle()
        self._kept_cursors[subscriber] = cursor

    async def delete(self, session_id: str) -> None:
        """Remove a session with all its rows."""
        await self._settle()
        if self._sessions.pop(session_id, None) is None:
            raise refusals.missing(session_id)
        self._frames = [frame for frame in self._frames if frame.session_id != session_id]
        self._tasks = {name: kept for name, kept in self._tasks.items() if kept[0] != session_id}
        self._approvals = {name: kept for name, kept in self._approvals.items() if kept[0] != session_id}
        self._keys = {name: kept for name, kept in self._keys.items() if kept[0] != session_id}
        self._artifacts = {name: row for name, row in self._artifacts.items() if row.scope != session_id}
        self._drop_jobs(session_id)
        self._dirty.set()

    async def close(self) -> None:
        """Commit what is queued and refuse everything after."""
        self._commit()
        self._closed = True

    async def _settle(self) -> None:
        """Keep the order of calls: commit the appends that were queued before this one."""
        if self._closed:
            raise refusals.closed()
        self._commit()

    def _commit(self) -> None:
        queue, self._queue = self._queue, []
        failed: dict[tuple[str, int], CodeSDKError] = {}
        for item in queue:
            writer = (item.session_id, item.epoch)
            try:
                if writer in failed:
                    raise refusals.behind(item.session_id, failed[writer])
                self._apply(item)
            except CodeSDKError as error:
                failed.setdefault(writer, error)
                if not item.done.done():
                    item.done.set_exception(error)
            else:
                self._dirty.set()
                if not item.done.done():
                    item.done.set_result(None)

    def _apply(self, item: _Append) -> None:
        session = self._sessions.get(item.session_id)
        if session is None:
            raise refusals.gone(item.session_id)
        if item.epoch != session.epoch:
            raise refusals.lost(item.session_id, item.epoch, session.epoch)
        if item.first_seq != session.head + 1:
            raise refusals.misfit(item.session_id, item.first_seq, session.head)
        changes = None if item.changes is None else pack_changes(item.changes)
        if changes is not None:
            self._check(item.session_id, session.principal, changes)
        error = self.fault(item.session_id) if self.fault is not None else None
        if error is not None:
            raise error if isinstance(error, CodeSDKError) else StorageFailure(str(error))
        for seq, frame in enumerate(item.frames, item.first_seq):
            self._cursor += 1
            session.cursors.append(self._cursor)
            self._frames.append(
                StoredFrame(seq=seq, data=frame, cursor=self._cursor, session_id=item.session_id)
            )
        if changes is not None:
            self._change(item.session_id, session, changes)

    def _check(self, session_id: str, principal: str, changes: PackedChanges) -> None:
        for task, _ in changes.tasks:
            if self._tasks.get((principal, task.task_id), (session_id,))[0] != session_id:
                raise refusals.task_taken(task.task_id)
        for key, _ in changes.keys:
            owner = (session_id, key.body_hash)
            if self._keys.get((key.principal, key.route, key.key), owner)[:2] != owner:
                raise refusals.key_taken(key.key)

    def _change(self, session_id: str, session: _Session, changes: PackedChanges) -> None:
        if changes.session is not None:
            session.row = changes.session[1]
            session.pending = is_pending(changes.session[0])
        if changes.snapshot is not None:
            session.snapshot = Snapshot(seq=session.head, state=changes.snapshot)
        for task, data in changes.tasks:
            self._tasks[(session.principal, task.task_id)] = (session_id, data)
        for message, data in changes.messages:
            session.messages[message.index] = data
        for approval, data in changes.approvals:
            self._approvals[approval.approval_id] = (session_id, data)
        for artifact, _ in changes.artifacts:
            self._artifacts[artifact.ref.artifact_id] = artifact
        for key, data in changes.keys:
            self._keys[(key.principal, key.route, key.key)] = (session_id, key.body_hash, data)

    # --- reading ---------------------------------------------------------------------------------

    async def head(self, session_id: str) -> int:
        """Return the last committed seq, 0 if there is none."""
        session = self._sessions.get(session_id)
        return session.head if session is not None else 0

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return up to `limit` frames of a session after a seq."""
        session = self._sessions.get(session_id)
        if session is None:
            return []
        after = max(after_seq, 0)
        return [self._frame(cursor) for cursor in session.cursors[after : after + max(limit, 0)]]

    async def read_all(self, after_cursor: int, limit: int, *, deltas: bool = True) -> list[StoredFrame]:
        """Return up to `limit` frames of all sessions after a cursor, in commit order."""
        start = bisect_right(self._frames, after_cursor, key=_cursor_of)
        if deltas:
            return self._frames[start : start + max(limit, 0)]
        rest = (frame for frame in islice(self._frames, start, None) if not is_delta(frame.data))
        return list(islice(rest, max(limit, 0)))

    async def cursor_of(self, subscriber: str) -> int | None:
        """Return a subscriber's stored cursor, None if it has none yet."""
        return self._kept_cursors.get(subscriber)

    async def last_cursor(self) -> int:
        """Return the cursor of what was committed last."""
        return self._cursor

    def _frame(self, cursor: int) -> StoredFrame:
        return self._frames[bisect_right(self._frames, cursor - 1, key=_cursor_of)]

    async def changed(self, timeout_s: float) -> None:
        """Wait until something was committed since the last call, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._dirty.wait()
        except TimeoutError:
            return
        self._dirty.clear()

    async def session(self, session_id: str) -> SessionRow | None:
        """Return a session's row."""
        session = self._sessions.get(session_id)
        return unpack(SessionRow, session.row) if session is not None else None

    async def sessions(
        self, *, after: str | None, limit: int, principal: str | None, status: SessionStatus | None
    ) -> list[SessionRow]:
        """Return sessions, newest first, older than the id `after`."""
        found: list[SessionRow] = []
        for session_id in sorted(self._sessions, reverse=True):
            if len(found) >= limit:
                break
            row = unpack(SessionRow, self._sessions[session_id].row)
            if (
                (after is None or session_id < after)
                and principal in (None, row.principal)
                and status in (None, row.status)
            ):
                found.append(row)
        return found

    async def count_sessions(self, status: SessionStatus) -> int:
        """Return how many sessions have that status."""
        return sum(unpack(SessionRow, session.row).status == status for session in self._sessions.values())

    async def interrupted(self, owner: str) -> list[str]:
        """Return the ids of an owner's sessions that a crash may have interrupted."""
        sessions = self._sessions.items()
        return sorted(name for name, session in sessions if session.pending and session.owner == owner)

    async def snapshot(self, session_id: str) -> Snapshot | None:
        """Return a session's last snapshot."""
        session = self._sessions.get(session_id)
        return session.snapshot if session is not None else None

    async def task(self, task_id: str, principal: str) -> TaskRow | None:
        """Return a task's row."""
        found = self._tasks.get((principal, task_id))
        return unpack(TaskRow, found[1]) if found is not None else None

    async def tasks(self, session_id: str, *, limit: int) -> list[TaskRow]:
        """Return the tasks of a session, newest first."""
        return self._tasks_of(session_id)[: max(limit, 0)]

    async def task_at(self, session_id: str, seq: int) -> TaskRow | None:
        """Return the task that was running at `seq`."""
        started = [task for task in self._tasks_of(session_id) if 0 < (task.started_seq or 0) <= seq]
        task = max(started, key=lambda task: task.started_seq or 0, default=None)
        return task if task is not None and (task.ended_seq is None or task.ended_seq >= seq) else None

    def _tasks_of(self, session_id: str) -> list[TaskRow]:
        return [
            unpack(TaskRow, data) for owner, data in reversed(self._tasks.values()) if owner == session_id
        ]

    async def messages(self, session_id: str, *, before: int | None, limit: int) -> list[MessageRow]:
        """Return the last transcript messages below an index, in ascending order."""
        session = self._sessions.get(session_id)
        if session is None or limit <= 0:
            return []
        places = sorted(index for index in session.messages if before is None or index < before)
        return [unpack(MessageRow, session.messages[index]) for index in places[-limit:]]

    async def approvals(self, *, principal: str | None, session_id: str | None) -> list[ApprovalRow]:
        """Return the approvals that are not closed, oldest first."""
        found: list[ApprovalRow] = []
        for owner, data in self._approvals.values():
            row = unpack(ApprovalRow, data)
            if row.state == "closed" or session_id not in (None, owner):
                continue
            if principal is None or unpack(SessionRow, self._sessions[owner].row).principal == principal:
                found.append(row)
        return found

    async def key(self, principal: str, route: str, key: str) -> KeyRow | None:
        """Return what was done under an idempotency key."""
        found = self._keys.get((principal, route, key))
        return unpack(KeyRow, found[2]) if found is not None else None

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        """Return an artifact's row."""
        return self._artifacts.get(artifact_id)

    async def artifacts(self, scope: str, *, after: str | None, limit: int) -> list[ArtifactRow]:
        """Return the artifacts of a session in the order of their ids."""
        rows = sorted(
            (row for row in self._artifacts.values() if row.scope == scope),
            key=lambda row: row.ref.artifact_id,
        )
        return [row for row in rows if after is None or row.ref.artifact_id > after][: max(limit, 0)]

    async def referenced(self, hashes: Sequence[str]) -> set[str]:
        """Return which of the content hashes some artifact row still names."""
        return {row.ref.content_hash for row in self._artifacts.values()} & set(hashes)


def _cursor_of(frame: StoredFrame) -> int:
    return frame.cursor
