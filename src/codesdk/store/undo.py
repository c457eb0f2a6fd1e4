"""What an undo needs, in one file per change in `undo/<session>` or in a dict: the `UndoStore` port.

Kept apart from the artifacts because it is byte-exact: nothing here is redacted, so nothing here is ever
served, listed or bundled.
"""

import asyncio
import re
from pathlib import Path

import msgspec

from codesdk.contract.errors import StorageFailure
from codesdk.contract.ports import Kept
from codesdk.store.durable import make_directory, oldest_over, write_file

_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]*")


class MemoryUndo:
    """`UndoStore` in a dict."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Kept]] = {}

    async def keep(self, session_id: str, name: str, kept: Kept) -> None:
        """Keep what undoes a change."""
        self._kept.setdefault(session_id, {})[name] = kept

    async def find(self, session_id: str, name: str) -> Kept | None:
        """Return what is kept under a name."""
        return self._kept.get(session_id, {}).get(name)

    async def drop(self, session_id: str) -> None:
        """Forget a session."""
        self._kept.pop(session_id, None)

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        return list(self._kept)


class FileUndo:
    """`UndoStore` in files under `root`, readable by the owner only. All file work is done in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def keep(self, session_id: str, name: str, kept: Kept) -> None:
        """Store what undoes a change, durably."""
        path = self._path(session_id, name)
        if path is None:
            raise StorageFailure(f"{session_id}/{name} cannot be the name of kept content. Use plain names.")
        await asyncio.to_thread(self._write, path, msgspec.msgpack.encode(kept))

    async def find(self, session_id: str, name: str) -> Kept | None:
        """Return what is kept under a name."""
        path = self._path(session_id, name)
        return None if path is None else await asyncio.to_thread(_read, path)

    async def drop(self, session_id: str) -> None:
        """Remove everything that is kept of a session."""
        if _NAME.fullmatch(session_id):
            await asyncio.to_thread(_remove, self._root / session_id)

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        return await asyncio.to_thread(_names, self._root)

    async def trim(
        self, *, before: float | None, max_bytes: int | None, dry_run: bool = False
    ) -> tuple[int, int]:
        """Remove what is older than a time, then the oldest over a size. Return how many files and bytes."""
        return await asyncio.to_thread(_trim, self._root, before, max_bytes, dry_run)

    def _path(self, session_id: str, name: str) -> Path | None:
        if _NAME.fullmatch(session_id) and _NAME.fullmatch(name):
            return self._root / session_id / name
        return None

    def _write(self, path: Path, data: bytes) -> None:
        try:
            if not path.parent.is_dir():
                make_directory(self._root)
                make_directory(path.parent)
            write_file(path, data)
        except OSError as error:
            raise StorageFailure(
                f"What an undo needs cannot be kept under {self._root}: {error.strerror}. Free some space or change its permissions."
            ) from error


def _read(path: Path) -> Kept | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailure(
            f"What an undo needs cannot be read from {path}: {error.strerror}. Look at the disk and its permissions."
        ) from error
    except msgspec.DecodeError as error:
        raise StorageFailure(
            f"What an undo needs is damaged ({path.name}). Restore it from a backup."
        ) from error


def _remove(path: Path) -> None:
    import shutil

    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageFailure(
            f"What was kept for an undo cannot be removed from {path}: {error.strerror}. Look at the disk and its permissions."
        ) from error


def _names(root: Path) -> list[str]:
    try:
        return sorted(path.name for path in root.iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []


def _trim(root: Path, before: float | None, max_bytes: int | None, dry_run: bool) -> tuple[int, int]:
    chosen = oldest_over(root.glob("*/*"), before, max_bytes)
    for path, _ in () if dry_run else chosen:
        path.unlink(missing_ok=True)
    return len(chosen), sum(size for _, size in chosen)
