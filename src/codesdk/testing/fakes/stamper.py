"""Times and ids that are the same on every run."""

from codesdk.contract.ids import Prefix, ulid
from codesdk.engine import iso, millis


class FrozenStamper:
    """A `Stamper` without a clock: each look at the time is `step_ms` later, and ids count up."""

    def __init__(self, start: str = "2026-01-01T00:00:00.000Z", *, step_ms: int = 1) -> None:
        self._time_ms = millis(start)
        self._step_ms = step_ms
        self._count = 0

    def now(self) -> str:
        """Return the time and advance it."""
        self._time_ms += self._step_ms
        return iso(self._time_ms)

    def mint(self, prefix: Prefix) -> str:
        """Return a new id."""
        self._count += 1
        return f"{prefix}_{ulid(self._time_ms, self._count)}"
