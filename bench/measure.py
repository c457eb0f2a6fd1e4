"""Clocks, medians and the memory of this process. Used by every benchmark."""

import gc
import math
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


class Cost(msgspec.Struct):
    """What some work took: wall time, and processor time over all threads."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def cost() -> Iterator[Cost]:
    """Measure the block. Garbage of earlier work is collected first; the collector stays on, as in use."""
    gc.collect()
    found = Cost()
    wall, cpu = time.perf_counter(), time.process_time()
    yield found
    found.cpu_s = time.process_time() - cpu
    found.wall_s = time.perf_counter() - wall


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def in_rounds(values: Sequence[float], share: float, rounds: int = 3) -> float:
    """Return the median over rounds of a percentile, so that one bad moment of the machine does not decide."""
    size = max(1, len(values) // rounds)
    parts = [values[at : at + size] for at in range(0, size * rounds, size)]
    return median([percentile(part, share) for part in parts if part])


def micros_per_call(work: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Return the microseconds that a call takes in the median round."""
    for _ in range(calls // 10 + 1):
        work()
    found: list[float] = []
    for _ in range(rounds):
        with cost() as spent:
            for _ in range(calls):
                work()
        found.append(spent.wall_s / calls * 1e6)
    return median(found)


async def timed_ms(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="codesdk-bench-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def fdatasync_ms() -> float:
    """Return how long the disk takes to make 4 KB permanent, in the median of 20."""
    found: list[float] = []
    with scratch() as path, (path / "probe").open("wb", buffering=0) as probe:
        for _ in range(20):
            probe.write(bytes(4096))
            started = time.perf_counter()
            os.fdatasync(probe.fileno())
            found.append((time.perf_counter() - started) * 1000)
    return median(found)


def load() -> float:
    """Return how many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def facts() -> dict[str, Any]:
    """Return what a reader must know of the machine, and nothing that names it."""
    import uvloop

    return {
        "cores": len(os.sched_getaffinity(0)),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "uvloop": uvloop.__version__,
        "msgspec": msgspec.__version__,
        "gc_thresholds": list(gc.get_threshold()),
        "load_before": load(),
        "fdatasync_ms": round(fdatasync_ms(), 3),
    }
