"""The memory that a session takes when it is idle, after one finished task."""

import gc
import tracemalloc

from bench.measure import resident_bytes, scratch
from bench.rig import rig, sessions_with_a_task, small_turn
from bench.table import Report, at_most

_RIVAL_KB = 58


async def run(report: Report, quick: bool) -> None:
    steps, traced = ([50], 20) if quick else ([1_000, 5_000], 300)
    with scratch() as path:
        async with rig(path, small_turn()) as sdk:
            await sessions_with_a_task(sdk, path, 20 if quick else 200)
            gc.collect()
            before, made = resident_bytes(), 0
            for step in steps:
                report.progress(f"{step:,} idle sessions")
                await sessions_with_a_task(sdk, path, step - made)
                made = step
                gc.collect()
                each = (resident_bytes() - before) / made / 1000
                report.line(f"{made:,} idle sessions, RSS each", each, "KB", goal=at_most(_RIVAL_KB))
    with scratch() as path:
        async with rig(path, small_turn()) as sdk:
            report.progress("traced allocations")
            await sessions_with_a_task(sdk, path, 20)
            gc.collect()
            tracemalloc.start()
            await sessions_with_a_task(sdk, path, traced)
            gc.collect()
            each = tracemalloc.get_traced_memory()[0] / traced / 1000
            tracemalloc.stop()
            report.line(f"{traced:,} idle sessions, Python objects each", each, "KB")
