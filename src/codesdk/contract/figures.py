"""Figures that only grow: kept where something happens, at next to no cost, and read when somebody asks for them."""

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
"""From a commit to a task that takes all morning."""


class Spread:
    """How values are spread: how many lie between two bounds, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """How many are at most as large as each bound and larger than the one before it; the last are larger than all."""
        self.total = 0.0

    def add(self, value: float) -> None:
        """Take a value in."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Strain(msgspec.Struct):
    """How often an engine had to wait or to take the longer way."""

    recorder_waits: int = 0
    """How often a runtime was paused because its events were not stored yet."""
    catch_ups: int = 0
    """How often a subscriber had fallen behind, and a page was read for it from the store."""
    late_redactions: int = 0
    """How many events still had a secret in them when they were about to be stored. None is stored with it."""
    dropped_observers: int = 0
    """How many observers raised, and are called no longer."""
