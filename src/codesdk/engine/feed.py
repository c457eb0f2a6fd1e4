"""Committed events to subscribers: a short ring in memory (a batch at least), the store behind it.

A subscriber holds only a cursor and a wake-up. While its cursor is in the ring it
is served from there; when it has fallen behind, it pages from the store and
rejoins. So a slow reader loses nothing and costs nobody anything.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.figures import Strain
from codesdk.contract.ports import EventLog

RING_EVENTS = 512
PAGE_EVENTS = 500


class Published:
    """A committed event and its one encoding, which all who send it share."""

    __slots__ = ("_streamed", "event", "frame")

    def __init__(self, event: Event, frame: bytes) -> None:
        self.event = event
        self.frame = frame
        self._streamed: bytes | None = None

    @property
    def streamed(self) -> bytes:
        """The event as a server-sent one, made when it is first sent."""
        if self._streamed is None:
            self._streamed = stream_frame(self.event.seq, self.frame)
        return self._streamed


class Feed:
    """What a session has committed, for whoever listens."""

    def __init__(self, log: EventLog, session_id: str, committed: int, strain: Strain | None = None) -> None:
        self.log = log
        self.session_id = session_id
        self.committed = committed
        self.catch_ups = 0
        self.strain = strain or Strain()
        self.readers = 0
        self._ring: deque[Published] = deque()
        self._waiting: set[asyncio.Future[None]] = set()
        self._error: Exception | None = None
        self._closed = False

    def publish(self, items: Sequence[Published]) -> None:
        """Show events that are committed. Must not be called with any other."""
        ring = self._ring
        ring.extend(items)
        for _ in range(len(ring) - max(RING_EVENTS, len(items))):
            ring.popleft()
        self.committed = items[-1].event.seq
        self._wake()

    def close(self, error: Exception | None = None) -> None:
        """End all subscriptions once they have read what was committed, with an error if given."""
        self._closed = True
        self._error = error
        self._wake()

    def forget(self) -> None:
        """Free the ring; subscribers that still need it read the store."""
        if not self.readers:
            self._ring.clear()

    def since(self, cursor: int) -> list[Published] | None:
        """Return what the ring holds after the cursor, or None if the ring no longer reaches back."""
        missing = self.committed - cursor
        if missing <= 0:
            return []
        size = len(self._ring)
        if missing > size:
            return None
        return [self._ring[place] for place in range(size - missing, size)]

    async def wait(self) -> bool:
        """Wait for more. Return false when the feed is closed; raise the error it was closed with."""
        if self._closed:
            if self._error is not None:
                raise self._error
            return False
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
        return True

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


def stream_frame(seq: int, frame: bytes) -> bytes:
    """Return a stored frame as a server-sent event. Its id is the seq; JSON has no line breaks of its own."""
    return b"id: %d\ndata: %b\n\n" % (seq, frame)


async def follow(feed: Feed, after_seq: int) -> AsyncIterator[list[Published]]:
    """Yield batches of committed events after a seq, without gap or repeat, until the feed closes."""
    cursor = after_seq
    feed.readers += 1
    try:
        while True:
            items = feed.since(cursor)
            if items is None:
                feed.catch_ups += 1
                feed.strain.catch_ups += 1
                items = await read_page(feed.log, feed.session_id, cursor)
            if items:
                cursor = items[-1].event.seq
                yield items
            elif not await feed.wait():
                return
    finally:
        feed.readers -= 1


async def read_page(log: EventLog, session_id: str, after_seq: int) -> list[Published]:
    """Return the next page of a stored log, leaving out frames that are damaged."""
    while True:
        frames = await log.read(session_id, after_seq, PAGE_EVENTS)
        items: list[Published] = []
        for frame in frames:
            after_seq = frame.seq
            if frame.damage is None:
                items.append(Published(decode(frame.data), frame.data))
        if items or not frames:
            return items
