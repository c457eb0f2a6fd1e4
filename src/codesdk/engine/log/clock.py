"""Real time and fresh ids for the engine: `SystemStamper` implements the `Stamper` port."""

import secrets
import time
from datetime import UTC, datetime

from codesdk.contract.ids import Prefix, ulid


def iso(time_ms: int) -> str:
    """Return a time in milliseconds since the epoch as UTC ISO-8601 with `Z`."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def millis(text: str) -> int:
    """Return a time of the contract's form in milliseconds since the epoch."""
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


MAX_LAG_S = 60
"""How far the clock may stand behind a session's last event. Up to here the session waits for it to catch up, so
that its times never go back; beyond, the clock was set back, which is recorded, and the true time counts."""


def is_set_back(last: str, now: str) -> bool:
    """Return whether the clock stands so far behind the last event's time that it must have been set back."""
    try:
        return millis(last) - millis(now) > MAX_LAG_S * 1000
    except ValueError:  # a damaged store: what it says of the time is not to be waited for
        return now < last


class SystemStamper:
    """The machine's clock, and ids that are never repeated. `Journal` keeps the times of a session in order."""

    def __init__(self) -> None:
        self._now_ms = -1
        self._text = ""
        self._second = 0
        self._second_text = ""
        self._id_ms = 0
        self._random = 0

    def now(self) -> str:
        """Return the current time; the same text for the same millisecond."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            second = now_ms // 1000
            if second != self._second:
                self._second = second
                self._second_text = iso(now_ms)[:-4]
            self._text = f"{self._second_text}{now_ms % 1000:03d}Z"
        return self._text

    def mint(self, prefix: Prefix) -> str:
        """Return a new id. Ids of one process sort in the order they were minted, unless the clock is set back."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._id_ms or self._id_ms - now_ms > MAX_LAG_S * 1000:
            self._id_ms = now_ms
            self._random = secrets.randbits(79)
        else:
            self._random += 1 + secrets.randbits(32)
        return f"{prefix}_{ulid(self._id_ms, self._random)}"
