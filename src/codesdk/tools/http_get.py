"""One GET over an open connection → the answer's head and its body, up to a limit.

`fetch` decides where to connect; this module knows nothing of addresses, redirects or text.
"""

import asyncio
import zlib
from typing import Any

import msgspec

_CHUNK = 1 << 16
_MAX_HEAD_BYTES = 1 << 16
_COMPRESSED = {"gzip", "x-gzip", "deflate"}


class BadAnswer(Exception):
    """The answer is not HTTP, or far too large; the message says which."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `cut` if the body was longer than the limit, or broke off."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    cut: bool


class _Reading:
    """The parser's callbacks."""

    def __init__(self) -> None:
        self.reason = b""
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.head_bytes = 0
        self.body_bytes = 0
        self.done = False
        self.parser: Any = None

    def on_status(self, status: bytes) -> None:
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head_bytes += len(name) + len(value)
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body.append(body)
        self.body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() >= 200:
            self.done = True
        else:  # an interim answer (1xx); the real one follows
            self.reason = b""
            self.headers.clear()


async def get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, target: str, max_bytes: int
) -> Answer:
    """Request a target. Raise `BadAnswer` or `OSError`.

    The caller sets the deadline and closes the connection.
    """
    import httptools

    writer.write(
        f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: codesdk\r\nAccept: text/*, application/json, */*;q=0.5\r\n"
        "Accept-Encoding: identity\r\nConnection: close\r\n\r\n".encode("ascii")
    )
    reading = _Reading()
    parser: Any = httptools.HttpResponseParser(reading)
    reading.parser = parser
    seen = 0
    try:
        while not reading.done and reading.body_bytes <= max_bytes and (data := await reader.read(_CHUNK)):
            seen += len(data)
            parser.feed_data(data)
            # Chunk extensions and trailers count too, or a server could send without end besides the body.
            if reading.head_bytes > _MAX_HEAD_BYTES or seen > 2 * max_bytes + _MAX_HEAD_BYTES:
                raise BadAnswer("the server sends too much besides the content")
    except httptools.HttpParserError:
        raise BadAnswer("the server does not speak HTTP") from None
    status = int(parser.get_status_code())
    if not status:
        raise BadAnswer("the server sent no complete answer")
    body, more = _decoded(b"".join(reading.body), reading.headers.get("content-encoding", ""), max_bytes)
    return Answer(
        status=status,
        reason=reading.reason.decode("latin-1"),
        headers=reading.headers,
        body=body[:max_bytes],
        cut=more or len(body) > max_bytes or not _complete(reading),
    )


def _complete(reading: _Reading) -> bool:
    """Return whether the body is complete. Without a length it ends with the connection, so assume it is."""
    told = "content-length" in reading.headers or "transfer-encoding" in reading.headers
    return reading.done or not told


def _decoded(body: bytes, encoding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Decompress a body, which some servers compress unasked; return it and whether there was more."""
    kind = encoding.strip().lower()
    if kind in ("", "identity"):
        return body, False
    if kind not in _COMPRESSED:
        raise BadAnswer(f"the compression of the content is not supported ({kind[:40]})")
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: detect gzip or zlib by the header
    try:
        plain = inflater.decompress(body, max_bytes + 1)  # bounded: a few bytes can inflate to gigabytes
    except zlib.error:
        raise BadAnswer("the content is compressed, and damaged") from None
    return plain, not inflater.eof
