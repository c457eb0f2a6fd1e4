"""Bytes in content-addressed files `ab/cdef…`, or in a dict: the `Blobs` port.

A file appears under its name only when it is complete and on disk, so a damaged one means a bad disk. In a
data directory, `sqlite.split_blobs` keeps small contents in the database and uses this for large ones.
"""

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from codesdk.contract.canonical import content_hash as hash_of
from codesdk.contract.errors import NotFound, StorageFailure
from codesdk.store.age import age_time
from codesdk.store.durable import TEMPORARY, make_directory, write_file

Keep = Callable[[Sequence[str]], Awaitable[set[str]]]

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_SWEEP_PAGE = 500


class MemoryBlobs:
    """`Blobs` in a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[bytes, float]] = {}

    async def put(self, data: bytes) -> str:
        """Keep bytes and return their content hash."""
        name = hash_of(data)
        self._blobs[name] = (data, age_time())
        return name

    async def get(self, content_hash: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes, or a range of them."""
        found = self._blobs.get(content_hash)
        if found is None:
            raise _missing(content_hash)
        return found[0][max(start, 0) : None if end is None else max(end, 0)]

    async def has(self, content_hash: str) -> bool:
        """Return whether the bytes are stored."""
        return content_hash in self._blobs

    async def sweep(self, keep: Keep, older_than_s: float) -> int:
        """Remove old blobs that `keep` does not return. Return how many were removed."""
        limit = age_time() - older_than_s
        old = [name for name, (_, put_at) in self._blobs.items() if put_at <= limit]
        kept = await keep(old) if old else set[str]()
        gone = [name for name in old if name not in kept and self._blobs[name][1] <= limit]
        for name in gone:
            del self._blobs[name]
        return len(gone)


class FileBlobs:
    """`Blobs` in files under `root`, readable by the owner only. All file work is done in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._guard = threading.Lock()  # a sweep must not remove a blob that a put has just found

    async def put(self, data: bytes) -> str:
        """Store bytes durably and return their content hash. If already stored, only mark them as fresh."""
        return await asyncio.to_thread(self._put, data)

    async def get(self, content_hash: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes, checked against their hash, or the range [start, end), which cannot be checked."""
        return await asyncio.to_thread(self._get, content_hash, start, end)

    async def has(self, content_hash: str) -> bool:
        """Return whether the bytes are stored."""
        path = self._path(content_hash)
        return path is not None and await asyncio.to_thread(path.is_file)

    async def sweep(self, keep: Keep, older_than_s: float) -> int:
        """Remove older blobs that `keep` does not return, and leftovers of broken writes."""
        limit = age_time() - older_than_s
        old = await asyncio.to_thread(self._old, limit)
        removed = 0
        for at in range(0, len(old), _SWEEP_PAGE):
            page = old[at : at + _SWEEP_PAGE]
            kept = await keep(page)
            removed += await asyncio.to_thread(
                self._remove, [name for name in page if name not in kept], limit
            )
        return removed

    def _path(self, content_hash: str) -> Path | None:
        """Return the path of a blob; None for what is not a hash, because that could name any file."""
        if not _HASH.fullmatch(content_hash):
            return None
        return self._root / content_hash[7:9] / content_hash[9:]

    def _put(self, data: bytes) -> str:
        name = hash_of(data)
        path = self._path(name)
        assert path is not None
        try:
            if not self._freshen(path, len(data)):
                self._write(path, data)
        except OSError as error:
            raise StorageFailure(
                f"{len(data):,} bytes cannot be stored under {self._root}: {_why(error)}. Free some space or change its permissions."
            ) from error
        return name

    def _freshen(self, path: Path, size: int) -> bool:
        """Mark a stored blob as fresh for the next sweep. Return false if it is missing or cut short."""
        with self._guard:
            try:
                if path.stat().st_size != size:
                    return False
                now = age_time()
                os.utime(path, (now, now))
            except FileNotFoundError:
                return False
        return True

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.is_dir():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_directory(path.parent)
        write_file(path, data)

    def _get(self, content_hash: str, start: int, end: int | None) -> bytes:
        path = self._path(content_hash)
        try:
            if path is None:
                raise FileNotFoundError
            with path.open("rb") as file:
                if start > 0:
                    file.seek(start)
                data = file.read(-1 if end is None else max(end - max(start, 0), 0))
        except FileNotFoundError:
            raise _missing(content_hash) from None
        except OSError as error:
            raise StorageFailure(
                f"The blob {content_hash} cannot be read: {_why(error)}. Look at the disk and its permissions."
            ) from error
        return checked(content_hash, data) if start <= 0 and end is None else data

    def _old(self, limit: float) -> list[str]:
        """Return the hashes of blobs last put before `limit`; remove temporary files of that age."""
        names: list[str] = []
        for path in sorted(self._root.glob("*/*")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > limit:
                    continue
                name = f"sha256:{path.parent.name}{path.name}"
                if path.name.startswith(TEMPORARY):
                    path.unlink()
                elif _HASH.fullmatch(name):
                    names.append(name)
        return names

    def _remove(self, names: list[str], limit: float) -> int:
        removed = 0
        for name in names:
            path = self._path(name)
            assert path is not None
            with self._guard, contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime <= limit:
                    path.unlink()
                    removed += 1
        return removed


def checked(content_hash: str, data: bytes) -> bytes:
    """Return the bytes if they have this hash, else raise `StorageFailure`."""
    if hash_of(data) != content_hash:
        raise StorageFailure(
            f"The blob {content_hash} is damaged: its bytes have another hash. Restore it from a backup.",
            details={"content_hash": content_hash},
        )
    return data


def _missing(content_hash: str) -> NotFound:
    return NotFound(
        f"There is no stored content with the hash {content_hash}. It may have been deleted with its session."
    )


def _why(error: OSError) -> str:
    return error.strerror or str(error)
