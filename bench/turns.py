"""What a task costs in a session that has had ten of them, and a thousand."""

import time
from pathlib import Path

import msgspec

from bench.measure import median, scratch
from bench.rig import finish_task, log_of, new_session, rig, small_turn
from bench.table import Report, ratio_at_most
from codesdk import CodeSDK

_EARLY, _LATE, _SPAN = 10, 1_000, 21


class _Turn(msgspec.Struct):
    wall_ms: float
    cpu_ms: float
    rows: int


async def run(report: Report, quick: bool) -> None:
    late = 60 if quick else _LATE
    with scratch() as path:
        async with rig(path, small_turn()) as sdk:
            report.progress(f"{late:,} tasks in one session")
            turns = await _play(sdk, path, late + _SPAN // 2 + 1)
    early, last = _around(turns, _EARLY), _around(turns, late)
    first = f"at task {_EARLY}"
    goal = ratio_at_most(1.5)
    name = f"task {late:,}"
    report.line(f"{name}, CPU", last.cpu_ms, "ms", against=(first, early.cpu_ms), goal=goal)
    report.line(f"{name}, wall", last.wall_ms, "ms", against=(first, early.wall_ms), goal=goal)
    report.line(f"{name}, rows read", last.rows, "", against=(first, early.rows), goal=goal)


async def _play(sdk: CodeSDK, path: Path, count: int) -> list[_Turn]:
    session = await new_session(sdk, path)
    stats = log_of(sdk).stats
    turns: list[_Turn] = []
    for _ in range(count):
        wall, cpu, rows = time.perf_counter(), time.process_time(), stats.rows_read
        await finish_task(session)
        turns.append(
            _Turn(
                wall_ms=(time.perf_counter() - wall) * 1000,
                cpu_ms=(time.process_time() - cpu) * 1000,
                rows=stats.rows_read - rows,
            )
        )
    return turns


def _around(turns: list[_Turn], number: int) -> _Turn:
    """Return the medians of the tasks around one."""
    some = turns[max(0, number - _SPAN // 2) : number + _SPAN // 2 + 1]
    return _Turn(
        wall_ms=median([turn.wall_ms for turn in some]),
        cpu_ms=median([turn.cpu_ms for turn in some]),
        rows=round(median([turn.rows for turn in some])),
    )
