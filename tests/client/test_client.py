"""Handles over HTTP, with a real daemon behind them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import HELLO, Daemon, daemon

from codesdk.client import CodeSDKClient, Unreachable
from codesdk.contract.api import TokenInfo
from codesdk.contract.errors import CodeSDKError, Conflict, Forbidden, InvalidRequest, NotFound, TaskFailure
from codesdk.contract.events import ApprovalRequested, ToolCallDenied
from codesdk.contract.messages import text_of
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import UndoReport
from codesdk.handles import Session
from codesdk.local.tokens import TokenFile
from codesdk.script import parse_object

WRITE = {
    "turns": [
        {"steps": [{"call": {"tool": "workspace.write", "input": {"path": "new.txt", "content": "new\n"}}}]},
        {"steps": [{"text": "Written."}]},
    ],
    "loop": True,
}
STEERED = {"turns": [{"steps": [{"text": "Waiting."}, {"await_steer": True}, {"text": "Got it."}]}]}
FOREVER = {"turns": [{"steps": [{"text": "Begin"}, {"delay_s": 600}]}], "loop": True}


def played(script: Any) -> SessionSettings:
    return SessionSettings(runtime_config={"script": script})


async def create(client: CodeSDKClient, home: Path, script: Any = HELLO, **options: Any) -> Session:
    return await client.create_session(runtime="scripted", workspace=home, settings=played(script), **options)


async def test_a_session_that_names_no_runtime_is_minicode_if_it_has_a_model(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await client.create_session(workspace=tmp_path, plays=parse_object(HELLO, "test"))
        assert (await session.info()).runtime == "minicode"
        await session.close()
        with pytest.raises(InvalidRequest, match="No runtime is named"):
            await client.create_session(workspace=tmp_path)


async def test_a_task_runs_and_its_result_events_and_transcript_come_back(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path, title="Greeting")
        task = await session.start("Say hello.")
        result = await task.result()
        events = [event async for event in task.events()]
        row = await session.info()
        assert (result.task_id, result.state, result.text) == (task.id, "completed", "Hello there.")
        assert [events[0].type, events[-1].type] == ["task.started", "task.completed"]
        assert await session.event(events[-1].seq) == events[-1]
        assert await session.service.head(session.id) == events[-1].seq
        assert [text_of(message.content) for message in await session.transcript()] == [
            "Say hello.",
            "Hello there.",
        ]
        assert (row.title, row.workspace, row.runtime) == ("Greeting", str(tmp_path), "scripted")
        assert await client.sessions(limit=1) == [row]
        assert (
            await session.tasks()
            == [await session.task_info(task.id)]
            == [await client.service.task(task.id)]
        )
        assert (await client.daemon.verify(session.id)).ok
        assert (await client.daemon.replay(session.id)).ok


async def test_a_call_is_approved_granted_revoked_and_undone(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path, WRITE)
        task = await session.start("Write.")
        async for event in task.events():
            if isinstance(event.payload, ApprovalRequested):
                question = event.payload
                assert question.tool_call_id is not None
                assert [row.approval_id for row in await session.approvals()] == [question.approval_id]
                assert question.approval_id in [row.approval_id for row in await client.approvals()]
                with pytest.raises(Conflict):
                    await task.approve(question.tool_call_id, attempt=7)
                await task.approve(
                    question.tool_call_id,
                    scope="session",
                    attempt=question.attempt,
                    input_hash=question.input_hash,
                )
        assert (tmp_path / "new.txt").read_text() == "new\n"
        assert [grant.tool for grant in await session.grants()] == ["workspace.write"]
        await session.revoke("workspace.write")
        assert await session.grants() == []
        report = await session.undo()
        assert isinstance(report, UndoReport)
        assert [(file.path, file.removed) for file in report.restored] == [("new.txt", True)]
        assert not (tmp_path / "new.txt").exists()


async def test_a_denial_reaches_the_model_and_the_log(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path, WRITE)
        task = await session.start("Write.")
        async for event in task.events():
            if isinstance(event.payload, ApprovalRequested):
                await task.deny(event.payload.tool_call_id or "", "not today")
            if isinstance(event.payload, ToolCallDenied):
                assert event.payload.reason == "not today"
        assert (await task.result()).text == "Written."
        assert not (tmp_path / "new.txt").exists()


async def test_a_running_task_is_steered_and_stopped(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        steered = await create(client, tmp_path, STEERED)
        task = await steered.start("Go.")
        async for event in task.events():
            if event.type == "model.output.delta" and event.payload.delta == "Waiting.":
                await task.steer("More.")
        assert (await task.result()).state == "completed"
        endless = await create(client, tmp_path, FOREVER)
        first, second = await endless.start("Go."), await endless.start("And then?")
        await second.stop("not needed")
        await endless.stop("enough")
        assert [(await each.result()).stop_reason for each in (first, second)] == ["enough", "not needed"]
        with pytest.raises(Conflict, match="no running task"):
            await endless.stop()
        with pytest.raises(Conflict, match="no running task"):
            await endless.steer("More.")


async def test_a_session_is_forked_moved_closed_and_deleted(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path)
        await (await session.start("Go.")).result()
        fork = await session.fork(title="Branch")
        assert (await fork.info()).parent_session_id == session.id
        assert await fork.transcript() == await session.transcript()
        with pytest.raises(InvalidRequest, match="scripted already"):
            await session.move("scripted")
        await session.move("codex")
        assert (await session.info()).runtime == "codex-sdk"
        await session.close("done")
        assert (await session.info()).status == "closed"
        await client.delete_session(session.id, idempotency_key="k")
        await client.delete_session(session.id, idempotency_key="k")
        with pytest.raises(NotFound, match=session.id):
            await client.session(session.id)


async def test_bytes_go_up_come_back_whole_and_in_parts(running: Daemon):
    data = bytes(range(256)) * 1000
    async with CodeSDKClient.connect(running.url) as client:
        ref = await client.put_artifact(data, "application/octet-stream", "noise.bin")
        assert (ref.name, ref.size_bytes) == ("noise.bin", len(data))
        assert await client.read_artifact(ref.artifact_id) == data
        assert await client.read_artifact(ref.artifact_id, 1000, 1256) == data[1000:1256]
        assert await client.read_artifact(ref.artifact_id, len(data) - 3) == data[-3:]
        assert await client.read_artifact(ref.artifact_id, len(data), len(data) + 9) == b""
        with pytest.raises(NotFound):
            await client.read_artifact("art_nothing")


async def test_a_script_that_the_gateway_plays_is_sent_along(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        plays = parse_object(HELLO, "script")
        session = await client.create_session(workspace=tmp_path, plays=plays, secrets=["hunter22"])
        created = await session.event(1)
        assert created.type == "session.created"
        assert created.payload.settings["gateway"] == "scripted"
        assert (await client.session(session.id, secrets=["more-secret"])).id == session.id
        with pytest.raises(InvalidRequest, match="Only a Script"):
            await create(client, tmp_path, plays=[])


async def test_the_same_key_again_is_the_same_task(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path)
        first = await session.start("Go.", idempotency_key="once")
        again = await session.start("Go.", idempotency_key="once")
        assert first.id == again.id
        with pytest.raises(Conflict, match="another request"):
            await session.start("Something else.", idempotency_key="once")


async def test_a_failed_task_raises_its_own_error(running: Daemon, tmp_path: Path):
    fail = {"turns": [{"steps": [{"fail": {"code": "MODEL_ERROR", "message": "The model is tired."}}]}]}
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path, fail)
        task = await session.start("Go.")
        with pytest.raises(TaskFailure, match="tired") as caught:
            await task.result()
        assert caught.value.code == "MODEL_ERROR"
        with pytest.raises(NotFound):
            await session.event(10_000)
        with pytest.raises(NotFound):
            await (await create(client, tmp_path)).task(task.id).result()


async def test_errors_of_the_daemon_are_those_of_the_library(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        with pytest.raises(InvalidRequest):
            await client.create_session(runtime="nothing-like-it", workspace=tmp_path)
        with pytest.raises(NotFound):
            await client.session("ses_nothing")
        with pytest.raises(NotFound):
            async for _ in Session(client.service, "ses_nothing").events():
                pass
        assert await client.whoami() == TokenInfo(
            principal="local", scopes=["read", "run", "approve", "admin"]
        )
        assert "scripted" in [runtime.name for runtime in await client.runtimes()]
        assert (await client.runtime_auth("scripted")).auth.ok
        assert (await client.usage()).sessions > 0


async def test_nobody_there_is_said_at_once():
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        async with CodeSDKClient.connect("http://127.0.0.1:1"):
            pass


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://me:pw@host", "http://h:x"])
async def test_an_address_that_is_none_is_refused_without_being_shown(url: str):
    with pytest.raises(InvalidRequest, match="must be like") as caught:
        async with CodeSDKClient.connect(url):
            pass
    assert "pw" not in caught.value.message


async def test_the_address_comes_from_the_environment_or_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CODESDK_URL", "http://127.0.0.1:1")
    with daemon(tmp_path / "data", "--require-token") as running:
        async with CodeSDKClient.connect(data_dir=tmp_path / "data") as client:
            assert (await client.whoami()).principal == "local"
        monkeypatch.setenv("CODESDK_URL", running.url)
        async with CodeSDKClient.connect() as client:
            with pytest.raises(Forbidden) as caught:
                await client.whoami()
            assert caught.value.code == "AUTH_REQUIRED"
        secret, token = TokenFile(tmp_path / "data").add("ann", ["read"])
        monkeypatch.setenv("CODESDK_TOKEN", secret)
        async with CodeSDKClient.connect() as client:
            assert await client.whoami() == TokenInfo(principal="ann", scopes=["read"])
            with pytest.raises(Forbidden, match="scope run"):
                await create(client, tmp_path)
            TokenFile(tmp_path / "data").revoke(token.token_id)
            with pytest.raises(Forbidden, match="revoked"):
                await client.whoami()
        assert secret not in repr(client.connection.__dict__)
    monkeypatch.delenv("CODESDK_URL")
    with pytest.raises(NotFound, match="codesdkd --data-dir"):
        async with CodeSDKClient.connect(data_dir=tmp_path / "data"):
            pass


async def test_a_client_that_is_closed_ends_its_streams_and_says_so_to_who_waits(
    running: Daemon, tmp_path: Path
):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path, FOREVER)
        task = await session.start("Go.")
        waiting = asyncio.create_task(task.result())
        seen: list[str] = []
        async for event in session.events():
            seen.append(event.type)
            if event.type == "model.output.delta":
                await client.connection.close()
        assert seen[-1] == "model.output.delta"
        with pytest.raises(CodeSDKError, match="closed") as caught:
            await waiting
        assert caught.value.code == "INTERRUPTED"
        with pytest.raises(CodeSDKError, match="This client was closed"):
            await session.info()
    async with CodeSDKClient.connect(running.url) as client:
        await (await client.session(session.id)).stop()


async def test_a_grant_that_was_taken_back_under_a_key_is_taken_back_once(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path, WRITE)
        task = await session.start("Go.")
        async for event in task.events():
            if isinstance(event.payload, ApprovalRequested):
                await task.approve(event.payload.tool_call_id or "", scope="session")
        await session.revoke("workspace.write", idempotency_key="k")
        await session.revoke("workspace.write", idempotency_key="k")
        with pytest.raises(NotFound):
            await session.revoke("workspace.write")
