"""A session of very many events costs no more to open, list, page and continue than a short one."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.counts import COUNTS

from codesdk import CodeSDK, Session, SessionSettings
from codesdk.contract.records import MessageRow
from codesdk.engine.checks.verify import verify_session
from codesdk.store.sqlite.log import SqliteLog

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

BURST = str(Path(__file__).with_name("burst.py"))
EVENTS = COUNTS.history_events
TASKS = 200
FEW_ROWS = 500

CHAT = f"""
loop: true
turns:
  - steps: [{{burst: {{count: {EVENTS // TASKS}, size: 8}}}}]
"""
LONG = "loop: true\nturns: [{steps: [{burst: {count: 1000000, size: 8}}]}]\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Build the long session through the engine. Return its data directory and its id."""
    root = tmp_path_factory.mktemp("long")
    (root / "script.yaml").write_text(CHAT)

    async def build() -> str:
        async with CodeSDK.open(root / "data", synchronous="normal") as sdk:
            session = await sdk.create_session(
                runtime="scripted",
                workspace=root,
                settings=SessionSettings(runtime_config={"script": "script.yaml"}, raw_capture=False),
            )
            for number in range(TASKS):
                task = await session.start(f"Part {number}")
                await task.result()
            assert await sdk.archive.log.head(session.id) > EVENTS
            return session.id

    return root / "data", asyncio.run(build())


@pytest.fixture
def data(built: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """Give each test a copy of its own."""
    return Path(shutil.copytree(built[0], tmp_path / "data")), built[1]


def rows_read(sdk: CodeSDK) -> int:
    log = sdk.archive.log
    assert isinstance(log, SqliteLog)
    return log.stats.rows_read


async def tail(sdk: CodeSDK, session: Session, count: int) -> list[int]:
    head = await sdk.archive.log.head(session.id)
    return [frame.seq async for frame in sdk.archive.frames(session.id, after_seq=head - count)]


async def test_opening_listing_and_paging_the_end_read_few_rows(data: tuple[Path, str]):
    path, session_id = data
    async with CodeSDK.open(path) as sdk:
        assert [row.session_id for row in await sdk.sessions()] == [session_id]
        session = await sdk.session(session_id)
        assert (await session.info()).active_task_id is None
        assert len(await tail(sdk, session, 100)) == 100
        assert rows_read(sdk) < 100 + 20


async def test_the_next_task_reads_no_more_than_its_context_holds(
    data: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    """Of the transcript. Whoever follows the task may read its events from the store as well, if it is slow."""
    path, session_id = data
    async with CodeSDK.open(path) as sdk:
        read: list[int] = []
        messages = sdk.archive.log.messages

        async def counted(*given: Any, **named: Any) -> list[MessageRow]:
            rows = await messages(*given, **named)
            read.append(len(rows))
            return rows

        monkeypatch.setattr(sdk.engine.ports.log, "messages", counted)
        session = await sdk.session(session_id)
        result = await (await session.start("And now?")).result()
        assert result.state == "completed"
        assert 0 < sum(read) < FEW_ROWS
        read.clear()
        await (await session.start("And then?")).result()
        assert 0 < sum(read) < 20, "what is loaded once is not read again"


async def test_following_from_the_end_reads_only_what_comes(data: tuple[Path, str]):
    path, session_id = data
    async with CodeSDK.open(path) as sdk:
        session = await sdk.session(session_id)
        head = await sdk.archive.log.head(session_id)
        task = await session.start("Once more")
        before = rows_read(sdk)
        seen: list[int] = []
        async for event in session.events(head):
            seen.append(event.seq)
            if event.type == "task.completed":
                break
        assert seen == list(range(head + 1, head + 1 + len(seen)))
        assert event.trace.task_id == task.id
        assert rows_read(sdk) - before < 3_000


async def test_recovery_reads_only_what_came_after_the_last_snapshot(data: tuple[Path, str]):
    path, session_id = data
    async with CodeSDK.open(path) as sdk:
        workspace = Path((await sdk.archive.session(session_id)).workspace)
    (workspace / "script.yaml").write_text(LONG)
    try:
        last = await kill_after(20_000, path, session_id)
    finally:
        (workspace / "script.yaml").write_text(CHAT)
    async with CodeSDK.open(path) as sdk:
        opening = rows_read(sdk)
        log = sdk.archive.log
        frames = [frame async for frame in sdk.archive.frames(session_id, after_seq=last - 1)]
        assert frames[0].seq == last, "what was seen last is there"
        assert b'"task.failed"' in frames[-1].data
        assert opening < 3_000
        before = rows_read(sdk)
        await (await (await sdk.session(session_id)).resume()).result()
        assert rows_read(sdk) - before < FEW_ROWS
        assert (await log.session(session_id)).active_task_id is None  # type: ignore[union-attr]


async def kill_after(count: int, path: Path, session_id: str) -> int:
    """Run a long task in a process of its own and kill it when it has shown so many events. Return the last."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, BURST, str(path), session_id, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    for _ in range(count):
        assert await child.stdout.readline()
    child.kill()
    rest, _ = await child.communicate()
    return int(rest.split(b"\n")[-2])


async def test_the_long_session_holds_every_invariant(data: tuple[Path, str]):
    path, session_id = data
    async with CodeSDK.open(path) as sdk:
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session_id) == []
