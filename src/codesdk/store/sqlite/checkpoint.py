"""The write-ahead log → the database file, in a thread beside the writer, so that no commit waits for it.

SQLite would merge inside the commit that fills the log, which holds up everything behind it for some ten milliseconds.
Here another connection copies what there is; when it is done, the writer copies the little that came
meanwhile, and its next commit begins the log anew. Used by `writer`.
"""

import contextlib
import sqlite3
import threading
from pathlib import Path

from codesdk.store.sqlite.connection import connect

MERGE_PAGES = 4_000
LAST_RESORT_PAGES = 4 * MERGE_PAGES
"""How full the log may be before SQLite merges it after all, should our count be far off."""

_PAGE_BYTES = 4_096
_PAGES_PER_COMMIT = 3
"""About what a commit writes besides its content: the leaves of an index, of a row and of the root above."""


class Merger:
    """Counts what is written and merges it in time. All methods are for the writer's thread."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        db.execute(f"PRAGMA wal_autocheckpoint = {LAST_RESORT_PAGES}")
        self._db = db
        self._path = path
        self._pages = 0
        self._thread: threading.Thread | None = None

    def note(self, written_bytes: int) -> None:
        """Count a commit. Begin to merge if there is enough, or finish what the thread has done."""
        self._pages += _PAGES_PER_COMMIT + written_bytes // _PAGE_BYTES
        if self._thread is not None:
            if not self._thread.is_alive():
                self._thread = None
                _merge(self._db)
        elif self._pages >= MERGE_PAGES:
            self._pages = 0
            self._begin()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="codesdk-merger", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had; what was committed must not fail for that
            _merge(self._db)
        else:
            self._thread = thread

    def wait(self) -> None:
        """Wait until nothing is being merged."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(self._path, "rw")) as db:
            _merge(db)


def _merge(db: sqlite3.Connection) -> None:
    """Copy all that no reader still needs in the log. What cannot be copied now stays there, and counts as stored."""
    with contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
