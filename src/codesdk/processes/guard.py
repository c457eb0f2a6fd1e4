"""`Guard`: a process group → ended when this process is, even by SIGKILL.

For a program that must run as if nobody had started it, in no namespace and without a wrapper around it. A shell waits
for the end of a pipe that only we hold open, which comes with our end, however that comes.
"""

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE, Process

_SHELL = "/bin/sh"
_WAIT = 'read -r group && { read -r _; kill -s KILL -- "-$group"; }'


class Guard:
    """Waits beside one process group. Get it from `start_guard`; call `release` whatever happens."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        self._process = process
        self._stdin = process.stdin

    def watch(self, group: int) -> None:
        """Kill this group if we end before `release`."""
        self._stdin.write(f"{group}\n".encode())

    async def release(self) -> None:
        """Watch no more. Must not raise; may be called twice."""
        # Killed before the pipe is closed: its end would be taken for ours.
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._stdin.close()


async def start_guard() -> Guard:
    """Start a guard, in a session of its own: what ends our terminal must not end it. Raise `OSError` if there is none."""
    return Guard(
        await asyncio.create_subprocess_exec(
            _SHELL,
            "-c",
            _WAIT,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    )
