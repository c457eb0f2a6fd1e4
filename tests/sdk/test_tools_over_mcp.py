"""A session whose runtime is a real MCP client: its calls are judged, asked about, run and recorded like all others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from tests.tools.mcp.tool_calls import said, within

from codesdk import CodeSDK, Session, SessionSettings, Task
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.testing.fakes import FAKE_CAPABILITIES, FakeRuntime, FakeTask, call, done, message

pytestmark = pytest.mark.slow

EDIT = {"path": "a.txt", "old": "hello", "new": "bye"}
OVER_MCP = msgspec.structs.replace(FAKE_CAPABILITIES, tool_execution_model="external_mcp")


class Rig:
    """A running task of a runtime that the test is, and a client at the address that the task was given."""

    def __init__(self, sdk: CodeSDK, session: Session, task: Task, runtime: FakeTask, client: Client) -> None:
        self.sdk, self.session, self.task, self.runtime, self.client = sdk, session, task, runtime, client

    def start_call(self, name: str, arguments: Any, call_id: str = "toolu_1") -> asyncio.Task[Any]:
        meta: Any = {"codesdk/toolCallId": call_id}
        return asyncio.create_task(self.client.call_tool(name, arguments, meta=meta))

    async def seen(self, kind: str) -> Any:
        async for event in self.session.events():
            if event.type == kind:
                return event
        raise AssertionError(kind)

    async def end(self) -> list[Any]:
        """Let the task end, check the log, and return what it says of calls and approvals."""
        self.runtime.emit(message("Done."), done())
        await within(self.task.result())
        return await self.log()

    async def log(self) -> list[Event]:
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        assert await verify_session(log, blobs, self.session.id) == []
        assert (await replay_session(log, blobs, self.session.id))[1] == []
        events = [decode(frame.data) async for frame in self.sdk.archive.frames(self.session.id)]
        return [event for event in events if event.type.startswith(("tool.", "approval."))]


@asynccontextmanager
async def rig(workspace: Path, mode: Any = "ask", **options: Any) -> AsyncIterator[Rig]:
    (workspace / "a.txt").write_text("hello\n")
    runtime = FakeRuntime(capabilities=OVER_MCP)
    async with CodeSDK.open(runtimes={"fake": runtime}, allow_yolo=True) as sdk:
        session = await sdk.create_session(
            runtime="fake", workspace=workspace, permission_mode=mode, **options
        )
        task = await session.start("Go")
        running = await runtime.started()
        async with Client(await running.host.tool_endpoint(), mode="legacy") as client:
            yield Rig(sdk, session, task, running, client)


def kinds(events: list[Event]) -> list[str]:
    return [event.type for event in events]


async def test_a_call_is_asked_about_approved_run_and_recorded_under_the_id_of_the_model(tmp_path: Path):
    async with rig(tmp_path) as r:
        assert "workspace_edit" in [tool.name for tool in (await r.client.list_tools()).tools]
        r.runtime.emit(call("workspace.edit", EDIT, "toolu_1"))
        running = r.start_call("workspace_edit", EDIT)
        asked = (await r.seen("approval.requested")).payload
        assert (tmp_path / "a.txt").read_text() == "hello\n"
        await r.task.approve(asked.tool_call_id)
        assert said(await within(running)) == ("Edited a.txt at line 1.", False)
        events = await r.end()
    assert (tmp_path / "a.txt").read_text() == "bye\n"
    calls = [event for event in events if event.type.startswith("tool.call.")]
    assert kinds(calls) == [
        "tool.call.requested",
        "tool.call.policy_evaluated",
        "tool.call.policy_evaluated",
        "tool.call.approved",
        "tool.call.started",
        "tool.call.completed",
    ]
    assert {event.payload.runtime_tool_call_id for event in calls} == {"toolu_1"}
    assert {event.payload.tool_call_id for event in calls} == {asked.tool_call_id}
    assert [change.path for change in calls[-1].payload.changes] == ["a.txt"]


async def test_a_denial_is_what_the_model_reads(tmp_path: Path):
    async with rig(tmp_path) as r:
        running = r.start_call("workspace_edit", EDIT)
        asked = (await r.seen("approval.requested")).payload
        await r.task.deny(asked.tool_call_id, "Not this file.")
        text, is_error = said(await within(running))
        assert is_error
        assert "Not this file." in text
        events = await r.end()
    assert kinds(events)[-1] == "tool.call.denied"
    assert (tmp_path / "a.txt").read_text() == "hello\n"


async def test_reading_runs_at_once_in_the_mode_auto_and_a_bad_input_is_an_error(tmp_path: Path):
    async with rig(tmp_path, "auto") as r:
        good, bad, unknown = await within(
            asyncio.gather(
                r.start_call("workspace_read", {"path": "a.txt"}, "t1"),
                r.start_call("workspace_read", {"file": "a.txt"}, "t2"),
                r.start_call("workspace_remove", {"path": "a.txt"}, "t3"),
            )
        )
        assert said(good) == ("     1\thello", False)
        assert said(bad)[1]
        assert "is not valid" in said(bad)[0]
        assert said(unknown)[1]
        assert "There is no tool workspace_remove." in said(unknown)[0]
        events = await r.end()
    ends = {e.payload.runtime_tool_call_id: e.type for e in events if e.type.startswith("tool.call.")}
    assert set(ends) == {"t1", "t2", "t3"}
    assert ends["t1"] == "tool.call.completed"


async def test_the_same_call_again_gets_the_same_answer_and_runs_once(tmp_path: Path):
    async with rig(tmp_path, "yolo") as r:
        first = said(await within(r.start_call("workspace_edit", EDIT)))
        assert said(await within(r.start_call("workspace_edit", EDIT))) == first
        events = await r.end()
    assert kinds(events).count("tool.call.started") == 1


async def test_a_client_that_cancels_gives_its_question_up(tmp_path: Path):
    async with rig(tmp_path) as r:
        running = r.start_call("workspace_edit", EDIT)
        await r.seen("approval.requested")
        running.cancel()
        await within(r.seen("tool.call.denied"))
        await r.end()
    assert (tmp_path / "a.txt").read_text() == "hello\n"


async def test_a_client_that_disappears_gives_its_question_up(tmp_path: Path):
    async with rig(tmp_path) as r:
        other = Client(await r.runtime.host.tool_endpoint(), mode="legacy")
        async with other:
            left = asyncio.create_task(other.call_tool("workspace_edit", EDIT))
            await r.seen("approval.requested")
        with pytest.raises(MCPError, match="Connection closed"):
            await left
        await within(r.seen("tool.call.denied"))
        await r.end()


async def test_stopping_the_task_ends_a_waiting_call_with_an_answer(tmp_path: Path):
    async with rig(tmp_path, settings=SessionSettings(stop_grace_s=0.1)) as r:
        running = r.start_call("workspace_edit", EDIT)
        await r.seen("approval.requested")
        await r.task.stop()
        text, is_error = said(await within(running))
        assert is_error
        assert text
        await within(r.seen("task.stopped"))
        after = said(await within(r.start_call("workspace_read", {"path": "a.txt"}, "t9")))
        assert after[1]
        assert "no running task" in after[0]
        await r.log()


async def test_nobody_to_ask_is_a_denial_at_once(tmp_path: Path):
    async with rig(tmp_path, interaction_mode="non_interactive") as r:
        text, is_error = said(await within(r.start_call("workspace_edit", EDIT)))
        assert is_error
        assert text
        assert kinds(await r.end())[-1] == "tool.call.denied"


async def test_the_address_is_a_secret_of_the_session_and_gone_with_it(tmp_path: Path):
    async with rig(tmp_path, "yolo") as r:
        url = await r.runtime.host.tool_endpoint()
        token = url.split("/")[-2]
        await within(r.start_call("workspace_read", {"path": token}))
        r.runtime.emit(message(f"The address is {url}."), done())
        await within(r.task.result())
        frames = [frame.data async for frame in r.sdk.archive.frames(r.session.id)]
        assert not [frame for frame in frames if token.encode() in frame]
        await r.session.close()
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json={})).status_code == 401


async def test_a_runtime_is_told_when_its_program_has_read_the_list_of_tools(tmp_path: Path):
    async with rig(tmp_path) as r:
        host = r.runtime.host
        before = await host.tools_read()
        waiting = [asyncio.create_task(host.tools_read(before)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(waiter.done() for waiter in waiting)
        await r.client.list_tools()
        assert await within(asyncio.gather(*waiting)) == [before + 1, before + 1]
        assert await within(host.tools_read(before)) == before + 1  # it may be asked after the fact
        again = asyncio.create_task(host.tools_read(before + 1))
        await r.client.list_tools()
        assert await within(again) == before + 2
        await r.end()
