"""Bytes of a connection → whole messages, one at a time: lines of stdin and stdout, or frames of a WebSocket.

A message has a size limit. A line over it is read to its end and thrown away, so that the next one can be read.
"""

import asyncio
import os
import stat
from typing import Protocol

from codesdk.contract.errors import InvalidRequest
from codesdk.sending import send
from codesdk.serving import Receive, Send

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The longest message that an editor may send: an image in base64 fits, a film does not."""
_CHUNK_BYTES = 256 * 1024


class TooLong(Exception):
    """A message was longer than the limit, and is gone."""


class Channel(Protocol):
    """A connection that carries whole messages."""

    async def receive(self) -> bytes | None:
        """Return the next message, or None at the end. Raise `TooLong` for one that was dropped."""
        ...

    async def send(self, message: bytes) -> None:
        """Send a message, waiting while the other side does not read. Raise `ConnectionError` if it is gone."""
        ...


class LineChannel:
    """Messages as lines, over a pair of asyncio streams."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: int = MAX_FRAME_BYTES,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limit = limit
        self._rest = bytearray()
        self._ended = False

    async def receive(self) -> bytes | None:
        """Return the next line that is not empty. One without its newline is cut off and does not count."""
        dropped = searched = 0
        while True:
            end = self._rest.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                searched = 0
                if dropped or len(line) > self._limit:
                    raise TooLong
                if line.strip():
                    return line
                continue
            if self._ended:
                return None
            searched = len(self._rest)
            if searched > self._limit:  # forget it, but not where it ends
                dropped += searched
                searched = 0
                self._rest.clear()
            chunk = await self._reader.read(_CHUNK_BYTES)
            self._ended = not chunk
            self._rest += chunk

    async def send(self, message: bytes) -> None:
        """Write a line. JSON as we encode it has no line breaks."""
        await send(self._writer, message + b"\n")


class SocketChannel:
    """Messages as the text frames of a WebSocket that was accepted (ASGI). Binary frames are ignored."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def receive(self) -> bytes | None:
        """Return the next text frame. The server closes a connection whose frame is too long."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return None
            text: str | None = message.get("text")
            if text is not None:
                return text.encode("utf-8", "surrogatepass")

    async def send(self, message: bytes) -> None:
        """Send a text frame."""
        try:
            await self._send({"type": "websocket.send", "text": message.decode()})
        except (OSError, RuntimeError) as error:  # uvicorn raises either once the other side is gone
            raise ConnectionResetError("The editor is gone.") from error


async def open_stdio() -> LineChannel:
    """Take over stdin and stdout. From here on, what anything else prints goes to stderr."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = os.dup(0), os.dup(1)
    for descriptor in (incoming, outgoing):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidRequest(
                "An editor talks to `codesdk acp` through pipes. It cannot read from or write to a file."
            )
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(outgoing, "wb", buffering=0)
    )
    return LineChannel(reader, asyncio.StreamWriter(transport, protocol, None, loop))
