"""What a check of one input may cost, what it found, and the compiled schema that does the checking.

A schema and its input both come from strangers, so the steps of a check are counted and never exceed a
limit: a few nested `anyOf` would otherwise keep the loop busy for years.
"""

from collections.abc import Callable
from typing import Any

MAX_STEPS = 200_000
"""The most that the check of one input may cost. One step is about half a microsecond."""


class TooMuchWork(Exception):
    """The check of an input would take more steps than it may."""


class Work:
    """The steps that are left for the check of one input."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count steps. Raise `TooMuchWork` when none are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork


class Problem:
    """What is wrong with an input, and where: field names and indexes, outermost last."""

    __slots__ = ("way", "words")

    def __init__(self, words: str) -> None:
        self.words = words
        self.way: list[str | int] = []

    def beneath(self, key: str | int) -> "Problem":
        """Return this problem as one of the value that has the wrong one at this key."""
        self.way.append(key)
        return self

    @property
    def place(self) -> str:
        """The place as a path such as `places[1].x`; empty for the whole input."""
        parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in reversed(self.way))
        return "".join(parts).removeprefix(".")


Check = Callable[[Any, Work], Problem | None]


class CompiledSchema:
    """A schema to check values with. The compiler fills it in, so that schemas can refer to each other."""

    __slots__ = ("by_type", "in_place")

    def __init__(self) -> None:
        # A keyword such as minLength concerns one type of value: others do not even look at it.
        self.by_type: dict[type, tuple[Check, ...]] = {}
        # The schemas that are applied to the same value, such as those of anyOf.
        self.in_place: list[CompiledSchema] = []

    def problem(self, value: object, work: Work) -> Problem | None:
        """Return the first thing that is wrong with a value, or None."""
        checks = self.by_type.get(type(value), ())
        work.spend(1 + len(checks))
        for check in checks:
            found = check(value, work)
            if found is not None:
                return found
        return None
