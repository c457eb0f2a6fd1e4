"""Shows committed events to readers: a short ring in memory (at least one batch), with the store behind it.

A reader holds only a cursor. While that is in the ring it is served from there; when it has fallen behind, it
pages from the store and rejoins. So a slow reader loses nothing and slows nobody down. What all readers have
seen leaves the ring, except for the last few events.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from weakref import WeakValueDictionary

from codesdk.contract.codec import decode
from codesdk.contract.errors import NotFound
from codesdk.contract.events import Event
from codesdk.contract.figures import Strain
from codesdk.contract.ports import EventLog
from codesdk.contract.records import StoredFrame
from codesdk.contract.service import Published

RING_EVENTS = 512
RING_BYTES = 2 * 1024 * 1024
FEW_EVENTS = 32
"""How many events the ring keeps for readers that join next."""
PAGE_EVENTS = 500
POLL_S = 1.0
"""How often a log that others write is checked, if nothing wakes us earlier."""


class Feed:
    """The committed events of one session, for any number of readers."""

    def __init__(self, log: EventLog, session_id: str, committed: int, strain: Strain | None = None) -> None:
        self.session_id = session_id
        self.committed = committed
        self.has_writer = False
        """Whether a recorder of this process publishes here; else somebody must look at the store."""
        self.catch_ups = 0
        self.readers = 0
        self._log = log
        self._strain = strain or Strain()
        # A list and a dict: there are many feeds at rest, and a deque and a set take ten times the space when empty.
        self._ring: list[Published] = []
        self._ring_bytes = 0
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._resting = False
        self._error: Exception | None = None
        self._closed = False

    def publish(self, items: Sequence[Published]) -> None:
        """Show events to readers. They must be committed."""
        self._resting = False
        self._ring.extend(items)
        self._ring_bytes += sum([len(item.frame) for item in items])
        # At least the whole batch: a reader that has seen all before it must not have to go to the store.
        self._shrink(max(RING_EVENTS, len(items)) if self.readers else FEW_EVENTS)
        self.committed = items[-1].seq
        self._wake()

    def advance(self, committed: int) -> None:
        """Note that another owner committed up to a seq. Readers then get it from the store."""
        if committed > self.committed:
            self._ring.clear()
            self._ring_bytes = 0
            self.committed = committed
            self._wake()

    def close(self, error: Exception | None = None) -> None:
        """End every reader once it has read what was committed, with the error if given."""
        self._closed = True
        self._error = error
        self._wake()

    def forget(self) -> None:
        """Free the ring once nobody reads from it: no events are expected for a while."""
        self._resting = True
        self._settle()

    @contextmanager
    def reading(self) -> Generator[None]:
        """Count the caller as a reader."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            self._settle()

    def since(self, cursor: int, most_bytes: int = RING_BYTES) -> list[Published] | None:
        """Return what the ring holds after the cursor, or None if it no longer reaches back that far.

        Stop after `most_bytes`; the rest comes with the next call.
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
        """Return a page from the store, for a reader that has fallen behind."""
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
        self._waiting[waiting] = None
        self._settle()
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)
        return True

    def _wake(self) -> None:
        if not self._waiting:
            return
        woken, self._waiting = self._waiting, {}
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)

    def _settle(self) -> None:
        """Shrink the ring when every reader has read it all, and empty it if no more is expected."""
        if len(self._waiting) >= self.readers:
            self._shrink(0 if self._resting else FEW_EVENTS)

    def _shrink(self, most: int) -> None:
        ring, left = self._ring, 0
        while len(ring) - left > most or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(ring[left].frame)
            left += 1
        if left:
            del ring[:left]


class Feeds:
    """The feeds of all sessions that are written or read here. Reading a session does not acquire it.

    A feed lives as long as its recorder or a reader. Unless this process is `alone` with its log, feeds
    without a recorder here follow the store, so that their readers see what another owner commits.
    """

    def __init__(self, log: EventLog, strain: Strain, *, alone: bool) -> None:
        self._log = log
        self._strain = strain
        self._alone = alone
        self._feeds: WeakValueDictionary[str, Feed] = WeakValueDictionary()
        self._watching: asyncio.Task[None] | None = None
        self._ends = 0

    async def of_reader(self, session_id: str) -> Feed:
        """Return the feed of a stored session, at its last committed event. Raise `NotFound` if it was just deleted."""
        feed = self._feeds.get(session_id)
        while feed is None:
            ends = self._ends
            committed = await self._log.head(session_id)
            if committed == 0:
                raise unknown_session(session_id)
            if ends == self._ends:  # else it may have been deleted meanwhile, and nobody would close its feed
                feed = self._feeds.get(session_id) or self._add(session_id, committed)
        if not self._alone and self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return feed

    def of_writer(self, session_id: str, committed: int) -> Feed:
        """Return the feed that a recorder publishes to: the one that readers already have, if any."""
        feed = self._feeds.get(session_id) or self._add(session_id, committed)
        feed.advance(committed)
        feed.has_writer = True
        return feed

    def readers(self, session_id: str) -> int:
        """Return how many readers follow a session."""
        feed = self._feeds.get(session_id)
        return 0 if feed is None else feed.readers

    def drop(self, session_id: str) -> None:
        """Forget a closed feed: the next reader gets a new one."""
        self._feeds.pop(session_id, None)

    def end(self, session_id: str) -> None:
        """End the readers of a session that is deleted, also those who came while it was being deleted."""
        self._ends += 1
        feed = self._feeds.pop(session_id, None)
        if feed is not None:
            feed.close()

    def close(self) -> None:
        """End every reader once it has read what was committed."""
        if self._watching is not None:
            self._watching.cancel()
        for feed in list(self._feeds.values()):
            feed.close()

    def _add(self, session_id: str, committed: int) -> Feed:
        feed = self._feeds[session_id] = Feed(self._log, session_id, committed, self._strain)
        return feed

    async def _watch(self) -> None:
        """Follow the store for readers of sessions that others write, until there are none."""
        while watched := [name for name, feed in self._feeds.items() if not feed.has_writer]:
            for session_id in watched:
                head = await self._log.head(session_id)
                feed = self._feeds.get(session_id)  # held briefly: only readers keep a feed alive
                if feed is not None:
                    feed.advance(head)
                del feed
            await self._log.changed(POLL_S)
        self._watching = None


async def follow(feed: Feed, after_seq: int) -> AsyncGenerator[list[Published]]:
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
                cursor = items[-1].seq
            elif not await feed.wait():
                return
            if items:
                yield items


async def read_events(log: EventLog, session_id: str, after_seq: int = 0) -> AsyncGenerator[Event]:
    """Yield the events of a stored log after a seq, without damaged frames."""
    while frames := await log.read(session_id, after_seq, PAGE_EVENTS):
        after_seq = frames[-1].seq
        for item in _readable(frames):
            yield item.event


def _readable(frames: Sequence[StoredFrame]) -> list[Published]:
    return [Published(frame.seq, frame.data, decode(frame.data)) for frame in frames if frame.damage is None]


def unknown_session(session_id: str) -> NotFound:
    """Return the error for a session that does not exist or is not the caller's."""
    return NotFound(f"There is no session {session_id}. `codesdk sessions` lists those there are.")
