"""Files beneath an open directory: a relative path gives the bytes of a regular file, or a refusal in words.

The directory is the one that a `Workspace` names, reached through no link. The kernel resolves paths from its
descriptor (`openat2`), through no link and never out of it; where it cannot, each component is opened from the one
before. Blocking; run it in a thread. `batch` changes files, `tree` lists them.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence

import msgspec

from codesdk.contract.workspace import Workspace
from codesdk.sandbox.files.kernel import Unsupported, open_beneath

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
DATA_MARK = "codesdk.db"
"""A directory that holds this file is a CodeSDK data directory: no tool looks into it."""
# `O_PATH` also opens what may be passed but not read; only Linux has it.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK = 1 << 20


class PathRefused(Exception):
    """The path cannot be used. The message says why, without the path on this machine."""


class Missing(PathRefused):
    """There is no such file. Its directory may be missing, too."""


class NotAFolder(PathRefused):
    """A component of the path is not a directory."""


class TooLarge(PathRefused):
    """The file is larger than the caller allows."""


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
    parts = split_folder(path)
    if not parts or path.endswith(("/", "/.")):
        raise PathRefused("the path names a directory, not a file")
    return parts


def split_folder(path: str) -> list[str]:
    """Return the components of a path to a directory; none for `.`, the open directory itself."""
    if not path:
        raise PathRefused("the path is empty")
    if "\0" in path:
        raise PathRefused("a path cannot contain a NUL character")
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise PathRefused("the path contains characters that no file name can have") from None
    if path.startswith("/"):
        raise PathRefused("the path is absolute; give it relative to the workspace")
    if len(encoded) > MAX_PATH_BYTES or any(len(part) > MAX_NAME_BYTES for part in encoded.split(b"/")):
        raise PathRefused("the path is too long")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PathRefused('the path contains ".."; it must stay inside the workspace')
    return parts


def open_workspace(workspace: Workspace) -> int:
    """Return a descriptor of a workspace, for the caller to close. Raise `PathRefused` if it is not there any more.

    No link is followed, not even above it: others may be able to write there.
    """
    folders = [part for part in os.path.abspath(workspace.path).split("/") if part]  # noqa: PTH100 - never touches the disk
    fd = _open_from_root(folders)
    if workspace.identity not in (None, _identity(fd)):
        os.close(fd)
        raise PathRefused(
            "the workspace was replaced by another directory; put it back, or continue in a fork of the session"
        )
    return fd


def identify(workspace: Workspace) -> Workspace:
    """Return a workspace with the identity of the directory that is there now. Raise `PathRefused`."""
    if workspace.identity is not None and _is_there(workspace):
        return workspace
    fd = open_workspace(workspace)
    try:
        return Workspace(workspace.path, _identity(fd))
    finally:
        os.close(fd)


def _is_there(workspace: Workspace) -> bool:
    """Return whether the known directory is at its path. Who opens it still looks for links on the way."""
    try:
        info = os.lstat(workspace.path)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == workspace.identity


def _open_from_root(folders: Sequence[str]) -> int:
    """Descend from the root of the file system: with one call, or component by component, which shows what is wrong."""
    try:
        fd = os.open("/", _DIRECTORY)
        try:
            with contextlib.suppress(OSError, Unsupported):
                return open_beneath(fd, "/".join(folders) or ".", _DIRECTORY)
            for folder in folders:
                fd, above = enter(fd, folder), fd
                os.close(above)
            return os.dup(fd)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        raise PathRefused("the workspace cannot be opened") from None
    except PathRefused as error:
        raise PathRefused(f"the workspace cannot be opened: {error}") from None


class Beneath:
    """An open workspace. Use it in a `with`; paths are relative to it."""

    def __init__(self, workspace: Workspace) -> None:
        self._fd = open_workspace(workspace)
        self._identity = _identity(self._fd)

    def __enter__(self) -> "Beneath":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, path: str, max_bytes: int) -> Opened:
        """Return a regular file of at most `max_bytes`. Never waits for a FIFO or a device."""
        *folders, name = split(path)
        with self.folder(folders) as directory:
            return read_regular(directory, name, max_bytes)

    @contextlib.contextmanager
    def folder(self, folders: Sequence[str]) -> Generator[int]:
        """Open a directory, given by its components, as an `O_PATH` descriptor."""
        fd = self.open_folder(folders)
        try:
            yield fd
        finally:
            os.close(fd)

    def open_folder(self, folders: Sequence[str], made: list[list[str]] | None = None) -> int:
        """Return a descriptor of a directory, for the caller to close.

        With `made`, missing directories are created, and their components added to it.
        """
        try:
            fd = open_beneath(self._fd, "/".join(folders) or ".", _DIRECTORY)
        except (OSError, Unsupported):
            return self._walk(folders, made)  # the walk reports what is wrong, or makes what is missing
        try:
            self._climb(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _climb(self, fd: int) -> None:
        """Climb to the open directory: it must be reached, and none on the way be a data directory."""
        here = os.dup(fd)
        try:
            while True:
                require_workspace(here)
                if (identity := _identity(here)) == self._identity:
                    return
                here, below = os.open("..", _DIRECTORY, dir_fd=here), here
                os.close(below)
                if _identity(here) == identity:
                    raise PathRefused("its directory was moved out of the workspace meanwhile")
        except OSError as error:
            raise PathRefused(reason(error)) from None
        finally:
            os.close(here)

    def _walk(self, folders: Sequence[str], made: list[list[str]] | None) -> int:
        """Descend one component at a time, holding one descriptor."""
        fd = os.dup(self._fd)
        try:
            require_workspace(fd)
            for depth, folder in enumerate(folders, start=1):
                is_new = made is not None and _make(fd, folder)
                if made is not None and is_new:
                    made.append(list(folders[:depth]))
                owner = owner_in(fd)
                fd, last = enter(fd, folder), fd
                os.close(last)
                if is_new:
                    _give(fd, owner)
                require_workspace(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _identity(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


def _make(fd: int, folder: str) -> bool:
    """Create a directory unless something has its name. Return whether it was created."""
    try:
        os.mkdir(folder, dir_fd=fd)
    except FileExistsError:
        return False
    except OSError as error:
        raise PathRefused(reason(error, folder)) from None
    return True


def owner_in(directory: int) -> tuple[int, int]:
    """Return who should own a new file: the directory's if this is root; else no change."""
    info = os.fstat(directory)
    return (info.st_uid, info.st_gid) if os.geteuid() == 0 else (-1, -1)


def _give(directory: int, owner: tuple[int, int]) -> None:
    """Change a directory's owner. Through a descriptor: the name may be something else by now."""
    with contextlib.suppress(OSError), reopened(directory) as fd:
        os.fchown(fd, *owner)


@contextlib.contextmanager
def reopened(directory: int) -> Generator[int]:
    """Open a directory again: an `O_PATH` descriptor can be neither read, synced nor given away."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def require_workspace(fd: int) -> None:
    """Raise `PathRefused` in a data directory: it holds the logs of every session, not only of this one."""
    try:
        os.stat(DATA_MARK, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PathRefused(reason(error)) from None
    raise PathRefused("it is in CodeSDK's own data directory, which is closed to tools")


def enter(fd: int, folder: str) -> int:
    """Return a descriptor of a directory in another one, never through a link."""
    try:
        return os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
    except OSError as error:
        raise _refusal(fd, folder, error) from None


def open_without_links(directory: int, path: str, flags: int) -> int:
    """Return a descriptor of what lies beneath an open directory, through no link at all. Raise `OSError`.

    A link at the end is opened as one if `flags` has `O_PATH`, and else refused.
    """
    with contextlib.suppress(Unsupported):
        return open_beneath(directory, path, flags | os.O_NOFOLLOW)
    *folders, name = path.split("/")
    fd = os.dup(directory)
    try:
        for folder in folders:
            fd, above = os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd), fd
            os.close(above)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)


def read_regular(directory: int, name: str, max_bytes: int) -> Opened:
    """Return a regular file of a directory, by its name there."""
    try:
        fd = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=directory
        )
    except OSError as error:
        raise _refusal(directory, name, error) from None
    try:
        info = os.fstat(fd)
        _require_regular(info, name)
        if info.st_size > max_bytes:
            raise TooLarge(f"{name} has {info.st_size} bytes; files over {max_bytes} bytes are not opened")
        data = drain(fd, max_bytes)
        if len(data) > max_bytes:
            raise TooLarge(f"{name} grew over {max_bytes} bytes while it was read")
    except OSError as error:
        raise PathRefused(reason(error, name)) from None
    finally:
        os.close(fd)
    return Opened(data, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid), info.st_nlink)


def drain(fd: int, max_bytes: int) -> bytes:
    """Read to the end, or at most one byte over the limit."""
    chunks: list[bytes] = []
    left = max_bytes + 1
    while left > 0 and (chunk := os.read(fd, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _require_regular(info: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise PathRefused(f"{name} is a directory, not a file")
    if not stat.S_ISREG(info.st_mode):
        raise PathRefused(f"{name} is not a regular file")


def _refusal(directory: int, name: str, error: OSError) -> PathRefused:
    """Return the refusal of a name that could not be opened."""
    # What the kernel says of a link differs with the flags, so look at it.
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return PathRefused(f"{name} is a symbolic link; symbolic links are not followed")
    kind = {errno.ENOENT: Missing, errno.ENOTDIR: NotAFolder}.get(error.errno or 0, PathRefused)
    return kind(reason(error, name))


def reason(error: OSError, name: str = "the file") -> str:
    """Return what an `OSError` means here, never with the path on this machine."""
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
