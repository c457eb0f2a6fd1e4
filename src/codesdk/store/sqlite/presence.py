"""The files of an open database, to notice that somebody deleted or replaced one of them.

SQLite goes on writing into a file that has no name any more: all is well until the process ends, then it is gone.
Every durable commit looks. The files themselves are looked at only when their folder has changed: to read the times of a
file makes the next write to it a slower one (40 µs of 100, Linux 6.18), because that has to leave another time.
"""

import os
import time
from pathlib import Path

from codesdk.contract.errors import StorageFailure

Identity = tuple[int, int]
_SETTLED_S = 0.02
"""How long after a change of the folder another one may have the same time: twice the longest tick of Linux's clock."""


class Presence:
    """Remembers which files a database has. Call all methods in the writer's thread."""

    def __init__(self, path: Path) -> None:
        wal = path.with_name(f"{path.name}-wal")
        self._folder = str(path.parent)
        self._known = {str(one): _identity(str(one)) for one in (path, wal)}
        self._seen: tuple[int, ...] = ()
        self._settled_at = 0.0

    def check(self) -> None:
        """Raise `StorageFailure` if a file is not the one that is open. The log appears with the first commit."""
        if self._has_changed() or time.monotonic() < self._settled_at or None in self._known.values():
            self._look()

    def _has_changed(self) -> bool:
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - a path's own method takes twice as long
        except FileNotFoundError:
            return True
        seen = (folder.st_dev, folder.st_ino, folder.st_mtime_ns, folder.st_ctime_ns)
        if seen == self._seen:
            return False
        self._seen, self._settled_at = seen, time.monotonic() + _SETTLED_S
        return True

    def _look(self) -> None:
        for path, known in self._known.items():
            found = _identity(path)
            if known is None:
                self._known[path] = found
            elif found != known:
                self._settled_at = float("inf")  # it does not come back by itself
                raise StorageFailure(
                    f"{path} was deleted or replaced while it was in use. Nothing more is stored; what was stored"
                    " so far is put into the database if that is still there. End this process, look at the data"
                    " directory, and start it again.",
                    details={"path": path},
                )


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - strings all the way
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
