"""Counters that only grow: updated where something happens, at almost no cost, and read on request."""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

FRAMES: Sequence[float] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)
SECONDS: Sequence[float] = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    1_800,
)
"""Bounds from a commit to a task that takes all morning."""


class Spread:
    """A histogram: how many values lie between two bounds, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """How many are at most as large as each bound and larger than the one before it; the last are larger than all."""
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Strain(msgspec.Struct):
    """How often an engine had to wait or to take a slower path."""

    recorder_waits: int = 0
    """How often a runtime was paused because its events were not stored yet."""
    catch_ups: int = 0
    """How often a reader had fallen behind, so that a page was read from the store."""
    late_redactions: int = 0
    """How many events still held a secret just before they were stored. It is never stored."""
    dropped_observers: int = 0
    """How many observers raised and are no longer called."""
