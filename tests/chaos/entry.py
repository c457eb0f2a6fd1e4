"""`codesdkd` with a wall clock that a test can set, and a second scripted runtime to move sessions to.

    entry.py CLOCK_FILE [OPTIONS of codesdkd]

CLOCK_FILE holds how many nanoseconds the clock is ahead, as eight bytes. Nothing else is different: what reads the
monotonic clock, as every wait does, is not affected, as it would not be by a real jump.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from codesdk.cli import codesdkd
from codesdk.runtimes import registry


def follow_clock(path: Path) -> None:
    """Let every reader of the wall clock be ahead by what the file says at that moment."""
    with path.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    real = time.time_ns

    def shifted_ns() -> int:
        return real() + struct.unpack_from("<q", ahead)[0]

    time.time_ns = shifted_ns
    time.time = lambda: shifted_ns() / 1e9


if __name__ == "__main__":
    follow_clock(Path(sys.argv.pop(1)))
    registry.RUNTIMES = (*registry.RUNTIMES, "tests.chaos.twin")
    codesdkd.main()
