"""What kills and bad input brought to light, each on its own and without chance."""

from pathlib import Path

import pytest

from codesdk import CodeSDK, Session, SessionSettings, Task
from codesdk.contract.messages import Text
from codesdk.contract.records import SessionRow
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.local.directory import DataDir

pytestmark = pytest.mark.anyio

STALLED = {"loop": True, "turns": [{"steps": [{"text": "Hm"}, {"stall": "stopped"}]}]}


async def busy_session(sdk: CodeSDK, workspace: Path, secrets: tuple[str, ...] = ()) -> tuple[Session, Task]:
    """Return a session whose task has said something and waits to be stopped."""
    session = await sdk.create_session(
        runtime="scripted",
        workspace=workspace,
        settings=SessionSettings(runtime_config={"script": STALLED}),
        secrets=secrets,
    )
    task = await session.start("first")
    async for event in task.events():
        if event.type == "model.output.delta":
            break
    return session, task


async def said(session: Session) -> list[str]:
    return [
        block.text
        for message in await session.transcript()
        for block in message.content
        if isinstance(block, Text)
    ]


async def check(sdk: CodeSDK, session: Session) -> None:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []


async def test_a_waiting_task_that_is_taken_out_leaves_the_running_one_alone(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session, running = await busy_session(sdk, tmp_path)
        waiting = [await session.start(text) for text in ("second", "third", "fourth")]
        await waiting[1].stop("not needed")
        assert (await waiting[1].result()).state == "stopped"
        assert [event.type async for event in waiting[1].events()] == ["task.started", "task.stopped"]
        row = await session.info()
        assert (row.active_task_id, row.queued) == (running.id, 2)
        for task in (waiting[0], waiting[2], running):
            await task.stop()
            assert (await task.result()).state == "stopped"
        assert await said(session) == ["first", "Hm"]
        await check(sdk, session)


async def test_a_fork_inside_a_running_task_sees_it_although_others_were_taken_out(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session, running = await busy_session(sdk, tmp_path)
        waiting = await session.start("second")
        await waiting.stop("not needed")
        assert await said(await session.fork()) == ["first", "Hm"]
        await running.stop()
        await running.result()
        await check(sdk, session)


async def test_tasks_that_waited_at_a_crash_can_be_taken_out_before_any_runs(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session, _ = await busy_session(sdk, tmp_path)
        waiting = await session.start("second")
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.session(session.id)
        assert (await session.info()).queued == 1
        await session.stop("no more", task_id=waiting.id)
        assert (await session.info()).queued == 0
        await check(sdk, session)


async def test_a_session_that_was_registered_but_never_begun_is_gone_at_the_next_start(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        begun, _ = await busy_session(sdk, tmp_path)
    directory = await DataDir.open_writer(tmp_path / "data")
    row = SessionRow(
        session_id="ses_half",
        principal="local",
        status="open",
        runtime="scripted",
        workspace=str(tmp_path),
        permission_mode="ask",
        created_at="2026-01-01T00:00:00.000Z",
        updated_at="2026-01-01T00:00:00.000Z",
    )
    await directory.log.create(row, directory.owner)  # and then the process was killed
    await directory.close()
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert [row.session_id for row in await sdk.sessions()] == [begun.id]


async def test_a_secret_in_the_reason_of_a_stop_is_not_stored(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session, task = await busy_session(sdk, tmp_path, secrets=("correct-horse",))
        waiting = await session.start("second")
        await waiting.stop("because of correct-horse")
        await task.stop("because of correct-horse")
        await task.result()
        await session.close("because of correct-horse")
        frames = [frame.data async for frame in sdk.archive.frames(session.id)]
        assert not any(b"correct-horse" in frame for frame in frames)
        assert sum(b"because of" in frame for frame in frames) == 4
