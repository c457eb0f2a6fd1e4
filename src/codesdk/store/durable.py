"""Bytes to a file, for its owner only, that appears under its name when it is complete and on disk."""

import contextlib
import os
import tempfile
from pathlib import Path

TEMPORARY = ".tmp-"
"""Prefix of files that a broken write may leave behind."""


def write_file(path: Path, data: bytes) -> None:
    """Create or replace a file atomically and durably. Its directory must exist. Raise `OSError`."""
    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    sync_directory(path.parent)


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
