"""The time by which stored things grow old, for whoever removes them by age.

A clock that jumps forward must not make everything old at once: what is removed does not come back.
"""

import time

_TICKS = getattr(
    time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)  # goes on while the machine sleeps, where it can
_started, _start_ticks = time.time(), time.clock_gettime(_TICKS)


def age_time() -> float:
    """Return the time in seconds, but no later than what has passed since the process began allows."""
    return min(time.time(), _started + time.clock_gettime(_TICKS) - _start_ticks)
