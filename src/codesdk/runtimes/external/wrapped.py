"""The runtime `wrapped`: a program that another process has wrapped, reached over a socket in the data directory.

Whoever wraps a program has its terminal and its pipes; whoever holds the data directory has the log and the policy. They
need not be the same process. The wrapper serves the program as a runtime in the adapter protocol (`offered`), under
a name that nobody can guess, and the session says the name. There is one way, also if both are one process.
"""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from codesdk.contract.access import AuthStatus, Availability
from codesdk.contract.capabilities import OF_WRAPPED, Capabilities
from codesdk.contract.entry import WRAPPED
from codesdk.contract.errors import TaskFailure
from codesdk.contract.options import RuntimeOptions, read_options
from codesdk.contract.runtime import Runtime, RuntimeEnv, TaskInput
from codesdk.runtimes.external.process import AdapterProcess, Launch
from codesdk.runtimes.external.runtime import ExternalRuntime
from codesdk.runtimes.external.server import serve_streams
from codesdk.runtimes.program.framing import MAX_LINE_BYTES
from codesdk.serving import COUNTS, Acceptor, Limits, Seat, as_streams, bind_socket, socket_path

FOLDER = "wrapped"
_NAME = re.compile("[0-9a-f]{32}")
_CONNECT_S = 5.0
_LIMITS = Limits(connections=16)  # one is served; the others have a moment to say something
_LAUNCH = Launch(runtime=WRAPPED, argv=(WRAPPED,), folder=WRAPPED)


class WrappedOptions(RuntimeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a session of a wrapped program."""

    channel: Annotated[str, msgspec.Meta(description="the name under which the program is reached")]


class WrappedRuntime(ExternalRuntime):
    """Wrapped programs, each of one session and for one task."""

    def __init__(self) -> None:
        super().__init__(WRAPPED, _LAUNCH.argv)

    @property
    def options(self) -> type[Any]:
        return WrappedOptions

    def capabilities(self) -> Capabilities:
        return OF_WRAPPED

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=False, auth_model="none", account_label="no account needed")

    async def _session(self, task: TaskInput) -> AdapterProcess:
        process = self._sessions.get(task.session_id)
        if process is not None and process.open:
            return process
        channel = read_options(WrappedOptions, task.runtime_config, WRAPPED).channel
        process = await _connect(task.env, channel)
        self._sessions[task.session_id] = process
        return process


class _Link:
    """A connection in place of a child. Implements `Pipes`."""

    exit_code: int | None = None

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stdout = reader
        self.stdin = writer

    def stderr_tail(self) -> str:
        return ""

    async def wait(self) -> int:
        return 0

    async def stop(self, grace_s: float = 0) -> None:
        """Hang up: the wrapper ends the program then. Must not raise."""
        self.stdin.close()
        with contextlib.suppress(OSError):
            await self.stdin.wait_closed()


class _LinkedProcess(AdapterProcess):
    """The process that wraps the program."""

    async def failure(self) -> TaskFailure:
        return TaskFailure(
            "The command that had wrapped the program is gone, and the program with it. Wrap it again.",
            code="RUNTIME_CRASHED",
            runtime=WRAPPED,
        )


async def _connect(env: RuntimeEnv, channel: str) -> AdapterProcess:
    gone = TaskFailure(
        "The wrapped program is not running. It cannot be resumed: wrap it again.",
        code="RUNTIME_UNAVAILABLE",
        runtime=WRAPPED,
    )
    if not _NAME.fullmatch(channel) or not env.state_dir:
        raise gone
    try:
        async with asyncio.timeout(_CONNECT_S):
            with socket_path(Path(env.state_dir).parent / FOLDER, channel) as address:
                reader, writer = await asyncio.open_unix_connection(address, limit=MAX_LINE_BYTES)
    except (OSError, TimeoutError):
        raise gone from None
    process = _LinkedProcess(_LAUNCH, env, None, _Link(reader, writer))
    try:
        process.described = await process.introduce()
    except BaseException:
        await process.stop()
        raise
    return process


class _Begun:
    """A stream whose first line was read already."""

    def __init__(self, first: bytes, reader: asyncio.StreamReader) -> None:
        self._first = first
        self._reader = reader

    async def read(self, n: int = -1) -> bytes:
        first, self._first = self._first, b""
        return first or await self._reader.read(n)


class _Place:
    """The one place at a wrapped program: for the first who says something."""

    def __init__(self, runtime: Runtime, path: Path, limits: Limits) -> None:
        self._runtime = runtime
        self._path = path
        self._limits = limits
        self._clients: set[asyncio.StreamWriter] = set()
        self._serving: asyncio.Task[None] | None = None

    async def serve(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            async with asyncio.timeout(self._limits.head_s):
                first = await reader.readuntil(b"\n")
            if self._serving is None:
                seat.work()
                self._path.unlink(missing_ok=True)
                # A task of its own: cancelling the one of the connection would be reported as a fault.
                serving = serve_streams(self._runtime, _Begun(first, reader), writer)
                self._serving = asyncio.create_task(serving)
                await asyncio.wait([self._serving])
        except TimeoutError:
            COUNTS.timed_out += 1
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # it is gone, or says what is no message
        finally:
            self._clients.discard(writer)
            writer.close()

    async def close(self) -> None:
        """Hang up on everybody. Must not raise."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        for client in list(self._clients):
            client.close()


@contextlib.asynccontextmanager
async def offered(runtime: Runtime, data_dir: Path, limits: Limits = _LIMITS) -> AsyncGenerator[str]:
    """Serve a wrapped program to whoever holds a data directory. Give the name under which it is reached.

    Only the first who says something is served: the name is said to one session.
    """
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = secrets.token_hex(16)
    place = _Place(runtime, folder / name, limits)
    acceptor = Acceptor(bind_socket(folder, name), as_streams(place.serve, MAX_LINE_BYTES), limits, b"")
    try:
        yield name
    finally:
        acceptor.close()
        (folder / name).unlink(missing_ok=True)
        await place.close()
