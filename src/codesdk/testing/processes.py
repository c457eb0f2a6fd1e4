"""The processes below this one: what was started, what is left, and a way to kill it."""

import contextlib
import os
import signal
from pathlib import Path

from codesdk.processes import GUARD_NAME


def children() -> dict[int, str]:
    """Return all processes below this one that are alive, by id, with their names; our own guard aside."""
    parents: dict[int, tuple[int, str, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                state, parent = rest.split()[:2]
                parents[int(entry.name)] = int(parent), state, name
    below, found = {os.getpid()}, dict[int, str]()
    for _ in parents:  # a process may have a smaller id than its parent, so one pass is not enough
        new = {pid for pid, (parent, _, _) in parents.items() if parent in below} - below
        if not new:
            break
        below |= new
        found |= {pid: parents[pid][2] for pid in new if parents[pid][1] != "Z" and not _is_guard(pid)}
    return found


def command_line(pid: int | str) -> bytes:
    """Return what a process was started as; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_guard(pid: int) -> bool:
    return command_line(pid).endswith(f"\0{GUARD_NAME}\0".encode())


def kill(pid: int) -> None:
    """Kill a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):  # it ended together with its parent
        os.kill(pid, signal.SIGKILL)


def kill_since(before: dict[int, str]) -> None:
    """Kill what was started below this process since `before` was looked at."""
    for pid in children().keys() - before.keys():
        kill(pid)
