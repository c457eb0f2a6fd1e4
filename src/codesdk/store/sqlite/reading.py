"""Runs queries on a read-only connection. Where the disk is damaged, it returns the rows around the damage.

Every function takes a connection, then what the method of the same name in the port takes, and returns the answer
with the number of rows it read.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from codesdk.contract.codec import DELTAS
from codesdk.contract.errors import StorageFailure
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    KeyRow,
    MessageRow,
    SessionRow,
    Snapshot,
    StoredFrame,
    TaskRow,
)
from codesdk.store.rows import R, unpack
from codesdk.store.sqlite.connection import is_damage
from codesdk.store.sqlite.tables import cursor_name, find_last_cursor
from codesdk.store.sqlite.vacuum import free_bytes

_LARGEST = 2**63 - 1
_VARIABLES = 500
_SPAN = 2**30  # more than any row may have; `substr` counts wrongly with much larger numbers

_FRAMES = "SELECT cursor, seq, crc, CAST(frame AS BLOB) FROM events"
_PAGE = f"{_FRAMES} WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
# CROSS JOIN: events first, in their own order. Events of a deleted session have none and are left out.
_PAGE_OF_ALL = """SELECT e.cursor, e.seq, e.crc, CAST(e.frame AS BLOB), s.id
    FROM events AS e CROSS JOIN sessions AS s ON s.key = e.session
    WHERE e.cursor > ? {} ORDER BY e.cursor LIMIT ?"""
# Told by how a frame begins. A column for it would cost every commit more than it saves here, an index even a page.
_NO_DELTA = " ".join(f"AND substr(e.frame, 1, {len(begin)}) != x'{begin.hex()}'" for begin in DELTAS)
_PAGES_OF_ALL = {True: _PAGE_OF_ALL.format(""), False: _PAGE_OF_ALL.format(_NO_DELTA)}
# The index alone has cursor, session and seq: enough to name the rows that cannot be read.
_PLACES_OF_ALL = """SELECT e.cursor, e.seq, s.id
    FROM events AS e INDEXED BY events_by_seq CROSS JOIN sessions AS s ON s.key = e.session
    WHERE e.cursor > ? ORDER BY e.cursor LIMIT ?"""

# --- frames --------------------------------------------------------------------------------------


def head(db: sqlite3.Connection, session_id: str) -> tuple[int, int]:
    """Return the last seq of a session, 0 if there is none."""
    key = _key_of(db, session_id)
    return (0 if key is None else _head(db, key)), 1


def read(
    db: sqlite3.Connection, session_id: str, after_seq: int, limit: int
) -> tuple[list[StoredFrame], int]:
    """Return frames of a session in order; one that is damaged, or on a damaged page, says so."""
    key = _key_of(db, session_id)
    if key is None:
        return [], 0
    after, limit = _bounded(after_seq), _bounded(limit)
    try:
        rows = db.execute(_PAGE, (key, after, limit)).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return _read_narrowly(db, key, session_id, after, limit, error)
    return [_frame(row, session_id) for row in rows], len(rows)


def read_all(
    db: sqlite3.Connection, after_cursor: int, limit: int, *, deltas: bool = True
) -> tuple[list[StoredFrame], int]:
    """Return frames of all sessions in commit order. Where the disk is damaged, deltas are among them."""
    after, limit = _bounded(after_cursor), _bounded(limit)
    try:
        rows = db.execute(_PAGES_OF_ALL[deltas], (after, limit)).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        places = db.execute(_PLACES_OF_ALL, (after, limit)).fetchall()
        frames = [_read_row(db, cursor, seq, session_id) for cursor, seq, session_id in places]
        return frames, 2 * len(frames)
    return [_frame(row, row[4]) for row in rows], len(rows)


def cursor_of(db: sqlite3.Connection, subscriber: str) -> tuple[int | None, int]:
    """Return a subscriber's stored cursor, None if it has none yet."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (cursor_name(subscriber),)).fetchone()
    return (None if found is None else int(found[0])), 1


def last_cursor(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the cursor of what was committed last. Where that was deleted, a greater one than any that is left."""
    return find_last_cursor(db), 1


def _read_narrowly(
    db: sqlite3.Connection, key: int, session_id: str, after: int, limit: int, error: sqlite3.Error
) -> tuple[list[StoredFrame], int]:
    """Read a page row by row. Seqs have no gaps, so rows that cannot be found can be named."""
    found: dict[int, StoredFrame] = {}
    try:
        last = end = min(_head(db, key), after + limit)
    except sqlite3.DatabaseError:
        last, end = after, _LARGEST  # the index is damaged at its end; perhaps the table can still be read
    for seq in range(after + 1, last + 1):
        try:
            row = db.execute(f"{_FRAMES} WHERE session = ? AND seq = ?", (key, seq)).fetchone()
        except sqlite3.DatabaseError:
            continue
        if row is not None:
            found[seq] = _frame(row, session_id)
    if len(found) < end - after:
        for frame in _scan(db, key, session_id, after, limit):
            found.setdefault(frame.seq, frame)
    if not found and last <= after:
        raise error
    last = max(last, *found, after)
    frames = [found.get(seq) or _unreadable(seq, 0, session_id, error) for seq in range(after + 1, last + 1)]
    return frames[:limit], 2 * len(frames)


def _scan(db: sqlite3.Connection, key: int, session_id: str, after: int, limit: int) -> list[StoredFrame]:
    """Look for a page's rows without the index: slow, and only as far as the table is intact."""
    frames: list[StoredFrame] = []
    query = f"{_FRAMES} NOT INDEXED WHERE session = ? AND seq > ? AND seq <= ?"
    try:
        for row in db.execute(query, (key, after, min(after + limit, _LARGEST))):
            frames.append(_frame(row, session_id))
    except sqlite3.DatabaseError:
        pass
    return frames


def _read_row(db: sqlite3.Connection, cursor: int, seq: int, session_id: str) -> StoredFrame:
    try:
        row = db.execute(f"{_FRAMES} WHERE cursor = ?", (cursor,)).fetchone()
    except sqlite3.DatabaseError as error:
        return _unreadable(seq, cursor, session_id, error)
    return _frame(row, session_id)


def _frame(row: Sequence[Any], session_id: str) -> StoredFrame:
    cursor, seq, crc, data = row[0], row[1], row[2], row[3]
    damage = None
    if data is None:
        data, damage = b"", "the row has no data"
    elif crc32(data) != crc:
        damage = "the checksum does not match: the data was changed after it was written"
    return StoredFrame(seq=seq, data=data, cursor=cursor, session_id=session_id, damage=damage)


def _unreadable(seq: int, cursor: int, session_id: str, error: sqlite3.Error) -> StoredFrame:
    return StoredFrame(
        seq=seq, data=b"", cursor=cursor, session_id=session_id, damage=f"the row cannot be read: {error}"
    )


def _key_of(db: sqlite3.Connection, session_id: str) -> int | None:
    found = db.execute("SELECT key FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return None if found is None else int(found[0])


def _head(db: sqlite3.Connection, key: int) -> int:
    found = db.execute("SELECT max(seq) FROM events WHERE session = ?", (key,)).fetchone()
    return int(found[0] or 0)


# --- rows ----------------------------------------------------------------------------------------


def _one(kind: type[R], query: str) -> Callable[..., tuple[R | None, int]]:
    def ask(db: sqlite3.Connection, *values: Any) -> tuple[R | None, int]:
        found = db.execute(query, values).fetchone()
        return (None if found is None else unpack(kind, found[0])), 1

    return ask


session = _one(SessionRow, "SELECT row FROM sessions WHERE id = ?")
task = _one(TaskRow, "SELECT row FROM tasks WHERE id = ? AND principal = ?")
artifact = _one(ArtifactRow, "SELECT row FROM artifacts WHERE id = ?")
key = _one(KeyRow, "SELECT row FROM keys WHERE principal = ? AND route = ? AND key = ?")
_task_started = _one(
    TaskRow,
    """SELECT row FROM tasks WHERE session = (SELECT key FROM sessions WHERE id = ?) AND started_seq <= ?
    ORDER BY started_seq DESC LIMIT 1""",
)


def task_at(db: sqlite3.Connection, session_id: str, seq: int) -> tuple[TaskRow | None, int]:
    """Return the task that was running at a seq."""
    found, count = _task_started(db, session_id, _bounded(seq))
    if found is not None and found.ended_seq is not None and found.ended_seq < seq:
        found = None
    return found, count


def sessions(
    db: sqlite3.Connection, *, after: str | None, limit: int, principal: str | None, status: str | None
) -> tuple[list[SessionRow], int]:
    """Return sessions, newest first."""
    where, values = _given({"id < ?": after, "principal = ?": principal, "status = ?": status})
    query = f"SELECT row FROM sessions WHERE 1{where} ORDER BY id DESC LIMIT ?"
    return _rows(db, SessionRow, query, *values, _bounded(limit))


def count_sessions(db: sqlite3.Connection, status: str) -> tuple[int, int]:
    """Return how many sessions have a status."""
    return int(db.execute("SELECT count(*) FROM sessions WHERE status = ?", (status,)).fetchone()[0]), 1


def last_owner(db: sqlite3.Connection) -> tuple[str | None, int]:
    """Return who owns the newest session, or None if there is none."""
    found = db.execute("SELECT owner FROM sessions ORDER BY key DESC LIMIT 1").fetchone()
    return (str(found[0]), 1) if found is not None else (None, 0)


def interrupted(db: sqlite3.Connection, owner: str) -> tuple[list[str], int]:
    """Return the ids of an owner's sessions with an active or queued task, or without any event."""
    rows = db.execute("SELECT id FROM sessions WHERE pending AND owner = ? ORDER BY id", (owner,)).fetchall()
    return [row[0] for row in rows], len(rows)


def snapshot(db: sqlite3.Connection, session_id: str) -> tuple[Snapshot | None, int]:
    """Return a session's snapshot."""
    found = db.execute(
        "SELECT seq, state FROM snapshots WHERE session = (SELECT key FROM sessions WHERE id = ?)",
        (session_id,),
    ).fetchone()
    return (None if found is None else Snapshot(seq=found[0], state=found[1])), 1


def tasks(db: sqlite3.Connection, session_id: str, *, limit: int) -> tuple[list[TaskRow], int]:
    """Return the tasks of a session, newest first."""
    query = """SELECT row FROM tasks WHERE session = (SELECT key FROM sessions WHERE id = ?)
        ORDER BY place DESC LIMIT ?"""
    return _rows(db, TaskRow, query, session_id, _bounded(limit))


def messages(
    db: sqlite3.Connection, session_id: str, *, before: int | None, limit: int
) -> tuple[list[MessageRow], int]:
    """Return the last messages below an index. Raise if one is damaged: a hole would mislead."""
    rows = db.execute(
        """SELECT row FROM messages WHERE session = (SELECT key FROM sessions WHERE id = ?) AND place < ?
        ORDER BY place DESC LIMIT ?""",
        (session_id, _LARGEST if before is None else before, _bounded(limit)),
    ).fetchall()
    return [unpack(MessageRow, data) for (data,) in reversed(rows)], len(rows)


def approvals(
    db: sqlite3.Connection, *, principal: str | None, session_id: str | None
) -> tuple[list[ApprovalRow], int]:
    """Return open approvals, oldest first."""
    where, values = _given({"s.principal = ?": principal, "s.id = ?": session_id})
    query = f"""SELECT a.row FROM approvals AS a JOIN sessions AS s ON s.key = a.session
        WHERE a.open{where} ORDER BY a.place"""
    return _rows(db, ApprovalRow, query, *values)


def artifacts(
    db: sqlite3.Connection, scope: str, *, after: str | None, limit: int
) -> tuple[list[ArtifactRow], int]:
    """Return the artifacts of a scope in the order of their ids."""
    query = "SELECT row FROM artifacts WHERE scope = ? AND id > ? ORDER BY id LIMIT ?"
    return _rows(db, ArtifactRow, query, scope, after or "", _bounded(limit))


def uploads(db: sqlite3.Connection, before: str) -> tuple[list[tuple[str, int]], int]:
    """Return the ids and sizes of files that belong to no session and were put before a time."""
    rows = db.execute(
        """SELECT id, json_extract(CAST(row AS TEXT), '$.ref.size_bytes') FROM artifacts
        WHERE (scope < 'ses_' OR scope >= 'ses`') AND json_extract(CAST(row AS TEXT), '$.created_at') < ?""",
        (before,),
    ).fetchall()
    return rows, len(rows)


def referenced(db: sqlite3.Connection, hashes: Sequence[str]) -> tuple[set[str], int]:
    """Return the hashes that an artifact names."""
    found: set[str] = set()
    for start in range(0, len(hashes), _VARIABLES):
        some = hashes[start : start + _VARIABLES]
        marks = ",".join("?" * len(some))
        found.update(
            row[0] for row in db.execute(f"SELECT hash FROM artifacts WHERE hash IN ({marks})", some)
        )
    return found, len(found)


def blob(db: sqlite3.Connection, content_hash: str, start: int, end: int | None) -> tuple[bytes | None, int]:
    """Return the range [start, end) of the bytes that have a hash, None if they are not here."""
    first = min(max(start, 0), _SPAN)
    length = _SPAN if end is None else min(max(end - first, 0), _SPAN)
    row = db.execute(
        "SELECT substr(data, ?, ?) FROM blobs WHERE hash = ?", (first + 1, length, content_hash)
    ).fetchone()
    return None if row is None else row[0] or b"", 1  # nothing of a blob is NULL


def old_blobs(
    db: sqlite3.Connection, after: int, limit: float, count: int
) -> tuple[list[tuple[int, str]], int]:
    """Return the places and hashes of blobs after a place that were last put before a time."""
    rows = db.execute(
        "SELECT place, hash FROM blobs WHERE place > ? AND put_at <= ? ORDER BY place LIMIT ?",
        (after, limit, count),
    ).fetchall()
    return rows, len(rows)


def _rows(db: sqlite3.Connection, kind: type[R], query: str, *values: Any) -> tuple[list[R], int]:
    """Return rows without the damaged ones, so that those do not hide the others."""
    rows = db.execute(query, values).fetchall()
    found: list[R] = []
    for (data,) in rows:
        with contextlib.suppress(StorageFailure):
            found.append(unpack(kind, data))
    return found, len(rows)


def _given(conditions: Mapping[str, str | None]) -> tuple[str, list[str]]:
    """Return the conditions that have a value, as SQL that goes on with AND, and their values."""
    used = {condition: value for condition, value in conditions.items() if value is not None}
    return "".join(f" AND {condition}" for condition in used), list(used.values())


def _bounded(number: int) -> int:
    """Clamp a number to what SQLite can hold. Zero, not negative: SQLite takes a negative limit as none."""
    return min(max(number, 0), _LARGEST)


def bytes_of(db: sqlite3.Connection, session_id: str) -> tuple[int, int]:
    """Return the bytes of a session's events, rows and artifacts, without the overhead of the tables."""
    key = _key_of(db, session_id)
    if key is None:
        return 0, 0
    questions = (
        ("SELECT total(length(frame)) FROM events WHERE session = ?", key),
        ("SELECT total(length(row)) FROM messages WHERE session = ?", key),
        ("SELECT total(length(state)) FROM snapshots WHERE session = ?", key),
        ("SELECT total(length(row) + length(payload)) FROM jobs WHERE session = ?", key),
        (
            "SELECT total(json_extract(CAST(row AS TEXT), '$.ref.size_bytes')) FROM artifacts WHERE scope = ?",
            session_id,
        ),
    )
    return sum(int(db.execute(sql, (value,)).fetchone()[0]) for sql, value in questions), len(questions)


def unused_bytes(db: sqlite3.Connection) -> tuple[int, int]:
    """Return how much of the file is free."""
    return free_bytes(db), 1
