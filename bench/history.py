"""What a long history costs: opening a directory, finding a session's end, going on with it.

Against the same on a directory with one short session.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bench.measure import scratch, timed_ms
from bench.rig import burst, finish_task, log_of, new_session, rig, sessions_with_a_task
from bench.table import Goal, Report, at_most, ratio_at_most
from codesdk import CodeSDK

_TAIL = 100
_FLAT = ratio_at_most(1.5)
_ROWS = 500
"""More rows than this are read by nothing but a reader of the events themselves."""


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
    rounds = 2 if quick else 11
    with scratch() as root:
        report.progress(f"writing {tasks * deltas:,} events and {others:,} other sessions")
        small = await _build(root / "small", deltas=60, tasks=2, others=0)
        large = await _build(root / "large", deltas=deltas, tasks=tasks, others=others)
        note = f"{large.events:,} events in one session, and {others:,} others"
        report.line("written", large.events, "events", note=note)
        fresh = _best([await _open(root / f"fresh{number}") for number in range(rounds)])
        report.line("CodeSDK.open, new directory", fresh.ms, "ms", goal=at_most(500))
        await _compare(report, "CodeSDK.open, long history", rounds, small, large, _reopen)
        await _compare(report, f"page of the last {_TAIL}", rounds, small, large, _page)
        await _compare(report, "load the session", rounds, small, large, _load)
        report.progress("going on reads the context, which is bounded by its budget, not by the history")
        await _compare(report, "next task after a restart", rounds, small, large, _next_task, None)


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
    goal: Goal | None = _FLAT,
) -> None:
    """Measure work on both directories in turn, so that noise meets both."""
    report.progress(name)
    await work(small)
    await work(large)
    pairs = [(await work(small), await work(large)) for _ in range(rounds)]
    base, found = _best([pair[0] for pair in pairs]), _best([pair[1] for pair in pairs])
    report.line(name, found.ms, "ms", against=("short history", base.ms), goal=goal)
    rows_goal = at_most(_ROWS)
    report.line(f"{name}, rows read", found.rows, "", against=("short history", base.rows), goal=rows_goal)


def _best(found: list[_Found]) -> _Found:
    """Return the quickest: most of it is waiting for the disk, to which noise can only add."""
    return _Found(ms=min(one.ms for one in found), rows=max(one.rows for one in found))


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
