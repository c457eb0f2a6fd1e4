"""The bytes of a server-sent event stream ↔ events: pure line framing, for all formats that stream this way.

`EventReader` takes chunks cut anywhere and holds at most one event, of bounded size; `frame` writes one
event. What an event means is up to the codec.
"""

import msgspec

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""More than any provider sends in one event, even with a whole image in base64."""

_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True):
    """One event. `name` is empty if the stream gives none; `data` can be passed to a JSON decoder."""

    name: str
    data: bytes


class EventReader:
    """Splits one stream into events. An event cut off by the end of the stream is never returned.

    Lines end with `\\n` or `\\r\\n`. An event larger than `max_bytes` is skipped, and counted in `dropped`.
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
        """Add to the line what fits. Exceeding the limit loses the event, not the stream."""
        self._size += end - start
        if self._size <= self._max_bytes:
            self._line += memoryview(chunk)[start:end]
            return
        self._is_too_large = True
        self._data.clear()
        # Keep enough to recognize the blank line that ends the event.
        room = 2 - len(self._line)
        if room > 0:
            self._line += memoryview(chunk)[start : min(end, start + room)]
        elif room < 0:
            del self._line[2:]

    def _end_line(self, events: list[Event]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first:  # a byte order mark may stand only at the beginning of a stream
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
