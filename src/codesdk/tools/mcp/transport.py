"""An attached server → the pair of streams its client reads and writes. Needs `mcp`: loaded at first use.

A program inherits nothing from our environment. The end of its stderr is kept, to explain why it did not
start.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TextIO, cast

import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from codesdk.tools.mcp_client.servers import HttpServer, McpServer, StdioServer

PATH = "/usr/local/bin:/usr/bin:/bin"
KEPT_BYTES = 2_000
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_HTTP_S = 30.0


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
    env = {"PATH": PATH, **server.env}
    command = shutil.which(server.command, path=env["PATH"])
    if command is None:
        raise FileNotFoundError(f"there is no program {server.command}")
    # The library passes some of this process's variables on; `env -u` removes them. Values stay out of argv.
    unset = [part for name in DEFAULT_INHERITED_ENV_VARS if name not in env for part in ("-u", name)]
    started = StdioServerParameters(
        command="/usr/bin/env", args=[*unset, command, *server.args], env=env, cwd=server.cwd
    )
    async with _kept(tail) as errors, stdio_client(started, errors) as streams:
        yield streams


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
    """A body that ends with an error when it is too large."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ANSWER_BYTES
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.StreamError(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
            yield chunk

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
