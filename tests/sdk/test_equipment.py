"""What an application equips its sessions with: programs in a sandbox, web pages, tools of other MCP servers."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.mcp.tool_calls import RecordingCalls, spec

from codesdk import CodeSDK
from codesdk.contract.codec import decode
from codesdk.contract.events import RuntimeNotice, ToolCallCompleted
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.sandbox.backend import SandboxUnavailable
from codesdk.script import parse_object
from codesdk.tools.mcp.host import McpHost
from codesdk.tools.mcp_client.servers import HttpServer, StdioServer
from codesdk.tools.options import ExecOptions, FetchOptions

OUTSIDE = Path(__file__).parents[1] / "tools" / "mcp_client" / "outside.py"


def calling(tool: str, given: Any) -> ScriptedRuntime:
    steps = [{"call": {"tool": tool, "input": given}}]
    return ScriptedRuntime(
        parse_object(
            {"turns": [{"steps": steps}, {"steps": [{"text": "Done."}]}, {"steps": [{"text": "Fine."}]}]},
            "script",
        )
    )


async def completed(sdk: CodeSDK, session_id: str) -> ToolCallCompleted:
    """Return the end of the session's one call, after the log was checked."""
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session_id) == []
    assert (await replay_session(log, blobs, session_id))[1] == []
    events = [decode(frame.data) async for frame in sdk.archive.frames(session_id)]
    [found] = [e.payload for e in events if isinstance(e.payload, ToolCallCompleted)]
    return found


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A folder that the sandbox's user can get to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "a.txt").write_text("alpha\n")
        yield folder


async def test_a_program_runs_in_the_sandbox_and_its_output_is_in_the_log(workspace: Path):
    runtime = calling("workspace.exec", {"argv": ["cat", "a.txt"]})
    options = ExecOptions(allow=[["cat"]])
    async with CodeSDK.open(runtimes={"scripted": runtime}, run=options, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
        await (await session.start("Look")).result()
        done = await completed(sdk, session.id)
        assert (done.execution_env, done.exit_code, done.is_error) == ("codesdk_bubblewrap", 0, False)
        assert "alpha" in str(done.result_preview)
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        assert [e.payload.delta for e in events if e.type == "tool.output.delta"] == ["alpha\n"]


async def test_a_program_that_is_not_on_the_list_does_not_run(workspace: Path):
    runtime = calling("workspace.exec", {"argv": ["rm", "a.txt"]})
    options = ExecOptions(allow=[["cat"]])
    async with CodeSDK.open(runtimes={"scripted": runtime}, run=options, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
        await (await session.start("Look")).result()
        done = await completed(sdk, session.id)
        assert done.is_error
        assert (workspace / "a.txt").exists()


async def test_without_the_options_neither_tool_is_offered_and_with_them_both_are():
    async with CodeSDK.open() as sdk:
        names = {spec.name for spec in sdk.engine.ports.tools.specs()}
        assert not names & {"workspace.exec", "http.fetch"}
    async with CodeSDK.open(run=ExecOptions(allow=[["true"]]), fetch=FetchOptions()) as sdk:
        names = {spec.name for spec in sdk.engine.ports.tools.specs()}
        assert names >= {"workspace.exec", "http.fetch"}


async def test_a_missing_sandbox_is_an_error_and_never_the_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codesdk.sandbox.bubblewrap.sandbox.find_program", lambda: None)
    with pytest.raises(SandboxUnavailable, match="bubblewrap"):
        async with CodeSDK.open(run=ExecOptions(allow=[["true"]])):
            pass


async def test_the_tools_of_an_attached_server_are_called_under_the_same_policy_and_log(
    tmp_path: Path, workspace: Path
):
    servers = {"outside": StdioServer(command=sys.executable, args=(str(OUTSIDE),))}
    runtime = calling("mcp.outside.echo", {"text": "hello"})
    async with CodeSDK.open(tmp_path / "data", runtimes={"scripted": runtime}) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=workspace, mcp_servers=servers)
        task = await session.start("Call it")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.approve(event.payload.tool_call_id or "")
        done = await completed(sdk, session.id)
        assert (done.name, done.is_error) == ("mcp.outside.echo", False)
        assert "hello" in str(done.result_preview)
    async with CodeSDK.open(tmp_path / "data", runtimes={"scripted": runtime}) as sdk:
        again = await sdk.session(session.id)
        assert (await (await again.start("Again")).result()).state == "completed"
        live = await sdk.engine._registry.acquire(session.id)
        assert "mcp.outside.echo" in {spec.name for spec in live.scope.tools.specs()}


async def test_a_tool_whose_schema_cannot_be_used_is_left_out_with_a_notice_and_the_session_goes_on(
    workspace: Path,
):
    servers = {"outside": StdioServer(command=sys.executable, args=(str(OUTSIDE),))}
    async with CodeSDK.open(runtimes={"scripted": calling("workspace.list", {})}, allow_yolo=True) as sdk:
        session = await sdk.create_session(
            runtime="scripted", workspace=workspace, permission_mode="yolo", mcp_servers=servers
        )
        assert (await (await session.start("Look around")).result()).state == "completed"
        frames = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        (notice,) = [event.payload for event in frames if isinstance(event.payload, RuntimeNotice)]
        assert notice.kind == "warning"
        assert notice.message.startswith(
            "A tool of the MCP server outside is left out: the input schema of mcp.outside.fetches_its_schema"
        )
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []
        assert (await replay_session(log, blobs, session.id))[1] == []


async def test_a_call_of_a_server_at_an_address_is_replayed_as_one_that_ran(workspace: Path):
    calls = RecordingCalls(offered=[spec("notes.find")], reply="found")
    runtime = calling("mcp.notes.notes_find", {"path": "a"})
    async with McpHost() as host, CodeSDK.open(runtimes={"scripted": runtime}, allow_yolo=True) as sdk:
        servers = {"notes": HttpServer(url=await host.admit("theirs", calls))}
        session = await sdk.create_session(
            runtime="scripted", workspace=workspace, permission_mode="yolo", mcp_servers=servers
        )
        await (await session.start("Call it")).result()
        done = await completed(sdk, session.id)
        assert (done.execution_env, done.is_error, done.result_preview) == ("unknown", False, "found")


async def test_a_secret_in_the_name_of_a_servers_tool_is_not_in_the_log(workspace: Path):
    calls = RecordingCalls(offered=[spec("find_canary1234")])
    runtime = calling("mcp.notes.find_canary1234", {"path": "a"})
    async with McpHost() as host, CodeSDK.open(runtimes={"scripted": runtime}, allow_yolo=True) as sdk:
        servers = {"notes": HttpServer(url=await host.admit("theirs", calls))}
        session = await sdk.create_session(
            runtime="scripted",
            workspace=workspace,
            permission_mode="yolo",
            mcp_servers=servers,
            secrets=["canary1234"],
        )
        await (await session.start("Call it")).result()
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []
        assert (await replay_session(log, blobs, session.id))[1] == []
        frames = [frame.data async for frame in sdk.archive.frames(session.id)]
        assert [data for data in frames if b"canary1234" in data] == []
        assert any(b"tool.call.denied" in data for data in frames)
    assert calls.asked == []
