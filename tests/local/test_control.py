"""The control socket: what another process may ask of the writer, and what it hears when that cannot be."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codesdk import (
    CodeSDK,
    Conflict,
    InvalidRequest,
    NotFound,
    Session,
    SessionSettings,
    StorageFailure,
    Task,
)
from codesdk.contract.actions import Action, AnyAction, ApproveCall, Caller, DenyCall, SteerTask, StopTask
from codesdk.contract.events import (
    ApprovalRequested,
    TaskSteered,
    TaskStopped,
    ToolCallApproved,
    ToolCallDenied,
)
from codesdk.local.control import MAX_LINE_BYTES, ControlServer, Execute
from codesdk.local.directory import SOCKET, DataDir, socket_address
from codesdk.local.holder import HolderService, is_held
from codesdk.serving import Limits

pytestmark = pytest.mark.anyio

SOURCE = str(Path(__file__).parents[2] / "src")
EDIT = {"call": {"tool": "workspace.edit", "input": {"path": "a.txt", "old": "one", "new": "two"}}}
ASKING = {"loop": True, "turns": [{"steps": [EDIT]}, {"steps": [{"text": "Done."}]}]}
HELD = {"turns": [{"steps": [EDIT]}, {"steps": [{"stall": "stopped"}]}]}
STEERED = {"turns": [{"steps": [{"text": "Where to?"}, {"await_steer": True}, {"text": " Thanks."}]}]}
STALLED = {"turns": [{"steps": [{"text": "Hm"}, {"stall": "stopped"}]}]}

SENDER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
import msgspec
from codesdk import CodeSDK, CodeSDKError
from codesdk.contract.actions import AnyAction

async def main():
    async with CodeSDK.open(sys.argv[2]) as sdk:
        if sdk.is_holder:
            return "nobody"
        await sdk.service.execute(msgspec.json.decode(sys.argv[3], type=AnyAction))
        return "heard"

try:
    print(asyncio.run(main()))
except CodeSDKError as error:
    print(error.code, error.message)
"""


async def send_from_outside(path: Path, action: AnyAction) -> str:
    """Have an action carried out by a process of its own; return what it heard."""
    arguments = (SOURCE, str(path), msgspec.json.encode(action).decode())
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDER, *arguments, stdout=subprocess.PIPE
    )
    out, _ = await child.communicate()
    return out.decode().strip()


@asynccontextmanager
async def holder(path: Path) -> AsyncIterator[HolderService]:
    """Give the sessions of a directory that this test holds, as another process has them."""
    directory = await DataDir.open_reader(path)
    try:
        yield HolderService(directory, Caller())
    finally:
        await directory.close()


async def send(path: Path, action: Action[Any]) -> Any:
    async with holder(path) as service:
        return await service.execute(action)


@asynccontextmanager
async def running(
    root: Path, script: dict[str, Any], path: Path | None = None
) -> AsyncIterator[tuple[Session, Task]]:
    """Open a directory and start a task in it."""
    (root / "a.txt").write_text("one\n")
    async with CodeSDK.open(path or root / "data") as sdk:
        session = await sdk.create_session(
            runtime="scripted", workspace=root, settings=SessionSettings(runtime_config={"script": script})
        )
        yield session, await session.start("Go")


async def question(task: Task) -> ApprovalRequested:
    async for event in task.events():
        if isinstance(event.payload, ApprovalRequested):
            return event.payload
    pytest.fail("no question was asked")


async def wait_for_text(task: Task) -> None:
    async for event in task.events():
        if event.type == "model.output.delta":
            return


async def payloads(task: Task, kind: type) -> list[Any]:
    return [event.payload async for event in task.events() if isinstance(event.payload, kind)]


async def raw(path: Path, line: bytes) -> dict[str, Any]:
    """Write a line to the socket and return the answer."""
    with socket_address(path) as address:
        reader, writer = await asyncio.open_unix_connection(address, limit=2 * MAX_LINE_BYTES)
    try:
        writer.write(line)
        await writer.drain()
        return json.loads(await reader.readline())
    finally:
        writer.close()


async def test_the_socket_is_for_its_owner_alone_and_goes_with_the_writer(tmp_path: Path):
    path = tmp_path / "data"
    async with CodeSDK.open(path):
        assert (path / SOCKET).stat().st_mode & 0o777 == 0o600
    assert not (path / SOCKET).exists()
    assert not await is_held(path)


async def test_nobody_listens_in_a_directory_that_is_not_there(tmp_path: Path):
    assert not await is_held(tmp_path / "nothing")
    assert await send_from_outside(tmp_path, StopTask(session_id="ses_1")) == "nobody"


async def test_another_process_approves_a_call(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        command = ApproveCall(
            session_id=session.id,
            tool_call_id=asked.tool_call_id or "",
            attempt=asked.attempt,
            input_hash=asked.input_hash,
            reason="looks right",
        )
        assert await send_from_outside(tmp_path / "data", command) == "heard"
        assert (await task.result()).text == "Done."
        (approved,) = await payloads(task, ToolCallApproved)
        assert (approved.by.kind, approved.by.id, approved.reason) == ("user", None, "looks right")
        assert (tmp_path / "a.txt").read_text() == "two\n"


async def test_another_process_denies_a_call(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        command = DenyCall(session_id=session.id, tool_call_id=asked.tool_call_id or "", reason="not today")
        assert await send_from_outside(tmp_path / "data", command) == "heard"
        await task.result()
        assert [denied.reason for denied in await payloads(task, ToolCallDenied)] == ["not today"]
        assert (tmp_path / "a.txt").read_text() == "one\n"


async def test_another_process_steers_the_task(tmp_path: Path):
    async with running(tmp_path, STEERED) as (session, task):
        await wait_for_text(task)
        command = SteerTask(session_id=session.id, message="To the left.")
        assert await send_from_outside(tmp_path / "data", command) == "heard"
        assert (await task.result()).text == "Where to? Thanks."
        assert len(await payloads(task, TaskSteered)) == 1


async def test_another_process_stops_the_task(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        assert await send_from_outside(tmp_path / "data", StopTask(session_id=session.id)) == "heard"
        assert (await task.result()).state == "stopped"
        (stopped,) = await payloads(task, TaskStopped)
        assert (stopped.reason, stopped.by.kind) == ("stopped by the user", "user")


async def test_what_is_not_there_is_not_found(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        await question(task)
        path = tmp_path / "data"
        with pytest.raises(NotFound, match="ses_none"):
            await send(path, StopTask(session_id="ses_none"))
        with pytest.raises(NotFound, match="call_none"):
            await send(path, ApproveCall(session_id=session.id, tool_call_id="call_none"))
        with pytest.raises(NotFound, match="task_none"):
            await send(path, StopTask(session_id=session.id, task_id="task_none"))
        heard = await send_from_outside(path, StopTask(session_id="ses_none"))
        assert heard.startswith("NOT_FOUND There is no session ses_none.")


async def test_an_answer_to_another_attempt_or_input_is_a_conflict_and_decides_nothing(tmp_path: Path):
    async with running(tmp_path, HELD) as (session, task):
        asked = await question(task)
        right = ApproveCall(
            session_id=session.id,
            tool_call_id=asked.tool_call_id or "",
            attempt=asked.attempt,
            input_hash=asked.input_hash,
        )
        for wrong in (
            {"attempt": 2},
            {"attempt": 0},
            {"input_hash": "sha256:" + "0" * 64},
            {"input_hash": ""},
        ):
            with pytest.raises(Conflict, match="Read the question again"):
                await send(tmp_path / "data", msgspec.structs.replace(right, **wrong))
        await send(tmp_path / "data", right)
        await send(tmp_path / "data", right)  # the same answer again is no error
        with pytest.raises(Conflict, match="already approved"):
            await send(tmp_path / "data", DenyCall(session_id=session.id, tool_call_id=right.tool_call_id))
        await task.stop()
        assert (await task.result()).state == "stopped"


async def test_garbage_is_answered_and_others_are_still_heard(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        garbage = [
            b"\n",
            b"hello\n",
            b"\xff\xfe\x00\n",
            b"[]\n",
            b"{}\n",
            b"null\n",
            b'{"type": "explode"}\n',
        ]
        garbage += [b"[" * 100_000 + b"\n", b'{"type":"follow","session_id":' + b"9" * 5_000 + b"}\n"]
        garbage += [b"[" + b"[]," * 600_000 + b"[]]\n"]
        errors = [await raw(tmp_path / "data", line) for line in garbage]
        assert [error["error"]["code"] for error in errors] == ["INVALID_REQUEST"] * len(garbage)
        await send(tmp_path / "data", StopTask(session_id=session.id))
        assert (await task.result()).state == "stopped"


async def test_a_line_without_an_end_is_no_command(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        with socket_address(tmp_path / "data") as address:
            reader, writer = await asyncio.open_unix_connection(address)
        writer.write(msgspec.json.encode(Execute(action=StopTask(session_id=session.id))))
        writer.write_eof()
        assert json.loads(await reader.readline())["error"]["code"] == "INVALID_REQUEST"
        assert await reader.read() == b""
        writer.close()
        assert (await session.info()).active_task_id == task.id


async def test_an_oversized_line_is_refused_and_others_are_still_heard(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        path = tmp_path / "data"
        refused = await raw(path, b"x" * (MAX_LINE_BYTES + 100) + b"\n")
        assert refused["error"]["code"] == "INVALID_REQUEST"
        with pytest.raises(InvalidRequest, match="bytes"):
            await send(path, SteerTask(session_id=session.id, message="y" * MAX_LINE_BYTES))
        await send(path, StopTask(session_id=session.id))
        assert (await task.result()).state == "stopped"


async def test_a_socket_that_a_killed_writer_left_is_silent_and_replaced(tmp_path: Path):
    path = tmp_path / "data"
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[2])\n"
        "from codesdk import CodeSDK\n"
        "async def main():\n"
        "    async with CodeSDK.open(sys.argv[1]):\n"
        "        print('open', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), SOURCE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"open\n"
    child.kill()
    await child.communicate()
    assert (path / SOCKET).is_socket()
    assert not await is_held(path)
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        assert await send_from_outside(path, StopTask(session_id=session.id)) == "heard"


async def test_a_path_longer_than_a_socket_address_works_the_same(tmp_path: Path):
    path = tmp_path.joinpath(*["a-rather-long-name"] * 8)
    assert len(os.fsencode(path)) > 108
    path.mkdir(parents=True)
    async with running(tmp_path, STALLED, path) as (session, task):
        await wait_for_text(task)
        assert (path / SOCKET).stat().st_mode & 0o777 == 0o600
        assert await send_from_outside(path, StopTask(session_id=session.id)) == "heard"
        assert (await task.result()).state == "stopped"
    assert not (path / SOCKET).exists()


async def test_of_two_clients_that_answer_at_once_one_is_told_that_it_came_too_late(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        answers = await asyncio.gather(
            *(
                send_from_outside(
                    tmp_path / "data", kind(session_id=session.id, tool_call_id=asked.tool_call_id or "")
                )
                for kind in (ApproveCall, DenyCall)
            )
        )
        heard, late = sorted(answers, key=lambda words: words != "heard")
        assert heard == "heard"
        assert late.startswith(("CONFLICT", "NOT_FOUND"))
        assert (await task.result()).state == "completed"


async def test_a_client_that_only_listens_is_in_nobodys_way(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        with socket_address(tmp_path / "data") as address:
            idle, writer = await asyncio.open_unix_connection(address)
        await send(tmp_path / "data", StopTask(session_id=session.id))
        assert (await task.result()).state == "stopped"
    assert await idle.read() == b"", "the writer hangs up when it closes"
    writer.close()


async def test_a_holder_that_hangs_up_without_an_answer_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    monkeypatch.setattr("codesdk.local.holder.PATIENCE_S", 0.0)
    async with CodeSDK.open(tmp_path / "data"):
        pass
    server = await asyncio.start_unix_server(hang_up, tmp_path / "data" / SOCKET)
    async with server:
        with pytest.raises(StorageFailure, match="did not answer"):
            await send(tmp_path / "data", StopTask(session_id="ses_1"))


async def test_two_processes_work_in_one_directory_and_see_the_same(tmp_path: Path):
    """One holds it; the other creates, starts, answers, uploads, follows and reads through it."""
    (tmp_path / "a.txt").write_text("one\n")
    async with CodeSDK.open(tmp_path / "data") as first, CodeSDK.open(tmp_path / "data") as second:
        assert (first.is_holder, second.is_holder) == (True, False)
        settings = SessionSettings(runtime_config={"script": ASKING})
        theirs = await second.create_session(runtime="scripted", workspace=tmp_path, settings=settings)
        ours = await first.session(theirs.id)
        task = await theirs.start("Go", idempotency_key="k")
        assert (await theirs.start("Go", idempotency_key="k")).id == task.id
        asked = await question(ours.task(task.id))
        await theirs.approve(asked.tool_call_id or "")
        assert (await task.result()).text == (await ours.task(task.id).result()).text == "Done."
        seen = [event async for event in task.events()]
        assert seen == [event async for event in ours.task(task.id).events()]
        ref = await second.put_artifact(b"x" * 3_000_000, "text/plain", "big")
        assert await first.read_artifact(ref.artifact_id) == b"x" * 3_000_000
        assert await second.sessions() == await first.sessions()
        with pytest.raises(InvalidRequest, match="Only a Script"):
            await second.create_session(runtime="scripted", plays=[])
        with pytest.raises(Conflict, match="in use"):
            async with CodeSDK.open(tmp_path / "data", allow_yolo=True):
                pass
        with pytest.raises(Conflict, match="in use"):
            async with CodeSDK.open(tmp_path / "data", secrets=["the holder does not know it"]):
                pass


async def test_a_stream_goes_on_with_the_next_holder(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as first:
        session = await first.create_session(
            runtime="scripted",
            workspace=tmp_path,
            settings=SessionSettings(runtime_config={"script": STALLED}),
        )
        outside = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FOLLOWER, SOURCE, str(tmp_path / "data"), session.id, stdout=subprocess.PIPE
        )
        assert outside.stdout is not None
        assert await outside.stdout.readline() == b"1\n"
    async with CodeSDK.open(tmp_path / "data") as second:
        task = await (await second.session(session.id)).start("Go")
        await wait_for_text(task)
        await task.stop()
        await task.result()
        count = (await second.service.head(session.id)) - 1
        lines = [await outside.stdout.readline() for _ in range(count)]
    assert [int(line) for line in lines] == list(range(2, count + 2))
    outside.kill()
    await outside.communicate()


FOLLOWER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from codesdk import CodeSDK

async def main():
    async with CodeSDK.open(sys.argv[2]) as sdk:
        assert not sdk.is_holder
        async for event in (await sdk.session(sys.argv[3])).events():
            print(event.seq, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "half", [b"", b'{"type": "exec', b'{"type":"put","size":9,"content_type":"text/plain"}\nabc']
)
async def test_a_request_that_does_not_arrive_is_refused_and_others_are_heard(tmp_path: Path, half: bytes):
    async with CodeSDK.open(tmp_path / "state") as sdk:
        (tmp_path / "other").mkdir()
        server = ControlServer(sdk.engine, tmp_path / "other", Limits(head_s=0.1, body_s=0.1))
        await server.start()
        try:
            with socket_address(tmp_path / "other") as address:
                reader, writer = await asyncio.open_unix_connection(address)
                other, telling = await asyncio.open_unix_connection(address)
            writer.write(half)
            telling.write(b"{}\n")
            assert json.loads(await other.readline())["error"]["code"] == "INVALID_REQUEST"
            assert json.loads(await reader.readline())["error"]["code"] == "TIMEOUT"
            writer.close()
            telling.close()
        finally:
            await server.close()


async def test_too_many_connections_are_refused_with_an_error(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "state") as sdk:
        (tmp_path / "other").mkdir()
        server = ControlServer(sdk.engine, tmp_path / "other", Limits(per_peer=1))
        await server.start()
        try:
            with socket_address(tmp_path / "other") as address:
                _, first = await asyncio.open_unix_connection(address)
                reader, second = await asyncio.open_unix_connection(address)
            assert json.loads(await reader.readline())["error"]["code"] == "OVERLOADED"
            first.close()
            second.close()
        finally:
            await server.close()
