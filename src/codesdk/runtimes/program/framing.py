r"""A stream of bytes → lines, split on `\n` and nothing else, of bounded length.

A line that is too long is dropped while it comes in, one with too many values at its end; only its length and its
beginning are kept.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from codesdk.contract.json_values import MOST_VALUES, has_too_many_values

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Frames hold whole tool results and images."""
_CHUNK = 1 << 16
_SHOWN = 200


class TooLong(msgspec.Struct, frozen=True):
    """A line that was dropped: how long it was, how it began, and what a line may have at most."""

    size: int
    start: bytes
    most: str


class LineSplitter:
    """Cuts what is fed to it into lines, without their ends."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._start = b""

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that end in this piece."""
        lines: list[bytes | TooLong] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def rest(self) -> bytes | TooLong | None:
        """Return what came after the last newline, if anything."""
        return self._take() if self._size else None

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if len(self._start) < _SHOWN:
            self._start += piece[: _SHOWN - len(self._start)]
        if self._size > self._max:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> bytes | TooLong:
        line: bytes | TooLong = b"".join(self._pieces)
        if self._size > self._max:
            line = TooLong(self._size, self._start, f"{self._max:,}")
        elif self._size > MOST_VALUES and has_too_many_values(line):
            line = TooLong(self._size, self._start, f"{MOST_VALUES:,} values")
        self._pieces, self._size, self._start = [], 0, b""
        return line


class Source(Protocol):
    """What lines are read from: a stream, or one whose beginning was read already."""

    async def read(self, n: int = -1) -> bytes:
        """Return what there is, at most so many bytes; nothing at the end."""
        ...


async def read_lines(stream: Source, max_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[bytes | TooLong]:
    """Yield the lines of a stream until it ends, the unfinished last one too."""
    splitter = LineSplitter(max_bytes)
    while data := await stream.read(_CHUNK):
        for line in splitter.feed(data):
            yield line
    rest = splitter.rest()
    if rest is not None:
        yield rest
