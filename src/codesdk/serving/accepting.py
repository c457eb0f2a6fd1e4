"""A listening socket → connections, no more of them than the process can afford.

Every listener for clients accepts here: the HTTP servers, the control socket and those of wrapped programs. When it gets crowded, the
connection that has waited longest without a request makes room; when nobody only waits, a newcomer is
refused. Descriptors are kept back for the store and the runtimes. The proxy of a command (`sandbox/egress`) keeps the same
ones back, and refuses rather than makes room: all its connections are that one command's.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import cast
from weakref import WeakKeyDictionary

import msgspec

from codesdk.descriptors import descriptor_limit, descriptor_marks

_AT_ONCE = 16  # accepted before others get their turn on the loop
_RETRY_S = 1.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a listener allows its clients."""

    connections: int = 10_000
    per_peer: int | None = None
    """How many of them one address may have; None for all."""
    head_s: float = 20.0
    """How long a request's line and headers may take, from the connection or from their first byte."""
    body_s: float = 30.0
    """How long a body may arrive at less than `body_bytes_per_s`."""
    body_bytes_per_s: int = 1024
    idle_s: float = 120.0
    """How long a connection is kept between two requests: longer than clients keep theirs, so that the
    server never closes one as a request arrives."""

    def body_deadline_s(self, size: int) -> float:
        """Return how long a body of a known size may take in all."""
        return self.body_s + size / self.body_bytes_per_s


class ConnectionCounts(msgspec.Struct):
    """What became of connections, for the metrics."""

    open: int = 0
    refused: int = 0
    evicted: int = 0
    timed_out: int = 0


COUNTS = ConnectionCounts()
"""Of this process, like the descriptors that its listeners share."""


class _Crowd:
    """What the listeners on one loop share, since they share the descriptors of the process."""

    def __init__(self) -> None:
        self.waiting: dict[Seat, None] = {}
        """The connections without a request, longest first."""
        self._limit: float = 0
        self.borrowed: set[Seat] = set()
        """The connections whose descriptor is kept for others, until enough others have left."""

    def marks(self) -> tuple[float, float]:
        """Return `descriptor_marks` for the highest limit so far.

        One that is raised counts at once. Where it is lowered, numbers say nothing about how many are left, and
        whoever comes waits in the kernel's queue until there is one.
        """
        self._limit = max(self._limit, descriptor_limit())
        return descriptor_marks(self._limit)


_CROWDS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Crowd] = WeakKeyDictionary()


class Seat:
    """One connection's place among those of its listener, and whether it only waits."""

    def __init__(self, acceptor: "Acceptor", peer: str, descriptor: int) -> None:
        self._acceptor = acceptor
        self.peer = peer
        self.descriptor = descriptor
        self.transport: asyncio.BaseTransport | None = None

    def wait(self) -> None:
        """Note that the connection waits for a request: it may be closed if others need its place."""
        self._acceptor.waiting[self] = self._acceptor.crowd.waiting[self] = None

    def work(self) -> None:
        """Note that a request is here."""
        self._acceptor.waiting.pop(self, None)
        self._acceptor.crowd.waiting.pop(self, None)

    def leave(self) -> None:
        """Give the place back. Further calls have no effect."""
        self._acceptor.release(self)


Serve = Callable[[Seat, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def as_streams(serve: Serve, max_line_bytes: int) -> Callable[[Seat], asyncio.StreamReaderProtocol]:
    """Return what makes the protocol of a connection that is read as a stream: it waits until `serve` says it works."""

    def connection(seat: Seat) -> asyncio.StreamReaderProtocol:
        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seat.transport = writer.transport
            seat.wait()
            try:
                await serve(seat, reader, writer)
            finally:
                seat.leave()

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=max_line_bytes), serve_one)

    return connection


class Acceptor:
    """Accepts from a socket until it is closed. `refusal` is what a connection without a place is sent."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[Seat], asyncio.BaseProtocol],
        limits: Limits,
        refusal: bytes,
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._limits = limits
        self._refusal = refusal
        self._seats: set[Seat] = set()
        self._peers: Counter[str] = Counter()
        self._admitting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.crowd = _CROWDS.setdefault(self._loop, _Crowd())
        self.waiting: dict[Seat, None] = {}
        """Those of this listener, in the same order."""
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more, and close the socket. Open connections stay."""
        if self._listener.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    async def wait_closed(self) -> None:
        """Wait until every accepted connection has its protocol."""
        if self._admitting:
            await asyncio.wait(self._admitting)

    def release(self, seat: Seat) -> None:
        """Forget a connection that is closed."""
        if seat not in self._seats:
            return
        self._seats.discard(seat)
        seat.work()
        COUNTS.open -= 1
        self.crowd.borrowed.discard(seat)
        self._peers[seat.peer] -= 1
        if not self._peers[seat.peer]:
            del self._peers[seat.peer]

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or no memory left; whoever waits in the kernel's queue can wait
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(
                    _RETRY_S, self._loop.add_reader, self._listener, self._accept
                )
                return
            connection.setblocking(False)
            peer = str(address[0]) if address else ""  # on a unix socket nobody has one
            if self._limits.per_peer is not None and self._peers[peer] >= self._limits.per_peer:
                self._refuse(connection)
            elif (crowd := self._too_crowded(connection.fileno())) is None:
                self._admit(connection, peer)
            elif _evict(crowd):
                self._admit(connection, peer)
                return  # the one that made room must be gone before the next one is let in
            else:
                self._refuse(connection)

    def _too_crowded(self, descriptor: int) -> dict[Seat, None] | None:
        """Return those of whom one must make room for a newcomer, or None if there is room.

        The kernel gives the lowest free number, so a high one means that all below it are taken, and nobody
        has to count what else the process has open.
        """
        crowded_from, reserved_from = self.crowd.marks()
        borrowed = self.crowd.borrowed
        if borrowed:  # the limit may have been raised meanwhile, and they are nobody else's any more
            borrowed -= {seat for seat in borrowed if seat.descriptor < reserved_from}
        if descriptor >= crowded_from or borrowed:
            return self.crowd.waiting
        return self.waiting if len(self._seats) >= self._limits.connections else None

    def _admit(self, connection: socket.socket, peer: str) -> None:
        seat = Seat(self, peer, connection.fileno())
        self._seats.add(seat)
        self._peers[peer] += 1
        if seat.descriptor >= self.crowd.marks()[1]:
            self.crowd.borrowed.add(seat)
        COUNTS.open += 1
        task = self._loop.create_task(self._connect(connection, seat))
        self._admitting.add(task)
        task.add_done_callback(self._admitting.discard)

    async def _connect(self, connection: socket.socket, seat: Seat) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make_protocol(seat), connection)
        except OSError:  # it is gone already
            seat.leave()
            connection.close()

    def _refuse(self, connection: socket.socket) -> None:
        COUNTS.refused += 1
        with connection, contextlib.suppress(OSError):
            connection.send(self._refusal)
            connection.recv(65536)  # what is left unread would reset the connection and lose the refusal


def _evict(waiting: dict[Seat, None]) -> bool:
    """Close the connection that has waited longest for its request. Return whether there was one."""
    seat = next(iter(waiting), None)
    if seat is None or seat.transport is None:
        return False
    cast("asyncio.Transport", seat.transport).abort()
    seat.leave()
    COUNTS.evicted += 1
    return True


def capacity(limits: Limits) -> int:
    """Return how many connections a listener can have, by its limits and the process's descriptors."""
    return int(min(limits.connections, descriptor_marks(descriptor_limit())[0]))
