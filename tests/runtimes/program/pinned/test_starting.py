"""Every pinned program starts as it was found, in a network with only loopback, and says the version that is pinned.

This shows that what the locks bring is complete and runs without its packages' scripts; what the programs do is shown
by their runtimes' own tests.
"""

import asyncio
import base64
import json
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.workspace import Workspace
from codesdk.processes import SEARCH_PATH, Child, start_child
from codesdk.runtimes.program.finding import Program, find_program
from codesdk.runtimes.program.pinned import OPENCODE, PROGRAMS
from codesdk.testing.network import alone, tried_outside

_ANSWER_S = 120.0
PASSWORD = "of-this-test"
QUIET = {
    "GEMINI_CLI_NO_RELAUNCH": "true",
    "GEMINI_API_KEY": "none",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "ANTHROPIC_API_KEY": "none",
    "OPENAI_API_KEY": "none",
    "MISTRAL_API_KEY": "none",
    "OPENCODE_SERVER_PASSWORD": PASSWORD,
    "KILO_SERVER_PASSWORD": PASSWORD,
    **{
        f"{name}_{switch}": "1"
        for name in ("OPENCODE", "KILO")
        for switch in ("DISABLE_AUTOUPDATE", "DISABLE_MODELS_FETCH", "DISABLE_DEFAULT_PLUGINS", "PURE")
    },
}
ACP = {
    "gemini": ("--acp",),
    "opencode": ("acp",),
    "claude-agent-acp": (),
    "codex-acp": (),
    "qwen-code": ("--acp",),
    "kilo": ("acp",),
    "mistral-vibe": (),
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield


async def found(name: str) -> Program:
    return await find_program(RuntimeEntry(name=name, adapter="some.where:Else", program=PROGRAMS[name]))


@asynccontextmanager
async def started(program: Program, arguments: tuple[str, ...], home: Path) -> AsyncGenerator[Child]:
    folders = {"HOME": home, "TMPDIR": home / "tmp", "XDG_CONFIG_HOME": home / "config"}
    folders |= {f"XDG_{kind}_HOME": home / kind.lower() for kind in ("DATA", "CACHE", "STATE")}
    for folder in (*folders.values(), home / "work"):
        folder.mkdir(exist_ok=True)
    env = {"PATH": SEARCH_PATH, **QUIET, **{name: str(path) for name, path in folders.items()}}
    child = await start_child([*program.argv, *arguments], cwd=Workspace(str(home / "work")), env=env)
    try:
        async with asyncio.timeout(_ANSWER_S):
            yield child
    finally:
        await child.stop()
        await child.stdout.read()


async def answer(child: Child) -> dict[str, Any]:
    while line := await child.stdout.readline():
        if line.startswith(b"{") and (said := json.loads(line)).get("id") == 1:
            return said
    raise AssertionError(f"It ended without an answer: {child.stderr_tail()}")


def test_there_is_a_program_for_each_row():
    assert ACP.keys() == PROGRAMS.keys()


@pytest.mark.parametrize("name", ACP)
async def test_an_agent_speaks_acp_in_the_pinned_version(name: str, tmp_path: Path):
    async with started(await found(name), ACP[name], tmp_path) as child:
        child.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        said = await answer(child)
    assert said["result"]["protocolVersion"] == 1
    assert said["result"]["agentInfo"]["version"] == PROGRAMS[name].version


def health(url: str) -> dict[str, Any]:
    user = base64.b64encode(f"opencode:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(f"{url}/global/health", headers={"authorization": f"Basic {user}"})
    with urllib.request.urlopen(request, timeout=_ANSWER_S) as said:
        return json.load(said)


async def test_the_server_of_opencode_is_well_and_of_the_pinned_version(tmp_path: Path):
    arguments = ("serve", "--hostname", "127.0.0.1", "--port", "0")
    async with started(await found("opencode"), arguments, tmp_path) as child:
        while line := await child.stdout.readline():
            if b"listening on " in line:
                break
        url = line.decode().partition("listening on ")[2].strip()
        # In this thread: another one would be in the network of everybody else.
        said = health(url)
    assert said == {"healthy": True, "version": OPENCODE.version}
    assert tried_outside() == 0
