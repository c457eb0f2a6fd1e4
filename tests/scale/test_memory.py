"""What nobody reads is not kept in memory."""

import gc
import tracemalloc
from pathlib import Path

import pytest
from tests.counts import COUNTS
from tests.engine.acting import follow, live_session

from codesdk import CodeSDK, SessionSettings

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SCRIPT = {"loop": True, "turns": [{"steps": [{"burst": {"count": 1_000, "size": 64}}]}]}


async def test_a_subscriber_that_does_not_read_costs_no_memory_and_loses_nothing(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", synchronous="normal") as sdk:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=tmp_path,
            settings=SessionSettings(runtime_config={"script": SCRIPT}, context_budget_tokens=20_000),
        )
        live = await live_session(sdk.engine, session.id)
        await (await session.start("warm up")).result()
        lazy = follow(live, 0)
        seen = [item.event.seq for item in await anext(lazy)]
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(COUNTS.unread_tasks):
                await (await session.start(f"task {number}")).result()
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        head = await sdk.archive.log.head(session.id)
        stored = sum(path.stat().st_size for path in (tmp_path / "data").glob("codesdk.db*"))
        assert head > 1_000 * COUNTS.unread_tasks
        assert stored > 300_000 * COUNTS.unread_tasks
        assert grown < 3_000_000
        while seen[-1] < head:
            seen += [item.event.seq for item in await anext(lazy)]
        assert seen == list(range(1, head + 1))
