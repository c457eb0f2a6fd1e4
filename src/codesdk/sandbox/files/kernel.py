"""Two system calls that Python does not offer: `openat2` and `renameat2`.

Each raises `Unsupported` where the system lacks the call, so that the caller can use another way.
"""

import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable

_OPENAT2 = 437  # the same on every architecture that Linux runs on but alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_NO_REPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.E2BIG, errno.EOPNOTSUPP})


class Unsupported(Exception):
    """The kernel or the file system does not support the call."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: str, flags: int) -> int:
    """Open a path beneath a directory, following no link. Raise `OSError` or `Unsupported`."""
    call = _syscall()
    if call is None:
        raise Unsupported
    name = _name(path)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    fd = call(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory),
        ctypes.c_char_p(name),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
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
    done = call(
        ctypes.c_int(directory),
        ctypes.c_char_p(_name(old)),
        ctypes.c_int(directory),
        ctypes.c_char_p(_name(new)),
        ctypes.c_uint(flags),
    )
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
    number = ctypes.get_errno()
    if number in unsupported:
        raise Unsupported
    raise OSError(number, os.strerror(number))


@functools.cache
def _library() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@functools.cache
def _syscall() -> Callable[..., int] | None:
    call = getattr(_library(), "syscall", None)
    if call is not None:
        call.restype = ctypes.c_long
    return call


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    return getattr(_library(), "renameat2", None)
