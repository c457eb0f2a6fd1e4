"""What SQLite itself can do here: rows into our own table, without any code of ours around it."""

import sqlite3
import time
from collections.abc import Callable

from bench.measure import median, scratch
from bench.rig import FRAME_BYTES
from codesdk.store.sqlite.checkpoint import MERGE_PAGES
from codesdk.store.sqlite.connection import connect_writer

_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
_BATCH = 500


def bulk_rate(sessions: int, events: int, rounds: int = 3, synchronous: str = "NORMAL") -> float:
    """Return events a second in batches of 500, the sessions taking turns."""
    return median(
        [_with_database(lambda db: _bulk(db, sessions, events, synchronous)) for _ in range(rounds)]
    )


def commit_rate(events: int, synchronous: str, rounds: int = 3) -> float:
    """Return events a second with a commit for each."""
    return median([_with_database(lambda db: _commits(db, events, synchronous)) for _ in range(rounds)])


def _with_database(work: Callable[[sqlite3.Connection], float]) -> float:
    with scratch() as path:
        db = connect_writer(path / "raw.db")
        db.execute(
            f"PRAGMA wal_autocheckpoint = {MERGE_PAGES}"
        )  # it merges its log itself, as often as we do
        try:
            return work(db)
        finally:
            db.close()


def _bulk(db: sqlite3.Connection, sessions: int, events: int, synchronous: str) -> float:
    frame = bytes(FRAME_BYTES)
    rows = [(n, n % sessions, n // sessions, 0, frame) for n in range(1, events + 1)]
    db.execute(f"PRAGMA synchronous = {synchronous}")
    started = time.perf_counter()
    for at in range(0, events, _BATCH):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(_INSERT, rows[at : at + _BATCH])
        db.execute("COMMIT")
    return events / (time.perf_counter() - started)


def _commits(db: sqlite3.Connection, events: int, synchronous: str) -> float:
    frame = bytes(FRAME_BYTES)
    db.execute(f"PRAGMA synchronous = {synchronous}")
    started = time.perf_counter()
    for n in range(1, events + 1):
        db.execute("BEGIN IMMEDIATE")
        db.execute(_INSERT, (n, 1, n, 0, frame))
        db.execute("COMMIT")
    return events / (time.perf_counter() - started)
