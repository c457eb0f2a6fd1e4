"""An ASGI application → a server on loopback that lives in this loop and leaves the process's signals alone."""

import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(port: int) -> socket.socket:
    """Return a listening socket. It names its protocol: asyncio turns off Nagle's delay (40 ms) only for those."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def server(app: Any) -> uvicorn.Server:
    """Return the server, to be run with `serve`."""
    return _Server(
        uvicorn.Config(
            app,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
    )


async def serve(running: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until `should_exit` is set."""
    await running.serve(sockets=[listener])
