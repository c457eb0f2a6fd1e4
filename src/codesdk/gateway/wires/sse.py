"""Bytes of a server-sent event stream ↔ events: pure line framing, for every wire format that streams this way.

`EventReader` takes chunks cut anywhere and keeps at most a bounded event in memory;
`frame` writes one event. What an event means is the codec's business.
"""

import msgspec

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""More than any provider sends in one event: an image of a whole answer, base64 and all."""

_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True):
    """One event. `name` is empty where the stream gives none; `data` is what JSON decoders take."""

    name: str
    data: bytes


class EventReader:
    """Splits a stream into events. Made anew for each stream; an event that its end cuts off is never given.

    Lines end with `\\n` or `\\r\\n`. An event larger than `max_bytes` is passed over, and counted in `dropped`.
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self.dropped = 0
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._name = ""
        self._size = 0
        self._is_first = True
        self._is_too_large = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that this chunk completes."""
        events: list[Event] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk, start, end)
            self._end_line(events)
            start = end + 1
        self._keep(chunk, start, len(chunk))
        return events

    def _keep(self, chunk: bytes, start: int, end: int) -> None:
        """Add to the line what fits. The first byte beyond the limit spoils the event, not the stream."""
        self._size += end - start
        if self._size <= self._max_bytes:
            self._line += memoryview(chunk)[start:end]
            return
        self._is_too_large = True
        self._data.clear()
        # Enough is kept to tell the blank line, which ends the event, from any other.
        room = 2 - len(self._line)
        if room > 0:
            self._line += memoryview(chunk)[start : min(end, start + room)]
        elif room < 0:
            del self._line[2:]

    def _end_line(self, events: list[Event]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\r")
        if line:
            self._take_field(line)
            return
        if self._is_too_large:
            self.dropped += 1
        elif self._data:
            events.append(Event(self._name, b"\n".join(self._data)))
        self._data.clear()
        self._name = ""
        self._size = 0
        self._is_too_large = False

    def _take_field(self, line: bytes) -> None:
        if self._is_too_large:
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif not field:
            self._size -= len(line)  # a comment keeps the connection alive, however long the silence


def frame(name: str, data: bytes) -> bytes:
    """Return one event as bytes; with an empty `name` it has no `event` line."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
