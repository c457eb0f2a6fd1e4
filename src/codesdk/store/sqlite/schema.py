"""The tables of the database file, and the steps that upgrade an older file.

`PRAGMA user_version` tells how many steps a file has been through. A file that has seen more than we know is
refused, and so is one from before the first release.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from codesdk.contract.errors import StorageFailure

APPLICATION_ID = 0x43534450  # "CSDP", so that `file` and we can tell our databases from others

Migration = Sequence[str]

_TABLES: Migration = (
    # `cursor` is the commit order over all sessions. An ordinary table with an index: WITHOUT ROWID, the rows
    # would be sorted by session and every commit would touch as many pages as there are sessions.
    """CREATE TABLE events (
        cursor INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        frame BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX events_by_seq ON events (session, seq)",
    # AUTOINCREMENT: a key is not used again while events of a deleted session are still being removed.
    """CREATE TABLE sessions (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        epoch INTEGER NOT NULL,
        owner TEXT NOT NULL,
        principal TEXT NOT NULL,
        status TEXT NOT NULL,
        pending INTEGER NOT NULL,
        row BLOB NOT NULL
    )""",
    "CREATE INDEX sessions_by_principal ON sessions (principal, id)",
    "CREATE INDEX sessions_by_status ON sessions (status, id)",
    "CREATE INDEX sessions_pending ON sessions (id) WHERE pending",
    "CREATE TABLE snapshots (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, state BLOB NOT NULL)",
    # The id of a task may be a client's choice: it is one principal's, and no other can tell that it is taken.
    """CREATE TABLE tasks (
        place INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        principal TEXT NOT NULL,
        session INTEGER NOT NULL,
        started_seq INTEGER,
        row BLOB NOT NULL,
        UNIQUE (id, principal)
    )""",
    "CREATE INDEX tasks_by_session ON tasks (session, place)",
    "CREATE INDEX tasks_by_seq ON tasks (session, started_seq) WHERE started_seq IS NOT NULL",
    """CREATE TABLE messages (
        session INTEGER NOT NULL,
        place INTEGER NOT NULL,
        row BLOB NOT NULL,
        PRIMARY KEY (session, place)
    )""",
    """CREATE TABLE approvals (
        place INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL,
        open INTEGER NOT NULL,
        row BLOB NOT NULL
    )""",
    "CREATE INDEX approvals_open ON approvals (place) WHERE open",
    "CREATE INDEX approvals_by_session ON approvals (session, place)",
    """CREATE TABLE artifacts (
        id TEXT PRIMARY KEY,
        scope TEXT NOT NULL,
        hash TEXT NOT NULL,
        row BLOB NOT NULL
    )""",
    "CREATE INDEX artifacts_by_scope ON artifacts (scope, id)",
    "CREATE INDEX artifacts_by_hash ON artifacts (hash)",
    """CREATE TABLE keys (
        principal TEXT NOT NULL,
        route TEXT NOT NULL,
        key TEXT NOT NULL,
        session INTEGER NOT NULL,
        body_hash TEXT NOT NULL,
        row BLOB NOT NULL,
        PRIMARY KEY (principal, route, key)
    )""",
    "CREATE INDEX keys_by_session ON keys (session)",
    # Deleted sessions whose events are still being removed, and the cursor that was reached when that began.
    "CREATE TABLE graves (session INTEGER PRIMARY KEY)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO meta VALUES ('cursor_floor', 0)",
    # Small contents. The bytes come last, so that looking at the other columns does not read them.
    """CREATE TABLE blobs (
        place INTEGER PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        put_at REAL NOT NULL,
        data BLOB NOT NULL
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

_JOBS: Migration = (
    # The payload comes last, so that looking at the other columns does not read it.
    """CREATE TABLE jobs (
        place INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL,
        principal TEXT NOT NULL,
        project TEXT NOT NULL,
        type TEXT NOT NULL,
        identity TEXT NOT NULL,
        state TEXT NOT NULL,
        run_at TEXT NOT NULL,
        ended_at TEXT,
        row BLOB NOT NULL,
        payload BLOB NOT NULL,
        UNIQUE (principal, project, type, identity)
    )""",
    "CREATE INDEX jobs_by_session ON jobs (session)",
    "CREATE INDEX jobs_by_state ON jobs (principal, state, ended_at)",
    "CREATE INDEX jobs_due ON jobs (type, run_at) WHERE state = 'queued'",
)

MIGRATIONS: Sequence[Migration] = (_TABLES, _JOBS)
"""The step from version n to n + 1, at index n."""
UNRELEASED = 6
"""The last version from before the first release. Files that old are refused, and numbers go on from there."""


def version_of(db: sqlite3.Connection, path: Path) -> int:
    """Return how many steps a file has been through, 0 if it is new. `StorageFailure` if it is not a file of ours."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = int(db.execute("PRAGMA application_id").fetchone()[0])
    tables = int(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if owner != APPLICATION_ID and (tables or version):
        raise StorageFailure(
            f"{path} is a database of another program. Choose another data directory, or move the file away."
        )
    if 0 < version <= UNRELEASED:
        raise StorageFailure(
            f"{path} was made by CodeSDK before its first release, in a form that is not read any more. "
            "Choose another data directory or remove this one. Nothing was changed.",
            details={"version": version},
        )
    return max(0, version - UNRELEASED)


def check_version(version: int, known: int, path: Path) -> None:
    """Raise `StorageFailure` if a file was written by a newer CodeSDK than this one."""
    if version > known:
        raise StorageFailure(
            f"{path} was written by a newer CodeSDK (schema version {version}, this one knows up to {known}). "
            "Upgrade CodeSDK to open it. Nothing was changed.",
            details={"version": version, "known": known},
        )


def migrate(db: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Upgrade a file to the current version, each step in its own transaction."""
    version = version_of(db, path)
    check_version(version, len(migrations), path)
    for number in range(version, len(migrations)):
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[number]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {UNRELEASED + number + 1}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
