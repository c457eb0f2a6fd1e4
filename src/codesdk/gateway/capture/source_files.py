"""Where a runtime looks for instructions → the files found there, by label: candidates for implicit sources.

Read without following links and within bounds. Text of a file that is not among them is still listed when it
reaches a model, with the runtime as its origin.
"""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from codesdk.contract.models import InstructionSources

MAX_FILES = 256
MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 4
MAX_ENTRIES = 5_000
_SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})


def read_sources(workspace: str, sources: InstructionSources) -> dict[str, bytes]:
    """Return the candidates in a workspace and in the runtime's own folders. Blocking. Must not raise."""
    found: dict[str, bytes] = {}
    for label, root in {"workspace": workspace, **sources.outside}.items():
        walk = _Walk(sources)
        for path in islice(walk.candidates(Path(root), MAX_DEPTH, label != "workspace"), MAX_FILES):
            data = _read(path)
            if data:
                found[f"{label}/{path.relative_to(root).as_posix()}"] = data
    return found


class _Walk:
    """A search below one root. It looks at a limited number of entries: a workspace may have any size."""

    def __init__(self, sources: InstructionSources) -> None:
        # Lower case: on some file systems a program that looks for `CLAUDE.md` finds `claude.md`.
        self._names = {name.lower() for name in sources.names}
        self._folders = {name.lower() for name in sources.folders}
        self._left = MAX_ENTRIES

    def candidates(self, folder: Path, depth: int, inside: bool) -> Iterator[Path]:
        """Yield files with known names; inside a runtime's folder, every Markdown file."""
        try:
            with os.scandir(folder) as listing:
                entries = sorted(islice(listing, self._left), key=lambda entry: (entry.is_dir(), entry.name))
        except OSError:
            return
        self._left -= len(entries)
        for entry in entries:
            name = entry.name.lower()
            if entry.is_file(follow_symlinks=False):
                if name in self._names or (inside and name.endswith((".md", ".mdc"))):
                    yield Path(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False) and self._is_entered(name, inside):
                yield from self.candidates(Path(entry.path), depth - 1, inside or name in self._folders)

    def _is_entered(self, name: str, inside: bool) -> bool:
        return name not in _SKIPPED and (inside or name in self._folders or not name.startswith("."))


def _read(path: Path) -> bytes:
    try:
        # Since it was listed, the entry may have become a link (NOFOLLOW) or a pipe, which blocks (NONBLOCK).
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
