"""Free pages of the database file → space on the disk, in steps that are short enough to come between two commits.

A file made by this version gives its pages back bit by bit. An older one has to be written anew once, for which
nothing else may want to write: `rewrite` allows that.
"""

import sqlite3

PAGES_AT_ONCE = 256
_INCREMENTAL = 2


def prepare(db: sqlite3.Connection) -> None:
    """Let a file that is about to be made give pages back later. Changes nothing in one that is there."""
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")


def free_bytes(db: sqlite3.Connection) -> int:
    """Return how much of the file is not used."""
    return _number(db, "freelist_count") * _number(db, "page_size")


def give_back(db: sqlite3.Connection, *, rewrite: bool) -> bool:
    """Give some pages back, outside a transaction. True if there is nothing more to do."""
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
