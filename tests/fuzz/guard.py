"""Code that may never end → an error when it does not."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

GUARD_S = 20
"""How long one input may take before it counts as endless. A guard, not a measure."""


class Endless(BaseException):
    """An input did not end. Not an `Exception`, so that no code takes it for its own."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Raise `Endless` in what does not end."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(GUARD_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
