"""Jobs in their table: the part of `SqliteLog` that implements `JobStore`. Each question and each change is one function.

The row holds what a job is, the columns beside it what is searched by, and the payload comes last, so that looking at
the others does not read it.
"""

import contextlib
import sqlite3
from collections.abc import Collection

from codesdk.contract.errors import StorageFailure
from codesdk.contract.jobs import FINAL, KEEP_FINISHED, MAX_WAITING, JobRow, JobState
from codesdk.store import refusals
from codesdk.store.rows import pack, unpack
from codesdk.store.sqlite.database import Database

_FINAL = ", ".join(f"'{state}'" for state in sorted(FINAL))
_SAME = "SELECT row FROM jobs WHERE principal = ? AND project = ? AND type = ? AND identity = ?"
_BUSY = f"SELECT count(*) FROM jobs WHERE principal = ? AND state NOT IN ({_FINAL})"
_ADD = """INSERT INTO jobs (id, session, principal, project, type, identity, state, run_at, ended_at, row, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_REPLACE = "UPDATE jobs SET state = ?, run_at = ?, ended_at = ?, row = ? WHERE id = ? AND row = ?"
_PRUNE = f"""DELETE FROM jobs WHERE place IN (SELECT place FROM jobs WHERE principal = ? AND state IN ({_FINAL})
    ORDER BY ended_at DESC, id DESC LIMIT -1 OFFSET ?)"""


class SqliteJobs(Database):
    """A `JobStore` in a file."""

    async def add_job(self, row: JobRow, payload: bytes, *, room: int = MAX_WAITING) -> JobRow:
        """Store a job, or return the one that has its identity already."""
        return await self.change(lambda tables: tables.run(lambda db: _add(db, row, payload, room)))

    async def replace_job(self, old: JobRow, new: JobRow, *, keep: int = KEEP_FINISHED) -> bool:
        """Store a job's new row if its stored one is `old`."""
        # That a job begins need not survive a power cut: then it is simply begun again.
        return await self.change(
            lambda tables: tables.run(lambda db: _replace(db, old, new, keep)), durable=new.state != "running"
        )

    async def job(self, job_id: str) -> JobRow | None:
        """Return a job's row."""
        return await self.ask(_job, job_id)

    async def job_payload(self, job_id: str) -> bytes | None:
        """Return what a job's handler is given."""
        return await self.ask(_payload, job_id)

    async def jobs(
        self,
        *,
        principal: str | None,
        state: JobState | None,
        job_type: str | None,
        session_id: str | None,
        after: str | None,
        limit: int,
    ) -> list[JobRow]:
        """Return jobs, newest first, older than the id `after`."""
        wanted = {
            "principal = ?": principal,
            "state = ?": state,
            "type = ?": job_type,
            "session = (SELECT key FROM sessions WHERE id = ?)": session_id,
            "id < ?": after,
        }
        given = {condition: value for condition, value in wanted.items() if value is not None}
        where = "".join(f" AND {condition}" for condition in given)
        query = f"SELECT row FROM jobs WHERE 1{where} ORDER BY id DESC LIMIT ?"
        return await self.ask(_rows, query, *given.values(), max(limit, 0))

    async def due_jobs(
        self, types: Collection[str], now: str, latest: str, *, besides: Collection[str], limit: int
    ) -> list[JobRow]:
        """Return queued jobs of these types that are due, the earliest first."""
        query = f"""SELECT row FROM jobs WHERE state = 'queued' AND type IN ({_marks(types)})
            AND (run_at <= ? OR run_at > ?) AND id NOT IN ({_marks(besides)}) ORDER BY run_at, id LIMIT ?"""
        return await self.ask(_rows, query, *types, now, latest, *besides, max(limit, 0))

    async def next_job_at(self, types: Collection[str], now: str) -> str | None:
        """Return when the next queued job of these types is due, of those that are not yet."""
        query = f"SELECT min(run_at) FROM jobs WHERE state = 'queued' AND type IN ({_marks(types)}) AND run_at > ?"
        return await self.ask(_next_at, query, *types, now)

    async def count_jobs(self) -> dict[JobState, int]:
        """Return how many jobs there are in each state that any is in."""
        return await self.ask(_count)


def _add(db: sqlite3.Connection, row: JobRow, payload: bytes, room: int) -> JobRow:
    """Add a job. Raise before anything is written."""
    data = pack(row)
    session = db.execute("SELECT key FROM sessions WHERE id = ?", (row.source_session_id,)).fetchone()
    if session is None:
        raise refusals.missing(row.source_session_id)
    names = (row.principal, row.project_id, row.type, row.identity)
    same = db.execute(_SAME, names).fetchone()
    if same is not None:
        return unpack(JobRow, same[0])
    if db.execute(_BUSY, (row.principal,)).fetchone()[0] >= room:
        raise refusals.too_many_jobs(room)
    place = (row.job_id, session[0], *names, row.state, row.run_at, row.ended_at)
    db.execute(_ADD, (*place, data, payload))
    return row


def _replace(db: sqlite3.Connection, old: JobRow, new: JobRow, keep: int) -> bool:
    values = (new.state, new.run_at, new.ended_at, pack(new), old.job_id, pack(old))
    changed = db.execute(_REPLACE, values).rowcount > 0
    if changed and new.state in FINAL:
        db.execute(_PRUNE, (new.principal, keep))
    return changed


def _job(db: sqlite3.Connection, job_id: str) -> tuple[JobRow | None, int]:
    found = db.execute("SELECT row FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return (None if found is None else unpack(JobRow, found[0])), 1


def _payload(db: sqlite3.Connection, job_id: str) -> tuple[bytes | None, int]:
    found = db.execute("SELECT payload FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return (None if found is None else bytes(found[0])), 1


def _next_at(db: sqlite3.Connection, query: str, *values: str) -> tuple[str | None, int]:
    found = db.execute(query, values).fetchone()[0]
    return (None if found is None else str(found)), 1


def _rows(db: sqlite3.Connection, query: str, *values: str | int) -> tuple[list[JobRow], int]:
    """Return rows without the damaged ones, so that those do not hide the others."""
    rows = db.execute(query, values).fetchall()
    found: list[JobRow] = []
    for (data,) in rows:
        with contextlib.suppress(StorageFailure):
            found.append(unpack(JobRow, data))
    return found, len(rows)


def _count(db: sqlite3.Connection) -> tuple[dict[JobState, int], int]:
    rows = db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
    return {state: int(count) for state, count in rows}, len(rows)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))
