"""A session's feed → server-sent events: raw ASGI, many events per write, only a cursor kept per client.

A client that keeps up is served from the feed's ring, encoded once for all. One that has fallen behind is
served from the store, page by page, as fast as it reads; while it does not read, at most one write and one
short page wait for it. The id of an event is its seq: a client that sends `Last-Event-ID` continues there.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from codesdk.contract.codec import place_of
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.events import EVENT_TYPES
from codesdk.contract.records import StoredFrame
from codesdk.contract.service import stream_frame
from codesdk.engine import PAGE_EVENTS, Feed
from codesdk.serving import Message, Receive, Send, until_gone

WRITE_BYTES = 64 * 1024
PAGE_BYTES = 2 * WRITE_BYTES
FIRST_PAGE_EVENTS = 64  # small, because nobody knows yet how large events are in this session
MAX_PATTERNS, MAX_PATTERN_CHARS = 100, 100
RETRY = b"retry: 1000\n\n"
HEARTBEAT = b": still here\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # else nginx holds events back
    (b"x-content-type-options", b"nosniff"),
]


def chosen_types(given: str | None) -> frozenset[str] | None:
    """Return the event types that a filter such as `task.*,tool.call.completed` lets pass; None for all."""
    if given is None:
        return None
    patterns = {part.strip() for part in given.split(",") if part.strip()}
    if len(patterns) > MAX_PATTERNS or any(len(pattern) > MAX_PATTERN_CHARS for pattern in patterns):
        raise InvalidRequest(
            f"A filter has at most {MAX_PATTERNS} patterns of {MAX_PATTERN_CHARS} characters each."
        )
    found = frozenset(name for name in EVENT_TYPES for pattern in patterns if fnmatchcase(name, pattern))
    if not found:
        raise InvalidRequest(f"No event type matches {given[:200]!r}. An example: task.*,tool.call.completed")
    return found


def passes(frame: bytes, types: frozenset[str] | None) -> bool:
    """Return whether a stored frame is of a wanted type."""
    return types is None or place_of(frame)[1] in types


class EventStream:
    """One client's view of a session, until it leaves or the feed closes."""

    def __init__(
        self,
        feed: Feed,
        after_seq: int,
        types: frozenset[str] | None,
        *,
        heartbeat_s: float,
        welcome: Callable[[], bool],
    ) -> None:
        if after_seq > feed.committed:
            raise InvalidRequest(
                f"Session {feed.session_id} has {feed.committed} events: start after one of them, not {after_seq}."
            )
        self._feed = feed
        self._cursor = after_seq
        self._types = types
        self._heartbeat_s = heartbeat_s
        self._welcome = welcome
        self._page_events = FIRST_PAGE_EVENTS
        self._writing = False
        self._wrote = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Stream until the client hangs up, the feed closes or the caller is no longer let in."""
        with self._feed.reading():  # keeps the session loaded
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if scope["method"] != "HEAD":
                await self._stream(receive, send)
            with contextlib.suppress(OSError):  # the client may be gone
                await send({"type": "http.response.body", "body": b""})

    async def _stream(self, receive: Receive, send: Send) -> None:
        pumping = asyncio.create_task(self._pump(send))
        leaving = asyncio.create_task(until_gone(receive))
        try:
            await self._watch(send, pumping, leaving)
        finally:
            leaving.cancel()
            pumping.cancel()
            await asyncio.wait([pumping, leaving])
        if not pumping.cancelled() and (error := pumping.exception()) is not None:
            raise error

    async def _watch(self, send: Send, *parts: asyncio.Task[None]) -> None:
        """Wait for a part to end. Check meanwhile that the caller may stay, and send heartbeats."""
        while self._welcome():
            self._wrote = False
            done, _ = await asyncio.wait(
                parts, timeout=self._heartbeat_s, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return
            if not self._wrote and not self._writing:
                await self._write(send, HEARTBEAT)

    async def _pump(self, send: Send) -> None:
        feed, wanted = self._feed, self._types
        with contextlib.suppress(CodeSDKError):  # the client reconnects, and gets the error then
            await self._write(send, RETRY)
            while True:
                items = feed.since(self._cursor, WRITE_BYTES)
                if items is None:
                    await self._catch_up(send)
                elif items:
                    self._cursor = items[-1].seq
                    frames = [item.streamed for item in items if wanted is None or item.event.type in wanted]
                    del items  # must not stay in memory while a slow client takes the write
                    await self._write(send, b"".join(frames))
                elif not await feed.wait():
                    return

    async def _catch_up(self, send: Send) -> None:
        """Send one page of the store, and size the next one by the bytes of this one."""
        page = await self._feed.stored(self._cursor, self._page_events)
        self._cursor = page[-1].seq if page else self._feed.committed
        size = sum([len(frame.data) for frame in page])
        self._page_events = min(PAGE_EVENTS, 1 + PAGE_BYTES * len(page) // (size + 1))
        for chunk in _joined(self._streamed(frame) for frame in page):
            await self._write(send, chunk)

    def _streamed(self, frame: StoredFrame) -> bytes:
        if frame.damage is not None:
            return b": event %d is damaged and cannot be read\n\n" % frame.seq
        if self._types is not None and not passes(frame.data, self._types):
            return b""
        return stream_frame(frame.seq, frame.data)

    async def _write(self, send: Send, data: bytes) -> None:
        if data:
            self._writing = self._wrote = True
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._writing = False


def _joined(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield frames, joined into writes of about `WRITE_BYTES`."""
    part: list[bytes] = []
    size = 0
    for frame in frames:
        part.append(frame)
        size += len(frame)
        if size >= WRITE_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if size:
        yield b"".join(part)
