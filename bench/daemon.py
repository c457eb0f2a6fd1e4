"""The daemon from outside: how long it takes to be there, what it holds, what a session costs, with a history or without."""

import asyncio
import sys
import time
from pathlib import Path

from bench.daemons import Caller, Listener, Served, bytecode, served
from bench.measure import fdatasync_ms, in_rounds, median, scratch
from bench.start import interleaved
from bench.stored import store_history
from bench.table import Report, at_most, ratio_at_most

_READY_MS = 500
_IDLE_MB = 60
_SESSION_KB = 58
_CREATE_MS = 5
_TURN = {"loop": True, "turns": [{"steps": [{"text": ["A short ", "answer."]}]}]}


async def run(report: Report, quick: bool) -> None:
    rounds, sessions, events = (2, 20, 2_000) if quick else (9, 1_000, 1_000_000)
    with scratch() as root, bytecode(root):
        _starts(report, root, rounds)
        await _sessions(report, root, sessions)
        await _history(report, root, rounds, events)


def _starts(report: Report, root: Path, rounds: int) -> None:
    report.progress("starting")
    bare = interleaved({"python": [sys.executable, "-c", "pass"]}, rounds)["python"]
    found = [_start(root / f"new{number}") for number in range(rounds + 1)][1:]
    ready = median([ms for ms, _, _ in found])
    report.line("start to ready", ready, "ms", against=("python -c pass", bare), goal=at_most(_READY_MS))
    report.line("start to ready, CPU", median([cpu for _, cpu, _ in found]) * 1000, "ms")
    report.line("idle memory", median([mb for _, _, mb in found]), "MB", goal=at_most(_IDLE_MB))


def _start(data_dir: Path) -> tuple[float, float, float]:
    with served("--data-dir", str(data_dir)) as daemon:
        return daemon.ready_ms, daemon.cpu_s(), daemon.resident_mb()


async def _sessions(report: Report, root: Path, count: int) -> None:
    report.progress(f"{count:,} sessions, one after the other")
    with served("--data-dir", str(root / "sessions")) as daemon:
        caller = Caller(daemon, root)
        for _ in range(count // 10):
            await _finish(daemon, caller, await caller.create(_TURN))
        before = daemon.resident_mb()
        took: list[float] = []
        made: list[str] = []
        for _ in range(count):
            started = time.perf_counter()
            made.append(await caller.create(_TURN))
            took.append((time.perf_counter() - started) * 1000)
        against = ("fdatasync of 4 KB", fdatasync_ms())
        report.line("create a session, p50", in_rounds(took, 0.5), "ms", against=against)
        report.line("create a session, p99", in_rounds(took, 0.99), "ms", goal=at_most(_CREATE_MS))
        for session in made:
            await _finish(daemon, caller, session)
        each = (daemon.resident_mb() - before) * 1000 / count
        note = "created, one task run, nothing going on"
        report.line(f"{count:,} idle sessions, memory each", each, "KB", goal=at_most(_SESSION_KB), note=note)
        caller.close()


async def _finish(daemon: Served, caller: Caller, session: str) -> None:
    listener = await Listener(daemon, session).open()
    await caller.start(session)
    await listener.hear()
    listener.close()


async def _history(report: Report, root: Path, rounds: int, events: int) -> None:
    report.progress(f"writing {events:,} events")
    short, long = root / "short", root / "long"
    await asyncio.gather(store_history(short, 10), store_history(long, events))
    report.progress("starting with and without a history, in turn")
    pairs = [(_start(short), _start(long)) for _ in range(rounds + 1)][1:]
    for name, place, unit, scale in (("ready", 0, "ms", 1), ("CPU", 1, "ms", 1000), ("memory", 2, "MB", 1)):
        base = median([few[place] for few, _ in pairs]) * scale
        found = median([many[place] for _, many in pairs]) * scale
        goal = None if name == "CPU" else ratio_at_most(1.25)
        report.line(
            f"{events:,} stored events, {name}", found, unit, against=("10 stored events", base), goal=goal
        )
