"""Programs by others judge the MCP host: the official conformance suite, the inspector, and the official client in node.

They come with `npm ci` (package.json), which `make setup` runs.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.tools.mcp.conformance import LEFT_OUT, baseline, registry
from tests.tools.mcp.tool_calls import RunnerCalls

from codesdk.tools.mcp.host import McpHost

PROGRAMS = Path(__file__).parents[3] / "node_modules" / ".bin"
SCENARIO = re.compile(r"^(✓|✗) ([a-z0-9-]+): \d+ passed, \d+ failed$", re.MULTILINE)
PATIENCE_S = 120


@asynccontextmanager
async def shown() -> AsyncIterator[str]:
    """Show the suite's tools to a judge."""
    async with McpHost(progress_s=0.05) as host:
        yield await host.admit("ses_judged", RunnerCalls(registry()))


async def judge(cwd: Path, program: str, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        PROGRAMS / program,
        *arguments,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def inspect(cwd: Path, url: str, *arguments: str) -> Any:
    code, out, err = await judge(cwd, "mcp-inspector", "--cli", url, "--transport", "http", *arguments)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
async def test_the_conformance_suite_passes_but_for_what_is_left_out_with_a_reason(tmp_path: Path):
    (tmp_path / "baseline.yml").write_text(baseline())
    options = ("--suite", "all", "--expected-failures", "baseline.yml")
    async with shown() as url:
        code, out, err = await judge(tmp_path, "conformance", "server", "--url", url, *options)
    assert code == 0, out + err
    # What passes although it is said to be left out is a mistake, too.
    verdicts = {name: mark == "✓" for mark, name in SCENARIO.findall(out)}
    _, listed, _ = await judge(tmp_path, "conformance", "list", "--server")
    known = re.findall(r"^  - ([a-z0-9-]+)$", listed, re.MULTILINE)
    assert verdicts == {name: name not in LEFT_OUT for name in known}
    assert set(LEFT_OUT) <= set(known)


async def test_the_inspector_lists_and_calls_and_reads_an_error(tmp_path: Path):
    async with shown() as url:
        listed, sum_, wrong, failed = await asyncio.gather(
            inspect(tmp_path, url, "--method", "tools/list"),
            inspect(
                tmp_path, url, "--method", "tools/call", "--tool-name", "test_add", "--tool-arg", "a=2", "b=3"
            ),
            inspect(tmp_path, url, "--method", "tools/call", "--tool-name", "test_add", "--tool-arg", "a=2"),
            inspect(tmp_path, url, "--method", "tools/call", "--tool-name", "test_error_handling"),
        )
    assert [tool["name"] for tool in listed["tools"]] == [
        "test_simple_text",
        "test_error_handling",
        "test_tool_with_progress",
        "test_add",
        "json_schema_2020_12_tool",
    ]
    assert sum_ == {"content": [{"type": "text", "text": "5"}], "isError": False}
    assert wrong["isError"]
    assert wrong["content"][0]["text"].startswith(
        "The input of test.add is not valid. The required field b is missing."
    )
    text = "This tool intentionally returns an error for testing"
    assert failed == {"content": [{"type": "text", "text": text}], "isError": True}


async def test_the_inspector_is_refused_with_a_wrong_token(tmp_path: Path):
    async with shown() as url:
        wrong = re.sub(r"/m/[^/]+/", "/m/wrong/", url)
        code, out, err = await judge(
            tmp_path, "mcp-inspector", "--cli", wrong, "--transport", "http", "--method", "tools/list"
        )
    assert (code, out) == (1, "")
    assert "no session behind this address" in err
