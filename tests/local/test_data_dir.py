"""Bad directories, bad bytes and absurd sizes: one clear error, nothing lost, and everything else goes on."""

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.acting import follow, live_session
from tests.local.rights import AS_OTHERS

from codesdk import (
    Busy,
    CodeSDK,
    CodeSDKError,
    Conflict,
    InvalidRequest,
    Limits,
    Session,
    SessionSettings,
    StorageFailure,
    Task,
    TaskFailure,
)
from codesdk.contract.actions import Caller
from codesdk.contract.events import ModelInput, OutputDelta, RuntimeNotice, TaskFailed, ToolCallCompleted
from codesdk.contract.runtime import Draft, Finished, Identified, ToolAnnouncement
from codesdk.engine.checks.verify import verify_session
from codesdk.engine.engine import Engine, EngineService
from codesdk.engine.log.archive import Archive
from codesdk.engine.log.clock import SystemStamper
from codesdk.engine.sessions.scope import Ports
from codesdk.local.directory import DATABASE, DataDir
from codesdk.policy.modes import ModePolicy
from codesdk.runtimes.scripted.adapter import ScriptedRuntime, ScriptedTask
from codesdk.script.load import parse_object
from codesdk.store.blobs import FileBlobs
from codesdk.store.sqlite.split_blobs import SMALL_BYTES
from codesdk.tools.builtin import builtin_registry

pytestmark = pytest.mark.anyio

SOURCE = str(Path(__file__).parents[2] / "src")
HELLO = {"loop": True, "turns": [{"steps": [{"text": ["Hel", "lo"]}]}]}
FLOOD = {"loop": True, "turns": [{"steps": [{"burst": {"count": 200_000, "size": 64}}]}]}


def settings(script: Any, **more: Any) -> SessionSettings:
    return SessionSettings(runtime_config={"script": script}, **more)


async def create(sdk: CodeSDK, workspace: Path, script: Any = HELLO, **more: Any) -> Session:
    return await sdk.create_session(
        runtime="scripted", workspace=workspace, permission_mode="auto", settings=settings(script, **more)
    )


async def say(session: Session, text: str = "Hello?") -> str:
    return (await (await session.start(text)).result()).text


async def fill(path: Path, workspace: Path, tasks: int = 3) -> str:
    """Make a data directory with one session of a few tasks."""
    async with CodeSDK.open(path) as sdk:
        session = await create(sdk, workspace)
        for _ in range(tasks):
            await say(session)
        return session.id


def damage(path: Path, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(path / DATABASE)) as db, db:
        assert db.execute(statement, values).rowcount == 1


async def findings(sdk: CodeSDK, session_id: str) -> list[int | None]:
    found = await verify_session(sdk.archive.log, sdk.archive.blobs, session_id)
    return [finding.seq for finding in found]


async def frames_of(sdk: CodeSDK, session_id: str) -> list[bytes]:
    return [frame.data async for frame in sdk.archive.frames(session_id)]


# --- who may have it -----------------------------------------------------------------------------


HOLDER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from codesdk import CodeSDK

async def main():
    async with CodeSDK.open(sys.argv[1]):
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


async def test_a_second_process_is_told_who_has_the_directory_and_neither_loses_anything(tmp_path: Path):
    session_id = await fill(tmp_path / "data", tmp_path)
    holder = tmp_path / "holder.py"
    holder.write_text(HOLDER)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(holder),
        str(tmp_path / "data"),
        SOURCE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"open\n"
    with pytest.raises(Conflict, match=rf"pid {child.pid} \(holder\.py ") as refused:
        async with CodeSDK.open(tmp_path / "data", share=False):
            pytest.fail("two writers")
    assert refused.value.details is not None
    assert refused.value.details["pid"] == child.pid
    reader = await DataDir.open_reader(tmp_path / "data")
    assert len(await Archive(reader.log, reader.blobs).transcript(session_id)) == 6
    await reader.close()
    await child.communicate(b"")
    assert child.returncode == 0
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert await say(await sdk.session(session_id)) == "Hello"


async def test_the_same_process_cannot_open_a_directory_twice(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        with pytest.raises(Conflict, match=f"pid {os.getpid()} "):
            async with CodeSDK.open(tmp_path / "data", share=False):
                pytest.fail("two writers")
        assert await sdk.sessions() == []


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that another user can reach: root may write everywhere, so the test gives its rights up."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
        for place in [path, *path.rglob("*")]:
            place.chmod(0o755)


READ_ONLY = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from codesdk import CodeSDK, StorageFailure
from codesdk.store import SqliteLog
from codesdk.engine.log.archive import Archive
from codesdk.local.directory import DataDir

async def main():
    path, session_id = Path(sys.argv[1]), sys.argv[3]
    reader = await DataDir.open_reader(path)
    archive = Archive(reader.log, reader.blobs)
    print(len(await archive.transcript(session_id)))
    print(len([frame async for frame in archive.frames(session_id)]))
    await reader.close()
    try:
        async with CodeSDK.open(path):
            print("opened")
    except StorageFailure as error:
        print(error.code, error.message)

asyncio.run(main())
"""


async def test_a_read_only_directory_can_be_read_and_says_once_that_it_cannot_be_written(public: Path):
    data = public / "data"
    session_id = await fill(data, public)
    for place in [*data.rglob("*"), data]:
        place.chmod(0o555 if place.is_dir() else 0o444)
    child = await asyncio.create_subprocess_exec(
        *AS_OTHERS, sys.executable, "-c", READ_ONLY, str(data), SOURCE, session_id, stdout=subprocess.PIPE
    )
    out, _ = await child.communicate()
    messages, events, refusal = out.decode().splitlines()
    assert (messages, child.returncode) == ("6", 0)
    assert int(events) > 10
    assert refusal.startswith("STORAGE_FAILED ")
    assert str(data) in refusal


# --- a full disk ---------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def limited(path: Path, max_pages: int | None, **ports: Any) -> AsyncIterator[CodeSDK]:
    """Open a directory whose database cannot grow beyond so many pages."""
    directory = await DataDir.open_writer(path, max_pages=max_pages)
    given: dict[str, Any] = {
        "log": directory.log,
        "blobs": directory.blobs,
        "tools": builtin_registry(),
        "policy": ModePolicy(),
        "stamper": SystemStamper(),
        "limits": Limits(),
        "identify": lambda workspace: workspace,
    }
    engine = Engine(Ports(**(given | ports)), lambda _: ScriptedRuntime(), owner=directory.owner)
    try:
        await engine.open()
        yield CodeSDK(EngineService(engine, Caller()), engine)
        await engine.close()
    finally:
        await directory.close()


async def watch(session: Session, seen: list[bytes], engine: Engine) -> str:
    """Keep what a subscriber sees; return the code of the error that ended it."""
    live = await live_session(engine, session.id)
    try:
        async for batch in follow(live, 0):
            seen += [item.frame for item in batch]
    except CodeSDKError as error:
        return error.code
    return ""


async def test_a_session_that_does_not_fit_on_the_disk_is_nowhere(tmp_path: Path):
    running = asyncio.all_tasks()
    async with limited(tmp_path / "data", 120) as sdk:
        quiet = await create(sdk, tmp_path)
        with pytest.raises(StorageFailure, match="full"):
            await sdk.create_session(runtime="scripted", workspace=tmp_path, title="x" * 1_000_000)
        assert [row.session_id for row in await sdk.sessions()] == [quiet.id]
    assert asyncio.all_tasks() == running, "nothing is left behind"
    checking = [
        sys.executable,
        "-m",
        "codesdk.cli.main",
        "--data-dir",
        str(tmp_path / "data"),
        "verify",
        "--all",
    ]
    checked = await asyncio.to_thread(subprocess.run, checking, capture_output=True, text=True)
    assert (checked.returncode, quiet.id in checked.stdout) == (0, True), checked


async def test_a_disk_that_fills_up_fails_the_task_once_and_loses_nothing_that_was_seen(tmp_path: Path):
    seen: list[bytes] = []
    running = asyncio.all_tasks()
    async with limited(tmp_path / "data", 300) as sdk:
        quiet = await create(sdk, tmp_path)
        session = await create(sdk, tmp_path, FLOOD)
        watching = asyncio.create_task(watch(session, seen, sdk.engine))
        task = await session.start("Go")
        with pytest.raises(StorageFailure, match="full") as failure:
            await task.result()
        assert (failure.value.code, failure.value.retryable) == ("STORAGE_FAILED", True)
        assert await watching == "STORAGE_FAILED"
        # The next one fails for the same cause, whether its own end still fits into the file or not.
        with pytest.raises(CodeSDKError) as again:
            await (await session.start("Again")).result()
        assert again.value.code == "STORAGE_FAILED"
        # The process lives: what needs no space works, for the broken session and for others.
        assert {row.session_id for row in await sdk.sessions()} == {quiet.id, session.id}
        assert (await quiet.info()).active_task_id is None
        assert (await frames_of(sdk, session.id))[: len(seen)] == seen
    assert any(b'"task.started"' in frame for frame in seen), (
        "what came before the flood, at least, was stored and seen"
    )
    assert asyncio.all_tasks() == running, "nothing is left behind"
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert (await frames_of(sdk, session.id))[: len(seen)] == seen
        row = await sdk.archive.task(task.id)
        assert (row.state, (await sdk.archive.session(session.id)).active_task_id) == ("failed", None)
        ended = await (await sdk.session(session.id)).event(row.ended_seq or 0)
        assert isinstance(ended.payload, TaskFailed)
        # Whether the end still fitted into the full file, or was written now, when nobody knows the cause any more.
        assert ended.payload.error.code in ("STORAGE_FAILED", "INTERRUPTED")
        assert await findings(sdk, session.id) == []
        assert await say(await sdk.session(quiet.id)) == "Hello"


def mount(path: Path, options: str) -> bool:
    """Mount a small file system; false where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    if not mount(path, "size=3m"):
        pytest.skip("a small file system needs the right to mount one")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


async def test_a_session_goes_on_in_the_same_process_when_there_is_space_again(
    small_disk: Path, tmp_path: Path
):
    seen: list[bytes] = []
    async with CodeSDK.open(small_disk / "data") as sdk:
        session = await create(sdk, tmp_path, FLOOD)
        watching = asyncio.create_task(watch(session, seen, sdk.engine))
        task = await session.start("Go")
        with pytest.raises(StorageFailure) as failure:
            await task.result()
        assert failure.value.code == "STORAGE_FAILED"
        assert await watching == "STORAGE_FAILED"
        assert mount(small_disk, "remount,size=100m")
        again = await sdk.session(session.id)
        await anext(again.events())  # whoever reads what this process could not store has it recovered first
        assert (await frames_of(sdk, session.id))[: len(seen)] == seen
        row = await sdk.archive.task(task.id)
        assert row.state == "failed"
        resumed = await again.resume()
        await resumed.stop()
        assert (await resumed.result()).state == "stopped"
        assert await findings(sdk, session.id) == []


class FullBlobs(FileBlobs):
    """Has room for small things only."""

    async def put(self, data: bytes) -> str:
        if len(data) > 4_000:
            raise StorageFailure("cannot store: No space left on device")
        return await super().put(data)


async def test_a_result_that_cannot_be_stored_fails_the_task_and_leaves_no_call_open(tmp_path: Path):
    (tmp_path / "large.txt").write_text("a line\n" * 1_000)
    read = {"call": {"tool": "workspace.read", "input": {"path": "large.txt"}}}
    script = {"loop": True, "turns": [{"steps": [read]}, {"steps": [{"text": "Hello"}]}]}
    async with limited(tmp_path / "data", None, blobs=FullBlobs(tmp_path / "data" / "blobs")) as sdk:
        session = await create(sdk, tmp_path, script, result_inline_bytes=1_000)
        task = await session.start("Read it")
        with pytest.raises(TaskFailure, match="No space left") as failure:
            await task.result()
        assert failure.value.code == "STORAGE_FAILED"
        completed = [e.payload async for e in task.events() if isinstance(e.payload, ToolCallCompleted)]
        assert [(payload.is_error, payload.name) for payload in completed] == [(True, "workspace.read")]
        assert await findings(sdk, session.id) == []
        assert await say(session) == "Hello"


# --- files that are not what they should be ------------------------------------------------------


async def refused(path: Path) -> CodeSDKError:
    with pytest.raises(CodeSDKError) as refusal:
        async with CodeSDK.open(path):
            pytest.fail("opened")
    return refusal.value


async def test_a_directory_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path):
    await fill(tmp_path / "data", tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / DATABASE)) as db:
        db.execute("PRAGMA user_version = 99")
    before = (tmp_path / "data" / DATABASE).read_bytes()
    error = await refused(tmp_path / "data")
    assert (error.code, "newer CodeSDK" in error.message) == ("STORAGE_FAILED", True)
    assert (tmp_path / "data" / DATABASE).read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"\0" * 5000, b"not a database, " * 1000, b"SQLite format 3\0" + b"x" * 9000]
)
async def test_garbage_in_place_of_a_database_is_refused_and_left_alone(tmp_path: Path, content: bytes):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / DATABASE).write_bytes(content)
    assert (await refused(tmp_path / "data")).code == "STORAGE_FAILED"
    assert (tmp_path / "data" / DATABASE).read_bytes() == content


@pytest.mark.parametrize("kept", [50, 100, 4096, 5000, 0.5, 0.9])
@pytest.mark.slow
async def test_a_database_cut_short_gives_only_clear_errors(tmp_path: Path, kept: float):
    session_id = await fill(tmp_path / "data", tmp_path)
    database = tmp_path / "data" / DATABASE
    data = database.read_bytes()
    database.write_bytes(data[: int(kept if kept > 1 else len(data) * kept)])
    codes: list[str] = []
    try:
        async with CodeSDK.open(tmp_path / "data") as sdk:
            try:
                await say(await sdk.session(session_id))
            except CodeSDKError as error:
                codes.append(error.code)
    except CodeSDKError as error:
        codes.append(error.code)
    assert set(codes) <= {"STORAGE_FAILED", "NOT_FOUND"}


@pytest.mark.parametrize("name", [DATABASE, "blobs", "lock", "control.sock"])
async def test_a_file_of_the_wrong_kind_in_the_directory_is_a_clear_error(tmp_path: Path, name: str):
    path = tmp_path / "data"
    path.mkdir()
    if name == "blobs":
        (path / name).write_text("a file")
    else:
        (path / name).mkdir()

    async def use() -> None:
        async with CodeSDK.open(path) as sdk:
            await say(await create(sdk, tmp_path))
            await sdk.put_artifact(bytes(SMALL_BYTES + 1), "application/octet-stream")

    with pytest.raises(CodeSDKError) as failure:
        await use()
    assert failure.value.code == "STORAGE_FAILED"


# --- damage within -------------------------------------------------------------------------------


PLACES = {"session.created": 1, "task.started": 2, "model.output.delta": 4, "task.completed": 7, "last": -1}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.slow
async def test_a_damaged_event_is_named_and_kept_and_the_session_goes_on(tmp_path: Path, place: str):
    session_id = await fill(tmp_path / "data", tmp_path)
    async with CodeSDK.open(tmp_path / "data") as sdk:
        before = await frames_of(sdk, session_id)
        transcript = await sdk.archive.transcript(session_id)
    seq = PLACES[place] if PLACES[place] > 0 else len(before)
    bad = before[seq - 1].replace(b'"', b"'", 3)
    damage(tmp_path / "data", "UPDATE events SET frame = ? WHERE seq = ?", bad, seq)
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.session(session_id)
        assert await say(session) == "Hello"
        stored = [frame async for frame in sdk.archive.frames(session_id)]
        assert [frame.seq for frame in stored] == list(range(1, len(stored) + 1))
        assert [frame.seq for frame in stored if frame.damage] == [seq]
        assert [frame.data for frame in stored[: len(before)]] == [*before[: seq - 1], bad, *before[seq:]]
        assert (await session.transcript())[: len(transcript)] == transcript
        assert len(await session.transcript()) == len(transcript) + 2
        assert seq in await findings(sdk, session_id)
        read = []
        async for event in session.events():
            read.append(event.seq)
            if event.seq == stored[-1].seq:
                break
        assert read == [frame.seq for frame in stored if not frame.damage]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: b"",
        lambda state: b"\xff\xfe garbage",
        lambda state: state[:-20],
        lambda state: state.replace(b'"seq":', b'"seq":1', 1),
        lambda state: state.replace(b"ses_", b"ses_x", 1),
    ],
)
@pytest.mark.slow
async def test_a_damaged_snapshot_costs_time_but_nothing_else(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
):
    session_id = await fill(tmp_path / "data", tmp_path)
    async with CodeSDK.open(tmp_path / "data") as sdk:
        state = (await live_session(sdk.engine, session_id)).state
        snapshot = await sdk.archive.log.snapshot(session_id)
    assert snapshot is not None
    damage(tmp_path / "data", "UPDATE snapshots SET state = ?", spoil(snapshot.state))
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert (await live_session(sdk.engine, session_id)).state == state
        assert await say(await sdk.session(session_id)) == "Hello"
        assert await findings(sdk, session_id) == []


async def test_a_session_that_cannot_be_opened_spares_the_others(tmp_path: Path):
    lost = await fill(tmp_path / "data", tmp_path)
    fine = await fill(tmp_path / "data", tmp_path)
    damage(tmp_path / "data", "UPDATE events SET frame = x'00' WHERE session = 1 AND seq = 1")
    damage(tmp_path / "data", "DELETE FROM snapshots WHERE session = 1")
    damage(tmp_path / "data", "UPDATE sessions SET pending = 1 WHERE key = 1")
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert await say(await sdk.session(fine)) == "Hello"
        with pytest.raises(StorageFailure, match=lost) as failure:
            await (await sdk.session(lost)).start("Go")
        assert failure.value.code == "STORAGE_FAILED"
        assert {row.session_id for row in await sdk.sessions()} == {lost, fine}
        assert len(await sdk.archive.transcript(lost)) == 6
        assert (await findings(sdk, lost))[0] == 1


async def test_a_damaged_session_row_spares_the_others(tmp_path: Path):
    lost = await fill(tmp_path / "data", tmp_path)
    fine = await fill(tmp_path / "data", tmp_path)
    damage(tmp_path / "data", "UPDATE sessions SET row = x'7b00', pending = 1 WHERE key = 1")
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert [row.session_id for row in await sdk.sessions()] == [fine]
        assert await say(await sdk.session(fine)) == "Hello"
        with pytest.raises(StorageFailure, match="damaged"):
            await sdk.session(lost)


async def test_a_damaged_message_is_read_from_the_log_and_the_session_goes_on(tmp_path: Path):
    session_id = await fill(tmp_path / "data", tmp_path)
    async with CodeSDK.open(tmp_path / "data") as sdk:
        whole = await (await sdk.session(session_id)).transcript()
        fork = await (await sdk.session(session_id)).fork()
    damage(tmp_path / "data", "UPDATE messages SET row = x'7b00' WHERE session = 1 AND place = 1")
    damage(tmp_path / "data", "UPDATE messages SET row = x'7b00' WHERE session = 2 AND place = 1")
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.session(session_id)
        assert await session.transcript() == whole
        assert await (await sdk.session(fork.id)).transcript() == whole
        assert await say(session) == "Hello"
        assert (await session.transcript())[: len(whole)] == whole


async def test_a_missing_blob_is_named_and_the_session_goes_on(tmp_path: Path):
    session_id = await fill(tmp_path / "data", tmp_path)
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.session(session_id)
        event = await session.event(3)
        assert isinstance(event.payload, ModelInput)
        name = event.payload.input_ref.content_hash
        damage(tmp_path / "data", "DELETE FROM blobs WHERE hash = ?", name)
        with pytest.raises(CodeSDKError, match=name) as failure:
            await sdk.read_artifact(event.payload.input_ref.artifact_id)
        assert failure.value.code in ("NOT_FOUND", "STORAGE_FAILED")
        assert await findings(sdk, session_id) == [3]
        assert await say(session) == "Hello"


async def test_a_carried_call_whose_input_is_gone_is_denied_and_the_session_goes_on(tmp_path: Path):
    edit = {"tool": "workspace.edit", "input": {"path": "a.txt", "old": "a", "new": "b"}}
    script = {"loop": True, "turns": [{"steps": [{"call": edit}]}, {"steps": [{"text": "Done"}]}]}
    path = tmp_path / "data"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ASKING, str(path), SOURCE, json.dumps(script), stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    session_id, call_id = (await child.stdout.readline()).decode().split()
    child.kill()
    await child.communicate()
    async with CodeSDK.open(path) as sdk:
        session = await sdk.session(session_id)
        carried = (await live_session(sdk.engine, session_id)).state.carried
        await session.approve(call_id)
        for entry in carried:
            damage(path, "DELETE FROM blobs WHERE hash = ?", entry.input_ref.content_hash)
        assert (await (await session.resume()).result()).state == "completed"
        assert await sdk.approvals() == []


ASKING = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from codesdk import CodeSDK, SessionSettings

async def main():
    async with CodeSDK.open(sys.argv[1]) as sdk:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=Path(sys.argv[1]).parent,
            settings=SessionSettings(runtime_config={"script": json.loads(sys.argv[3])}),
        )
        task = await session.start("Edit it")
        async for event in task.events():
            if event.type == "approval.requested":
                print(session.id, event.payload.tool_call_id, flush=True)

asyncio.run(main())
"""


# --- absurd sizes --------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


async def test_a_message_of_50_megabytes_is_refused_before_anything_is_written(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await create(sdk, tmp_path)
        with pytest.raises(InvalidRequest, match="bytes") as refusal:
            await session.start("x" * 50_000_000)
        assert refusal.value.code == "INVALID_REQUEST"
        assert await sdk.archive.log.head(session.id) == 1
        assert await say(session) == "Hello"


async def test_a_session_of_absurd_settings_is_refused_and_does_not_count(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", limits=Limits(max_sessions=1)) as sdk:
        absurd: list[dict[str, Any]] = [
            {"title": "x" * 50_000_000},
            {"settings": settings({"note": "x" * 50_000_000})},
            {"settings": settings(nested(500))},
        ]
        for more in absurd:
            with pytest.raises(
                InvalidRequest,
                match=r"The settings of a session|The runtime_config may have|settings is nested too deeply",
            ):
                await sdk.create_session(runtime="scripted", workspace=tmp_path, **more)
        assert await sdk.sessions() == []
        assert await say(await create(sdk, tmp_path)) == "Hello"


async def test_text_that_is_no_unicode_is_refused(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await create(sdk, tmp_path)
        with pytest.raises(InvalidRequest):
            await session.start("half a pair: \ud800")
        with pytest.raises(InvalidRequest):
            await sdk.create_session(runtime="scripted", workspace=tmp_path, title="\udfff")
        assert await sdk.archive.log.head(session.id) == 1
        assert await say(session) == "Hello"


@pytest.mark.slow
async def test_many_more_tasks_than_may_wait_are_refused_one_by_one(tmp_path: Path):
    stalled = {"turns": [{"steps": [{"stall": "stopped"}]}]}
    async with CodeSDK.open(tmp_path / "data", limits=Limits(max_queue=10)) as sdk:
        session = await create(sdk, tmp_path, stalled)
        asked = await asyncio.gather(*(session.start("x") for _ in range(10_000)), return_exceptions=True)
        tasks = [answer for answer in asked if isinstance(answer, Task)]
        errors = [answer for answer in asked if not isinstance(answer, Task)]
        assert len(tasks) == 11
        assert {(type(error), getattr(error, "code", "")) for error in errors} == {(Busy, "QUEUE_FULL")}
        await session.close()
        assert [(await sdk.archive.task(task.id)).state for task in tasks] == ["stopped"] * 11
        assert await findings(sdk, session.id) == []


class Reciting(ScriptedRuntime):
    """Yields the given items, then waits for an answer to each call, and ends."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(parse_object({"turns": [{"steps": [{"text": "x"}]}]}, "script"))
        self.items = items

    async def start_task(self, host: Any, task: Any) -> Any:
        return RecitingTask(self.items, task)


class RecitingTask(ScriptedTask):
    def __init__(self, items: list[Any], task: Any) -> None:
        super().__init__(parse_object({"turns": [{"steps": [{"text": "x"}]}]}, "script"), task)
        self._items = items

    async def events(self) -> Any:
        yield Identified(runtime_session_id="mine")
        for item in self._items:
            yield item
        calls = [item.runtime_tool_call_id for item in self._items if isinstance(item, ToolAnnouncement)]
        await self._wait(lambda: self._replies.keys() >= set(calls))
        yield Finished(stop_reason="end_turn")


async def recite(path: Path, *items: Any) -> list[Any]:
    """Run one task whose runtime yields these items; return the payloads of the task."""
    async with CodeSDK.open(path / "data", runtimes={"scripted": Reciting(list(items))}) as sdk:
        session = await create(sdk, path, idle_timeout_s=20.0)
        task = await session.start("Go")
        payloads = [event.payload async for event in task.events()]
        assert await findings(sdk, session.id) == []
        return payloads


def delta(text: str, **more: Any) -> Draft:
    payload = OutputDelta(kind="text_delta", block_id="b", message_id="m", delta=text)
    return Draft(payload, **more)


async def test_a_delta_of_10_megabytes_is_noted_and_kept(tmp_path: Path):
    payloads = await recite(tmp_path, delta("before "), delta("y" * 10_000_000), delta("after"))
    notices = [payload for payload in payloads if isinstance(payload, RuntimeNotice)]
    assert [(notice.kind, "bytes" in notice.message) for notice in notices] == [("unknown_frame", True)]
    assert payloads[-1].text == "before after"
    async with CodeSDK.open(tmp_path / "data") as sdk:
        (row,) = await sdk.sessions()
        sizes = [artifact.ref.size_bytes for artifact in await sdk.archive.artifacts(row.session_id)]
        assert max(sizes) > 10_000_000


@pytest.mark.parametrize("depth", [200, 100_000])
@pytest.mark.slow
async def test_a_tool_input_nested_too_deep_is_answered_and_the_task_ends(tmp_path: Path, depth: int):
    call = ToolAnnouncement(name="workspace.read", input=nested(depth), runtime_tool_call_id="c1")
    payloads = await recite(tmp_path, call)
    assert type(payloads[-1]).__name__ == "TaskCompleted"


@pytest.mark.parametrize("name", ["n" * 1_000_000, ""])
async def test_a_tool_name_that_cannot_be_is_answered_and_the_task_ends(tmp_path: Path, name: str):
    call = ToolAnnouncement(name=name, input={}, runtime_tool_call_id="c1", raw={"name": name})
    payloads = await recite(tmp_path, call)
    assert type(payloads[-1]).__name__ == "TaskCompleted"
    assert [payload.kind for payload in payloads if isinstance(payload, RuntimeNotice)] == ["unknown_frame"]
