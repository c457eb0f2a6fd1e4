"""How much work one call may be: steps that are counted, and a question in between whether anybody still waits.

A thread cannot be stopped, and there are few of them for everybody. So whatever a file or a model can make long takes its
steps from here before it does them.
"""

from collections.abc import Callable

_STEPS = 20_000_000
"""Some seconds; a patch of a hundred hunks to a file of ten thousand lines takes a tenth of it."""


class TooMuchWork(Exception):
    """The steps are used up, or nobody waits for the result any more."""


class Steps:
    """The steps of one call."""

    def __init__(self, limit: int = _STEPS, go_on: Callable[[], bool] = lambda: True) -> None:
        self._left = limit
        self._go_on = go_on

    def take(self, count: int) -> None:
        """Raise `TooMuchWork` unless there are that many left and the work is wanted."""
        self._left -= count
        if self._left < 0 or not self._go_on():
            raise TooMuchWork
