"""The whole path: a burst of deltas → engine → SQLite → a reader of `Session.events`, with nothing lost.

The reader checks every seq as it comes; what it got must be what is stored. The processor time
is that of the process: the scripted runtime, the engine, the writer's thread and the reader.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from bench import raw
from bench.measure import Cost, cost, median, resident_bytes, scratch
from bench.rig import burst, finish_task, log_of, new_session, rig, until_end
from bench.table import Report, at_least, at_most
from codesdk import CodeSDK, Session
from codesdk.contract.events import TERMINAL_TYPES, Event

_RIVAL_RATE = 17_000
_RIVAL_CPU_US = 80
_MISSED = 5_000


async def run(report: Report, quick: bool) -> None:
    deltas, rounds = (2_000, 1) if quick else (20_000, 5)
    report.progress("SQLite alone")
    against = ("SQLite, batches of 500", raw.bulk_rate(1, deltas * 2, 3))
    with scratch() as path:
        async with rig(path, burst(deltas)) as sdk:
            await _live(report, sdk, path, against, rounds)
            await _stalled(report, sdk, path, rounds)
            await _reconnected(report, sdk, path)


async def _live(report: Report, sdk: CodeSDK, path: Path, against: tuple[str, float], rounds: int) -> None:
    report.progress("burst, reader keeps up")
    await _burst(sdk, path)
    rates: list[float] = []
    micros: list[float] = []
    lost = 0
    rows = events = 0
    for _ in range(rounds):
        found = await _burst(sdk, path)
        rates.append(found.got / found.spent.wall_s)
        micros.append(found.spent.cpu_s / found.got * 1e6)
        lost += found.stored - found.got
        events += found.got
        rows += found.rows
    report.line("burst", median(rates), "/s", against=against, goal=at_least(_RIVAL_RATE))
    note = "51 to 80 µs are what the leanest rival spends on an event that it does not keep"
    report.line("burst, CPU per event", median(micros), "µs", goal=at_most(_RIVAL_CPU_US), note=note)
    report.line("burst, lost", lost, "events", goal=at_most(0))
    note = "0: all from memory; 1: all from the store"
    report.line("burst, rows read back per event", rows / events, "", note=note)


async def _stalled(report: Report, sdk: CodeSDK, path: Path, rounds: int) -> None:
    report.progress("burst, reader stalled until its end")
    lost, grown, rates = 0, 0.0, []
    for _ in range(rounds):
        session = await new_session(sdk, path)
        reader = _Reader()
        events = session.events()
        await reader.take(events, 1)
        before = resident_bytes()
        await finish_task(session)
        grown = max(grown, (resident_bytes() - before) / 1e6)
        with cost() as spent:
            await reader.take(until_end(events))
        rates.append(reader.got / spent.wall_s)
        lost += await log_of(sdk).head(session.id) - reader.got
    report.line("stalled reader, lost", lost, "events", goal=at_most(0))
    report.line("stalled reader, memory grown meanwhile", grown, "MB", goal=at_most(8))
    report.line("stalled reader, catching up", median(rates), "/s")


async def _reconnected(report: Report, sdk: CodeSDK, path: Path) -> None:
    session = await new_session(sdk, path)
    await finish_task(session)
    head = await log_of(sdk).head(session.id)
    missed = min(_MISSED, head - 1)
    reader = _Reader(head - missed)
    with cost() as spent:
        await reader.take(until_end(session.events(head - missed)))
    report.line(f"reader back after {missed:,} events, lost", missed - reader.got, "events", goal=at_most(0))
    report.line(f"reader back after {missed:,} events, up to date", spent.wall_s * 1000, "ms")


class _Burst(msgspec.Struct):
    """What one burst cost, what the reader got, what is stored, and the rows read back meanwhile."""

    spent: Cost
    got: int
    stored: int
    rows: int


async def _burst(sdk: CodeSDK, path: Path) -> _Burst:
    session = await new_session(sdk, path)
    reader = _Reader()
    rows = log_of(sdk).stats.rows_read
    with cost() as spent:
        reading = asyncio.create_task(reader.take(until_end(session.events())))
        await session.start("Go on")
        await reading
    rows = log_of(sdk).stats.rows_read - rows
    return _Burst(spent=spent, got=reader.got, stored=await _stored(sdk, session), rows=rows)


async def _stored(sdk: CodeSDK, session: Session) -> int:
    """Return how many events a session has in the store, counted one by one."""
    count = 0
    async for frame in sdk.archive.frames(session.id):
        count += 1
        assert frame.seq == count
        assert frame.damage is None
    return count


class _Reader:
    """Counts events, each of which must follow the one before it."""

    def __init__(self, after: int = 0) -> None:
        self.got = 0
        self.after = after

    async def take(self, events: AsyncIterator[Event], count: int | None = None) -> None:
        async for event in events:
            self.after += 1
            self.got += 1
            if event.seq != self.after:
                raise AssertionError(f"expected event {self.after}, got {event.seq}")
            if self.got == count or event.type in TERMINAL_TYPES:
                return
