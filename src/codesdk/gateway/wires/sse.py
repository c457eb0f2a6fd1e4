"""The bytes of a server-sent event stream ↔ events: pure line framing, for all formats that stream this way.

`EventReader` takes chunks cut anywhere and holds at most one event, of bounded size; `frame` writes one
event. What an event means is up to the codec.
"""

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""More than any provider sends in one event, even with a whole image in base64."""

_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Splits one stream into the data of its events. One cut off by the end of the stream is never returned.

    Lines end with `\\n` or `\\r\\n`. An event larger than `max_bytes` is skipped. The names of events are not
    read: all formats that have them repeat them in the data.
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._is_first = True
        self._is_too_large = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this chunk completes."""
        events: list[bytes] = []
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

    def _end_line(self, events: list[bytes]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first:  # a byte order mark may stand only at the beginning of a stream
            self._is_first = False
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\r")
        if line:
            self._take_field(line)
            return
        if self._data:
            events.append(b"\n".join(self._data))
        self._data.clear()
        self._size = 0
        self._is_too_large = False

    def _take_field(self, line: bytes) -> None:
        if self._is_too_large:
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif not field:
            self._size -= len(line)  # a comment keeps the connection alive, however long the silence


def frame(name: str, data: bytes) -> bytes:
    """Return one event as bytes; with an empty `name` it has no `event` line."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
