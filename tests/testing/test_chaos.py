"""Whatever a runtime does, each task ends once, the log holds its word, and the next task can start."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from tests.counts import COUNTS
from tests.testing.fast import run

from codesdk import CodeSDK, CodeSDKError, Session, SessionSettings
from codesdk.contract.codec import decode
from codesdk.contract.events import TERMINAL_TYPES, Event, ToolCallRequested
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.testing.chaos import MISDEEDS, ChaosRuntime, Misdeed
from codesdk.testing.fakes import FakeRuntime, FakeTools, delta, done, memory_sdk

pytestmark = pytest.mark.slow

SEEDS = COUNTS.chaos_seeds
BATCHES = 20
PATIENCE = 150
SETTINGS = SessionSettings(
    approval_timeout_s=0.05,
    stop_grace_s=0.02,
    end_grace_s=0.03,
    start_timeout_s=0.04,
    idle_timeout_s=0.1,
    raw_inline_bytes=200,
    input_inline_bytes=200,
    result_inline_bytes=200,
)


class Someone:
    """A user who answers, stops and steers when the fancy takes them, and stops what goes on for too long."""

    def __init__(self, rng: Random, session: Session) -> None:
        self._rng = rng
        self._session = session

    async def watch(self, task_ids: set[str]) -> None:
        """Meddle until all of these tasks have ended."""
        async with asyncio.TaskGroup() as group:
            impatience = group.create_task(self._lose_patience())
            await self._follow(task_ids)
            impatience.cancel()

    async def _lose_patience(self) -> None:
        """Stop what says nothing for a second, as when a tool never ends."""
        while True:
            await asyncio.sleep(1)
            with contextlib.suppress(CodeSDKError):
                await self._session.stop("nothing happens")

    async def _follow(self, task_ids: set[str]) -> None:
        waiting, seen = set(task_ids), 0
        async for event in self._session.events():
            seen += 1
            if event.type in TERMINAL_TYPES:
                waiting.discard(event.trace.task_id or "")
                seen = 0
            if not waiting:
                return
            with contextlib.suppress(CodeSDKError):  # what cannot be done is said so, and nothing else
                await self._meddle(event, seen)

    async def _meddle(self, event: Event, seen: int) -> None:
        session, chance = self._session, self._rng.random()
        if isinstance(event.payload, ToolCallRequested):
            call_id = event.payload.tool_call_id
            if chance < 0.5:
                await session.approve(call_id, scope="session" if chance < 0.1 else "once")
            elif chance < 0.7:
                await session.deny(call_id, "not today")
        elif seen > PATIENCE or chance < 0.02:
            await session.stop("enough")
        elif chance < 0.03:
            await session.steer("Look here.")


async def play(seed: int, misdeeds: Iterable[Misdeed] = MISDEEDS) -> ChaosRuntime:
    """Run some tasks on a chaotic runtime with somebody at the controls, and check what is left of them."""
    rng = Random(seed)
    chaos = ChaosRuntime(seed, misdeeds=misdeeds)
    good = FakeRuntime([delta("fine"), done()])
    tools = FakeTools()
    if rng.random() < 0.3:
        tools.hold("fake.write")
    tools.give("fake.read", rng.choice(["ok", "long " * 100, ValueError("no"), {"n": 1}]))
    async with memory_sdk(runtimes=[chaos, good], tools=tools) as sdk:
        mode: Any = rng.choice(["ask", "auto", "yolo"])
        session = await sdk.create_session(runtime="chaos", permission_mode=mode, settings=SETTINGS)
        for _ in range(2):
            tasks = {(await session.start("Go.")).id for _ in range(rng.randint(1, 2))}
            await Someone(rng, session).watch(tasks)
        last = await session.start("Once more.") if rng.random() < 0.5 else None
        if last is not None and rng.random() < 0.5:
            await session.close()
        await still_works(sdk)
    await check(sdk, session.id)
    return chaos


async def still_works(sdk: CodeSDK) -> None:
    session = await sdk.create_session(runtime="fake")
    assert (await (await session.start("Hello")).result()).text == "fine"


async def check(sdk: CodeSDK, session_id: str) -> None:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    events = await stored(sdk, session_id)
    begun = Counter(event.trace.task_id for event in events if event.type == "task.started")
    ended = Counter(event.trace.task_id for event in events if event.type in TERMINAL_TYPES)
    assert set(begun.values()) == {1}
    assert begun == ended
    assert await verify_session(log, blobs, session_id) == []
    assert await replay_session(log, blobs, session_id) == (len(events), [])


async def stored(sdk: CodeSDK, session_id: str) -> list[Event]:
    head = await sdk.archive.log.head(session_id)
    return [decode(frame.data) for frame in await sdk.archive.log.read(session_id, 0, head)]


async def play_many(seeds: Iterable[int]) -> None:
    for seed in seeds:
        try:
            await play(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_task_ends_once_and_the_log_holds(batch: int):
    each = SEEDS // BATCHES
    run(play_many(range(batch * each, (batch + 1) * each)))


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_every_misdeed_is_committed_and_survived(misdeed: Misdeed):
    did: set[str] = set()

    async def some() -> None:
        for seed in range(100):  # somebody who steers is rare; most misdeeds come with the first seeds
            chaos = await play(seed, [misdeed, "stall"])
            did.update(act.partition(":")[0] for task in chaos.tasks for act in task.did)
            if chaos.refused_to_close:
                did.add("refuse_close_session")
            if misdeed in did and seed >= 11:
                return

    run(some())
    assert misdeed in did


def test_the_same_seed_does_the_same():
    did: list[Any] = []

    async def twice() -> None:
        for _ in range(2):
            did.append([task.did for task in (await play(7)).tasks])

    run(twice())
    assert did[0] == did[1]
