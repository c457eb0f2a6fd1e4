"""One start of bubblewrap: held until its limits are in place, then released; killed with everything in it.

Bubblewrap reports the first process of the new process namespace and waits. When that process is gone, so is
every process that the command started. Start it from the loop's thread: the sandbox dies with the thread that
started it. Bubblewrap sees to that only when it runs; until then this process's guard does.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

import msgspec

from codesdk.processes import own_guard, readable
from codesdk.sandbox.bubblewrap.confinement import Descriptors
from codesdk.sandbox.owner import User

_START_S = 30.0


class Launch:
    """A started bubblewrap."""

    def __init__(
        self, program: str, options: Sequence[str], argv: Sequence[str], fds: Descriptors, user: User
    ) -> None:
        """Start it as `user`. All descriptors in `fds` are closed here afterwards."""
        mark = own_guard().mark
        self._status, told = os.pipe()
        # Not a pipe: bubblewrap takes its end for leave to start, and it would end with us.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held, self._release = theirs.detach(), ours.detach()
        fds.keep(told)
        fds.keep(held)
        options = [*options, "--json-status-fd", str(told), "--block-fd", str(held)]
        content = b"\0".join(os.fsencode(option) for option in options) + b"\0"
        # Through a descriptor, because other users can read a process's arguments.
        command = [program, "--unsetenv", mark, "--args", str(fds.data(content)), "--", *argv]
        try:
            self.process = _start(command, fds.held, user)
        except BaseException:
            self._close()
            raise
        finally:
            fds.close()
        self.first_pid: int | None = None
        self._first: int | None = None
        self._monitor = os.pidfd_open(self.process.pid)
        self._doomed = False
        self.exit_code: int | None = None
        """What the command returned; None if it never ran, or did not end by itself."""

    async def held(self) -> bool:
        """Wait until the sandbox is set up and waits for `let_go`. Return false if it failed before."""
        try:
            async with asyncio.timeout(_START_S):
                self.first_pid = _documents(await self._first_report()).get("child-pid")
            if self.first_pid is not None:
                self._first = os.pidfd_open(self.first_pid)
        except TimeoutError:
            # The group: without bubblewrap, the first process of its namespace would wait for it forever.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self._first is None:
            return False
        if self._doomed:
            self.kill()
        return not self._doomed

    async def _first_report(self) -> bytes:
        """Return the first line that bubblewrap reports, which comes in pieces."""
        line = b""
        while not line.endswith(b"\n"):
            await readable(self._status)
            piece = os.read(self._status, 1 << 12)
            if not piece:
                break
            line += piece
        return line

    def let_go(self) -> None:
        """Let the command start."""
        with contextlib.suppress(ConnectionError):
            os.write(self._release, b"\n")

    def kill(self) -> None:
        """Kill everything. Does nothing if it is already gone."""
        self._doomed = True
        # Until its first process is known, let bubblewrap report it: else that one might outlive bubblewrap.
        if self._first is not None:
            _send_kill(self._first)
            self.process.kill()

    async def gone(self) -> None:
        """Wait until every process of it is gone, then read how it ended."""
        if self._first is not None:
            await readable(self._first)
        await readable(self._monitor)
        self.process.wait()
        self._reap()
        os.set_blocking(self._status, False)
        with contextlib.suppress(BlockingIOError):
            self.exit_code = _documents(os.read(self._status, 1 << 16)).get("exit-code")

    def _reap(self) -> None:
        """Reap the first process if bubblewrap left it to us: in a container nobody else may do it."""
        if self._first is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._first, os.WEXITED | os.WNOHANG)

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, ours or the kernel's."""
        code = self.process.returncode
        return self._doomed or code < 0 or code == 128 + signal.SIGKILL

    def close(self) -> None:
        """Close what is left. Call it only when `gone` has returned."""
        for fd in (self._monitor, self._first):
            if fd is not None:
                os.close(fd)
        self._first = None  # so that a late `kill` cannot hit another process
        self._close()

    def _close(self) -> None:
        os.close(self._status)
        os.close(self._release)


def _start(command: Sequence[str], fds: Sequence[int], user: User) -> "subprocess.Popen[bytes]":
    """Start a program that inherits only the descriptors: no environment, no groups, no terminal."""
    drop = os.geteuid() == 0
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=fds,
        cwd="/",
        env={},
        start_new_session=True,
        user=user.uid if drop else None,
        group=user.gid if drop else None,
        extra_groups=[] if drop else None,
    )


def _documents(data: bytes) -> dict[str, Any]:
    """Return the fields of all JSON documents in some lines."""
    found: dict[str, Any] = {}
    for line in data.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            found |= msgspec.json.decode(line, type=dict[str, Any])
    return found


def _send_kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
