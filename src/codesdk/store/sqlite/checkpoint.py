"""Merges the write-ahead log into the database file, in a thread beside the writer, so that no commit waits for it.

SQLite would merge inside the commit that fills the log, which delays everything after it by some ten
milliseconds. Here another connection copies what there is; when it is done, the writer copies the little that
came meanwhile, and its next commit starts the log over.
"""

import contextlib
import sqlite3
import threading
from pathlib import Path

from codesdk.store.sqlite.connection import connect

MERGE_PAGES = 4_000
LAST_RESORT_PAGES = 4 * MERGE_PAGES
"""How full the log may be before SQLite merges it itself, in case our count is far off."""

_PAGE_BYTES = 4_096
_PAGES_PER_COMMIT = 3
"""About how many pages a commit writes besides its content: index and table leaves, and the root above."""


class Merger:
    """Counts what is written and merges it in time. Call all methods in the writer's thread."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        db.execute(f"PRAGMA wal_autocheckpoint = {LAST_RESORT_PAGES}")
        self._db = db
        self._path = path
        self._pages = 0
        self._thread: threading.Thread | None = None

    def note(self, written_bytes: int) -> None:
        """Count a commit. Start to merge if there is enough, or finish what the thread has done."""
        self._pages += _PAGES_PER_COMMIT + written_bytes // _PAGE_BYTES
        if self._thread is not None:
            if not self._thread.is_alive():
                self._thread = None
                merge(self._db)
        elif self._pages >= MERGE_PAGES:
            self._pages = 0
            self._begin()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="codesdk-merger", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started; what was committed must not fail for that
            merge(self._db)
        else:
            self._thread = thread

    def wait(self) -> None:
        """Wait until no merge is running."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(self._path, "rw")) as db:
            merge(db)


def merge(db: sqlite3.Connection) -> None:
    """Copy everything that no reader still needs in the log. The rest stays there and counts as stored."""
    with contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
