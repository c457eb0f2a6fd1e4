"""Files that an agent's program left → their bytes, within bounds. Blocking.

A program can leave anything under the name that is expected: a link, a pipe that never says a word, a file without end.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from codesdk.redaction import Redactor

MAX_SMALL_BYTES = 4 * 1024 * 1024
"""For files that we know the purpose of: a configuration, a login."""
MAX_SEARCHED_BYTES = 512 * 1024 * 1024
"""How much of a session's state is searched for secrets."""
_CHUNK = 1 << 20
_OVERLAP = 1 << 16
_ESCAPED = 20  # how much longer than a secret its longest spelling is


def read_agent_file(path: Path, most: int = MAX_SMALL_BYTES) -> bytes:
    """Return a regular file. Raise `OSError` for anything else, and for one that is larger than `most`."""
    with _opened(path) as fd:
        chunks: list[bytes] = []
        left = most + 1
        while left > 0 and (chunk := os.read(fd, min(left, _CHUNK))):
            chunks.append(chunk)
            left -= len(chunk)
        if left <= 0:
            raise OSError(errno.EFBIG, "the file is too large", str(path))
        return b"".join(chunks)


def holds_secret(root: Path, redactor: Redactor) -> bool:
    """Return whether a secret is in the names or files below a folder, or could be: what cannot be searched counts as one."""
    left = MAX_SEARCHED_BYTES
    ahead = [os.fspath(root)]
    while ahead:  # not recursive: folders can lie deeper than Python goes
        try:
            with os.scandir(ahead.pop()) as entries:
                for entry in entries:
                    if redactor.finds(os.fsencode(os.path.relpath(entry.path, root))):
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):  # a link says only its name
                        left -= entry.stat(follow_symlinks=False).st_size
                        if left < 0 or _is_told_in(Path(entry.path), redactor):
                            return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def _is_told_in(path: Path, redactor: Redactor) -> bool:
    """Search a file in pieces that overlap, so that a secret on a border is whole in one of them."""
    overlap = max(_OVERLAP, redactor.longest * _ESCAPED)
    left = MAX_SEARCHED_BYTES  # it may grow while it is read
    kept = b""
    with _opened(path) as fd:
        while piece := os.read(fd, max(_CHUNK, overlap)):
            left -= len(piece)
            if left < 0 or redactor.finds(kept + piece):
                return True
            kept = (kept + piece)[-overlap:]
    return False


@contextmanager
def _opened(path: Path) -> Generator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield fd
    finally:
        os.close(fd)
