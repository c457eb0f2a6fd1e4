"""Bytes → a file that appears under its name only when it is complete and on disk, for its owner only."""

import contextlib
import os
import tempfile
from pathlib import Path

TEMPORARY = ".tmp-"
"""How the name of a file begins that a broken write may have left behind."""


def write_file(path: Path, data: bytes) -> None:
    """Put a file in place, or replace one, at once and durably. Its directory must exist. Raise `OSError`."""
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
    """Make a directory in one that exists, for its owner only and durably. It may be there."""
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
