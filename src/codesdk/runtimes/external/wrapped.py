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
from codesdk.serving import socket_path

FOLDER = "wrapped"
_NAME = re.compile("[0-9a-f]{32}")
_CONNECT_S = 5.0
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


@contextlib.asynccontextmanager
async def offered(runtime: Runtime, data_dir: Path) -> AsyncGenerator[str]:
    """Serve a wrapped program to whoever holds a data directory. Give the name under which it is reached.

    Only the first who connects is served: the name is said to one session.
    """
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = secrets.token_hex(16)
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if serving:
            writer.close()
            return
        (folder / name).unlink(missing_ok=True)
        # A task of its own: cancelling the one of the connection would be reported as a fault.
        task = asyncio.create_task(serve_streams(runtime, reader, writer))
        serving.append(task)
        await asyncio.wait([task])
        writer.close()

    with socket_path(folder, name) as address:
        server = await asyncio.start_unix_server(serve, address, limit=MAX_LINE_BYTES)
    try:
        (folder / name).chmod(0o600)
        yield name
    finally:
        server.close()
        (folder / name).unlink(missing_ok=True)
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
