"""A listening socket → connections, also after the process had no descriptor left for one.

uvloop closes a listening socket for good when it cannot accept, and the process then looks alive to nobody. This
pauses and tries again, as asyncio's own loop does; whoever connects meanwhile waits in the kernel's queue.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

PAUSE_S = 0.2
_AT_ONCE = 64
"""How many connections are taken before the loop turns to others."""

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class Acceptor:
    """Takes connections until it is closed. `make` returns the protocol of a new one."""

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._short = False
        self._beginning: set[asyncio.Task[Any]] = set()
        self._watch()

    @classmethod
    def of_streams(cls, listener: socket.socket, serve: Client, limit: int) -> "Acceptor":
        """Call `serve` with the streams of each connection. A line has `limit` bytes at most."""

        def make() -> asyncio.BaseProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=limit), serve)

        return cls(listener, make)

    def close(self) -> None:
        """Take no more connections. Those that there are stay."""
        if self._later is not None:
            self._later.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._short = False
            beginning = self._loop.create_task(self._begin(connection))
            self._beginning.add(beginning)
            beginning.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError as error:  # the client is gone already, or there is no room for it
            _log.warning("A connection could not be served: %s.", error.strerror or error)
            connection.close()

    def _pause(self, error: OSError) -> None:
        if not self._short:  # said once, however long it lasts
            _log.warning("No connection can be taken now: %s. Others are still served.", error.strerror)
        self._short = True
        self._loop.remove_reader(self._listener)
        self._later = self._loop.call_later(PAUSE_S, self._watch)
