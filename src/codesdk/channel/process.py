"""A command → a running program with its pipes: commands go in, parsed events come out, all else passes through.

Two readers, one writer and one who waits for the end. Only the writer writes to the program's stdin, so that lines
never mix. A reader that cannot hand on what it has stops reading: the program feels it, and memory does not grow.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from codesdk.channel.framing import Candidate, Framing, Piece
from codesdk.channel.limits import ArbiterLimits
from codesdk.channel.protocol import ParseError, encode, read_event
from codesdk.channel.runner import (
    Exchange,
    Launch,
    OutputLost,
    ParseFailed,
    RunnerSession,
    StdinBroken,
    Stream,
    StreamClosed,
    ToolSeen,
)
from codesdk.contract.errors import TaskFailure
from codesdk.processes import Guard, exit_of
from codesdk.sending import send

CHUNK_BYTES = 256 * 1024
TAIL_BYTES = 16 * 1024
_LAST_WORDS_S = 2.0
_PIPE_BYTES = 1024 * 1024
_OVERLONG = ParseError(kind="too_long", problem="the line is longer than an event may be")


class Sink(Protocol):
    """Where a stream passes through to."""

    async def write(self, data: bytes) -> None:
        """Write all of it. Raise `OSError` if nobody reads it."""
        ...


class Descriptor:
    """A descriptor of this process as a sink. Written in a thread: a slow reader must not hold up anything else."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def write(self, data: bytes) -> None:
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._number, rest) :]


class ProcessRunner:
    """Starts real ones, each in a session of its own, so that the terminal's signals come through us."""

    def __init__(self, out: Sink, err: Sink, limits: ArbiterLimits) -> None:
        self._sinks: dict[Stream, Sink] = {"stdout": out, "stderr": err}
        self._limits = limits

    async def start_session(self, launch: Launch) -> RunnerSession:
        """Start a program, and a guard that ends it should this process be killed."""
        guard = None
        try:
            guard = Guard()
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=launch.cwd,
                env={**(os.environ if launch.env is None else launch.env), **guard.variables},
                start_new_session=True,
                limit=CHUNK_BYTES,
            )
        except BaseException as error:
            if guard is not None:
                guard.release()
            if not isinstance(error, OSError | ValueError):
                raise
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise TaskFailure(
                f"The program {launch.argv[0]} cannot be started: {why}. Check its name, and that it may be run.",
                code="RUNTIME_UNAVAILABLE",
            ) from None
        guard.watch(process.pid)
        return _ProcessSession(process, guard, self._sinks, self._limits)


class _ProcessSession(Exchange):
    def __init__(
        self, process: Process, guard: Guard, sinks: Mapping[Stream, Sink], limits: ArbiterLimits
    ) -> None:
        super().__init__()
        self._guard = guard
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._limits = limits
        self._passing = 0
        self._telling: asyncio.Task[None] | None = None
        self._readers = [
            asyncio.create_task(self._read("stdout", process.stdout, sinks["stdout"])),
            asyncio.create_task(self._read("stderr", process.stderr, sinks["stderr"])),
        ]
        self._writer = asyncio.create_task(self._write())
        self._waiter = asyncio.create_task(self._wait())
        for stream in (process.stdout, process.stderr):
            _widen(stream)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group. It may outlive its first process."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)

    async def close(self) -> None:
        """Stop reading and writing. Must not raise."""
        tasks = [*self._readers, self._writer, self._waiter, *filter(None, [self._telling])]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._guard.release()
        # All pipes: one that was not read to its end is never closed by itself, and would outlive the loop.
        cast("asyncio.SubprocessTransport", vars(self._process)["_transport"]).close()

    async def _read(self, name: Stream, reader: asyncio.StreamReader, sink: Sink) -> None:
        framing = Framing(self._limits.max_line_bytes)
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                self.heard()
                await self._hand_on(name, framing.feed(chunk), sink)
            await self._hand_on(name, framing.end(), sink)
        except OSError:
            await self.events.put(OutputLost(name))
        await self.events.put(StreamClosed(name))

    async def _hand_on(self, name: Stream, pieces: Sequence[Piece], sink: Sink) -> None:
        """Pass on what is ordinary output, in as few writes as the order allows, and report the rest."""
        passing: list[bytes] = []
        for piece in pieces:
            if isinstance(piece, bytes):
                passing.append(piece)
                continue
            event, error = (None, _OVERLONG)
            if isinstance(piece, Candidate):
                event, error = read_event(piece.line)
                if event is None:
                    passing.append(piece.line)
            if event is None and error is None:
                continue
            await self._pass(
                name, passing, sink
            )  # what was printed before a request is seen before its prompt
            if event is not None and isinstance(piece, Candidate):
                await self.events.put(ToolSeen(name, event, len(piece.line)))
            elif error is not None:
                line = piece.line.decode("utf-8", "replace") if isinstance(piece, Candidate) else ""
                await self.events.put(ParseFailed(name, error, line))
        await self._pass(name, passing, sink)

    async def _pass(self, name: Stream, passing: list[bytes], sink: Sink) -> None:
        if not passing:
            return
        data = passing[0] if len(passing) == 1 else b"".join(passing)
        passing.clear()
        self.tails[name] = (self.tails[name] + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._passing += 1
        try:
            await sink.write(data)
        finally:
            self._passing -= 1

    async def _write(self) -> None:
        """Write commands, one after the other. After the first that fails, none is written."""
        why, stuck = "", False
        while True:
            command = await self.control.get()
            if why:
                continue  # taken and dropped, so that nobody waits for room
            try:
                async with asyncio.timeout(self._limits.write_s):
                    await send(self._stdin, encode(command))
                if self._stdin.is_closing():
                    raise BrokenPipeError  # as a write that fails at once
            except TimeoutError:
                why, stuck = f"it has not read its stdin for {self._limits.write_s:g} s", True
            except OSError:
                why = "its stdin is closed"
            if why:
                # Beside this: who reads the events may wait for room among the commands.
                self._telling = asyncio.create_task(self.events.put(StdinBroken(why, stuck)))

    async def _wait(self) -> None:
        """Wait for the end, and for what is still in the pipes. Others may hold these open for ever."""
        code = await exit_of(self._process)
        while True:
            _, reading = await asyncio.wait(self._readers, timeout=_LAST_WORDS_S)
            idle = asyncio.get_running_loop().time() - self.heard_at >= _LAST_WORDS_S
            if not reading or (idle and not self._passing and self.events.empty()):
                break
        if not self.status.done():
            self.status.set_result(code)


def _widen(reader: asyncio.StreamReader) -> None:
    """Make a pipe larger, where the system lets us: fewer wake-ups for a program that prints much."""
    transport = vars(reader).get("_transport")
    pipe: Any = None if transport is None else transport.get_extra_info("pipe")
    with contextlib.suppress(OSError, AttributeError, ValueError):
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
