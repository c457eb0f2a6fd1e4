"""A thousand sessions at once, each streaming 100 deltas and calling a tool, each with a reader of its own."""

import asyncio
import time
from pathlib import Path

from bench.measure import cost, in_rounds, percentile, scratch
from bench.rig import BURST_SIZE, log_of, new_session, rig, script, until_end
from bench.table import Report, at_most
from codesdk import CodeSDK, Session

_READ = {"call": {"tool": "workspace.read", "input": {"path": "hello.txt"}}}


async def run(report: Report, quick: bool) -> None:
    count, deltas = (20, 20) if quick else (1_000, 100)
    played = script([{"burst": {"count": deltas, "size": BURST_SIZE}}, _READ], [{"text": "Done."}])
    with scratch() as path:
        async with rig(path, played) as sdk:
            sessions = await _create(report, sdk, path, count)
            await _run_all(report, sdk, sessions)


async def _create(report: Report, sdk: CodeSDK, path: Path, count: int) -> list[Session]:
    report.progress(f"creating {count:,} sessions one after the other")
    for _ in range(10):
        await new_session(sdk, path)
    sessions: list[Session] = []
    took: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        sessions.append(await new_session(sdk, path))
        took.append((time.perf_counter() - started) * 1000)
    report.line("create a session, p50", in_rounds(took, 0.5), "ms")
    report.line("create a session, p99", in_rounds(took, 0.99), "ms", goal=at_most(5))
    return sessions


async def _run_all(report: Report, sdk: CodeSDK, sessions: list[Session]) -> None:
    report.progress(f"{len(sessions):,} tasks at once")
    called: list[float] = []
    begun: list[float] = []

    async def one(session: Session) -> tuple[int, str]:
        events = session.events()
        started = time.perf_counter()
        await session.start("Go on")
        called.append((time.perf_counter() - started) * 1000)
        got, last = 0, ""
        async for event in until_end(events):
            got += 1
            last = event.type
            if event.seq != got:
                raise AssertionError(f"expected event {got}, got {event.seq}")
            if last == "task.started":
                begun.append((time.perf_counter() - started) * 1000)
        return got, last

    with cost() as spent:
        ended = await asyncio.gather(*(one(session) for session in sessions))
    got = sum(count for count, _ in ended)
    stored = sum([await log_of(sdk).head(session.id) for session in sessions])
    failed = sum(last != "task.completed" for _, last in ended)
    named = f"{len(sessions):,} tasks at once"
    report.line(named, got / spent.wall_s, "/s", note=f"{got:,} events in {spent.wall_s:.1f} s")
    report.line(f"{named}, CPU per event", spent.cpu_s / got * 1e6, "µs")
    report.line(f"{named}, not completed", failed, "tasks", goal=at_most(0))
    report.line(f"{named}, lost", stored - got, "events", goal=at_most(0))
    report.line("start() stored, p99, all at once", percentile(called, 0.99), "ms")
    report.line("task.started seen, p99, all at once", percentile(begun, 0.99), "ms")
