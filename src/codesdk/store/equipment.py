"""Sealed equipment, one file a session in `equipment/` or a dict: the `EquipmentStore` port.

Kept apart from everything else because it holds secrets as they are: the folder is the owner's alone (0700, files
0600), and nothing here is ever served, listed or bundled.
"""

import asyncio
import contextlib
import os
import re
import stat
from pathlib import Path

from codesdk.contract.errors import StorageFailure
from codesdk.store.durable import TEMPORARY, make_directory, sync_directory, write_file

_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]*")


class MemoryEquipment:
    """`EquipmentStore` in a dict."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def save(self, session_id: str, sealed: bytes) -> None:
        """Keep a session's equipment."""
        self._kept[session_id] = sealed

    async def load(self, session_id: str) -> bytes | None:
        """Return what was saved last."""
        return self._kept.get(session_id)

    async def forget(self, session_id: str) -> None:
        """Forget a session."""
        self._kept.pop(session_id, None)

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        return list(self._kept)


class FileEquipment:
    """`EquipmentStore` in files under `root`, for the owner only. They are read and written in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def save(self, session_id: str, sealed: bytes) -> None:
        """Store a session's equipment durably, replacing what was kept."""
        if not _NAME.fullmatch(session_id):
            raise StorageFailure(
                f"{session_id!r} cannot be the name of sealed equipment. Use the id of a session."
            )
        await asyncio.to_thread(self._write, self._root / session_id, sealed)

    async def load(self, session_id: str) -> bytes | None:
        """Return what was saved last. Raise `StorageFailure` if it cannot be read."""
        if not _NAME.fullmatch(session_id):
            return None
        path = self._root / session_id
        # Most sessions have none, and to look for it costs less than to change to a thread.
        with contextlib.suppress(OSError):  # the reading below says what is wrong
            if not _is_there(path):
                return None
        return await asyncio.to_thread(_read, path)

    async def forget(self, session_id: str) -> None:
        """Remove what is kept of a session."""
        if _NAME.fullmatch(session_id):
            await asyncio.to_thread(_remove, self._root / session_id)

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept. What a broken write left behind is removed."""
        return await asyncio.to_thread(_names, self._root)

    def exposed(self, session_id: str | None = None) -> list[str]:
        """Return what others than the owner could read or replace, as sentences: of one session, or of all. Blocking."""
        if not self._root.exists():
            return []
        files = sorted(self._root.iterdir()) if session_id is None else [self._root / session_id]
        found = [_exposure(self._root, 0o700), *(_exposure(path, 0o600) for path in files)]
        return [sentence for sentence in found if sentence is not None]

    def _write(self, path: Path, sealed: bytes) -> None:
        try:
            if not self._root.is_dir():
                make_directory(self._root)
            self._root.chmod(0o700)  # also if it was there before, or restored from a backup
            write_file(path, sealed)
        except OSError as error:
            raise StorageFailure(
                f"A session's equipment cannot be sealed under {self._root}: {error.strerror}. Free some space or"
                " change its permissions."
            ) from error


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _read(path: Path) -> bytes | None:
    try:
        # A link is not followed: only what this store wrote is equipment.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailure(
            f"A session's sealed equipment cannot be read from {path}: {error.strerror}. Look at the disk and its permissions."
        ) from error
    try:
        with os.fdopen(handle, "rb") as file:
            return file.read()
    except OSError as error:
        raise StorageFailure(
            f"A session's sealed equipment cannot be read from {path}: {error.strerror}. Look at the disk and its permissions."
        ) from error


def _remove(path: Path) -> None:
    try:
        path.unlink()
        sync_directory(path.parent)  # gone for good, even if the power fails now
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageFailure(
            f"A session's sealed equipment cannot be removed from {path}: {error.strerror}. Look at the disk and its permissions."
        ) from error


def _names(root: Path) -> list[str]:
    try:
        found = sorted(path.name for path in root.iterdir())
    except FileNotFoundError:
        return []
    for name in found:
        if name.startswith(TEMPORARY):
            _remove(root / name)
    return [name for name in found if _NAME.fullmatch(name) and not name.startswith(TEMPORARY)]


def _exposure(path: Path, wanted: int) -> str | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    if not (stat.S_ISDIR(status.st_mode) if wanted == 0o700 else stat.S_ISREG(status.st_mode)):
        return f"{path} is not what CodeSDK puts there; remove it and equip the session again"
    if mode & 0o077:
        return f"{path} is open to others (mode {mode:04o}); run chmod {wanted:o} on it"
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user; run chown on it"
    return None
