"""An attached server → the pair of streams its client reads and writes. Needs `mcp`: loaded at first use.

A program inherits nothing from our environment. The end of its stderr is kept, to explain why it did not
start.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.processes import own_guard
from codesdk.sending import send
from codesdk.tools.mcp_client.servers import HttpServer, McpServer, StdioServer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

PATH = "/usr/local/bin:/usr/bin:/bin"
KEPT_BYTES = 2_000
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_HTTP_S = 30.0
_PIECE_BYTES = 1 << 16
_FLUSH_S = 0.5
_END_S = 2.0
_LOOK_S = 0.01


class Tail(asyncio.Protocol):
    """Keeps the last bytes of a stream."""

    def __init__(self) -> None:
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        """Add bytes; drop the oldest beyond the limit."""
        self._kept = (self._kept + data)[-KEPT_BYTES:]

    @property
    def text(self) -> str:
        """The kept bytes as text."""
        return self._kept.decode("utf-8", "replace").strip()


@asynccontextmanager
async def connect(server: McpServer, tail: Tail, ended: asyncio.Event) -> AsyncGenerator[TransportStreams]:
    """Yield the streams of a server; enter and exit in the same task.

    `ended` is set when the server is gone.
    """
    way = _program(server, tail) if isinstance(server, StdioServer) else _address(server)
    async with way as (reading, writing):
        yield _Watched(reading, ended), writing


class _Watched:
    """A stream of messages that sets an event when it ends."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def _program(server: StdioServer, tail: Tail) -> AsyncGenerator[TransportStreams]:
    """Start a server and frame its lines ourselves: the library's own transport has no bound on one."""
    env = {"PATH": PATH, **server.env, **own_guard().variables}  # it must not outlive us, either
    command = shutil.which(server.command, path=env["PATH"])
    if command is None:
        raise FileNotFoundError(f"there is no program {server.command}")
    async with _kept(tail) as errors:
        process = await asyncio.create_subprocess_exec(
            command,
            *server.args,
            env=env,
            cwd=server.cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        heard, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        writing, told = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(_hear(process, heard)),
            asyncio.create_task(_tell(process, told, heard)),
        ]
        try:
            yield reading, writing
        finally:
            # Whatever was given to it to send still goes out, before its stdin ends.
            writing.close()
            reading.close()
            ending = asyncio.create_task(_end(process, tasks))
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                await asyncio.wait([ending])  # bounded; a server must not outlive its session
                raise


async def _hear(process: asyncio.subprocess.Process, heard: "MemoryObjectSendStream[Any]") -> None:
    """Pass on what a server says, until the session is gone or a line is too large."""
    assert process.stdout is not None
    with heard, contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for line in _lines(process.stdout):
            await heard.send(_message(line))
    # A server that cannot write would not notice that it should end.
    while await process.stdout.read(_PIECE_BYTES):
        pass


async def _lines(stdout: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """Yield whole lines; end with the first that is too long or holds too many values."""
    rest = bytearray()
    while (piece := await stdout.read(_PIECE_BYTES)) and len(rest) <= MAX_ANSWER_BYTES:
        first, *more = piece.split(b"\n")
        rest += first
        for begun in more:
            if len(rest) > MAX_ANSWER_BYTES or has_too_many_values(rest):
                return
            yield bytes(rest)
            rest = bytearray(begun)


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _tell(
    process: asyncio.subprocess.Process,
    told: "MemoryObjectReceiveStream[SessionMessage]",
    heard: "MemoryObjectSendStream[Any]",
) -> None:
    """Write each message as a line. If the server does not take it, the connection ends: no answer will come."""
    assert process.stdin is not None
    try:
        with told:
            async for message in told:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await send(process.stdin, line.encode() + b"\n")
    except OSError:
        heard.close()


async def _end(process: asyncio.subprocess.Process, tasks: Sequence["asyncio.Task[None]"]) -> None:
    """End a server: its stdin, then SIGTERM, then SIGKILL, both for all that it started. Each wait is bounded."""
    assert process.stdin is not None
    hearing, telling = tasks
    await asyncio.wait([telling], timeout=_FLUSH_S)
    with contextlib.suppress(OSError, RuntimeError):
        process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        if await _has_ended(process):
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # also if it has ended: what it started may not have
    for task in (hearing, telling):
        task.cancel()
    await asyncio.gather(hearing, telling, return_exceptions=True)
    # What it started may hold the pipes; nothing of ours waits for that.
    cast("asyncio.SubprocessTransport", vars(process)["_transport"]).close()


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Return whether it ends soon. Not by `wait`, which also waits for its pipes, and others may have them."""
    until = asyncio.get_running_loop().time() + _END_S
    while process.returncode is None:
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


@asynccontextmanager
async def _address(server: HttpServer) -> AsyncGenerator[TransportStreams]:
    timeout = httpx2.Timeout(_HTTP_S, read=server.timeout_s + _HTTP_S)
    async with (
        # trust_env=False: neither proxies nor .netrc logins of this process are for the server.
        httpx2.AsyncClient(
            transport=_Bounded(),
            headers={**server.headers, "accept-encoding": "identity"},
            timeout=timeout,
            trust_env=False,
        ) as http,
        streamable_http_client(server.url, http_client=http) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses answers that would fill the memory: large ones, and compressed ones, whose size nobody knows."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the body of its answer is read within the bound."""
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, and we did not ask for that")
        # A stream of events may go on as long as its call; there, each event has a bound of its own.
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            stream = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = _BoundedBody(stream)
        return response


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that ends with an error when it is too large. It is read whole, as whoever decodes it does."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._stream:
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
        if has_too_many_values(body):
            raise httpx2.StreamError(f"the answer has more than {MOST_VALUES:,} values")
        yield bytes(body)

    async def aclose(self) -> None:
        """Close the stream beneath."""
        await self._stream.aclose()


@asynccontextmanager
async def _kept(tail: Tail) -> AsyncGenerator[TextIO]:
    """Yield a file for a program's stderr; what is written to it goes to `tail`."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as source, os.fdopen(writing, "w") as target:
        pipe: tuple[asyncio.ReadTransport, Any] = await asyncio.get_running_loop().connect_read_pipe(
            lambda: tail, source
        )
        try:
            yield target
        finally:
            pipe[0].close()
