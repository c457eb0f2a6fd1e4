"""`Guard`: whatever carries its mark → ended when this process is, even by SIGKILL and in the middle of a start.

The kernel's own means come too late for that. A process asks for its parent's death signal itself, once it runs, and
bubblewrap does so twice, each time for one of its two processes: a kill of ours between a fork and such a request
leaves the program running, without the limits that we would have set next.

A guard is a shell that waits for the end of a pipe which only this process holds open. A child that is not yet the
program it is to become holds it, too. So when the end comes, all that was started can be seen, by a mark in its
command line or its environment.
"""

import contextlib
import os
import secrets
import signal
import threading
from collections.abc import Mapping
from weakref import WeakSet

VARIABLE = "CODESDK_CHILD"
"""Where a program that runs without bubblewrap, and all that it starts, has the mark."""
GUARD_NAME = "codesdk-guard"
"""The last argument of every guard, by which it is known."""
_SHELL = "/bin/sh"
# The mark comes through the pipe, and grep gets it the same way: neither may carry it. Only a whole argument or a whole
# variable counts. A process may start another one and end while the search is under way, so that neither is seen: only
# when none was found three times, there is none. By the first digit, because a command line has only so much room.
_SCRIPT = rf"""
cd /; unset PWD OLDPWD; PATH=/usr/bin:/bin
read -r mark || exit
group=
while read -r line; do group=$line; done
rounds=0 empty=0
while [ $rounds -lt 200 ] && [ $empty -lt 3 ]; do
    [ -z "$group" ] || kill -s KILL -- "-$group"
    found=
    for digit in 1 2 3 4 5 6 7 8 9; do
        found="$found $(printf '%s\n%s\n' "$mark" "{VARIABLE}=$mark" |
            grep -lsazxF -f - /proc/$digit*/cmdline /proc/$digit*/environ)"
    done
    empty=$((empty + 1))
    for file in $found; do
        file=${{file#/proc/}}
        kill -s KILL "${{file%%/*}}"
        empty=0
    done
    rounds=$((rounds + 1))
    sleep 0.02
done
"""


class Guard:
    """Waits beside this process. Starting it blocks, but only until the shell runs; raises `OSError` if it cannot."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark or f"codesdk-{secrets.token_hex(8)}"
        """What a child must carry from its first moment on: as an argument, or in `variables`."""
        self._pid: int | None = None
        told, self._tell = os.pipe()
        try:
            self._pid = _start(told)
        except BaseException:
            os.close(self._tell)
            raise
        finally:
            os.close(told)
        os.write(self._tell, f"{self.mark}\n".encode())
        _all.add(self)

    @property
    def variables(self) -> Mapping[str, str]:
        """The mark as a variable of the environment."""
        return {VARIABLE: self.mark}

    def watch(self, group: int) -> None:
        """End a process group, too: what is in it may have an environment that cannot be read, or another one."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, f"{group}\n".encode())

    def is_alive(self) -> bool:
        """Return whether it still waits."""
        if self._pid is not None:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                    return True
        self._pid = None
        return False

    def release(self) -> None:
        """Let what carries the mark outlive us. Must not raise; may be called twice."""
        # Killed before the pipe is closed: its end would be taken for ours.
        if self.is_alive() and self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = None
        self.forget()

    def forget(self) -> None:
        """Close our end of the pipe; that is all that a process which was forked from ours may do."""
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1


def _start(stdin: int) -> int:
    """Start the shell, in a session of its own: what ends our terminal must not end it."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    return os.posix_spawn(
        _SHELL,
        [_SHELL, "-c", _SCRIPT, GUARD_NAME],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0), *quiet],
        setsid=True,
        setsigmask=[],
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


_lock = threading.Lock()
_own: Guard | None = None
_all: WeakSet[Guard] = WeakSet()


def own_guard() -> Guard:
    """Return the guard of this process, for whatever must never outlive it. Starts it for the first child."""
    global _own
    with _lock:
        if _own is None:
            _own = Guard()
        elif not _own.is_alive():  # somebody ended it; what it guarded still carries its mark
            _own.release()
            _own = Guard(_own.mark)
        return _own


def _in_a_fork() -> None:
    """Hold no pipe open in a copy of this process: its life is not ours."""
    global _own, _lock
    for guard in _all:
        guard.forget()
    _own, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_in_a_fork)
