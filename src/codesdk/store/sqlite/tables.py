"""Carries out appends and row changes as SQL, inside a transaction that the writer has begun.

`Tables` remembers the sessions it has seen (key, epoch, head), so an append needs no read; call `forget`
after a rollback.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from codesdk.contract.records import ArtifactRow, Changes, KeyRow, SessionRow
from codesdk.store import refusals
from codesdk.store.rows import PackedChanges, is_pending, pack, pack_changes

_KNOWN_SESSIONS = 50_000
_PURGE_ROWS = 2_000

_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
_SESSION = "UPDATE sessions SET principal = ?, status = ?, pending = ?, row = ? WHERE key = ?"
_SNAPSHOT = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)"
_MESSAGE = "INSERT OR REPLACE INTO messages VALUES (?, ?, ?)"
_ARTIFACT = "INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?)"
_APPROVAL = """INSERT INTO approvals (id, session, open, row) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET open = excluded.open, row = excluded.row"""
# A row of another session becomes NULL, which its column refuses: the check costs nothing when all is well.
_TASK = """INSERT INTO tasks (id, principal, session, started_seq, row) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id, principal) DO UPDATE SET started_seq = excluded.started_seq, row = excluded.row,
    session = CASE session WHEN excluded.session THEN session END"""
_KEY = """INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (principal, route, key) DO UPDATE SET row = excluded.row,
    session = CASE WHEN session = excluded.session AND body_hash = excluded.body_hash THEN session END"""

_TABLES_OF_SESSION = ("snapshots", "tasks", "messages", "approvals", "keys", "jobs")

T = TypeVar("T")


class _Known(msgspec.Struct):
    key: int
    principal: str
    epoch: int
    head: int


class _Pending(msgspec.Struct):
    """Rows that wait for `flush`. Of a session and its snapshot only the last counts."""

    events: list[tuple[int, int, int, int, bytes]] = []
    sessions: dict[int, tuple[Any, ...]] = {}
    snapshots: dict[int, tuple[int, int, bytes]] = {}
    tasks: list[tuple[Any, ...]] = []
    messages: list[tuple[Any, ...]] = []
    approvals: list[tuple[Any, ...]] = []
    artifacts: list[tuple[Any, ...]] = []
    keys: list[tuple[Any, ...]] = []
    changed: bool = False


class Tables:
    """The write side of the tables. Every method runs in the writer's thread and in its transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[str, _Known] = {}
        self._pending = _Pending()
        self._size = 0
        self._cursor = find_last_cursor(db)

    def forget(self) -> None:
        """Drop what was not committed or is remembered of it. Must not raise. Cursors may have gaps."""
        self._known.clear()
        self._pending = _Pending()

    def trim(self) -> None:
        """Bound what is remembered. Only after a commit: until then a head may be ahead of the file."""
        if len(self._known) > _KNOWN_SESSIONS:
            self._known.clear()

    def take_size(self) -> int:
        """Return about how many bytes were added since the last call."""
        size, self._size = self._size, 0
        return size

    def append(
        self, session_id: str, epoch: int, first_seq: int, frames: Sequence[bytes], changes: Changes | None
    ) -> None:
        """Check an append and collect its rows for `flush`. Raise `Conflict` before anything is collected."""
        known = self._know(session_id)
        if known is None:
            raise refusals.gone(session_id)
        if epoch != known.epoch:
            raise refusals.lost(session_id, epoch, known.epoch)
        if first_seq != known.head + 1:
            raise refusals.misfit(session_id, first_seq, known.head)
        packed = None if changes is None else pack_changes(changes)
        # Local names, because this loop runs for every event that is stored.
        cursor, seq, key, take = self._cursor, known.head, known.key, self._pending.events.append
        size = self._size
        for frame in frames:
            cursor += 1
            seq += 1
            size += len(frame)
            take((cursor, key, seq, crc32(frame), frame))
        self._cursor, known.head, self._size = cursor, seq, size
        if packed is not None:
            self._change(known, packed)

    def _change(self, known: _Known, changes: PackedChanges) -> None:
        pending, key = self._pending, known.key
        pending.changed = True
        if changes.session is not None:
            row, data = changes.session
            pending.sessions[key] = (row.principal, row.status, is_pending(row), data, key)
        if changes.snapshot is not None:
            pending.snapshots[key] = (key, known.head, changes.snapshot)
        pending.tasks += [
            (row.task_id, known.principal, key, row.started_seq, data) for row, data in changes.tasks
        ]
        pending.messages += [(key, row.index, data) for row, data in changes.messages]
        pending.approvals += [
            (row.approval_id, key, row.state != "closed", data) for row, data in changes.approvals
        ]
        pending.artifacts += [_artifact(row, data) for row, data in changes.artifacts]
        pending.keys += [
            (row.principal, row.route, row.key, key, row.body_hash, data) for row, data in changes.keys
        ]

    def flush(self) -> int:
        """Write the rows taken so far; return how many of them are events."""
        pending = self._pending
        count = len(pending.events)
        if count:
            self._db.executemany(_EVENT, pending.events)
            pending.events = []
        if pending.changed:
            self._flush_changes(pending)
            self._pending = _Pending()
        return count

    def _flush_changes(self, pending: _Pending) -> None:
        many = self._db.executemany
        for statement, rows in (
            (_SESSION, pending.sessions.values()),
            (_SNAPSHOT, pending.snapshots.values()),
            (_MESSAGE, pending.messages),
            (_APPROVAL, pending.approvals),
            (_ARTIFACT, pending.artifacts),
        ):
            if rows:
                many(statement, rows)
        if pending.tasks:
            try:
                many(_TASK, pending.tasks)
            except sqlite3.IntegrityError as error:
                raise refusals.task_taken(str(pending.tasks[0][0])) from error
        if pending.keys:
            try:
                many(_KEY, pending.keys)
            except sqlite3.IntegrityError as error:
                raise refusals.key_taken(str(pending.keys[0][2])) from error

    def run(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Make a change of tables that nothing is remembered of here."""
        return change(self._db)

    def create(self, row: SessionRow, owner: str) -> int:
        """Add a session and return its epoch."""
        values = (row.session_id, owner, row.principal, row.status, pack(row))
        try:
            added = self._db.execute(  # pending until an append says otherwise: a crash may come before it
                "INSERT INTO sessions (id, epoch, owner, principal, status, pending, row) VALUES (?, 1, ?, ?, ?, 1, ?)",
                values,
            )
        except sqlite3.IntegrityError:
            raise refusals.exists(row.session_id) from None
        self._known[row.session_id] = _Known(
            key=added.lastrowid or 0, principal=row.principal, epoch=1, head=0
        )
        return 1

    def take(self, session_id: str, owner: str) -> int:
        """Raise a session's epoch and return it."""
        known = self._know(session_id)
        if known is None:
            raise refusals.missing(session_id)
        known.epoch += 1
        self._db.execute(
            "UPDATE sessions SET epoch = ?, owner = ? WHERE key = ?", (known.epoch, owner, known.key)
        )
        return known.epoch

    def add_artifact(self, row: ArtifactRow, key: KeyRow | None = None) -> None:
        """Add an artifact that no event mentions, and its idempotency key, which has no session."""
        self._db.execute(_ARTIFACT, _artifact(row, pack(row)))
        if key is not None:
            self._db.execute(_KEY, (key.principal, key.route, key.key, 0, key.body_hash, pack(key)))

    def keep_cursor(self, subscriber: str, cursor: int) -> None:
        """Store a subscriber's cursor."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (cursor_name(subscriber), cursor))

    def put_blob(self, name: str, data: bytes, at: float) -> None:
        """Store bytes under their hash. If already stored and not truncated, only mark them as fresh."""
        fresh = self._db.execute(
            "UPDATE blobs SET put_at = ? WHERE hash = ? AND length(data) = ?", (at, name, len(data))
        ).rowcount
        if not fresh:
            self._db.execute(
                "INSERT OR REPLACE INTO blobs (hash, put_at, data) VALUES (?, ?, ?)", (name, at, data)
            )
            self._size += len(data)

    def drop_blobs(self, places: Sequence[int], limit: float) -> int:
        """Remove the blobs that were not put again after `limit`. Return how many were removed."""
        marks = ",".join("?" * len(places))
        return self._db.execute(
            f"DELETE FROM blobs WHERE place IN ({marks}) AND put_at <= ?", (*places, limit)
        ).rowcount

    def drop_uploads(self, names: Sequence[str], before: str) -> None:
        """Remove the rows of uploads, unless they were put again meanwhile, and their idempotency keys."""
        for name in names:
            gone = self._db.execute(
                "DELETE FROM artifacts WHERE id = ? AND json_extract(CAST(row AS TEXT), '$.created_at') < ?",
                (name, before),
            )
            if gone.rowcount:
                self._db.execute(
                    "DELETE FROM keys WHERE session = 0 AND json_extract(CAST(row AS TEXT), '$.answer.artifact_id') = ?",
                    (name,),
                )

    def bury(self, session_id: str) -> int:
        """Remove a session and its rows, but only hide its events: `purge` removes those. Return its key."""
        known = self._know(session_id)
        if known is None:
            raise refusals.missing(session_id)
        self._db.execute("DELETE FROM sessions WHERE key = ?", (known.key,))
        for table in _TABLES_OF_SESSION:
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (known.key,))
        self._db.execute("DELETE FROM artifacts WHERE scope = ?", (session_id,))
        self._db.execute("INSERT INTO graves VALUES (?)", (known.key,))
        # Cursors go on from here even if the events with the highest ones are gone.
        self._db.execute("UPDATE meta SET value = ? WHERE name = 'cursor_floor'", (self._cursor,))
        del self._known[session_id]
        return known.key

    def graves(self) -> list[int]:
        """Return the keys of deleted sessions that may still have events."""
        return [int(key) for (key,) in self._db.execute("SELECT session FROM graves")]

    def purge(self, key: int) -> bool:
        """Remove some events of a deleted session. Return true if none is left."""
        removed = self._db.execute(
            "DELETE FROM events WHERE cursor IN (SELECT cursor FROM events WHERE session = ? LIMIT ?)",
            (key, _PURGE_ROWS),
        ).rowcount
        if removed < _PURGE_ROWS:
            self._db.execute("DELETE FROM graves WHERE session = ?", (key,))
        return removed < _PURGE_ROWS

    def _know(self, session_id: str) -> _Known | None:
        known = self._known.get(session_id)
        if known is None:
            found = self._db.execute(
                """SELECT key, principal, epoch, (SELECT max(seq) FROM events WHERE session = key)
                    FROM sessions WHERE id = ?""",
                (session_id,),
            ).fetchone()
            if found is not None:
                known = _Known(key=found[0], principal=found[1], epoch=found[2], head=found[3] or 0)
                self._known[session_id] = known
        return known


def find_last_cursor(db: sqlite3.Connection) -> int:
    """Return the greatest cursor that was given to an event, including those of deleted sessions."""
    found = db.execute(
        "SELECT max(value, (SELECT ifnull(max(cursor), 0) FROM events)) FROM meta WHERE name = 'cursor_floor'"
    ).fetchone()
    return int(found[0])


def cursor_name(subscriber: str) -> str:
    """Return the name of a subscriber's cursor in the table `meta`."""
    return f"cursor of {subscriber}"


def _artifact(row: ArtifactRow, data: bytes) -> tuple[str, str, str, bytes]:
    return (row.ref.artifact_id, row.scope, row.ref.content_hash, data)
