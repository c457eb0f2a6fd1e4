"""Opens a data directory: database, blobs, undo content, equipment, runtimes' state, audit, control socket.

A lock admits one writer. Any number of readers may open the directory beside it.
"""

import contextlib
import fcntl
import json
import os
import secrets
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from codesdk import serving
from codesdk.contract.errors import Conflict, NotFound, StorageFailure
from codesdk.contract.ports import StoredLog, Synchronous
from codesdk.store import FileBlobs, FileEquipment, FileUndo, find_backend, write_file

DATABASE = "codesdk.db"
BLOBS = "blobs"
UNDO = "undo"
EQUIPMENT = "equipment"
RUNTIMES = "runtimes"
AUDIT = "audit"
LOCK = "lock"
SOCKET = "control.sock"
OWNER = "owner"

_SHOWN = ("pid", "host", "command", "since", "url")
"""What others may see of the holder of a lock. The file also holds the daemon's token."""


class DataDir:
    """An open data directory. Closing it, or the end of the process, admits the next writer."""

    def __init__(self, path: Path, log: StoredLog, lock: "_Lock | None", owner: str = "") -> None:
        self.path = path
        self.log = log
        self.owner = owner
        """Whose sessions the writer's are: the same for every process that writes here, also after a crash."""
        self.blobs = log.blobs(FileBlobs(path / BLOBS))
        self.undo = FileUndo(path / UNDO)
        self.equipment = equipment_in(path)
        self._lock = lock

    @classmethod
    async def open_writer(
        cls,
        path: Path,
        *,
        backend: str = "sqlite",
        synchronous: Synchronous = "auto",
        max_pages: int | None = None,
    ) -> "DataDir":
        """Create the directory if needed and become its only writer. Raise `Conflict` if there is another.

        `synchronous` and `max_pages` are for the backend.
        """
        lock = _acquire(path)
        try:
            chosen = find_backend(backend)
            log = await chosen.open(path / DATABASE, synchronous=synchronous, max_pages=max_pages)
            owner = await _owner(path, log)
        except BaseException:
            lock.release()
            raise
        return cls(path, log, lock, owner)

    @classmethod
    async def open_reader(cls, path: Path, *, backend: str = "sqlite") -> "DataDir":
        """Open the directory for reading, beside a writer or on a read-only disk. Raise `NotFound` if none."""
        if not (path / DATABASE).exists():
            raise NotFound(
                f"There is no CodeSDK data in {path}. Check the path, or run a task once to create it.",
                details={"path": str(path)},
            )
        return cls(path, await find_backend(backend).open_reader(path / DATABASE), None)

    async def close(self) -> None:
        """Commit what is queued, close the database, then release the lock. The lock file stays."""
        try:
            await self.log.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None


def equipment_in(path: Path) -> FileEquipment:
    """Return the sealed equipment of a data directory, which need not be open."""
    return FileEquipment(path / EQUIPMENT)


def socket_address(path: Path) -> contextlib.AbstractContextManager[str]:
    """Return an address, inside a `with`, to bind or connect the control socket of a directory."""
    return serving.socket_path(path, SOCKET)


def bind_socket(path: Path) -> socket.socket:
    """Return the listening control socket of a directory, for its owner only. Only the writer may call it.

    A socket file of an earlier writer is replaced: since we hold the lock, nobody listens there.
    """
    (path / SOCKET).unlink(missing_ok=True)
    return serving.bind_socket(path, SOCKET)


class _Lock:
    """The lock file and its directory, both locked: the file may be deleted while we work. The kernel releases
    them with the process."""

    def __init__(self, handles: list[int]) -> None:
        self._handles = handles

    def release(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles = []


def _acquire(path: Path) -> _Lock:
    """Lock a directory, and write into its lock file who we are. Raise `Conflict` if somebody else has it."""
    lock = _Lock(handles := [])
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handles.append(os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        handles.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        lock.release()
        raise StorageFailure(
            f"The data directory {path} cannot be written: {error.strerror}. Choose another one, or change its "
            "permissions.",
            details={"path": str(path)},
        ) from error
    try:
        # The lock and not the file says that somebody is here: the file outlives its holder.
        for handle in handles:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sign(handles[0])
    except BlockingIOError:
        holder = _holder(handles[0])
        lock.release()
        raise _in_use(path, holder) from None
    except OSError as error:
        lock.release()
        raise StorageFailure(
            f"The data directory {path} cannot be locked: {error.strerror}. Choose one on a disk of this machine."
        ) from error
    return lock


async def _owner(path: Path, log: StoredLog) -> str:
    """Return the name of a directory's owner, which is made once and kept, also if its file is deleted.

    It is not a pid, so that after a crash the next process knows which sessions to recover.
    """
    with contextlib.suppress(FileNotFoundError):
        return (path / OWNER).read_text().strip()
    owner = await log.last_owner() or f"dir_{secrets.token_hex(8)}"
    write_file(path / OWNER, owner.encode())
    return owner


def _sign(handle: int) -> None:
    """Write into the lock file who holds it, for the error message of later openers."""
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python",
        "since": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(holder).encode(), 0)


def announce(path: Path, **said: str) -> None:
    """Add to the lock file where its holder can be reached. Only the holder may call it."""
    handle = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        data = json.dumps(_holder(handle) | said).encode()
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)
    finally:
        os.close(handle)


def find_daemon(path: Path) -> tuple[str, str] | None:
    """Return the address and the token of the daemon that holds a data directory, or None."""
    try:
        handle = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        held = _holder(handle)
    finally:
        os.close(handle)
    url, token = held.get("url"), held.get("token")
    if not isinstance(url, str) or not isinstance(token, str) or held.get("host") != socket.gethostname():
        return None
    return (url, token) if _runs(held.get("pid")) else None


def _runs(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:  # it does, as somebody else
        return True
    except (OSError, ValueError, TypeError):
        return False
    return True


def _holder(handle: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _in_use(path: Path, holder: dict[str, Any]) -> Conflict:
    who = "another process"
    if holder:
        who = f"pid {holder.get('pid')} ({holder.get('command')} on {holder.get('host')}, since {holder.get('since')})"
    return Conflict(
        f"The data directory {path} is in use by {who}. Work through that process, stop it, or choose another directory.",
        details={"path": str(path)} | {name: holder[name] for name in _SHOWN if name in holder},
    )
