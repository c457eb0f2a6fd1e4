"""What a task costs in a session that has had ten of them, and a thousand."""

import time

import msgspec

from bench.measure import median, scratch
from bench.rig import finish_task, log_of, new_session, rig, small_turn
from bench.table import Report, ratio_at_most
from codesdk import CodeSDK, Session

_EARLY, _LATE, _PAIRS = 10, 1_000, 21


class _Turn(msgspec.Struct):
    wall_ms: float
    cpu_ms: float
    rows: float


async def run(report: Report, quick: bool) -> None:
    late, pairs = (60, 5) if quick else (_LATE, _PAIRS)
    with scratch() as path:
        async with rig(path, small_turn()) as sdk:
            report.progress(f"{late:,} tasks in one session")
            old = await new_session(sdk, path)
            for _ in range(late - 1):
                await finish_task(old)
            early: list[_Turn] = []
            last: list[_Turn] = []
            report.progress("its next ones, in turn with those of young sessions")
            for _ in range(pairs):
                young = await new_session(sdk, path)
                for _ in range(_EARLY - 1):
                    await finish_task(young)
                early.append(await _turn(sdk, young))
                last.append(await _turn(sdk, old))
    _report(report, f"task {late:,}", _middle(early), _middle(last))


def _report(report: Report, name: str, early: _Turn, last: _Turn) -> None:
    first = f"at task {_EARLY}"
    goal = ratio_at_most(1.5)
    report.line(f"{name}, CPU", last.cpu_ms, "ms", against=(first, early.cpu_ms), goal=goal)
    report.line(f"{name}, wall", last.wall_ms, "ms", against=(first, early.wall_ms), goal=goal)
    report.line(f"{name}, rows read", last.rows, "", against=(first, early.rows), goal=goal)


async def _turn(sdk: CodeSDK, session: Session) -> _Turn:
    stats = log_of(sdk).stats
    wall, cpu, rows = time.perf_counter(), time.process_time(), stats.rows_read
    await finish_task(session)
    return _Turn(
        wall_ms=(time.perf_counter() - wall) * 1000,
        cpu_ms=(time.process_time() - cpu) * 1000,
        rows=stats.rows_read - rows,
    )


def _middle(turns: list[_Turn]) -> _Turn:
    return _Turn(
        wall_ms=median([turn.wall_ms for turn in turns]),
        cpu_ms=median([turn.cpu_ms for turn in turns]),
        rows=median([turn.rows for turn in turns]),
    )
