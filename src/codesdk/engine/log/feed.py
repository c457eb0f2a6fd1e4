"""Committed events to subscribers: a short ring in memory (a batch at least), the store behind it.

A subscriber holds only a cursor and a wake-up. While its cursor is in the ring it
is served from there; when it has fallen behind, it pages from the store and
rejoins. So a slow reader loses nothing and costs nobody anything. What all
subscribers have seen leaves the ring, but for the last few events.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager

from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.figures import Strain
from codesdk.contract.ports import EventLog
from codesdk.contract.records import StoredFrame

RING_EVENTS = 512
RING_BYTES = 2 * 1024 * 1024
FEW_EVENTS = 32
"""What the ring keeps for those who come next."""
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
        self.session_id = session_id
        self.committed = committed
        self.catch_ups = 0
        self.readers = 0
        self._log = log
        self._strain = strain or Strain()
        self._ring: deque[Published] = deque()
        self._ring_bytes = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._resting = False
        self._error: Exception | None = None
        self._closed = False

    def publish(self, items: Sequence[Published]) -> None:
        """Show events that are committed. Must not be called with any other."""
        self._resting = False
        self._ring.extend(items)
        self._ring_bytes += sum([len(item.frame) for item in items])
        self._shrink(max(RING_EVENTS, len(items)) if self.readers else FEW_EVENTS)
        self.committed = items[-1].event.seq
        self._wake()

    def close(self, error: Exception | None = None) -> None:
        """End all subscriptions once they have read what was committed, with an error if given."""
        self._closed = True
        self._error = error
        self._wake()

    def forget(self) -> None:
        """Free the ring as soon as nobody has to read from it: there will be no more for a while."""
        self._resting = True
        self._settle()

    @contextmanager
    def reading(self) -> Generator[None]:
        """Count the caller as somebody who reads."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            self._settle()

    def since(self, cursor: int, most_bytes: int = RING_BYTES) -> list[Published] | None:
        """Return what the ring holds after the cursor, or None if the ring no longer reaches back.

        Once it is so many bytes, the rest is left for another time.
        """
        missing = self.committed - cursor
        if missing <= 0:
            return []
        size = len(self._ring)
        if missing > size:
            return None
        items: list[Published] = []
        for place in range(size - missing, size):
            item = self._ring[place]
            items.append(item)
            most_bytes -= len(item.frame)
            if most_bytes <= 0:
                break
        return items

    async def stored(self, cursor: int, limit: int) -> list[StoredFrame]:
        """Return a page of the store, for a subscriber that has fallen behind."""
        self.catch_ups += 1
        self._strain.catch_ups += 1
        return await self._log.read(self.session_id, cursor, limit)

    async def wait(self) -> bool:
        """Wait for more. Return false when the feed is closed; raise the error it was closed with."""
        if self._closed:
            if self._error is not None:
                raise self._error
            return False
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        self._settle()
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
        return True

    def _wake(self) -> None:
        woken, self._waiting = self._waiting, set()
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)

    def _settle(self) -> None:
        """Keep less when all who read wait for more, and nothing if none is to come."""
        if len(self._waiting) >= self.readers:
            self._shrink(0 if self._resting else FEW_EVENTS)

    def _shrink(self, most: int) -> None:
        ring = self._ring
        while len(ring) > most or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(ring.popleft().frame)


def stream_frame(seq: int, frame: bytes) -> bytes:
    """Return a stored frame as a server-sent event. Its id is the seq; JSON has no line breaks of its own."""
    return b"id: %d\ndata: %b\n\n" % (seq, frame)


async def follow(feed: Feed, after_seq: int) -> AsyncIterator[list[Published]]:
    """Yield batches of committed events after a seq, without gap or repeat, until the feed closes."""
    cursor = after_seq
    with feed.reading():
        while True:
            items = feed.since(cursor)
            if items is None:
                frames = await feed.stored(cursor, PAGE_EVENTS)
                cursor = frames[-1].seq if frames else feed.committed
                items = _readable(frames)
            elif items:
                cursor = items[-1].event.seq
            elif not await feed.wait():
                return
            if items:
                yield items


async def read_page(log: EventLog, session_id: str, after_seq: int) -> list[Published]:
    """Return the next page of a stored log, leaving out frames that are damaged."""
    while True:
        frames = await log.read(session_id, after_seq, PAGE_EVENTS)
        items = _readable(frames)
        if items or not frames:
            return items
        after_seq = frames[-1].seq


def _readable(frames: Sequence[StoredFrame]) -> list[Published]:
    return [Published(decode(frame.data), frame.data) for frame in frames if frame.damage is None]
