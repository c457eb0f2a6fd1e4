"""Where a runtime looks for instructions → the files found there, by label: candidates for implicit sources.

Read without following links and within bounds. Text of a file that is not among them is still listed when it
reaches a model, with the runtime as its origin.
"""

import contextlib
import os
import stat
from collections.abc import Generator, Iterator
from itertools import islice

from codesdk.contract.models import InstructionSources
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Beneath, PathRefused, enter, reopened

MAX_FILES = 256
MAX_FILE_BYTES = 256 * 1024
MAX_ALL_BYTES = 4 * 1024 * 1024
"""Of all files of one root: each request of a session is compared with them."""
MAX_DEPTH = 4
MAX_ENTRIES = 5_000
_SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})


def read_sources(workspace: Workspace, sources: InstructionSources) -> dict[str, bytes]:
    """Return the candidates in a workspace and in the runtime's own folders. Blocking. Must not raise."""
    found: dict[str, bytes] = {}
    # The runtime's folders are the operator's own: links on the way to them are followed.
    outside = {label: Workspace(os.path.realpath(root)) for label, root in sources.outside.items()}
    for label, root in {"workspace": workspace, **outside}.items():
        with contextlib.suppress(PathRefused), Beneath(root) as files, files.folder(()) as folder:
            read = _Walk(sources).files(folder, "", MAX_DEPTH, label != "workspace")
            found |= {f"{label}/{path}": data for path, data in _within(islice(read, MAX_FILES)) if data}
    return found


def _within(read: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield files until they have too many bytes together."""
    left = MAX_ALL_BYTES
    for path, data in read:
        left -= len(data)
        if left < 0:
            return
        yield path, data


class _Walk:
    """A search below one root. It looks at a limited number of entries: a workspace may have any size."""

    def __init__(self, sources: InstructionSources) -> None:
        # Lower case: on some file systems a program that looks for `CLAUDE.md` finds `claude.md`.
        self._names = {name.lower() for name in sources.names}
        self._folders = {name.lower() for name in sources.folders}
        self._left = MAX_ENTRIES

    def files(self, folder: int, path: str, depth: int, inside: bool) -> Iterator[tuple[str, bytes]]:
        """Yield files with known names; inside a runtime's folder, every Markdown file."""
        for name, is_folder in self._list(folder):
            known = name.lower()
            if not is_folder:
                if known in self._names or (inside and known.endswith((".md", ".mdc"))):
                    yield path + name, _read(folder, name)
            elif depth and self._is_entered(known, inside):
                with contextlib.suppress(PathRefused), _entered(folder, name) as below:
                    deeper = inside or known in self._folders
                    yield from self.files(below, f"{path}{name}/", depth - 1, deeper)

    def _list(self, folder: int) -> list[tuple[str, bool]]:
        """Return names of files, then of directories, each with whether it is a directory. Links are left out."""
        try:
            with reopened(folder) as fd, os.scandir(fd) as listing:
                entries = list(islice(listing, self._left))
        except OSError:
            return []
        self._left -= len(entries)
        kept = [
            (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()
        ]
        return sorted(kept, key=lambda entry: (entry[1], entry[0]))

    def _is_entered(self, name: str, inside: bool) -> bool:
        return name not in _SKIPPED and (inside or name in self._folders or not name.startswith("."))


@contextlib.contextmanager
def _entered(folder: int, name: str) -> Generator[int]:
    fd = enter(folder, name)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(folder: int, name: str) -> bytes:
    """Return the beginning of a regular file; nothing if it cannot be read."""
    try:
        # Since it was listed, the entry may have become a link (NOFOLLOW) or a pipe, which blocks (NONBLOCK).
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        return os.read(fd, MAX_FILE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)
