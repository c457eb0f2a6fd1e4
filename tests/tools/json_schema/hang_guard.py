"""An outer guard for tests of attacks that once kept the process busy for ever: it fails the test, it measures nothing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

GUARD_S = 60


@contextmanager
def hang_guard() -> Iterator[None]:
    """Fail if what is inside never ends."""

    def stop(*_: object) -> None:
        raise AssertionError(f"still busy after {GUARD_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(GUARD_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
