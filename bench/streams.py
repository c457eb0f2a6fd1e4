"""A runtime's events to a client of the daemon, stored on the way: bursts, stalls, gaps, a killed daemon, and a pace.

The daemon is a process of its own and so is the bare server that it is held against, which sends the same bytes from
nowhere. The client checks every seq. Processor time is that of the daemon, runtime and store included.
"""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench import raw
from bench.daemons import Caller, Listener, Served, bytecode, served
from bench.measure import median, percentile, scratch
from bench.rig import BURST_SIZE
from bench.served import Order
from bench.table import Goal, Report, at_least, at_most

_SERVED = "bench.served"
_RIVAL_RATE = 17_000
_RIVAL_CPU_US = 80
_RATE = 1_000
_STALL_S = 3
_MISSED = 5_000
_SMALL_BUFFER = 4096
_PACED: dict[float, Goal] = {0.5: at_most(1.0), 0.99: at_most(5.0)}


async def run(report: Report, quick: bool) -> None:
    deltas, rounds, seconds = (2_000, 1, 0.5) if quick else (20_000, 5, 3.0)
    with scratch() as root, bytecode(root):
        with served("bare", module=_SERVED) as bare:
            with served("--data-dir", str(root / "bursts")) as daemon:
                await _bursts(report, daemon, bare, root, deltas, rounds)
                await _stalled(report, daemon, root, deltas)
                await _missed(report, daemon, root, deltas)
            await _paced(report, bare, root, seconds, 1 if quick else 3)
        await _killed(report, root, deltas)


def _script(deltas: int) -> dict[str, Any]:
    return {"loop": True, "turns": [{"steps": [{"burst": {"count": deltas, "size": BURST_SIZE}}]}]}


class _Burst(NamedTuple):
    rate: float
    micros: float
    lost: int


async def _bursts(report: Report, daemon: Served, bare: Served, root: Path, deltas: int, rounds: int) -> None:
    report.progress("bursts: bare, then ours")
    caller = Caller(daemon, root)
    await _burst(daemon, caller, deltas)
    alone: list[float] = []
    found: list[_Burst] = []
    for _ in range(rounds):
        alone.append(await _bare_burst(bare, deltas))
        found.append(await _burst(daemon, caller, deltas))
    sqlite = raw.bulk_rate(1, deltas * 2, 3)
    rate = median([one.rate for one in found])
    against = ("bare SSE, 10 a write", median(alone))
    report.line("burst", rate, "/s", against=against, goal=at_least(_RIVAL_RATE))
    report.line("burst, the store", rate, "/s", against=("SQLite, batches of 500", sqlite))
    note = "51 to 80 µs are what the leanest rival spends on an event that it does not keep"
    micros = median([one.micros for one in found])
    report.line("burst, CPU of the daemon per event", micros, "µs", goal=at_most(_RIVAL_CPU_US), note=note)
    report.line("burst, lost", sum(one.lost for one in found), "events", goal=at_most(0))
    caller.close()


async def _burst(daemon: Served, caller: Caller, deltas: int) -> _Burst:
    session = await caller.create(_script(deltas))
    listener = await Listener(daemon, session).open()
    await listener.hear(1)
    cpu, started = daemon.cpu_s(), time.perf_counter()
    await caller.start(session)
    await listener.hear()
    took, used = time.perf_counter() - started, daemon.cpu_s() - cpu
    listener.close()
    return _Burst(listener.seq / took, used / listener.seq * 1e6, await caller.head(session) - listener.seq)


async def _bare_burst(bare: Served, deltas: int) -> float:
    started = time.perf_counter()
    listener = await Listener(bare, f"{deltas},0,0").open()
    await listener.hear(deltas)
    listener.close()
    return deltas / (time.perf_counter() - started)


async def _stalled(report: Report, daemon: Served, root: Path, deltas: int) -> None:
    report.progress(f"a reader that stalls for {_STALL_S} s")
    caller = Caller(daemon, root)
    session = await caller.create(_script(deltas))
    stalled = await Listener(daemon, session, buffer=_SMALL_BUFFER).open()
    await stalled.hear(1)
    brisk = await Listener(daemon, session).open()
    before = daemon.resident_mb()
    await caller.start(session)
    await asyncio.gather(brisk.hear(), asyncio.sleep(_STALL_S))
    grown = daemon.resident_mb() - before
    started = time.perf_counter()
    await stalled.hear()
    rate = stalled.seq / (time.perf_counter() - started)
    lost = await caller.head(session) - stalled.seq
    report.line("stalled reader, lost", lost, "events", goal=at_most(0))
    report.line("stalled reader, memory grown meanwhile", grown, "MB", goal=at_most(8))
    report.line("stalled reader, catching up", rate, "/s")
    _close(caller, stalled, brisk)


async def _missed(report: Report, daemon: Served, root: Path, deltas: int) -> None:
    caller = Caller(daemon, root)
    session = await caller.create(_script(deltas))
    brisk = await Listener(daemon, session).open()
    await caller.start(session)
    await brisk.hear()
    head = await caller.head(session)
    missed = min(_MISSED, head - 1)
    started = time.perf_counter()
    late = await (await Listener(daemon, session, head - missed).open()).hear()
    took = (time.perf_counter() - started) * 1000
    report.line(f"reader back after {missed:,} events, lost", head - late.seq, "events", goal=at_most(0))
    report.line(f"reader back after {missed:,} events, up to date", took, "ms")
    _close(caller, brisk, late)


async def _killed(report: Report, root: Path, deltas: int) -> None:
    report.progress("a daemon that is killed in the middle of a burst, and comes back")
    options = ("--data-dir", str(root / "killed"))
    with served(*options) as daemon:
        caller = Caller(daemon, root)
        session = await caller.create(_script(deltas * 50))
        listener = await Listener(daemon, session).open()
        await caller.start(session)
        await listener.hear(deltas // 2)
        daemon.end(signal.SIGKILL)
        _close(caller, listener)
    with served(*options) as daemon:
        report.line("start to ready after SIGKILL", daemon.ready_ms, "ms")
        caller = Caller(daemon, root)
        again = await (await Listener(daemon, session, listener.seq).open()).hear()
        lost = await caller.head(session) - again.seq
        report.line("SIGKILL, lost", lost, "events", goal=at_most(0))
        _close(caller, again)


async def _paced(report: Report, bare: Served, root: Path, seconds: float, rounds: int) -> None:
    for sessions in (1, 100 if rounds > 1 else 10):
        named = "1 session" if sessions == 1 else f"{sessions} sessions"
        alone: list[list[float]] = []
        found: list[_Ages] = []
        beside: list[list[float]] = []
        with served("daemon", str(root / f"paced{sessions}"), module=_SERVED) as daemon:
            await _pace(daemon, root, 1, 0.5)
            for number in range(rounds):
                report.progress(
                    f"{named} at a pace, round {number + 1}: bare, ours, ours beside a slow client"
                )
                alone.append(await _bare_pace(bare, sessions, seconds))
                found.append(await _pace(daemon, root, sessions, seconds))
                beside.append(await _beside_slow(daemon, root, sessions, seconds))
        for share, goal in _PACED.items():
            word = f"p{share * 100:.0f}"
            steady = [ages.steady for ages in found]
            base, ours, slowed = (
                median([percentile(r, share) for r in r3]) for r3 in (alone, steady, beside)
            )
            report.line(f"{named}, {word}", ours, "ms", against=(f"bare SSE {word}", base), goal=goal)
            against = (f"without it, {word}", ours)
            report.line(f"{named}, {word}, beside a slow client", slowed, "ms", against=against)
        ending = median([percentile(ages.ending, 0.99) for ages in found])
        report.line(f"{named}, p99 of the last tenth, when all tasks end", ending, "ms")


def _orders(sessions: int, seconds: float) -> list[Order]:
    """Return the pace of each session: together they emit so many events a second, taking turns.

    They begin when all of them should have been started, and go on for a while after what is counted.
    """
    interval = sessions / _RATE
    count = max(1, round(seconds / interval))
    begin = time.monotonic() + 0.5 + sessions * 0.01
    return [Order(count + _uncounted(count), interval, begin + number / _RATE) for number in range(sessions)]


def _uncounted(count: int) -> int:
    """Return how many events more a session emits: with the last ones, all tasks end at once."""
    return max(1, count // 10)


async def _bare_pace(bare: Served, sessions: int, seconds: float) -> list[float]:
    async def one(order: Order) -> list[float]:
        path = f"{order.events},{order.interval_s},{order.begin_s}"
        listener = await Listener(bare, path).open()
        await listener.hear(order.events)
        listener.close()
        return listener.ages_ms

    return _split(await asyncio.gather(*(one(order) for order in _orders(sessions, seconds)))).steady


class _Ages(NamedTuple):
    """How old events were on arrival: while tasks only emit, and while they end."""

    steady: list[float]
    ending: list[float]


def _split(parts: list[list[float]]) -> _Ages:
    rest = len(parts[0]) // 11 or 1
    return _Ages([ms for part in parts for ms in part[:-rest]], [ms for part in parts for ms in part[-rest:]])


async def _pace(daemon: Served, root: Path, sessions: int, seconds: float) -> _Ages:
    caller = Caller(daemon, root)
    made = [await caller.create(_script(1)) for _ in range(sessions)]
    listeners = [await Listener(daemon, session).open() for session in made]
    orders = _orders(sessions, seconds)
    hearing = asyncio.gather(*(listener.hear() for listener in listeners))
    for session, order in zip(made, orders, strict=True):
        await caller.start(session, msgspec.json.encode(order).decode())
    await hearing
    assert [len(one.ages_ms) for one in listeners] == [order.events for order in orders]
    _close(caller, *listeners)
    return _split([one.ages_ms for one in listeners])


async def _beside_slow(daemon: Served, root: Path, sessions: int, seconds: float) -> list[float]:
    """Measure the same while a client of a long history reads a byte a second."""
    caller = Caller(daemon, root)
    session = await caller.create(_script(1))
    await caller.start(session, msgspec.json.encode(Order(20_000)).decode())
    await (await Listener(daemon, session).open()).hear()
    slow = await Listener(daemon, session, buffer=_SMALL_BUFFER).open()
    sipping = asyncio.create_task(slow.sip())
    found = await _pace(daemon, root, sessions, seconds)
    sipping.cancel()
    _close(caller, slow)
    return found.steady


def _close(*ends: Caller | Listener) -> None:
    for end in ends:
        end.close()
