"""The name of a backend → the class that opens the log of a data directory.

To add a backend, write its folder and name it in `BACKENDS`; nothing else needs to know of it.
"""

from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import StoredLog, Synchronous
from codesdk.doors import load

BACKENDS = {
    "sqlite": "codesdk.store.sqlite.log:SqliteLog",
}


class Backend(Protocol):
    """Opens a log at a path, which is the log's own: a file or a folder."""

    def open(
        self, path: Path, *, synchronous: Synchronous = "auto", max_pages: int | None = None
    ) -> Awaitable[StoredLog]:
        """Open it for writing, creating or upgrading it. `max_pages` limits its size, if the backend has pages."""
        ...

    def open_reader(self, path: Path) -> Awaitable[StoredLog]:
        """Open it for reading, possibly beside a writer."""
        ...


def find_backend(name: str) -> Backend:
    """Return a backend by its name. Raise `InvalidRequest` if there is none."""
    if name not in BACKENDS:
        raise InvalidRequest(f"There is no store backend {name!r}; there are: {', '.join(BACKENDS)}.")
    return cast("Backend", load(BACKENDS[name]))
