"""The files of an open database, to notice that somebody deleted or replaced one of them.

SQLite goes on writing into a file that has no name any more: all is well until the process ends, then it is gone.
"""

import os
from pathlib import Path

from codesdk.contract.errors import StorageFailure

Identity = tuple[int, int]


class Presence:
    """Remembers which files a database has. Call all methods in the writer's thread."""

    def __init__(self, path: Path) -> None:
        wal = path.with_name(f"{path.name}-wal")
        self._known = {str(one): _identity(str(one)) for one in (path, wal)}

    def check(self) -> None:
        """Raise `StorageFailure` if a file is not the one that is open. The log appears with the first commit."""
        for path, known in self._known.items():
            found = _identity(path)
            if known is None:
                self._known[path] = found
            elif found != known:
                raise StorageFailure(
                    f"{path} was deleted or replaced while it was in use. Nothing more is stored; what was stored"
                    " so far is put into the database if that is still there. End this process, look at the data"
                    " directory, and start it again.",
                    details={"path": path},
                )


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - every durable commit looks, and a path's own method takes twice as long
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
