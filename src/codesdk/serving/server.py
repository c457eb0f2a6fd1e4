"""An ASGI application → a server in this loop, which leaves the process's signals alone. Loads uvicorn.

For whoever is reached over HTTP: the gateway, the MCP host, the daemon.
"""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_S = 120
"""Longer than clients keep a connection that they do not use: the one who closes it must not be us, while they ask."""
MAX_HEAD_BYTES = 64 * 1024


def listen(address: Any, family: int = socket.AF_INET) -> socket.socket:
    """Return a listening socket. It names its protocol: asyncio turns off Nagle's delay (40 ms) only for those."""
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
    """An application that answers on a listening socket until `end`, where requests have `grace_s` to be over."""

    def __init__(self, app: Any, listener: socket.socket, *, grace_s: int = 1) -> None:
        config = uvicorn.Config(
            app,
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
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def end(self) -> None:
        """Take no more requests, and return when the server has ended."""
        self._server.end()
        await self._task


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it runs in, and does not look ten times a second whether it is to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """Hangs up on who sends headers without an end: they would be kept until memory is full."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("The headers are too long.")
            return
        self._head_bytes += len(data)
        super().data_received(data)
