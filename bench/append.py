"""The event log alone: frames of 471 bytes into `SqliteLog`, against SQLite without it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench import raw
from bench.measure import median, scratch
from bench.rig import FRAME_BYTES
from bench.table import Report, ratio_at_least
from codesdk.contract.records import SessionRow
from codesdk.store.sqlite.log import SqliteLog

_BATCH = 500
_IN_FLIGHT = 4


async def run(report: Report, quick: bool) -> None:
    sessions, events, single = (50, 2_000, 200) if quick else (1_000, 60_000, 4_000)
    rounds = 1 if quick else 3
    report.progress("SQLite alone")
    bulk, bulk_one = raw.bulk_rate(sessions, events, rounds), raw.bulk_rate(1, events, rounds)
    bulk_full = raw.bulk_rate(sessions, events, rounds, "FULL")
    normal, full = raw.commit_rate(single, "NORMAL", rounds), raw.commit_rate(single, "FULL", rounds)
    report.progress(f"{sessions:,} sessions, each waiting for its commits")
    rate = await _median(rounds, lambda log: _waiting(log, sessions, events // sessions, durable=False))
    against = (f"SQLite, batches of {_BATCH}", bulk)
    report.line(f"{sessions:,} sessions waiting", rate, "/s", against=against, goal=ratio_at_least(0.5))
    rate = await _median(rounds, lambda log: _waiting(log, sessions, events // sessions, durable=True))
    against = (f"SQLite, FULL, of {_BATCH}", bulk_full)
    report.line(f"{sessions:,} sessions waiting, FULL", rate, "/s", against=against, goal=ratio_at_least(0.5))
    report.progress("bulk")
    rate = await _median(rounds, lambda log: _bulk(log, events))
    against = (f"SQLite, one session, of {_BATCH}", bulk_one)
    report.line("one session, bulk", rate, "/s", against=against, goal=ratio_at_least(0.7))
    report.progress("one session, a commit for each event")
    rate = await _median(rounds, lambda log: _waiting(log, 1, single, durable=False))
    report.line("one session waiting", rate, "/s", against=("SQLite, a commit each", normal))
    rate = await _median(rounds, lambda log: _waiting(log, 1, single, durable=True))
    report.line("one session waiting, FULL", rate, "/s", against=("SQLite, a FULL commit each", full))


async def _median(rounds: int, work: Callable[[SqliteLog], Awaitable[float]]) -> float:
    found: list[float] = []
    for _ in range(rounds):
        with scratch() as path:
            log = await SqliteLog.open(path / "log.db")
            try:
                found.append(await work(log))
            finally:
                await log.close()
    return median(found)


async def _waiting(log: SqliteLog, sessions: int, each: int, *, durable: bool) -> float:
    """Return events a second when every session sends its next event after the last is committed."""
    frame = [bytes(FRAME_BYTES)]
    ids = await _create(log, sessions)

    async def send(session_id: str) -> None:
        for seq in range(1, each + 1):
            await log.append(session_id, 1, seq, frame, durable=durable)

    started = time.perf_counter()
    await asyncio.gather(*(send(session_id) for session_id in ids))
    rate = sessions * each / (time.perf_counter() - started)
    assert log.stats.frames_written == sessions * each
    return rate


async def _bulk(log: SqliteLog, events: int) -> float:
    """Return events a second in appends of 500, a few of them under way at a time."""
    frames = [bytes(FRAME_BYTES)] * _BATCH
    (session_id,) = await _create(log, 1)
    flying: list[Awaitable[None]] = []
    started = time.perf_counter()
    for seq in range(1, events + 1, _BATCH):
        flying.append(log.append(session_id, 1, seq, frames, durable=False))
        if len(flying) >= _IN_FLIGHT:
            await flying.pop(0)
    await asyncio.gather(*flying)
    return events / (time.perf_counter() - started)


async def _create(log: SqliteLog, count: int) -> list[str]:
    ids = [f"ses_{number:026d}" for number in range(count)]
    await asyncio.gather(*(log.create(_row(session_id), "bench") for session_id in ids))
    return ids


def _row(session_id: str) -> SessionRow:
    return SessionRow(
        session_id=session_id,
        principal="local",
        status="open",
        runtime="scripted",
        workspace="/",
        permission_mode="ask",
        created_at="2026-01-01T00:00:00.000Z",
        updated_at="2026-01-01T00:00:00.000Z",
    )
