"""Opens SQLite connections, for the one writer or a reader beside it, and explains SQLite's errors."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from codesdk.contract.errors import CodeSDKError, InvalidRequest, NotFound, StorageFailure
from codesdk.store.sqlite.schema import MIGRATIONS, Migration, check_version, migrate, version_of
from codesdk.store.sqlite.vacuum import prepare

_BUSY_MS = 5_000
_READER_BUSY_MS = 2_000
_WAL_LIMIT_BYTES = 64 * 1024 * 1024
_CACHE_KIB = 8 * 1024
"""Room for the pages that a thousand sessions write to next. What is more fills up with pages that nobody needs again."""
_READER_CACHE_KIB = 512
"""Readers go through a session in order and mostly once: more would only be held."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR})

_REASONS = {
    sqlite3.SQLITE_FULL: "The disk (or the quota) that holds {path} is full ({error}). Free some space, then try again.",
    sqlite3.SQLITE_READONLY: "{path} cannot be written: it or its directory is read-only ({error}). Change its permissions.",
    sqlite3.SQLITE_NOTADB: "{path} is not a database, or its first page is damaged ({error}). Restore it or move it away.",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged ({error}). Restore it from a backup, or recover it with the sqlite3 shell's "
    ".recover command.",
    sqlite3.SQLITE_IOERR: "The disk that holds {path} reports an error ({error}). Look at the disk and at the system's log.",
    sqlite3.SQLITE_BUSY: "{path} is locked by another program ({error}). Find it and close it.",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened ({error}). Look at the permissions of it and its directory.",
}
_RETRYABLE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY})


def connect_writer(
    path: Path, migrations: Sequence[Migration] = MIGRATIONS, max_pages: int | None = None
) -> sqlite3.Connection:
    """Open a file for writing; create or upgrade its tables. `max_pages` limits its size like a full disk."""
    path.touch(mode=0o600)  # for the owner only; the files that SQLite puts beside it get the same mode
    db = connect(path, "rw")
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        check_version(version_of(db, path), len(migrations), path)  # before anything is written
        prepare(db)  # before the first page is written
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        migrate(db, path, migrations)
        if max_pages is not None:
            db.execute(f"PRAGMA max_page_count = {max_pages}")
    except BaseException:
        db.close()
        raise
    return db


def connect_reader(path: Path, known: int = len(MIGRATIONS)) -> sqlite3.Connection:
    """Open a file for reading, beside a live writer or on a read-only disk. Raise `NotFound` if missing."""
    if not path.is_file():
        raise NotFound(f"There is no database {path}. Is this the right data directory?")
    try:
        return _require_readable(connect(path, "ro"), path, known)
    except sqlite3.OperationalError as error:
        # A directory that can be written needs no copy: then it is something else, such as no descriptor left.
        refused = code_of(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not refused or os.access(path.parent, os.W_OK):
            raise
    return _require_readable(_connect_immutable(path), path, known)


def _require_readable(db: sqlite3.Connection, path: Path, known: int) -> sqlite3.Connection:
    """Return the connection if its file is one that we can read; else close it and raise."""
    try:
        db.execute(f"PRAGMA busy_timeout = {_READER_BUSY_MS}")
        db.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
        version = version_of(db, path)
        check_version(version, known, path)
        if version < known:
            raise StorageFailure(
                f"{path} was written by an older CodeSDK (schema version {version}, this one needs {known}). "
                "Open it once for writing to upgrade it."
            )
    except BaseException:
        db.close()
        raise
    return db


def connect(path: Path, mode: Literal["rw", "ro"], options: str = "") -> sqlite3.Connection:
    """Open an existing file as it is."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}{options}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )


def _connect_immutable(path: Path) -> sqlite3.Connection:
    """Open a file that cannot be written, without the side files that SQLite needs to share one."""
    wal = path.with_name(path.name + "-wal")
    if wal.is_file() and wal.stat().st_size > 0:
        raise StorageFailure(
            f"{path} cannot be read where it is: its last commits are in {wal.name}, and merging them needs a "
            "writable directory. Copy the data directory to one and read it there."
        )
    return connect(path, "ro", "&immutable=1")


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code of an error, 0 if it has none."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error is about the bytes on disk, so that other rows may still be readable."""
    return code_of(error) in _DAMAGE


def explain(error: Exception, path: Path) -> CodeSDKError:
    """Return our own error for it, which says what happened and what to do."""
    if isinstance(error, CodeSDKError):
        return error
    if isinstance(error, sqlite3.Error):
        code = code_of(error)
        reason = _REASONS.get(code, "The database {path} refused ({error}). Look at the disk and at the log.")
        return StorageFailure(
            reason.format(path=path, error=error),
            retryable=code in _RETRYABLE,
            details={"sqlite": getattr(error, "sqlite_errorname", type(error).__name__)},
        )
    if isinstance(error, OSError):
        return StorageFailure(
            f"{path} cannot be used: {error.strerror or error}. Look at the disk and its permissions."
        )
    if isinstance(error, TypeError | ValueError | OverflowError):
        return InvalidRequest(f"A value cannot be stored: {error}. Leave it out.")
    return StorageFailure(f"{path} cannot be used: {type(error).__name__}: {error}. Please report this.")
