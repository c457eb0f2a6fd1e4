"""From a runtime's emit to the reader of `Session.events`, stored on the way, at 1,000 events a second.

Against a task that emits at the same pace into a plain `asyncio.Queue` with a reader behind it.
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
_GOALS: dict[float, Goal] = {0.5: at_most(1.0), 0.99: at_most(5.0)}

Sent = list[float]


async def run(report: Report, quick: bool) -> None:
    seconds, rounds = (0.3, 1) if quick else (2.0, 3)
    for sessions in (1, 10 if quick else 100):
        named = "1 session" if sessions == 1 else f"{sessions} sessions"
        bare: list[list[float]] = []
        found: list[list[float]] = []
        for number in range(rounds):
            report.progress(f"{named}, round {number + 1}: bare asyncio, then the whole path")
            bare.append(await _at_pace(sessions, seconds, _bare))
            found.append(await _through_sdk(sessions, seconds))
        for share, goal in _GOALS.items():
            word = f"p{share * 100:.0f}"
            against = (f"bare asyncio {word}", median([percentile(some, share) for some in bare]))
            figure = median([percentile(some, share) for some in found])
            report.line(f"{named}, {word}", figure, "ms", against=against, goal=goal)


async def _ticks(count: int, interval_s: float, offset_s: float) -> AsyncIterator[int]:
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
    one: Callable[[int, float, float], Awaitable[list[float]]],
) -> list[float]:
    """Run one stream per session, the sessions taking turns, after a short warm-up; return milliseconds."""
    interval = sessions / _RATE
    count = max(1, round(seconds / interval))
    await one(max(1, round(0.2 * _RATE)), 1 / _RATE, 0.0)
    streams = [one(count, interval, number / _RATE) for number in range(sessions)]
    return [ms for found in await asyncio.gather(*streams) for ms in found]


async def _bare(count: int, interval_s: float, offset_s: float) -> list[float]:
    queue: asyncio.Queue[float] = asyncio.Queue()

    async def emit() -> None:
        async for _ in _ticks(count, interval_s, offset_s):
            queue.put_nowait(time.perf_counter())

    emitting = asyncio.create_task(emit())
    found: list[float] = []
    while len(found) < count:
        sent = await queue.get()
        found.append((time.perf_counter() - sent) * 1000)
    await emitting
    return found


async def _through_sdk(sessions: int, seconds: float) -> list[float]:
    paces: dict[str, tuple[int, float, float]] = {}
    sent: defaultdict[str, Sent] = defaultdict(list)

    async def stream(task: TaskInput) -> AsyncGenerator[RuntimeItem, None]:
        times = sent[task.session_id]
        message_id = f"{task.task_id}.0"
        delta = OutputDelta(
            kind="text_delta", block_id=f"{message_id}.0", message_id=message_id, delta="word "
        )
        async for _ in _ticks(*paces[task.session_id]):
            times.append(time.perf_counter())
            yield Draft(delta)
        yield Draft(OutputCompleted(message_id=message_id, content=[Text(text="done")]))
        yield Finished(stop_reason="end_turn")

    with scratch() as path:
        async with rig(path, StreamRuntime(stream)) as sdk:

            async def one(count: int, interval_s: float, offset_s: float) -> list[float]:
                session = await new_session(sdk, path)
                paces[session.id] = (count, interval_s, offset_s)
                found = await _received(session, sent[session.id])
                assert len(found) == count, f"{count} sent, {len(found)} received"
                return found

            return await _at_pace(sessions, seconds, one)


async def _received(session: Session, sent: Sent) -> list[float]:
    """Start a task and return how old each of its deltas was on arrival, in milliseconds."""
    found: list[float] = []
    events = session.events()
    await session.start("Go on")
    async for event in until_end(events):
        if event.type == "model.output.delta":
            found.append((time.perf_counter() - sent[len(found)]) * 1000)
    return found
