"""Two system calls that Python does not offer: `openat2` and `renameat2`.

Each raises `Unsupported` where the system lacks the call, so that the caller can use another way. ctypes is
loaded with the first call: a process at rest opens no workspace.
"""

import errno
import functools
import os
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

_OPENAT2 = 437  # the same on every architecture that Linux runs on but alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_NO_REPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.E2BIG, errno.EOPNOTSUPP})
_HOW = struct.Struct("=QQQ")
"""`struct open_how`: flags, mode, resolve."""


class Unsupported(Exception):
    """The kernel or the file system does not support the call."""


def open_beneath(directory: int, path: str, flags: int, *, links: bool = False) -> int:
    """Open a path beneath a directory, following no link, or none that leads out. Raise `OSError` or `Unsupported`."""
    call = _syscall()
    if call is None:
        raise Unsupported
    name = _name(path)
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if links else _RESOLVE_NO_SYMLINKS)
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    fd = call(_OPENAT2, directory, name, how, len(how))
    # A filter that does not know the call may refuse it with EPERM, which opening a path never gives.
    _require(fd, _UNSUPPORTED | {errno.EPERM})
    return fd


def exchange(directory: int, first: str, second: str) -> None:
    """Exchange two names in a directory atomically. Raise `OSError` or `Unsupported`."""
    _rename(directory, first, second, _EXCHANGE)


def rename_new(directory: int, old: str, new: str) -> None:
    """Rename, unless the new name is taken. Raise `OSError` or `Unsupported`."""
    _rename(directory, old, new, _NO_REPLACE)


def _rename(directory: int, old: str, new: str, flags: int) -> None:
    call = _renameat2()
    if call is None:
        raise Unsupported
    done = call(directory, _name(old), directory, _name(new), flags)
    _require(done, _UNSUPPORTED)


def _name(path: str) -> bytes:
    """Return the bytes of a path. C would take a NUL for its end, and open something else."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path cannot contain a NUL character")
    return name


def _require(result: int, unsupported: frozenset[int]) -> None:
    if result >= 0:
        return
    import ctypes

    number = ctypes.get_errno()
    if number in unsupported:
        raise Unsupported
    raise OSError(number, os.strerror(number))


@functools.cache
def _library() -> "ctypes.CDLL | None":
    import ctypes

    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@functools.cache
def _syscall() -> Callable[..., int] | None:
    """Return `syscall` as `openat2` is called by it."""
    import ctypes

    call = getattr(_library(), "syscall", None)
    if call is not None:
        call.restype = ctypes.c_long
        call.argtypes = (
            ctypes.c_long,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        )
    return call


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    import ctypes

    call = getattr(_library(), "renameat2", None)
    if call is not None:
        call.argtypes = (
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        )
    return call
