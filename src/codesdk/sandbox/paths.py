"""Files beneath a held directory: a relative path → the bytes of a regular file, or a refusal in words.

Each component is opened from the descriptor of the one before it, never through a
symbolic link, so nothing that is swapped in between can lead out. Blocking; run it in a thread.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator

import msgspec

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
DATA_MARK = "codesdk.db"
"""A directory that holds this file is a CodeSDK data directory: no tool looks into it."""
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK = 1 << 20


class PathRefused(Exception):
    """The path cannot be used; the message says why, for whoever asked."""


class TooLarge(PathRefused):
    """The file has more bytes than whoever asked wants."""


class Changed(PathRefused):
    """The file is no longer what it was when it was read."""


class Opened(msgspec.Struct, frozen=True):
    """A regular file as it was read."""

    data: bytes
    mode: int
    owner: tuple[int, int]
    links: int


def split(path: str) -> list[str]:
    """Return the components of a path to a file beneath a directory. Raise `PathRefused` if it leads out."""
    if not path:
        raise PathRefused("the path is empty")
    if "\0" in path:
        raise PathRefused("a path cannot contain a NUL character")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise PathRefused("the path contains characters that no file name can have") from None
    if path.startswith("/"):
        raise PathRefused("the path is absolute; give it relative to the workspace")
    if len(encoded) > MAX_PATH_BYTES or any(len(part) > MAX_NAME_BYTES for part in encoded.split(b"/")):
        raise PathRefused("the path is too long")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PathRefused('the path contains ".."; it must stay inside the workspace')
    if not parts or path.endswith(("/", "/.")):
        raise PathRefused("the path names a directory, not a file")
    return parts


class Beneath:
    """A directory, held open. Use it in a `with`; paths are relative to it."""

    def __init__(self, root: str) -> None:
        try:
            self._fd = os.open(root, _DIRECTORY)
        except (OSError, ValueError):
            raise PathRefused("the workspace directory cannot be opened") from None

    def __enter__(self) -> "Beneath":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, path: str, max_bytes: int) -> Opened:
        """Return a regular file of at most `max_bytes`. Never waits for a FIFO or a device."""
        with self._parent(path) as (directory, name):
            return _read(directory, name, max_bytes)

    def replace(
        self, path: str, before: Opened, data: bytes, go_on: Callable[[], bool] = lambda: True
    ) -> bytes | None:
        """Put `data` in place of a file that was read as `before`, and return it as it was read back.

        All or nothing, and on disk when it returns; the mode is kept, without setuid and setgid. `go_on`
        is asked just before the file is put in place; if it says no, nothing is changed and None returned.
        Raise `Changed` if the content is not what was read, `PathRefused` if the file has other names.
        """
        with self._parent(path) as (directory, name):
            temporary = f".{name[:32]}.{secrets.token_hex(8)}.tmp"
            fd = _create(directory, temporary)
            try:
                written = _fill(fd, data, before)
                _require_unchanged(directory, name, before)
                if not go_on():
                    return None
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError as error:
                raise PathRefused(_reason(error)) from None
            finally:
                os.close(fd)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
            _sync(directory)
            return written

    @contextlib.contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        """Walk to the directory that a path's last name is in, holding one descriptor at a time."""
        *folders, name = split(path)
        fd = os.dup(self._fd)
        try:
            _require_workspace(fd)
            for folder in folders:
                fd, last = _enter(fd, folder), fd
                os.close(last)
                _require_workspace(fd)
            yield fd, name
        finally:
            os.close(fd)


def _require_workspace(fd: int) -> None:
    """Raise `PathRefused` in a data directory: it holds the logs of every session, not only of this one."""
    try:
        os.stat(DATA_MARK, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PathRefused(_reason(error)) from None
    raise PathRefused("it is in CodeSDK's own data directory, which is closed to tools")


def _enter(fd: int, folder: str) -> int:
    try:
        return os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
    except OSError as error:
        if _is_link(fd, folder):
            raise PathRefused(f"{folder} is a symbolic link; symbolic links are not followed") from None
        raise PathRefused(_reason(error, folder)) from None


def _read(directory: int, name: str, max_bytes: int) -> Opened:
    try:
        fd = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=directory
        )
    except OSError as error:
        if _is_link(directory, name):
            raise PathRefused(f"{name} is a symbolic link; symbolic links are not followed") from None
        raise PathRefused(_reason(error, name)) from None
    try:
        info = os.fstat(fd)
        _require_regular(info, name)
        if info.st_size > max_bytes:
            raise TooLarge(f"{name} has {info.st_size} bytes; files over {max_bytes} bytes are not opened")
        data = _drain(fd, max_bytes)
        if len(data) > max_bytes:
            raise TooLarge(f"{name} grew over {max_bytes} bytes while it was read")
    except OSError as error:
        raise PathRefused(_reason(error, name)) from None
    finally:
        os.close(fd)
    return Opened(data, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid), info.st_nlink)


def _drain(fd: int, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    left = max_bytes + 1
    while left > 0 and (chunk := os.read(fd, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _create(directory: int, name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=directory)
    except OSError as error:
        raise PathRefused(_reason(error)) from None


def _fill(fd: int, data: bytes, before: Opened) -> bytes:
    """Write a new file, make it durable, and return what it then holds."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    with contextlib.suppress(OSError):
        os.fchown(fd, *before.owner)  # only root can give a file away; for others it is theirs now
    os.fchmod(fd, before.mode & 0o777)
    os.fsync(fd)
    os.lseek(fd, 0, os.SEEK_SET)
    return _drain(fd, len(data))


def _require_unchanged(directory: int, name: str, before: Opened) -> None:
    """Compare the content itself: times are too coarse to show every change."""
    try:
        now = _read(directory, name, len(before.data))
    except TooLarge:
        now = None
    if now is None or now.data != before.data:
        raise Changed(f"{name} was changed by someone else meanwhile; read it again")
    if now.links > 1:
        raise PathRefused(f"{name} has other names (hard links); changing it could change files elsewhere")


def _require_regular(info: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise PathRefused(f"{name} is a directory, not a file")
    if not stat.S_ISREG(info.st_mode):
        raise PathRefused(f"{name} is not a regular file")


def _sync(directory: int) -> None:
    """Make a rename durable. A descriptor that only stands for a path must be opened for it."""
    with contextlib.suppress(OSError):
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _reason(error: OSError, name: str = "the file") -> str:
    """Return what an error of the system means here. Never the path on this machine."""
    known = {
        errno.ENOENT: f"{name} does not exist",
        errno.ENOTDIR: f"{name} is not a directory",
        errno.EISDIR: f"{name} is a directory, not a file",
        errno.EACCES: f"{name} may not be accessed: permission denied",
        errno.EPERM: f"{name} may not be accessed: permission denied",
        errno.ENXIO: f"{name} is not a regular file",
        errno.ENOSPC: "the disk is full",
        errno.EROFS: "the workspace is read-only",
        errno.EDQUOT: "the disk quota is used up",
    }
    return known.get(error.errno or 0, f"{name} cannot be opened: {os.strerror(error.errno or 0)}")
