"""Who uses a session's folders: the files of a program that has ended go, unless another one was started there since.

A session can be taken over while the program of the one before is still being ended. Both have the same folders, so
cleaning up after the first must not take away what the second was started with: that one cleans up when it ends.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Generator

import msgspec

from codesdk.runtimes.program.environment import Places

_FILE = ".occupied"
_MARK_CHARS = 32


class Occupancy(msgspec.Struct, frozen=True):
    """The use of a session's folders by one program, from just before its start."""

    places: Places
    mark: bytes

    def leave(self, clean: Callable[[], object]) -> None:
        """Clean up after the program, which has ended, if it was the last to come. Blocking; must not raise."""
        with contextlib.suppress(OSError), _held(self.places) as file:
            if os.pread(file, _MARK_CHARS, 0) == self.mark:
                clean()


def occupy(places: Places, write: Callable[[], object]) -> Occupancy:
    """Write the files of a program that is about to start. Blocking, but short."""
    mark = secrets.token_hex(_MARK_CHARS // 2).encode()  # text, for whoever looks at a session's folders
    with _held(places) as file:
        os.pwrite(file, mark, 0)
        write()
    return Occupancy(places, mark)


@contextlib.contextmanager
def _held(places: Places) -> Generator[int]:
    """Open the file with the mark of whoever came last, and keep all others out of it."""
    file = os.open(places.root / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
