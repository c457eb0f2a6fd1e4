"""From a runtime's emit to the reader of `Session.events`, stored on the way, at 1,000 events a second.

Against a task that emits at the same pace into a plain `asyncio.Queue` with a reader behind it. The sessions emit when
all of them have been started; what they emit while others end has a line of its own.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from bench.measure import median, percentile, scratch
from bench.rig import StreamRuntime, new_session, rig, until_end
from bench.table import Goal, Report, at_most
from codesdk import Session, Text
from codesdk.contract.events import OutputCompleted, OutputDelta
from codesdk.contract.runtime import Draft, Finished, RuntimeItem, TaskInput

_RATE = 1_000
_ENDING = 0.1
"""The part of a stream, at its end, in which other sessions may be ending already."""
_GOALS: dict[float, Goal] = {0.5: at_most(1.0), 0.99: at_most(5.0)}

Sent = list[float]


async def run(report: Report, quick: bool) -> None:
    seconds, rounds = (0.3, 1) if quick else (2.0, 3)
    for sessions in (1, 10 if quick else 100):
        named = "1 session" if sessions == 1 else f"{sessions} sessions"
        bare: list[list[float]] = []
        found: list[list[float]] = []
        endings: list[list[float]] = []
        for number in range(rounds):
            report.progress(f"{named}, round {number + 1}: bare asyncio, then the whole path")
            bare.append((await _at_pace(sessions, seconds, _bare))[0])
            steady, ending = await _through_sdk(sessions, seconds)
            found.append(steady)
            endings.append(ending)
        for share, goal in _GOALS.items():
            word = f"p{share * 100:.0f}"
            against = (f"bare asyncio {word}", median([percentile(some, share) for some in bare]))
            figure = median([percentile(some, share) for some in found])
            report.line(f"{named}, {word}", figure, "ms", against=against, goal=goal)
        ending = median([percentile(some, 0.99) for some in endings])
        report.line(f"{named}, p99 of the last tenth, when all tasks end", ending, "ms")


async def ticks(count: int, interval_s: float, offset_s: float) -> AsyncIterator[int]:
    """Yield 0, 1, 2 … at the given pace; a tick that is late does not delay those behind it."""
    started = time.perf_counter() + offset_s
    for number in range(count):
        delay = started + number * interval_s - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        yield number


async def _at_pace(
    sessions: int,
    seconds: float,
    one: Callable[[int, float, float, asyncio.Barrier], Awaitable[list[float]]],
) -> tuple[list[float], list[float]]:
    """Run one stream per session, the sessions taking turns, after a short warm-up; return milliseconds.

    First those of the steady time, then those of the end.
    """
    interval = sessions / _RATE
    counted = max(1, round(seconds / interval))
    count = counted + max(1, round(counted * _ENDING))
    await one(max(1, round(0.2 * _RATE)), 1 / _RATE, 0.0, asyncio.Barrier(1))
    together = asyncio.Barrier(sessions)
    streams = [one(count, interval, number / _RATE, together) for number in range(sessions)]
    found = await asyncio.gather(*streams)
    return [ms for some in found for ms in some[:counted]], [ms for some in found for ms in some[counted:]]


async def _bare(count: int, interval_s: float, offset_s: float, together: asyncio.Barrier) -> list[float]:
    queue: asyncio.Queue[float] = asyncio.Queue()

    async def emit() -> None:
        await together.wait()
        async for _ in ticks(count, interval_s, offset_s):
            queue.put_nowait(time.perf_counter())

    emitting = asyncio.create_task(emit())
    found: list[float] = []
    while len(found) < count:
        sent = await queue.get()
        found.append((time.perf_counter() - sent) * 1000)
    await emitting
    return found


async def _through_sdk(sessions: int, seconds: float) -> tuple[list[float], list[float]]:
    paces: dict[str, tuple[int, float, float, asyncio.Barrier]] = {}
    sent: defaultdict[str, Sent] = defaultdict(list)

    async def stream(task: TaskInput) -> AsyncGenerator[RuntimeItem, None]:
        times = sent[task.session_id]
        message_id = f"{task.task_id}.0"
        delta = OutputDelta(
            kind="text_delta", block_id=f"{message_id}.0", message_id=message_id, delta="word "
        )
        *pace, together = paces[task.session_id]
        await together.wait()
        async for _ in ticks(*pace):
            times.append(time.perf_counter())
            yield Draft(delta)
        yield Draft(OutputCompleted(message_id=message_id, content=[Text(text="done")]))
        yield Finished(stop_reason="end_turn")

    with scratch() as path:
        async with rig(path, StreamRuntime(stream)) as sdk:

            async def one(
                count: int, interval_s: float, offset_s: float, together: asyncio.Barrier
            ) -> list[float]:
                session = await new_session(sdk, path)
                paces[session.id] = (count, interval_s, offset_s, together)
                found = await received(session, sent[session.id])
                assert len(found) == count, f"{count} sent, {len(found)} received"
                return found

            return await _at_pace(sessions, seconds, one)


async def received(session: Session, sent: Sent, kind: str = "model.output.delta") -> list[float]:
    """Start a task and return how old each of its events of a kind was on arrival, in milliseconds."""
    found: list[float] = []
    events = session.events()
    await session.start("Go on")
    async for event in until_end(events):
        if event.type == kind:
            found.append((time.perf_counter() - sent[len(found)]) * 1000)
    return found
