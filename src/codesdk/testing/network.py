"""A network namespace with only loopback, for the thread that runs a test and every process that it starts.

Real programs are started only inside it. They cannot reach anything outside, and the kernel counts each try.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def alone() -> Generator[None]:
    """Move this thread into its own network namespace, and back afterwards. Needs root."""
    # The thread's, not the process's: other threads keep the network that they have.
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWNET))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _check(_libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def can_be_alone() -> bool:
    """Return whether this process may have its own network namespace."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip") is not None


def is_alone() -> bool:
    """Return whether this thread's network has only loopback."""
    try:
        lines = Path("/proc/thread-self/net/dev").read_text().split("\n")[2:]
    except OSError:  # another system than Linux
        return False
    return [line.partition(":")[0].strip() for line in lines if line] == ["lo"]


def tried_outside() -> int:
    """Return how often a process in this namespace tried to reach an address that is not loopback."""
    lines = Path("/proc/thread-self/net/snmp").read_text().split("\n")
    names, values = [line.split() for line in lines if line.startswith("Ip:")]
    return int(dict(zip(names, values, strict=True))["OutNoRoutes"])


def left_behind(mark: Path) -> list[str]:
    """Return the living processes whose environment mentions a folder."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(mark) in (entry / "environ").read_bytes():
                found.append((entry / "comm").read_text().strip())
        except OSError:
            pass  # gone, or not readable for us
    return found


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
