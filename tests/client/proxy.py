"""A TCP proxy before a daemon that loses what it is told to lose."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes on, both ways, but for what goes wrong on purpose."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.url = ""
        self.swallow: bytes | None = None
        """The answer to the next request that has this in it is lost, once the daemon has given it."""
        self.swallowed: list[bytes] = []
        self.requests: list[bytes] = []
        self.asked = asyncio.Condition()
        """Notified of each request."""
        self.mute = False
        """The daemon's bytes of new connections go nowhere, and the connections stay open."""
        self.cut_after: int | None = None
        """A connection is closed once so many bytes came back over it."""
        self.canned: list[bytes] = []
        """Answers that are given in place of the daemon's, one a connection."""
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Break everything and wait until it is over."""
        self.cut()
        await asyncio.gather(*self._serving)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def cut(self) -> None:
        """Break all connections."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            self._open.discard(writer)
            writer.close()
            return
        lost = asyncio.Event()
        pumps = [
            asyncio.create_task(self._out(reader, writer, back, lost)),
            asyncio.create_task(self._back(there, writer, lost)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._open.discard(writer)
            for end in (writer, back):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _out(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        lost: asyncio.Event,
    ) -> None:
        while data := await reader.read(65_536):
            async with self.asked:
                self.requests.append(data)
                self.asked.notify_all()
            if self.canned:
                writer.write(self.canned.pop(0))
                await writer.drain()
                continue
            if self.swallow is not None and self.swallow in data:
                self.swallow = None
                lost.set()
            back.write(data)
            await back.drain()

    async def _back(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        mute, left = self.mute, self.cut_after
        while data := await there.read(65_536):
            if lost.is_set():
                self.swallowed.append(data)
                return
            if mute:
                continue
            writer.write(data[:left])
            await writer.drain()
            left = None if left is None else max(0, left - len(data))
            if left == 0:
                return


@asynccontextmanager
async def proxy(url: str) -> AsyncGenerator[Proxy]:
    """Stand before the daemon at an address."""
    made = Proxy(int(url.rpartition(":")[2]))
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.close()
