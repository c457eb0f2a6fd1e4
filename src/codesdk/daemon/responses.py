"""Responses that write themselves: bytes at once, an artifact or a range of it in pieces, a spooled file."""

import asyncio
import os
import re
from collections.abc import Sequence
from typing import BinaryIO

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import Blobs
from codesdk.daemon.problems import Refused
from codesdk.serving import Message, Receive, Send

Headers = Sequence[tuple[bytes, bytes]]

PIECE_BYTES = 1024 * 1024
_RANGE = re.compile(r"bytes=(\d{0,100})-(\d{0,100})")
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:;[ -~]{0,100})?", re.ASCII)


class Whole:
    """A response whose body is in memory."""

    def __init__(self, status: int, body: bytes, headers: Headers = ()) -> None:
        self._status = status
        self._body = body
        self._headers = headers

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [*self._headers, (b"content-length", str(len(self._body)).encode())]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


class Content:
    """The bytes of an artifact. Its headers keep a browser from running it, whatever it is."""

    def __init__(self, blobs: Blobs, ref: ArtifactRef, request: dict[bytes, bytes]) -> None:
        self._blobs = blobs
        self._ref = ref
        self._etag = f'"{ref.content_hash}"'.encode()  # other bytes have another hash
        self._same = _names(request.get(b"if-none-match"), self._etag)
        self._span = None if self._same else self._wanted(request)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [
            (b"etag", self._etag),
            (b"accept-ranges", b"bytes"),
            (b"content-disposition", b"attachment"),
            (b"content-security-policy", b"sandbox; default-src 'none'"),
        ]
        if self._same:
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body"})
            return
        start, end = self._span or (0, self._ref.size_bytes)
        headers += [
            (b"content-type", media_type(self._ref.content_type)),
            (b"content-length", str(end - start).encode()),
        ]
        if self._span:
            headers.append((b"content-range", f"bytes {start}-{end - 1}/{self._ref.size_bytes}".encode()))
        await send({"type": "http.response.start", "status": 206 if self._span else 200, "headers": headers})
        await self._pour(start, 0 if scope["method"] == "HEAD" else end, send)

    async def _pour(self, start: int, end: int, send: Send) -> None:
        while start < end:
            piece = await self._blobs.get(self._ref.content_hash, start, min(end, start + PIECE_BYTES))
            if not piece:
                raise InvalidRequest("The artifact's stored bytes are incomplete.")
            start += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _wanted(self, request: dict[bytes, bytes]) -> tuple[int, int] | None:
        """Return the range that is wanted, or None for everything. Refuse one outside the artifact (416)."""
        given, size = request.get(b"range"), self._ref.size_bytes
        condition = request.get(b"if-range")
        if given is None or (condition is not None and condition.strip() != self._etag):
            return None
        found = _RANGE.fullmatch(given.decode("latin-1").strip())
        if found is None or found[0] == "bytes=-":
            return None  # another unit, or several ranges: HTTP allows answering both with everything
        first, last = found[1], found[2]
        if first:
            start, end = int(first), min(int(last) + 1, size) if last else size
            if last and int(last) < start:
                return None
        else:
            start, end = max(size - int(last), 0), size
        if start >= end:
            error = InvalidRequest(f"The range {found[0]} is not in the artifact's {size} bytes.")
            raise Refused(416, error, ((b"content-range", f"bytes */{size}".encode()),))
        return start, end


class Spooled:
    """A file that was written for this response, sent piece by piece and then closed."""

    def __init__(self, file: BinaryIO, content_type: bytes, name: str) -> None:
        self._file = file
        self._content_type = content_type
        self._name = name

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            size = self._file.seek(0, os.SEEK_END)
            headers = [
                (b"content-type", self._content_type),
                (b"content-length", str(size).encode()),
                (b"content-disposition", f'attachment; filename="{self._name}"'.encode()),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            self._file.seek(0)
            while scope["method"] != "HEAD" and (
                piece := await asyncio.to_thread(self._file.read, PIECE_BYTES)
            ):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._file.close()


def media_type(given: str) -> bytes:
    """Return a media type that is safe in a header: an invalid one becomes application/octet-stream."""
    return given.encode() if _MEDIA_TYPE.fullmatch(given) else b"application/octet-stream"


def _names(header: bytes | None, etag: bytes) -> bool:
    if header is None:
        return False
    return header.strip() == b"*" or etag in [part.strip().removeprefix(b"W/") for part in header.split(b",")]
