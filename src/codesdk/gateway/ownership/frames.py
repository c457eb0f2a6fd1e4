"""The bytes of a server-sent event stream → its events, each as the bytes that it came in.

Unlike `wires/sse` nothing is lost: joined, the events are the stream again. Lines may end with `\\n`, `\\r\\n` or
`\\r`; as not every agent knows the last, events with it are passed on with `\\n`. An event that is too large to be
judged is left out.
"""

import re

from codesdk.gateway.wires.sse import MAX_EVENT_BYTES

_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_COMMON_END = re.compile(rb"\n\r?\n")
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_LONGEST_END = 4


class Frames:
    """Splits one stream. Holds at most one event."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._searched = 0
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that this chunk completes."""
        found: list[bytes] = []
        held = self._held
        if held:
            held += chunk
            start = 0
            for end in _ends(held, self._searched):
                self._take(bytes(held[start:end]), found)
                start = end
            del held[:start]
        else:  # most chunks end where an event ends: nothing need be copied
            start = 0
            for end in _ends(chunk, 0):
                self._take(chunk[start:end], found)
                start = end
            held += chunk[start:]
        self._searched = max(0, len(held) - _LONGEST_END)
        if len(held) > self._max_bytes:
            # Lost, but for what may be the beginning of its end.
            self._is_skipping = True
            del held[:-_LONGEST_END]
            self._searched = 0
        return found

    def rest(self) -> bytes:
        """Return what is left at the end of the stream: an event that nothing ended."""
        left: list[bytes] = []
        self._take(bytes(self._held), left)
        self._held.clear()
        self._searched = 0
        return b"".join(left)

    def _take(self, event: bytes, found: list[bytes]) -> None:
        if self._is_skipping:
            self._is_skipping = False
        elif event and len(event) <= self._max_bytes:
            found.append(plain(event))


def _ends(data: bytes | bytearray, start: int) -> list[int]:
    """Return where events end. What is before `start` is never looked at again, however often more comes."""
    returns = data.count(b"\r", start)
    if not returns or returns == data.count(b"\r\n", start):
        return [end.end() for end in _COMMON_END.finditer(data, start)]
    # A return at the very end may be half of a line end.
    last = len(data) - 1 if data.endswith(b"\r") else len(data)
    return [end.end() for end in _END.finditer(data, start, last)]


def plain(event: bytes) -> bytes:
    """Return an event without lone returns."""
    if b"\r" in event and _LONE_RETURN.search(event):
        return _LINE_END.sub(b"\n", event)
    return event


def data_of(event: bytes) -> list[bytes]:
    """Return the lines of data in an event."""
    # Nearly all events have one line of data, perhaps behind their name, and nothing else.
    start = event.find(b"\n") + 1 if event.startswith(b"event: ") else 0
    if event.startswith(b"data: ", start):
        end = event.find(b"\n", start)
        if end >= len(event) - 3 and event.endswith((b"\n\n", b"\n\r\n")):
            return [event[start + 6 : end].removesuffix(b"\r")]
    # A blank before it makes it another field, and JSON alone is no field at all, but not to every agent.
    lines = [line.removesuffix(b"\r").lstrip() for line in event.removeprefix(_BOM).split(b"\n")]
    return [
        line if line[:1] in (b"{", b"[") else line[5:].removeprefix(b" ")
        for line in lines
        if line.startswith((b"data:", b"{", b"[")) or line == b"data"
    ]


def write_event(name: str, data: bytes, like: bytes = b"") -> bytes:
    """Return an event of one line of data, with the line ends of another one."""
    end = b"\r\n" if like.endswith(b"\r\n") else b"\n"
    head = b"event: " + name.encode("utf-8", "replace") + end if name else b""
    return head + b"data: " + data + end + end
