"""One GET over a connection that is open already → the answer's head and as much of its body as is wanted.

Used by `fetch.py`, which decides where to connect. Knows nothing of addresses, redirects or text.
"""

import asyncio
import zlib
from typing import Any

import msgspec

_CHUNK = 1 << 16
_MAX_HEAD_BYTES = 1 << 16
_COMPRESSED = {"gzip", "x-gzip", "deflate"}


class BadAnswer(Exception):
    """What came is no HTTP, or more of it than anybody needs; the message says what."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `cut` if there was more of the body than was wanted."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    cut: bool


class _Reading:
    """The callbacks of the parser."""

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
        else:  # hints, sent ahead of the answer
            self.reason = b""
            self.headers.clear()


async def get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, target: str, max_bytes: int
) -> Answer:
    """Ask for a target. Raise `BadAnswer` or `OSError`. The caller has a deadline and closes the connection."""
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
            # Chunks may carry words of their own, and headers may follow the body.
            if reading.head_bytes > _MAX_HEAD_BYTES or seen > 2 * max_bytes + _MAX_HEAD_BYTES:
                raise BadAnswer("the server sends too much besides the content")
    except httptools.HttpParserError:
        raise BadAnswer("the server does not speak HTTP") from None
    status = int(parser.get_status_code())
    if not status:
        raise BadAnswer("the server sent nothing that makes an answer")
    body, more = _decoded(b"".join(reading.body), reading.headers.get("content-encoding", ""), max_bytes)
    return Answer(
        status=status,
        reason=reading.reason.decode("latin-1"),
        headers=reading.headers,
        body=body[:max_bytes],
        cut=more or len(body) > max_bytes or not _complete(reading),
    )


def _complete(reading: _Reading) -> bool:
    """An answer without a length ends with the connection, so there is no telling."""
    told = "content-length" in reading.headers or "transfer-encoding" in reading.headers
    return reading.done or not told


def _decoded(body: bytes, encoding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Undo a compression that nobody asked for, up to a bound; say whether there was more."""
    kind = encoding.strip().lower()
    if kind in ("", "identity"):
        return body, False
    if kind not in _COMPRESSED:
        raise BadAnswer(f"the content is compressed in a way that is not known here ({kind[:40]})")
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = inflater.decompress(body, max_bytes + 1)
    except zlib.error:
        raise BadAnswer("the content is compressed, and damaged") from None
    return plain, not inflater.eof
