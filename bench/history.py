"""What a long history costs: opening a directory, finding a session's end, going on with it.

Against the same on a directory with one short session.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bench.measure import median, scratch, timed_ms
from bench.rig import burst, finish_task, log_of, new_session, rig, sessions_with_a_task
from bench.table import Report, at_most, ratio_at_most
from codesdk import CodeSDK

_TAIL = 100


class _Stored(msgspec.Struct):
    """A directory and its session of interest."""

    path: Path
    session_id: str
    events: int


class _Found(msgspec.Struct):
    ms: float
    rows: float


async def run(report: Report, quick: bool) -> None:
    tasks, deltas, others = (3, 100, 5) if quick else (100, 1_000, 1_000)
    rounds = 2 if quick else 7
    with scratch() as root:
        report.progress(f"writing {tasks * deltas:,} events and {others:,} other sessions")
        small = await _build(root / "small", deltas=10, tasks=2, others=0)
        large = await _build(root / "large", deltas=deltas, tasks=tasks, others=others)
        note = f"{large.events:,} events in one session, and {others:,} others"
        report.line("written", large.events, "events", note=note)
        fresh = await _median(rounds, lambda number: _open(root / f"fresh{number}"))
        report.line("CodeSDK.open, new directory", fresh.ms, "ms", goal=at_most(500))
        await _compare(report, "CodeSDK.open, long history", rounds, small, large, _reopen)
        await _compare(report, f"page of the last {_TAIL}", rounds, small, large, _page)
        await _compare(report, "load the session", rounds, small, large, _load)
        await _compare(report, "next task after a restart", rounds, small, large, _next_task)


async def _build(path: Path, *, deltas: int, tasks: int, others: int) -> _Stored:
    async with rig(path, burst(deltas)) as sdk:
        session = await new_session(sdk, path)
        for _ in range(tasks):
            await finish_task(session)
        events = await log_of(sdk).head(session.id)
    async with rig(path, burst(1)) as sdk:
        await sessions_with_a_task(sdk, path, others)
    return _Stored(path=path, session_id=session.id, events=events)


async def _compare(
    report: Report,
    name: str,
    rounds: int,
    small: _Stored,
    large: _Stored,
    work: Callable[[_Stored], Awaitable[_Found]],
) -> None:
    report.progress(name)
    base = await _median(rounds, lambda _: work(small))
    found = await _median(rounds, lambda _: work(large))
    report.line(name, found.ms, "ms", against=("short history", base.ms), goal=ratio_at_most(1.5))
    report.line(f"{name}, rows read", found.rows, "", against=("short history", base.rows))


async def _median(rounds: int, work: Callable[[int], Awaitable[_Found]]) -> _Found:
    await work(0)
    found = [await work(number) for number in range(1, rounds + 1)]
    return _Found(ms=median([one.ms for one in found]), rows=median([one.rows for one in found]))


async def _open(path: Path) -> _Found:
    started = time.perf_counter()
    async with CodeSDK.open(path) as sdk:
        return _Found(ms=(time.perf_counter() - started) * 1000, rows=log_of(sdk).stats.rows_read)


async def _reopen(stored: _Stored) -> _Found:
    started = time.perf_counter()
    async with rig(stored.path, burst(10)) as sdk:
        return _Found(ms=(time.perf_counter() - started) * 1000, rows=log_of(sdk).stats.rows_read)


async def _with_sdk(stored: _Stored, work: Callable[[CodeSDK], Awaitable[object]]) -> _Found:
    """Measure work on a directory that was just opened and has served one question."""
    async with rig(stored.path, burst(10)) as sdk:
        await asyncio.gather(*(sdk.sessions(limit=1) for _ in range(8)))
        rows = log_of(sdk).stats.rows_read
        ms = await timed_ms(lambda: work(sdk))
        return _Found(ms=ms, rows=log_of(sdk).stats.rows_read - rows)


async def _page(stored: _Stored) -> _Found:
    async def page(sdk: CodeSDK) -> None:
        head = await log_of(sdk).head(stored.session_id)
        after = max(0, head - _TAIL)
        assert len(await log_of(sdk).read(stored.session_id, after, _TAIL)) == head - after

    return await _with_sdk(stored, page)


async def _load(stored: _Stored) -> _Found:
    return await _with_sdk(stored, lambda sdk: sdk.session(stored.session_id))


async def _next_task(stored: _Stored) -> _Found:
    """Measure from the first use of the session to the result of its next task, context compiled."""

    async def go_on(sdk: CodeSDK) -> None:
        await finish_task(await sdk.session(stored.session_id))

    return await _with_sdk(stored, go_on)
