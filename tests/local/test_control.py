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
from codesdk.contract.events import (
    ApprovalRequested,
    TaskSteered,
    TaskStopped,
    ToolCallApproved,
    ToolCallDenied,
)
from codesdk.local.control import MAX_LINE_BYTES, Command, send
from codesdk.local.directory import SOCKET, socket_address

pytestmark = pytest.mark.anyio

SOURCE = str(Path(__file__).parents[2] / "src")
EDIT = {"call": {"tool": "workspace.edit", "input": {"path": "a.txt", "old": "one", "new": "two"}}}
ASKING = {"loop": True, "turns": [{"steps": [EDIT]}, {"steps": [{"text": "Done."}]}]}
STEERED = {"turns": [{"steps": [{"text": "Where to?"}, {"await_steer": True}, {"text": " Thanks."}]}]}
STALLED = {"turns": [{"steps": [{"text": "Hm"}, {"stall": "stopped"}]}]}

SENDER = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import msgspec
from codesdk import CodeSDKError
from codesdk.local.control import Command, send

try:
    print("heard" if asyncio.run(send(Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=Command))) else "nobody")
except CodeSDKError as error:
    print(error.code, error.message)
"""


async def send_from_outside(path: Path, command: Command) -> str:
    """Send a command from a process of its own; return what it heard."""
    arguments = (SOURCE, str(path), msgspec.json.encode(command).decode())
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDER, *arguments, stdout=subprocess.PIPE
    )
    out, _ = await child.communicate()
    return out.decode().strip()


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


async def raw(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Write lines to the socket one by one and return the answers, as far as there are any."""
    with socket_address(path) as address:
        reader, writer = await asyncio.open_unix_connection(address, limit=2 * MAX_LINE_BYTES)
    answers: list[dict[str, Any]] = []
    try:
        for line in lines:
            writer.write(line)
            await writer.drain()
            answers.append(json.loads(await reader.readline()))
    finally:
        writer.close()
    return answers


async def test_the_socket_is_for_its_owner_alone_and_goes_with_the_writer(tmp_path: Path):
    path = tmp_path / "data"
    async with CodeSDK.open(path):
        assert (path / SOCKET).stat().st_mode & 0o777 == 0o600
    assert not (path / SOCKET).exists()
    assert await send(path, Command(op="stop", session_id="ses_1")) is False


async def test_nobody_listens_in_a_directory_that_is_not_there(tmp_path: Path):
    assert await send(tmp_path / "nothing", Command(op="stop", session_id="ses_1")) is False
    assert await send_from_outside(tmp_path, Command(op="stop", session_id="ses_1")) == "nobody"


async def test_another_process_approves_a_call(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        command = Command(
            op="approve",
            session_id=session.id,
            tool_call_id=asked.tool_call_id,
            attempt=asked.attempt,
            input_hash=asked.input_hash,
            reason="looks right",
        )
        assert await send_from_outside(tmp_path / "data", command) == "heard"
        assert (await task.result()).text == "Done."
        (approved,) = await payloads(task, ToolCallApproved)
        assert (approved.by.kind, approved.by.id, approved.reason) == ("user", "terminal", "looks right")
        assert (tmp_path / "a.txt").read_text() == "two\n"


async def test_another_process_denies_a_call(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        command = Command(
            op="deny", session_id=session.id, tool_call_id=asked.tool_call_id, reason="not today"
        )
        assert await send_from_outside(tmp_path / "data", command) == "heard"
        await task.result()
        assert [denied.reason for denied in await payloads(task, ToolCallDenied)] == ["not today"]
        assert (tmp_path / "a.txt").read_text() == "one\n"


async def test_another_process_steers_the_task(tmp_path: Path):
    async with running(tmp_path, STEERED) as (session, task):
        await wait_for_text(task)
        command = Command(op="steer", session_id=session.id, text="To the left.")
        assert await send_from_outside(tmp_path / "data", command) == "heard"
        assert (await task.result()).text == "Where to? Thanks."
        assert len(await payloads(task, TaskSteered)) == 1


async def test_another_process_stops_the_task(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        assert (
            await send_from_outside(tmp_path / "data", Command(op="stop", session_id=session.id)) == "heard"
        )
        assert (await task.result()).state == "stopped"
        (stopped,) = await payloads(task, TaskStopped)
        assert (stopped.reason, stopped.by.id) == ("stopped from the terminal", "terminal")


async def test_what_is_not_there_is_not_found(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        await question(task)
        path = tmp_path / "data"
        with pytest.raises(NotFound, match="ses_none"):
            await send(path, Command(op="stop", session_id="ses_none"))
        with pytest.raises(NotFound, match="call_none"):
            await send(path, Command(op="approve", session_id=session.id, tool_call_id="call_none"))
        with pytest.raises(NotFound, match="task_none"):
            await send(path, Command(op="stop", session_id=session.id, task_id="task_none"))
        heard = await send_from_outside(path, Command(op="stop", session_id="ses_none"))
        assert heard.startswith("NOT_FOUND There is no session ses_none.")


async def test_an_answer_to_another_attempt_or_input_is_a_conflict_and_decides_nothing(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        right = Command(
            op="approve",
            session_id=session.id,
            tool_call_id=asked.tool_call_id,
            attempt=asked.attempt,
            input_hash=asked.input_hash,
        )
        for wrong in (
            {"attempt": 2},
            {"attempt": 0},
            {"input_hash": "sha256:" + "0" * 64},
            {"input_hash": ""},
        ):
            with pytest.raises(Conflict, match="Look again"):
                await send(tmp_path / "data", msgspec.structs.replace(right, **wrong))
        assert await send(tmp_path / "data", right) is True
        assert await send(tmp_path / "data", right) is True, "the same answer again is no error"
        with pytest.raises(Conflict, match="already approved"):
            await send(tmp_path / "data", msgspec.structs.replace(right, op="deny"))
        assert (await task.result()).state == "completed"


async def test_a_command_that_lacks_something_says_what(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, _):
        path = tmp_path / "data"
        with pytest.raises(InvalidRequest, match="needs a text"):
            await send(path, Command(op="steer", session_id=session.id))
        for op in ("approve", "deny"):
            with pytest.raises(InvalidRequest, match="Name the tool call"):
                await send(path, Command(op=op, session_id=session.id))


async def test_garbage_is_answered_and_the_connection_goes_on(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        stop = msgspec.json.encode(Command(op="stop", session_id=session.id)) + b"\n"
        garbage = [b"\n", b"hello\n", b"\xff\xfe\x00\n", b"[]\n", b"{}\n", b"null\n", b'{"op": "explode"}\n']
        garbage += [b"[" * 100_000 + b"\n", b'{"op":"stop","session_id":' + b"9" * 5_000 + b"}\n"]
        *errors, done = await raw(tmp_path / "data", *garbage, stop)
        assert [error["error"]["code"] for error in errors] == ["INVALID_REQUEST"] * len(garbage)
        assert done == {"ok": True}
        assert (await task.result()).state == "stopped"


async def test_a_line_without_an_end_is_no_command(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        with socket_address(tmp_path / "data") as address:
            reader, writer = await asyncio.open_unix_connection(address)
        writer.write(msgspec.json.encode(Command(op="stop", session_id=session.id)))
        writer.write_eof()
        assert json.loads(await reader.readline())["error"]["code"] == "INVALID_REQUEST"
        assert await reader.read() == b""
        writer.close()
        assert (await session.info()).active_task_id == task.id


async def test_an_oversized_line_is_refused_and_others_are_still_heard(tmp_path: Path):
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        path = tmp_path / "data"
        (refused,) = await raw(path, b"x" * (MAX_LINE_BYTES + 100) + b"\n")
        assert refused["error"]["code"] == "INVALID_REQUEST"
        with pytest.raises(InvalidRequest, match="bytes"):
            await send(path, Command(op="steer", session_id=session.id, text="y" * MAX_LINE_BYTES))
        assert await send(path, Command(op="stop", session_id=session.id)) is True
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
    assert await send(path, Command(op="stop", session_id="ses_1")) is False
    async with running(tmp_path, STALLED) as (session, task):
        await wait_for_text(task)
        assert await send_from_outside(path, Command(op="stop", session_id=session.id)) == "heard"


async def test_a_path_longer_than_a_socket_address_works_the_same(tmp_path: Path):
    path = tmp_path.joinpath(*["a-rather-long-name"] * 8)
    assert len(os.fsencode(path)) > 108
    path.mkdir(parents=True)
    async with running(tmp_path, STALLED, path) as (session, task):
        await wait_for_text(task)
        assert (path / SOCKET).stat().st_mode & 0o777 == 0o600
        assert await send_from_outside(path, Command(op="stop", session_id=session.id)) == "heard"
        assert (await task.result()).state == "stopped"
    assert not (path / SOCKET).exists()


async def test_of_two_clients_that_answer_at_once_one_is_told_that_it_came_too_late(tmp_path: Path):
    async with running(tmp_path, ASKING) as (session, task):
        asked = await question(task)
        answers = await asyncio.gather(
            *(
                send_from_outside(
                    tmp_path / "data", Command(op=op, session_id=session.id, tool_call_id=asked.tool_call_id)
                )
                for op in ("approve", "deny")
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
        assert await send(tmp_path / "data", Command(op="stop", session_id=session.id)) is True
        assert (await task.result()).state == "stopped"
    assert await idle.read() == b"", "the writer hangs up when it closes"
    writer.close()


async def test_a_writer_that_hangs_up_without_an_answer_is_a_clear_error(tmp_path: Path):
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    server = await asyncio.start_unix_server(hang_up, tmp_path / SOCKET)
    async with server:
        with pytest.raises(StorageFailure, match="did not answer"):
            await send(tmp_path, Command(op="stop", session_id="ses_1"))
