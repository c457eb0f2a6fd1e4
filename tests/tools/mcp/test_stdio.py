"""`codesdk mcp`, started by the official client as a program: a bridge to a session, and tools on a directory."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from tests.tools.mcp.tool_calls import HeldCalls, RecordingCalls, said, spec, within

from codesdk.contract.entry import McpClient
from codesdk.tools.mcp.host import McpHost

COMMAND = ["-m", "codesdk.cli.main", "mcp"]
each_era = pytest.mark.parametrize("mode", ["legacy", "auto"])


def program(*options: str, **env: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[*COMMAND, *options], env=env)


@asynccontextmanager
async def bridged(calls: RecordingCalls, mode: str = "auto") -> AsyncIterator[tuple[Client, McpHost, str]]:
    async with McpHost(progress_s=0.01) as host:
        url = await host.admit("ses_1", calls, McpClient(call_id_key="theirs"))
        async with Client(program(CODESDK_MCP_URL=url), mode=mode) as client:
            yield client, host, url


@each_era
async def test_a_bridge_passes_tools_calls_and_ids_on(mode: str):
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    calls = RecordingCalls(reply={"n": 1}, offered=[spec("test.count", output_schema=output)])
    async with bridged(calls, mode) as (client, _, url):
        async with Client(url) as direct:
            assert (await client.list_tools()).tools == (await direct.list_tools()).tools
        result = await client.call_tool("test_count", {"path": "a"}, meta={"theirs": "toolu_1"})
        assert (said(result), result.structured_content) == (('{"n":1}', False), {"n": 1})
        calls.reply, calls.is_error = "Denied.", True
        assert said(await client.call_tool("test_count", {})) == ("Denied.", True)
    assert calls.asked == [
        ("ses_1", "test.count", {"path": "a"}, "toolu_1"),
        ("ses_1", "test.count", {}, None),
    ]


@each_era
async def test_cancelling_over_a_bridge_cancels_the_tool(mode: str):
    calls = HeldCalls()
    async with bridged(calls, mode) as (client, _, _):
        call = asyncio.create_task(client.call_tool("workspace_read", {}))
        await within(calls.entered.acquire())
        call.cancel()
        await within(calls.cancelled.acquire())
        assert len((await client.list_tools()).tools) == 2


async def test_a_runtime_that_ends_takes_the_bridge_and_its_calls_along():
    calls = HeldCalls()
    async with McpHost() as host:
        env = {"CODESDK_MCP_URL": await host.admit("s", calls), "PATH": os.environ["PATH"]}
        child = await asyncio.create_subprocess_exec(
            sys.executable, *COMMAND, env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdin is not None
        for message in (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
            b'"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}',
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"workspace_read","arguments":{}}}',
        ):
            child.stdin.write(message + b"\n")
        await within(calls.entered.acquire())
        child.stdin.close()
        await within(calls.cancelled.acquire())
        assert await within(child.wait()) == 0


async def test_a_bridge_outlives_the_process_of_its_session_and_says_so():
    async with bridged(RecordingCalls()) as (client, host, _):
        await host.close()
        for _ in range(2):
            text, is_error = said(await within(client.call_tool("workspace_read", {})))
            assert is_error
            assert text.startswith("The MCP server codesdk ")
        with pytest.raises(MCPError, match="does not answer"):
            await within(client.list_tools())


async def test_a_session_that_ends_under_a_bridge_is_an_error_that_says_so():
    async with bridged(RecordingCalls()) as (client, host, url):
        await host.dismiss(url)
        text, is_error = said(await client.call_tool("workspace_read", {}))
        assert is_error
        assert text.startswith(
            "The MCP server codesdk refused the call: There is no session behind this address"
        )
        with pytest.raises(MCPError, match="does not answer"):
            await client.list_tools()


async def test_a_directory_is_read_in_the_mode_auto_and_changes_are_refused_with_the_reason(tmp_path: Path):
    (tmp_path / "a.txt").write_text("hello\n")
    edit = {"path": "a.txt", "old": "hello", "new": "bye"}
    async with Client(program("--workspace", str(tmp_path))) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"workspace_read", "workspace_edit"} <= set(names)
        assert said(await client.call_tool("workspace_read", {"path": "a.txt"})) == ("     1\thello", False)
        text, is_error = said(await client.call_tool("workspace_edit", edit))
        assert is_error
        assert "Nobody can be asked here." in text
        text, is_error = said(await client.call_tool("workspace_read", {"pfad": "a.txt"}))
        assert is_error
        assert "is not valid" in text
    assert (tmp_path / "a.txt").read_text() == "hello\n"


async def test_a_directory_is_changed_in_the_mode_yolo(tmp_path: Path):
    (tmp_path / "a.txt").write_text("hello\n")
    edit = {"path": "a.txt", "old": "hello", "new": "bye"}
    async with Client(program("--workspace", str(tmp_path), "--permission-mode", "yolo")) as client:
        assert said(await client.call_tool("workspace_edit", edit)) == ("Edited a.txt at line 1.", False)
    assert (tmp_path / "a.txt").read_text() == "bye\n"


def run(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *COMMAND, *options], env=env, input="", capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        ([], "Say what to serve", 2),
        (["--mcp-url", "http://127.0.0.1:9/m/token-0123456789/mcp", "--workspace", "."], "Choose one", 2),
        (["--workspace", "no-such-directory"], "no-such-directory is not a directory", 2),
        (["--mcp-url", "http://127.0.0.1:9/m/token-0123456789/mcp"], "does not answer", 3),
    ],
)
def test_what_cannot_be_served_is_said_on_stderr_and_nothing_on_stdout(
    options: list[str], words: str, code: int
):
    done = run(*options)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "token-0123456789" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_is_served_until_stdin_ends_and_ctrl_c_ends_it_at_once(tmp_path: Path):
    assert run("--workspace", str(tmp_path)).returncode == 0
    child = subprocess.Popen(
        [sys.executable, *COMMAND, "--workspace", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    child.stdin.flush()
    assert b'"result"' in child.stdout.readline()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (-signal.SIGINT, b"", b"")
