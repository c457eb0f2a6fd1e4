"""Writes files for their owner only, which appear under their names when they are complete and on disk."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

TEMPORARY = ".tmp-"
"""Prefix of files that a broken write may leave behind."""


def write_file(path: Path, data: bytes) -> None:
    """Create or replace a file atomically and durably. Its directory must exist. Raise `OSError`."""
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A reader sees the old content or the new one, never a part.
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    sync_directory(path.parent)


def oldest_over(files: Iterable[Path], before: float | None, max_bytes: int | None) -> list[tuple[Path, int]]:
    """Return the oldest files and their sizes: those from before a time, then as many as exceed a size."""
    found: list[tuple[float, Path, int]] = []
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime, path, status.st_size))
    left = sum(size for _, _, size in found)
    chosen: list[tuple[Path, int]] = []
    for made, path, size in sorted(found):
        too_old = before is not None and made < before
        if not too_old and (max_bytes is None or left <= max_bytes):
            break
        chosen.append((path, size))
        left -= size
    return chosen


def make_directory(path: Path) -> None:
    """Create a directory durably, for its owner only. Its parent must exist; it may exist, too."""
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
