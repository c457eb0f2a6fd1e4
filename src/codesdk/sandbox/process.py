"""Follows a started program: its output as it comes, then its end. Kills it early if it exceeds a limit.

For backends that start programs themselves. Reads both pipes without waiting for either, and leaves it to the
backend how to kill all of a program.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import IO, TypeVar

from codesdk.sandbox.backend import LimitName, Output, SandboxLimits, Stream

_CHUNK = 1 << 16
WATCH_S = 0.1
_LAST_WORDS = 600
HIT_BY_SIGNAL: Mapping[int, LimitName] = {128 + signal.SIGXCPU: "cpu", 128 + signal.SIGXFSZ: "file_size"}
"""The limit that a command reached, by the exit code of one that the kernel killed for it."""

T = TypeVar("T")


class Pipes:
    """Both output pipes of a program, read as they fill, up to a number of bytes."""

    def __init__(self, output: Output, max_bytes: int, full: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._left = max_bytes
        self._full = full
        self._open: dict[int, Stream] = {}
        self.taken = 0
        self.last_words = b""
        """The end of what it said on stderr."""

    def attach(self, stream: Stream, pipe: IO[bytes]) -> None:
        """Read a pipe from now on."""
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        self._open[fd] = stream
        self._loop.add_reader(fd, self._read, fd)

    def drain(self) -> None:
        """Read what is already there, and stop reading."""
        for fd in list(self._open):
            # What was written just before the end is still in the pipe.
            while fd in self._open and self._read(fd):
                pass
            self._forget(fd)

    def _read(self, fd: int) -> bool:
        """Read one chunk, and return whether there was one."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._forget(fd)
            return False
        self._take(self._open[fd], data)
        return True

    def _take(self, stream: Stream, data: bytes) -> None:
        kept = data[: self._left]
        self._left -= len(kept)
        self.taken += len(kept)
        if stream == "stderr":
            self.last_words = (self.last_words + kept)[-_LAST_WORDS:]
        if kept:
            self._output(stream, kept)
        if len(kept) < len(data):
            self._full()

    def _forget(self, fd: int) -> None:
        if self._open.pop(fd, None) is not None:
            self._loop.remove_reader(fd)


class Overseer:
    """Watches a running program's limits, and has all of it killed at the first one that it reaches."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._kill = kill
        self._timers: dict[LimitName, asyncio.TimerHandle] = {}
        self.hit: LimitName | None = None

    def stop(self, limit: LimitName) -> None:
        """Kill all of it, because of a limit."""
        if self.hit is None:
            self.hit = limit
            self._kill()

    def after(self, seconds: float) -> None:
        """Kill it when the time is over."""
        self._timers["wall"] = self._loop.call_later(seconds, self.stop, "wall")

    def watch_cpu(self, used_s: Callable[[], float], limit_s: float) -> None:
        """Check the CPU time of all its processes at intervals."""

        def look() -> None:
            if used_s() >= limit_s:
                self.stop("cpu")
            else:
                self._timers["cpu"] = self._loop.call_later(WATCH_S, look)

        look()

    def end(self) -> None:
        """Stop watching."""
        for timer in self._timers.values():
            timer.cancel()


@contextlib.contextmanager
def overseen(
    process: "subprocess.Popen[bytes]", limits: SandboxLimits, output: Output, kill: Callable[[], None]
) -> Generator[tuple[Overseer, Pipes]]:
    """Pass on what a program says and watch its time and its output, until it has ended."""
    overseer = Overseer(kill)
    pipes = Pipes(output, limits.output_bytes, lambda: overseer.stop("output"))
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        pipes.attach("stdout", process.stdout)
        pipes.attach("stderr", process.stderr)
        overseer.after(limits.wall_s)
        try:
            yield overseer, pipes
        finally:
            overseer.end()
            pipes.drain()


async def to_the_end(ending: Awaitable[T], kill: Callable[[], None] = lambda: None) -> T:
    """Wait for an end that must not be missed. If cancelled: kill, wait, and only then raise."""
    waiting = asyncio.ensure_future(ending)
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            cancelled = True
            kill()
    result = waiting.result()
    if cancelled:
        raise asyncio.CancelledError
    return result
