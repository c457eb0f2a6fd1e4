"""Changes to files beneath a directory, prepared first and then put in place together, or not at all.

    with Batch(files) as batch:
        batch.write("a.txt", before, b"…")
        batch.remove("b.txt", other)
        done = batch.commit()

New content is on disk before anything changes, and the old files are kept aside until everything is in place,
so going back needs no space. A file that someone else changed meanwhile is detected and left alone. Blocking;
run it in a thread.
"""

import contextlib
import os
import secrets
from collections.abc import Callable

import msgspec

from codesdk.sandbox.files import kernel
from codesdk.sandbox.files.paths import (
    Beneath,
    Changed,
    Opened,
    PathRefused,
    TooLarge,
    drain,
    owner_in,
    read_regular,
    reason,
    reopened,
    split,
)

_EXECUTE = 0o111


class Written(msgspec.Struct, frozen=True):
    """A file as it will be in place, read back from disk, and how many folders were made for it."""

    data: bytes
    mode: int
    made_folders: int = 0


class _Step(msgspec.Struct):
    """One change. `aside` names the new file until it is in place, and the old one after that."""

    directory: int
    name: str
    before: Opened | None
    aside: str
    writes: bool
    placed: bool = False


class Batch:
    """Changes to be made. Use it in a `with`: leaving it removes what was prepared and not put in place."""

    def __init__(self, files: Beneath) -> None:
        self._files = files
        self._steps: list[_Step] = []
        self._made: list[list[str]] = []
        self._committed = False

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *_: object) -> None:
        for step in self._steps:
            with contextlib.suppress(OSError):
                os.unlink(step.aside, dir_fd=step.directory)
            os.close(step.directory)
        if not self._committed:
            remove_folders(self._files, self._made)

    def write(
        self,
        path: str,
        before: Opened | None,
        data: bytes,
        *,
        mode: int | None = None,
        executable: bool | None = None,
    ) -> Written:
        """Prepare a file: replacing one that was read as `before`, or a new one with its folders.

        It keeps its mode, or gets the default one, unless `mode` gives it exactly or `executable` changes it.
        It never gets setuid, setgid or the sticky bit.
        """
        folders, name = _writable(path)
        known = len(self._made)
        directory = self._files.open_folder(folders, self._made if before is None else None)
        step = _Step(directory, name, before, f".{name[:32]}.{secrets.token_hex(8)}.tmp", writes=True)
        self._steps.append(step)
        try:
            data, mode = _stage(step, data, mode, executable)
        except OSError as error:
            raise PathRefused(reason(error)) from None
        return Written(data, mode, len(self._made) - known)

    def remove(self, path: str, before: Opened) -> None:
        """Prepare to remove a file that was read as `before`."""
        folders, name = _writable(path)
        directory = self._files.open_folder(folders)
        aside = f".{name[:32]}.{secrets.token_hex(8)}.tmp"
        self._steps.append(_Step(directory, name, before, aside, writes=False))

    def commit(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Put everything in place, durably. If `go_on` says no just before, change nothing and return False.

        Raise `Changed` if a file is not what was read or a new one already exists, `PathRefused` if it has
        other names or cannot be changed; then nothing was changed.
        """
        for step in self._steps:
            if step.before is not None:
                _require_unchanged(step.directory, step.name, step.before, step.name)
        if not go_on():
            return False
        try:
            for step in self._steps:
                _place(step)
                step.placed = True
        except OSError as error:
            self._go_back()
            raise PathRefused(reason(error)) from None
        except BaseException:
            self._go_back()
            raise
        self._committed = True
        for step in self._steps:
            _sync(step.directory)
        return True

    def _go_back(self) -> None:
        stuck: list[str] = []
        for step in reversed(self._steps):
            if step.placed:
                try:
                    _take_back(step)
                except OSError:
                    stuck.append(step.name)
        if stuck:
            raise PathRefused(f"it failed half way, and these could not be put back: {', '.join(stuck)}")


def remove_folders(files: Beneath, folders: list[list[str]]) -> None:
    """Remove empty directories, innermost first. What cannot be removed stays."""
    for *above, name in reversed(folders):
        with contextlib.suppress(OSError, PathRefused), files.folder(above) as directory:
            os.rmdir(name, dir_fd=directory)


def _writable(path: str) -> tuple[list[str], str]:
    """Return the folders and the name of a file. Raise `PathRefused` for git's own files."""
    *folders, name = split(path)
    if any(part.lower() == ".git" for part in (*folders, name)):
        raise PathRefused("it belongs to git itself, which runs what is in there; use git to change it")
    return folders, name


def _stage(step: _Step, data: bytes, mode: int | None, executable: bool | None) -> tuple[bytes, int]:
    """Write the new file beside its place, make it durable, and return what it then holds and its mode."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    first = (
        0o600 if step.before else 0o777 if executable else 0o666
    )  # a new file gets its mode from the process's umask
    fd = os.open(step.aside, flags, first, dir_fd=step.directory)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        with contextlib.suppress(OSError):  # only root can change the owner; otherwise the file is ours now
            os.fchown(fd, *(step.before.owner if step.before else owner_in(step.directory)))
        if step.before is not None:
            os.fchmod(fd, _mode(step.before.mode, executable))
        if mode is not None:
            os.fchmod(fd, mode & 0o777)
        os.fsync(fd)
        os.lseek(fd, 0, os.SEEK_SET)
        return drain(fd, len(data)), os.fstat(fd).st_mode & 0o7777
    finally:
        os.close(fd)


def _mode(mode: int, executable: bool | None) -> int:
    """Return a mode, with execute permission for those who may read or without it for all, if asked for."""
    mode &= 0o777
    if executable is None:
        return mode
    return mode | (mode >> 2) & _EXECUTE if executable else mode & ~_EXECUTE


def _place(step: _Step) -> None:
    """Make one change, and check that the old file, now aside, is what was read; else revert the change."""
    if step.before is None:
        _put_new(step)
        return
    if step.writes:
        _swap(step)
    else:
        os.rename(step.name, step.aside, src_dir_fd=step.directory, dst_dir_fd=step.directory)
    try:
        _require_unchanged(step.directory, step.aside, step.before, step.name)
    except BaseException:
        _take_back(step)
        raise


def _put_new(step: _Step) -> None:
    fd = step.directory
    try:
        try:
            kernel.rename_new(fd, step.aside, step.name)
        except kernel.Unsupported:
            os.link(step.aside, step.name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            os.unlink(step.aside, dir_fd=fd)
    except FileExistsError:
        raise Changed(f"{step.name} is there already; read it first") from None


def _swap(step: _Step) -> None:
    """Exchange the new file and the old one. If the system cannot, give the old one a second name first."""
    try:
        kernel.exchange(step.directory, step.aside, step.name)
    except kernel.Unsupported:
        fd, kept = step.directory, f"{step.aside[:-4]}.old.tmp"
        os.link(step.name, kept, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        try:
            os.rename(step.aside, step.name, src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:
            os.unlink(kept, dir_fd=fd)
            raise
        step.aside = kept


def _take_back(step: _Step) -> None:
    if step.before is None:
        os.unlink(step.name, dir_fd=step.directory)
    else:
        os.rename(step.aside, step.name, src_dir_fd=step.directory, dst_dir_fd=step.directory)


def _require_unchanged(directory: int, name: str, before: Opened, called: str) -> None:
    """Compare the content itself: times are too coarse to show every change."""
    try:
        now = read_regular(directory, name, len(before.data))
    except TooLarge:
        now = None
    except PathRefused:
        if name == called:
            raise
        now = None
    if now is None or now.data != before.data:
        raise Changed(f"{called} was changed by someone else meanwhile; read it again")
    if now.links > 1:
        raise PathRefused(f"{called} has other names (hard links); changing it could change files elsewhere")


def _sync(directory: int) -> None:
    """Make a rename durable."""
    with contextlib.suppress(OSError), reopened(directory) as fd:
        os.fsync(fd)
