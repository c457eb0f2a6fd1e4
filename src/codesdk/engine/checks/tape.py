"""A stored log as a tape for replay: read page by page with look-ahead, and the source of times and ids."""

from typing import Any

from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.ids import Prefix
from codesdk.contract.ports import EventLog
from codesdk.contract.records import StoredFrame
from codesdk.engine.log.feed import PAGE_EVENTS

LOOK_AHEAD = 2000


class Tape:
    """Stored events read page by page, and the `Stamper` that repeats their times and ids."""

    def __init__(self, log: EventLog, session_id: str) -> None:
        self._log = log
        self._session_id = session_id
        self._events: list[tuple[Event, bytes]] = []
        self._place = 0
        self._read_to = 0
        self.damaged: list[StoredFrame] = []

    async def fill(self) -> bool:
        """Read enough events for the next step. Return false at the end of the log."""
        if len(self._events) - self._place < LOOK_AHEAD:
            self._events = self._events[self._place :]
            self._place = 0
            while frames := await self._log.read(self._session_id, self._read_to, PAGE_EVENTS):
                self._take(frames)
                if len(self._events) >= LOOK_AHEAD:
                    break
        return self._place < len(self._events)

    def _take(self, frames: list[StoredFrame]) -> None:
        for frame in frames:
            self._read_to = frame.seq
            if frame.damage is not None:
                self.damaged.append(frame)
            else:
                self._events.append((decode(frame.data), frame.data))

    def peek(self, ahead: int = 0) -> Event | None:
        """Return an event without taking it."""
        place = self._place + ahead
        return self._events[place][0] if place < len(self._events) else None

    def next(self) -> tuple[Event, bytes] | None:
        """Take the next event."""
        if self._place >= len(self._events):
            return None
        self._place += 1
        return self._events[self._place - 1]

    def peek_payload(self, ahead: int) -> Any:
        """Return the payload of an event further on, or None."""
        event = self.peek(ahead)
        return event.payload if event else None

    def now(self) -> str:
        """Return the time of the next event."""
        event = self.peek()
        return event.time if event else "1970-01-01T00:00:00.000Z"

    def mint(self, prefix: Prefix) -> str:
        """Return the id that the next event was given."""
        event = self.peek()
        field = {"call": "tool_call_id", "apr": "approval_id"}.get(prefix, "")
        return str(getattr(event.payload, field, "")) if event else ""
