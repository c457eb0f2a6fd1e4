"""Clients of a daemon's streams over plain sockets: one that checks every seq, a proxy that cuts, a process's memory."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

TERMINAL = (b"task.completed", b"task.failed", b"task.stopped")
SMALL_BUFFER = 4096


class Cut(Exception):
    """The connection ended before the stream did."""


class Reader:
    """One client of a session. Every event must follow the one before it, over all its connections."""

    def __init__(self, url: str, session: str, after_seq: int = 0, *, buffer: int | None = None) -> None:
        self.url = url
        self.session = session
        self.seq = after_seq
        self.ends: list[str] = []
        self.connections = 0
        self._buffer = buffer
        self._rest = b""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def ended(self) -> bool:
        """Whether the end of a task was seen."""
        return bool(self.ends)

    async def open(self) -> Self:
        """Connect, going on behind the last event that was seen."""
        reader, self._writer = await _connect(self.url, self._buffer)
        self._reader, self._rest = reader, b""
        path = f"/v1/sessions/{self.session}/events"
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\nlast-event-id: {self.seq}"
        self._writer.write(f"{head}\r\n\r\n".encode())
        answer = await _until_blank_line(reader)
        assert answer.startswith(b"HTTP/1.1 200 "), answer + await reader.read(1000)
        self.connections += 1
        return self

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def take(self) -> bool:
        """Take one write of the server's. Return false when the stream has ended in good order."""
        assert self._reader is not None
        try:
            line = await self._reader.readline()
            data = await self._reader.readexactly(int(line, 16) + 2)
        except (OSError, ValueError, asyncio.IncompleteReadError):
            raise Cut from None
        blocks = (self._rest + data[:-2]).split(b"\n\n")
        self._rest = blocks.pop()
        for block in blocks:
            self._see(block)
        return len(data) > 2

    async def read(self, until: Callable[[], bool] | None = None) -> Self:
        """Read one connection until there is what is waited for: the end of a task, if not given."""
        done = until or (lambda: self.ended)
        while not done():
            assert await self.take(), f"{self.session} ended at {self.seq}"
        return self

    async def follow(self, up: asyncio.Event) -> Self:
        """Read to the end of a task over as many connections as it takes; while the daemon is down, wait."""
        while not self.ended:
            with contextlib.suppress(OSError, Cut):
                if self._writer is None:
                    await self.open()
                while not self.ended and await self.take():
                    pass
            self.close()
            await up.wait()
        return self

    async def sip(self, stop: asyncio.Event) -> int:
        """Read a byte a second until told to stop. Return how many there were."""
        assert self._reader is not None
        count = 0
        while not stop.is_set():
            count += len(await self._reader.readexactly(1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await stop.wait()
        return count

    def _see(self, block: bytes) -> None:
        if not block.startswith(b"id: "):
            return
        self.seq += 1
        head = block[:200]
        assert head.startswith(b"id: %d\ndata: {" % self.seq), f"expected event {self.seq}, got {head!r}"
        kind = head.partition(b'"type":"')[2].partition(b'"')[0]
        if kind in TERMINAL:
            self.ends.append(kind.decode())


async def _connect(url: str, buffer: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(url)
    sock = socket.socket()
    sock.setblocking(False)
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (place.hostname, place.port))
    except OSError:
        sock.close()
        raise
    return await asyncio.open_connection(sock=sock, limit=buffer or 2**16)


async def _until_blank_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise Cut from None


class CuttingProxy:
    """Passes connections on to a daemon and cuts each after some bytes, wherever in an event that is."""

    def __init__(self, url: str, cut_bytes: int) -> None:
        self.cuts = 0
        self.url = ""
        self._target = url
        self._cut_bytes = cut_bytes
        self._passing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Listen."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        async with server:
            yield self
            for passing in self._passing:
                passing.cancel()
            await asyncio.gather(*self._passing, return_exceptions=True)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._passing.add(asyncio.create_task(self._pass_on(reader, writer)))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await _connect(self._target, None)
        try:
            inner_writer.write(await reader.readuntil(b"\r\n\r\n"))
            left = self._cut_bytes
            while left and (data := await inner_reader.read(min(left, 2**16))):
                left -= len(data)
                # Clients are to come back at once, not after a second: nothing else is changed on the way.
                writer.write(data.replace(b"\nretry: 1000\n", b"\nretry: 0001\n"))
                await writer.drain()
            self.cuts += not left
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            inner_writer.transport.abort()
            if self.cuts % 2:
                writer.transport.abort()
            else:
                writer.close()


class Memory:
    """How much more memory a process has held at any moment since."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")
        (self._proc / "clear_refs").write_text("5")  # the peak is the present from here on
        self._before = self._kb("VmRSS")

    @property
    def grown_mb(self) -> float:
        """The most that it has held since, less what it held then."""
        return (self._kb("VmHWM") - self._before) / 1000

    def _kb(self, name: str) -> int:
        lines = (self._proc / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
