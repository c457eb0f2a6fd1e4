"""An ASGI application → an HTTP server on this loop that leaves the process's signals alone. Loads uvicorn.

Shared by everything reached over HTTP: the gateway, the MCP host and the daemon.
"""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from codesdk.serving.accepting import Acceptor
from codesdk.serving.asgi import Message, Receive, Respond, Send

KEEP_ALIVE_S = 120
"""Longer than clients keep idle connections, so that the server never closes one as a request arrives."""
MAX_HEAD_BYTES = 64 * 1024


def listen(address: Any, family: int = socket.AF_INET) -> socket.socket:
    """Return a listening socket."""
    # The protocol is named because asyncio turns off Nagle's delay (40 ms) only for such sockets.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(4096)
    except OSError:
        listener.close()
        raise
    return listener


class Serving:
    """An application served until `end`, which gives running requests `grace_s` to finish."""

    def __init__(self, app: Respond, listener: socket.socket, *, grace_s: int = 1) -> None:
        self._app = app
        self._requests: set[asyncio.Task[Any]] = set()
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http=_Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=grace_s,
        )
        config.load()  # here, where a failure reaches the caller: in the task, nobody would hear of it
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def end(self) -> None:
        """Stop taking requests; return when the server and all requests have ended."""
        self._server.end()
        await self._task
        if self._requests:  # cancelled by the server when it ended, but not finished yet
            await asyncio.wait(self._requests)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            return
        self._requests.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._requests.discard(task)


class _Server(uvicorn.Server):
    """Accepts by itself, leaves signals to the process, and waits for an event where uvicorn polls."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self._acceptors = [Acceptor(listener, self._connection) for listener in sockets or ()]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)

    def _connection(self) -> asyncio.Protocol:
        return _Connection(config=self.config, server_state=self.server_state, app_state={})

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """Closes connections whose headers never end: they would be buffered until memory is full."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        # uvicorn has no limit of its own with this parser: it collects headers until they end.
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("The headers are too long.")
            return
        self._head_bytes += len(data)
        super().data_received(data)
