"""Children that could outlive us → a note on disk for each, so that those a killed CodeSDK left behind can be ended.

Only for machines where a child gets no process namespace. A process is identified by its number, its start time and
the boot of the machine, so that another one with the same number is left alone. Only the writer of the folder may sweep.
"""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

PROCESSES = "processes"
"""The folder of the notes, below that of the runtimes' state."""
_ROUNDS = 10
_DYING_S = 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A child that was started as the first of its session and its process group."""

    pid: int
    started: int
    """In the kernel's ticks since the boot."""
    boot: str
    home: str
    """What HOME is for it and for all that it starts: no other child has the same."""


class _Process(msgspec.Struct, frozen=True):
    session: int
    started: int


def write_note(state_dir: str, pid: int, home: str) -> Path | None:
    """Note that a child runs. Return the note, to be removed when it ends, or None if it could not be written.

    Blocking, but short; must not raise.
    """
    found = _look(pid)
    if not state_dir or found is None:
        return None
    path = Path(state_dir) / PROCESSES / f"{pid}-{found.started}.json"
    note = Note(pid=pid, started=found.started, boot=_boot(), home=home)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(note))
        return path
    return None


def sweep(state_dir: str) -> int:
    """Kill what is left of the noted children and remove the notes. Return how many processes were killed.

    Blocking; must not raise.
    """
    killed = 0
    with contextlib.suppress(OSError):
        for path in sorted((Path(state_dir) / PROCESSES).glob("*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                killed += _end(msgspec.json.decode(path.read_bytes(), type=Note))
            path.unlink(missing_ok=True)
    return killed


def _end(note: Note) -> int:
    """Kill a child's session, in rounds: its processes may start others before they die."""
    killed = 0
    for _ in range(_ROUNDS):
        handles = list(_left_of(note))
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:
            select.select([handle], [], [], _DYING_S)
            os.close(handle)
        killed += len(handles)
        if not handles:
            break
    return killed


def _left_of(note: Note) -> Iterator[int]:
    """Yield handles on the processes of a child's session, if it is still the same session."""
    first = _look(note.pid)
    if note.boot != _boot() or (first is not None and first.started != note.started):
        return  # another process has this number now
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            found = _look(pid)  # after the handle, so that it is the same process
            if (
                found is not None
                and found.session == note.pid
                and (first is not None or _is_at(pid, note.home))
            ):
                yield handle
            else:
                os.close(handle)


def _look(pid: int) -> _Process | None:
    """Return what the kernel says of a process, or None if it is gone or a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else _Process(session=int(fields[2]), started=int(fields[18]))


def _is_at(pid: int, home: str) -> bool:
    """Return whether a process has this HOME. Without the leader, the number of a session alone could be another one's."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return home != "" and b"HOME=" + os.fsencode(home) in environment


def _boot() -> str:
    return _BOOT.read_text().strip()
