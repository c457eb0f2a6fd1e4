"""Chunks of a program's output → what passes through, byte for byte, and lines that may be events.

Bytes are held back only while their line may still be an event, and no more of them than a line may have. Everything
else leaves with the chunk that it came in, so that a prompt without an end of line is seen at once. Pure.
"""

import re

import msgspec

from codesdk.channel.json_prefix import ObjectPrefix
from codesdk.channel.protocol import MARKER, read_event

MAX_LINE_BYTES = 1024 * 1024
_BEGINS = re.compile(rb"\n(?=[{@])")
"""The end of a line, with the next one beginning like an event."""


class Candidate(msgspec.Struct, frozen=True):
    """A whole line that begins like an event, with its end, if it had one."""

    line: bytes


class Overlong(msgspec.Struct, frozen=True):
    """A line that began with the marker and was longer than an event may be. Its bytes passed through."""


Piece = bytes | Candidate | Overlong


class Framing:
    """One stream. Give it chunks with `feed`, and call `end` once."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._held = bytearray()
        self._object = ObjectPrefix()
        self._at_start = True

    @property
    def held(self) -> int:
        """How many bytes wait for the rest of their line."""
        return len(self._held)

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return the events that a chunk completes, in order."""
        pieces: list[Piece] = []
        place = 0
        while place < len(chunk):
            if self._held or (self._at_start and chunk[place] in b"{@"):
                place = self._hold(chunk, place, pieces)
            else:
                place = self._pass(chunk, place, pieces)
        return pieces

    def end(self) -> list[Piece]:
        """Return what was held. A last line without its end may be an event, too."""
        held, self._held = bytes(self._held), bytearray()
        return [Candidate(held)] if held else []

    def _pass(self, chunk: bytes, place: int, pieces: list[Piece]) -> int:
        begins = _BEGINS.search(chunk, place)
        end = len(chunk) if begins is None else begins.end()
        pieces.append(chunk if place == 0 and end == len(chunk) else chunk[place:end])
        self._at_start = chunk[end - 1] == 0x0A
        return end

    def _hold(self, chunk: bytes, place: int, pieces: list[Piece]) -> int:
        found = chunk.find(b"\n", place)
        end = len(chunk) if found < 0 else found + 1
        room = self._limit - len(self._held)
        if end - place > room:
            # Too long for an event: what was held goes, and the rest of the line goes with its chunks.
            if self._is_marked(chunk, place):
                pieces.append(Overlong())
            pieces.append(bytes(self._held) + chunk[place:end])
            self._held = bytearray()
            self._at_start = found >= 0
            return end
        if not self._held:
            self._object = ObjectPrefix()
        self._held += chunk[place:end]
        if found >= 0:
            pieces.append(Candidate(bytes(self._held)))
            self._held = bytearray()
            self._at_start = True
        elif not self._may_be_event(chunk[place:end]):
            pieces.append(bytes(self._held))
            self._held = bytearray()
            self._at_start = False
        return end

    def _is_marked(self, chunk: bytes, place: int) -> bool:
        return (bytes(self._held[: len(MARKER)]) + chunk[place : place + len(MARKER)]).startswith(MARKER)

    def _may_be_event(self, added: bytes) -> bool:
        if not self._held.startswith(b"{"):
            return bytes(self._held[: len(MARKER)]) == MARKER[: len(self._held)]
        was_whole = self._object.is_whole
        if not self._object.feed(added):
            return False
        # A whole object is an event or none, whatever blanks follow: read once, and never again.
        is_new = self._object.is_whole and not was_whole
        return not is_new or read_event(bytes(self._held)) != (None, None)
