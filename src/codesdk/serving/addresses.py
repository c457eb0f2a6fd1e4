"""A socket file → an address that it can be bound or reached by, however long its path is."""

import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path

from codesdk.contract.errors import StorageFailure

_SUN_PATH = 100  # of 108 bytes on Linux and 104 elsewhere


@contextlib.contextmanager
def socket_path(directory: Path, name: str) -> Generator[str]:
    """Yield an address to bind or connect a socket of a directory, even if its path is too long for one.

    The address is valid only inside the `with`; a socket that uses it lives on.
    """
    plain = str(directory / name)
    if len(os.fsencode(plain)) < _SUN_PATH:
        yield plain
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{handle}/{name}"
        if not Path(short).parent.is_dir():
            raise StorageFailure(
                f"The path {plain} is too long for a socket. Choose a shorter data directory."
            )
        yield short
    finally:
        os.close(handle)


def bind_socket(directory: Path, name: str) -> socket.socket:
    """Return a listening socket in a directory, for its owner only. There must be no file of that name."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_path(directory, name) as address:
            listener.bind(address)
        (directory / name).chmod(0o600)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener
