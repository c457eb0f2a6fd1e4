"""A session's server-sent events → stored frames in order, over as many connections as it takes.

A stream that breaks, ends or falls silent is reopened after the last event that came, so nothing is missed or
repeated. Only an answer that will not change ends it: no access, no such session, an unreadable log.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from codesdk.client.connection import CONNECT_S, LATER, DaemonConnection, failure_of, pause_s, retry_after_s
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.service import Published

if TYPE_CHECKING:
    import httpx2

SILENCE_S = 45.0
"""After this long without a sign of life (three of the daemon's heartbeats) a connection counts as dead."""
MAX_LINE_BYTES = 128 * 1024 * 1024
_MAX_DIGITS = 19  # of a seq; Python refuses to read a number of thousands of digits
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class EventStream:
    """One reader's way through a session's log. Must be read only once."""

    def __init__(
        self, connection: DaemonConnection, path: str, after_seq: int, *, silence_s: float = SILENCE_S
    ) -> None:
        self._connection = connection
        self._path = path
        self._seq = after_seq
        self._silence_s = silence_s
        self._failures = 0
        self._wanted_pause_s = 0.0

    async def batches(self) -> AsyncGenerator[list[Published]]:
        """Yield what is stored after a seq, then what comes, until the client is closed."""
        while not self._connection.closed.is_set():
            async with contextlib.aclosing(self._once()) as parts:
                async for part in parts:
                    self._failures = 0
                    # A new connection must not repeat what the one before has brought.
                    fresh = [frame for frame in part if frame.seq > self._seq]
                    if fresh:
                        self._seq = fresh[-1].seq
                        yield fresh
            await self._pause()

    async def _once(self) -> AsyncGenerator[list[Published]]:
        """Yield what one connection sends; an empty list is a sign of life."""
        import httpx2

        connection, timeout = self._connection, httpx2.Timeout(CONNECT_S, read=self._silence_s)
        wanted = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # the bytes are parsed as they arrive
            "last-event-id": str(self._seq),
        }
        url, headers = connection.url + self._path, connection.headers(wanted)
        request = connection.http.build_request("GET", url, headers=headers, timeout=timeout)
        try:
            answer = await connection.ask(request, stream=True)
            async with contextlib.aclosing(answer):
                if not answer.is_success:
                    await self._refused(answer)
                    return
                parser = Parser()
                async for chunk in answer.aiter_raw():
                    frames = parser.feed(chunk)
                    if frames or parser.alive:
                        yield frames
        except httpx2.TransportError:
            return
        except (RuntimeError, httpx2.StreamError, CodeSDKError):
            if not connection.closed.is_set():
                raise

    async def _refused(self, answer: "httpx2.Response") -> None:
        """Note how long to wait after a refusal. Raise it if waiting does not help."""
        failure = failure_of(answer.status_code, await answer.aread())
        moved = answer.status_code == 401 and self._connection.look_again()
        if answer.status_code not in _TRY_AGAIN and failure.code not in LATER and not moved:
            raise failure
        self._wanted_pause_s = retry_after_s(answer.headers)

    async def _pause(self) -> None:
        """Wait before the next connection, longer each time; not at all if the daemon has moved."""
        seconds = max(self._wanted_pause_s, pause_s(self._failures))
        self._wanted_pause_s = 0.0
        self._failures += 1
        if self._connection.look_again():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._connection.closed.wait()


class Parser:
    """The bytes of one connection → frames. Must not be used for the next one."""

    def __init__(self) -> None:
        self.alive = False
        """Whether the last bytes had a heartbeat."""
        self._rest = b""
        self._id: bytes | None = None
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Published]:
        """Return the frames that are complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise CodeSDKError("The daemon sent an endless line. Is it a CodeSDK daemon?")
        self.alive = False
        frames: list[Published] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                frames += self._complete()
            elif line.startswith(b":"):
                self.alive = True
            else:
                self._field(line)
        return frames

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"id":
            self._id = value

    def _complete(self) -> list[Published]:
        data, seq = self._data, self._id
        self._data, self._id = [], None
        # Without an id a reader could not continue after it, so it is none of a session's events.
        if not data or seq is None or not seq.isdigit() or len(seq) > _MAX_DIGITS:
            return []
        return [Published(int(seq), b"\n".join(data))]
