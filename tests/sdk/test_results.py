"""What a task's result says, in the library, over HTTP and through the control socket alike."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import Daemon, daemon

from codesdk import CodeSDK, InvalidRequest, Session, SessionSettings, TaskFailure
from codesdk.client import CodeSDKClient, SyncClient
from codesdk.contract.actions import Caller, CreateSession
from codesdk.contract.errors import CodeSDKError
from codesdk.gateway.scripted import ScriptedModel
from codesdk.handles import Handles
from codesdk.local.directory import DataDir
from codesdk.local.holder import HolderService
from codesdk.script import parse_object

pytestmark = pytest.mark.anyio

USAGE = {"input": 10, "output": 2, "cost_usd": 0.25}


def call(tool: str, **given: Any) -> Any:
    return {"call": {"tool": f"workspace.{tool}", "input": given}}


WORK = {
    "turns": [
        {"steps": [call("list"), call("write", path="a.txt", content="x")], "usage": USAGE},
        {"steps": [call("write", path="a.txt", content="xy"), call("write", path="b.txt", content="z")]},
        {"steps": [{"text": "Done."}], "usage": USAGE},
    ]
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("daemon") / "data") as started:
        yield started


async def sessions(place: str, stack: AsyncExitStack, running: Daemon, tmp_path: Path) -> Handles:
    if place == "http":
        return await stack.enter_async_context(CodeSDKClient.connect(running.url))
    sdk = await stack.enter_async_context(CodeSDK.open(tmp_path / "data"))
    if place == "library":
        return sdk
    directory = await DataDir.open_reader(tmp_path / "data")
    stack.push_async_callback(directory.close)
    return Handles(HolderService(directory, Caller()))


async def work(handles: Handles, tmp_path: Path, script: Any) -> Session:
    return await handles.create_session(
        runtime="scripted",
        workspace=tmp_path,
        permission_mode="auto",
        settings=SessionSettings(runtime_config={"script": script}),
    )


@pytest.mark.parametrize("place", ["library", "http", "socket"])
async def test_a_result_has_calls_denials_changes_and_cost(running: Daemon, tmp_path: Path, place: str):
    async with AsyncExitStack() as stack:
        session = await work(await sessions(place, stack, running, tmp_path), tmp_path, WORK)
        task = await session.start("Go.")
        answers = iter((True, True, False))
        async for event in task.events():
            if event.type == "approval.requested":
                call_id = event.payload.tool_call_id or ""
                await (task.approve(call_id) if next(answers) else task.deny(call_id, "Once is enough."))
        for result in (await task.result(), await session.task(task.id).result()):
            assert (result.calls, result.denied, result.changed) == (4, 1, 1)
            assert [(denial.name, denial.reason) for denial in result.denials] == [
                ("workspace.write", "Once is enough.")
            ]
            [change] = result.changes
            assert (change.path, change.undo is not None) == ("a.txt", True)
            assert result.cost_usd == 0.5


@pytest.mark.parametrize(
    "code", ["INVALID_REQUEST", "NOT_FOUND", "STORAGE_FAILED", "OVERLOADED", "MODEL_ERROR"]
)
@pytest.mark.parametrize("place", ["library", "http", "socket"])
async def test_every_failed_task_raises_task_failure_with_its_code(
    running: Daemon, tmp_path: Path, place: str, code: str
):
    steps = [{"fail": {"code": code, "message": "No."}}]
    async with AsyncExitStack() as stack:
        session = await work(
            await sessions(place, stack, running, tmp_path), tmp_path, {"turns": [{"steps": steps}]}
        )
        with pytest.raises(CodeSDKError) as failed:
            await (await session.start("Go.")).result()
        assert (type(failed.value), failed.value.code, failed.value.message) == (TaskFailure, code, "No.")


def test_without_asyncio_it_is_the_same(running: Daemon, tmp_path: Path):
    with SyncClient.connect(running.url) as client:
        session = client.create_session(
            runtime="scripted",
            workspace=tmp_path,
            interaction_mode="non_interactive",
            settings=SessionSettings(runtime_config={"script": WORK}),
        )
        result = session.start("Go.").result()
        assert (result.calls, result.denied, result.changes, result.cost_usd) == (4, 4, [], 0.5)


async def test_more_denials_than_are_listed_are_counted(tmp_path: Path):
    steps = [call("write", path=f"{n}.txt", content="x") for n in range(105)]
    script = {"turns": [{"steps": steps}, {"steps": [{"text": "Well."}]}]}
    async with CodeSDK.open() as sdk:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=tmp_path,
            interaction_mode="non_interactive",
            settings=SessionSettings(runtime_config={"script": script}),
        )
        result = await (await session.start("Go.")).result()
        assert (result.calls, result.denied, len(result.denials)) == (105, 105, 100)


async def test_what_is_played_cannot_be_recorded(tmp_path: Path):
    script = parse_object({"turns": [{"steps": []}]}, "script")
    record = SessionSettings(gateway="record")
    async with CodeSDK.open() as sdk:
        for plays in (script, ScriptedModel(script)):
            with pytest.raises(InvalidRequest, match="record"):
                await sdk.create_session(runtime="codex", workspace=tmp_path, plays=plays, settings=record)
        action = CreateSession(
            runtime="codex", workspace=str(tmp_path), script={"turns": [{"steps": []}]}, settings=record
        )
        with pytest.raises(InvalidRequest, match="record"):
            await sdk.service.execute(action)
        assert await sdk.sessions() == []
