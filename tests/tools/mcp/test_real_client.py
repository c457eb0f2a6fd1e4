"""The real claude as a client of the MCP host, with a scripted model: over HTTP, and over stdio through `codesdk mcp`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from tests.tools.mcp.tool_calls import HeldCalls, RecordingCalls, within

from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.runtimes.claude import ENTRY
from codesdk.script import parse_object
from codesdk.tools.mcp.host import McpHost, bearer

CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
READ = {"call": {"tool": "workspace.read", "input": {"path": "a.txt"}}}
SCRIPT = {"turns": [{"steps": [READ]}, {"steps": [{"text": "All read."}]}]}
OFF = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
)


def over_http(host: McpHost, url: str) -> dict[str, Any]:
    """The token comes as a header from the environment, so that no command line shows it."""
    headers = {"Authorization": "Bearer ${CODESDK_MCP_TOKEN}"}
    return {"type": "http", "url": f"{host.url}/mcp", "headers": headers}


def over_stdio(host: McpHost, url: str) -> dict[str, Any]:
    command = ["-m", "codesdk.cli.main", "mcp"]
    return {"type": "stdio", "command": sys.executable, "args": command, "env": {"CODESDK_MCP_URL": url}}


async def start(home: Path, base_url: str, server: dict[str, Any], token: str) -> asyncio.subprocess.Process:
    argv = [str(CLAUDE), "-p", "Read it", "--output-format", "stream-json", "--verbose", "--tools", ""]
    argv += ["--mcp-config", json.dumps({"mcpServers": {"codesdk": server}}), "--strict-mcp-config"]
    argv += [
        "--setting-sources=",
        "--allowedTools",
        "mcp__codesdk__workspace_read",
        "--model",
        "claude-sonnet-4-5",
    ]
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(home / "config")}
    env |= {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "x", "CODESDK_MCP_TOKEN": token}
    env |= dict.fromkeys(OFF, "1") | {"ENABLE_TOOL_SEARCH": "false"}
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *argv, cwd=home, env=env, stdin=nothing, stdout=pipe, stderr=nothing, limit=1 << 24
    )


@pytest.mark.parametrize("way", [over_http, over_stdio])
async def test_it_lists_calls_reads_the_result_and_says_which_call_it_is(way: Any, tmp_path: Path):
    calls, model = RecordingCalls(reply="the text of a.txt"), ScriptedModel(parse_object(SCRIPT, "script"))
    async with McpHost() as host, Gateway() as gateway:
        url = await host.admit("ses_1", calls, ENTRY.mcp)
        claude = await start(tmp_path, gateway.admit(model), way(host, url), bearer(url))
        out, _ = await within(claude.communicate())
    frames = [json.loads(line) for line in out.splitlines()]
    (init,) = [frame for frame in frames if frame.get("subtype") == "init"]
    assert init["tools"] == ["mcp__codesdk__workspace_edit", "mcp__codesdk__workspace_read"]
    said = [frame["message"]["content"][0] for frame in frames if frame["type"] in ("assistant", "user")]
    call, result, _ = said
    assert result["content"] == [{"type": "text", "text": "the text of a.txt"}]
    assert calls.asked == [("ses_1", "workspace.read", {"path": "a.txt"}, call["id"])]
    assert (frames[-1]["result"], model.problems, host.refused) == ("All read.", [], 0)


async def test_a_killed_one_ends_its_call(tmp_path: Path):
    calls, model = HeldCalls(), ScriptedModel(parse_object(SCRIPT, "script"))
    async with McpHost() as host, Gateway() as gateway:
        url = await host.admit("ses_1", calls)
        claude = await start(tmp_path, gateway.admit(model), over_http(host, url), bearer(url))
        await within(calls.entered.acquire())
        claude.kill()
        await within(calls.cancelled.acquire())
        await claude.communicate()
