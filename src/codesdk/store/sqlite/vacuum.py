"""Gives the free pages of the database file back to the disk, in steps short enough to fit between two commits.

A file made by this version returns its pages step by step. An older one must be rewritten once, which blocks
all writes meanwhile: only if `rewrite` allows it.
"""

import sqlite3

PAGES_AT_ONCE = 256
_INCREMENTAL = 2


def prepare(db: sqlite3.Connection) -> None:
    """Let a new file return pages later. Does nothing to an existing file."""
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")


def free_bytes(db: sqlite3.Connection) -> int:
    """Return how many bytes of the file are unused."""
    return _number(db, "freelist_count") * _number(db, "page_size")


def give_back(db: sqlite3.Connection, *, rewrite: bool) -> bool:
    """Return some pages, outside a transaction. Return true if there is nothing more to do."""
    if _number(db, "auto_vacuum") != _INCREMENTAL:
        if rewrite:
            prepare(db)
            db.execute("VACUUM")
    elif _number(db, "freelist_count"):
        db.execute(
            f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})"
        ).fetchall()  # a page for each row that is asked for
        if _number(db, "freelist_count"):
            return False
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # the file itself shrinks only now
    return True


def _number(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
