"""workspace.exec in real sandboxes: what a model reads, what streams meanwhile, what is refused."""

import asyncio
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sandbox.stage import open_directory
from tests.tools.calling import ready, where

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import ToolInvocation, ToolRun
from codesdk.contract.tools import OutputStream, SandboxSummary, Subjects, ToolAnnotations
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import (
    Command,
    CommandEnd,
    Output,
    SandboxCapabilities,
    SandboxLimits,
    SandboxUnavailable,
)
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from codesdk.sandbox.host import HostSandbox
from codesdk.sandbox.owner import SANDBOX_USER
from codesdk.tools import ToolRegistry
from codesdk.tools.exec import exec_tool

ANYTHING: list[list[str]] = [[]]
PYTHON = ["/usr/bin/python3", "-I", "-c"]


@pytest.fixture
def workspace() -> Generator[Path]:
    with open_directory() as root:
        path = root / "workspace"
        path.mkdir()
        if os.geteuid() == 0:
            os.chown(path, *SANDBOX_USER)
        yield path


def call(workspace: Path, argv: list[str], **more: Any) -> ToolInvocation:
    return ToolInvocation(
        session_id="ses_1",
        task_id="task_1",
        tool_call_id="call_1",
        attempt=1,
        name="workspace.exec",
        input={"argv": argv, **more},
        workspace=Workspace(str(workspace)),
    )


async def registry(**options: Any) -> ToolRegistry:
    options = {"sandbox": BubblewrapSandbox(), "allow": ANYTHING} | options
    return ToolRegistry([await exec_tool(options.pop("sandbox"), **options)])


async def execute(
    workspace: Path, argv: list[str], *, tools: ToolRegistry | None = None, **more: Any
) -> ToolRun:
    tools = tools or await registry()
    ran = await tools.run(call(workspace, argv, **more), lambda *_: None)
    return msgspec.structs.replace(ran, result=re.sub(r"after [\d.]+ s", "after T s", ran.result))


async def test_a_model_reads_how_it_ended_and_what_it_said(workspace):
    text = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    assert await execute(workspace, [*PYTHON, text]) == ToolRun(
        result="Exit code 3 after T s.\n--- stdout ---\none\n--- stderr ---\ntwo", is_error=True, exit_code=3
    )
    assert await execute(workspace, ["true"]) == ToolRun(result="Exit code 0 after T s.", exit_code=0)


class Chopped(HostSandbox):
    """A sandbox whose output comes in awkward pieces."""

    async def run(self, command: Command, output: Output) -> CommandEnd:
        for part in (b"caf\xc3", b"\xa9 ", b"\xff ", b"\xe2\x82"):
            output("stdout", part)
        output("stderr", b"\xe2")
        return CommandEnd(exit_code=0, duration_ms=0)


async def test_output_streams_as_text_and_no_character_is_cut(workspace):
    seen: list[tuple[str, str]] = []
    tools = await registry(sandbox=Chopped())
    ran = await tools.run(call(workspace, ["x"]), lambda stream, delta: seen.append((stream, delta)))
    assert seen == [
        ("stdout", "caf"),
        ("stdout", "é "),
        ("stdout", "\ufffd "),
        ("stdout", "\ufffd"),
        ("stderr", "\ufffd"),
    ]
    assert (
        ran.result == "Exit code 0 after 0.0 s.\n--- stdout ---\ncafé \ufffd \ufffd\n--- stderr ---\n\ufffd"
    )


async def test_output_is_there_before_the_command_ends(workspace):
    first = asyncio.Event()
    text = "import signal; print('now', flush=True); signal.pause()"
    running = asyncio.ensure_future(
        (await registry()).run(call(workspace, [*PYTHON, text]), lambda *_: first.set())
    )
    await asyncio.wait_for(first.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_of_long_output_the_beginning_and_the_end_are_shown(workspace):
    ran = await execute(workspace, [*PYTHON, "print('a' * 10_000 + 'b' * 10_000, end='')"])
    head, tail = "a" * 4_000, "a" * 2_000 + "b" * 10_000
    gap = "\n… (4000 characters left out) …\n"
    assert ran.result == f"Exit code 0 after T s.\n--- stdout ---\n{head}{gap}{tail}"


async def test_it_runs_in_a_directory_of_the_workspace(workspace):
    (workspace / "sub").mkdir()
    assert (await execute(workspace, ["pwd"], cwd="sub")).result.endswith("/workspace/sub")
    for cwd in ("..", "/etc"):
        assert await execute(workspace, ["pwd"], cwd=cwd) == ToolRun(
            result="The working directory must be inside the workspace, given relative to it.", is_error=True
        )
    missing = await execute(workspace, ["pwd"], cwd="nowhere")
    assert missing == ToolRun(result='There is no directory "nowhere" in the workspace.', is_error=True)


async def test_the_model_may_have_less_time_but_not_more(workspace):
    stopped = ToolRun(
        result="Exit code 137 after T s. It was stopped because its time was up.",
        is_error=True,
        exit_code=137,
    )
    assert await execute(workspace, ["sleep", "1000"], timeout_s=1) == stopped
    short = await registry(limits=SandboxLimits(wall_s=0.5))
    assert await execute(workspace, ["sleep", "1000"], timeout_s=3600, tools=short) == stopped


async def test_limits_that_were_met_are_said(workspace):
    tools = await registry(limits=SandboxLimits(wall_s=60, output_bytes=1_000))
    ran = await execute(workspace, ["yes"], tools=tools)
    assert ran.result.startswith("Exit code 137 after T s. It was stopped because it wrote too much.\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups are made by root")
async def test_memory_that_ran_out_is_said(workspace):
    tools = await registry(
        limits=SandboxLimits(wall_s=60, memory_bytes=64 << 20), required=frozenset({"memory"})
    )
    ran = await execute(
        workspace, [*PYTHON, "held = []\nwhile True: held.append(bytearray(8 << 20))"], tools=tools
    )
    assert ran == ToolRun(
        result="Exit code 137 after T s. It reached the memory limit. Processes killed because memory ran out: 1.",
        is_error=True,
        exit_code=137,
    )


@pytest.mark.parametrize(
    ("argv", "allowed"),
    [
        (["git", "status"], True),
        (["git", "status", "--short"], True),
        (["git"], False),
        (["git", "push"], False),
        (["git", "-C", "/", "status"], False),
        (["./git", "status"], False),
        (["/usr/bin/git", "status"], False),
        (["git status"], False),
        (["true"], True),
        (["truest"], False),
    ],
)
async def test_only_commands_that_begin_as_allowed_are_run(workspace, argv, allowed):
    tools = await registry(allow=[["git", "status"], ["true"]])
    ran = await execute(workspace, argv, tools=tools)
    refused = "This command is not allowed here. Allowed are commands that begin with: git status, true."
    assert (ran.result != refused, ran.exit_code is not None) == (allowed, allowed)


async def test_with_nothing_allowed_nothing_runs(workspace):
    ran = await execute(workspace, ["true"], tools=await registry(allow=[]))
    assert ran.result.endswith("Allowed are commands that begin with: nothing.")


async def test_an_allowed_command_is_a_list():
    with pytest.raises(InvalidRequest, match="as a list"):
        await exec_tool(HostSandbox(), allow=["git status"])


async def test_there_is_no_shell(workspace):
    ran = await execute(workspace, ["echo", "$HOME; ls | cat", "*"])
    assert ran.result == "Exit code 0 after T s.\n--- stdout ---\n$HOME; ls | cat *"


async def test_a_workspace_can_be_read_only(workspace):
    ran = await execute(workspace, ["touch", "file"], tools=await registry(writable=False))
    assert (ran.exit_code, list(workspace.iterdir())) == (1, [])


async def test_it_is_dangerous_and_says_where_it_runs():
    tools = await registry(limits=SandboxLimits(wall_s=5))
    (spec,) = tools.specs()
    assert (spec.name, spec.tool_class, spec.safe_replay) == ("workspace.exec", "dangerous", False)
    assert spec.annotations == ToolAnnotations(title="Run a command", destructive=True)
    assert where(tools, "workspace.exec", {"argv": ["ls"]}) == (
        "codesdk_bubblewrap",
        SandboxSummary(network=False, timeout_ms=5_000, mounts=["workspace"]),
    )
    host = await registry(sandbox=HostSandbox())
    assert where(host, "workspace.exec", {"argv": ["ls"]}) == (
        "codesdk_host",
        SandboxSummary(network=True, timeout_ms=120_000),
    )
    online = await registry(hosts=["example.com"])
    assert where(online, "workspace.exec", {"argv": ["ls"]})[1].network


async def test_policy_is_told_the_command():
    tools = await registry()
    pushing = ready(tools, "workspace.exec", {"argv": ["git", "push"]})
    assert pushing.subjects == Subjects(argv=["git", "push"])


class Poor(HostSandbox):
    """A sandbox that is not there."""

    async def capabilities(self) -> SandboxCapabilities:
        return SandboxCapabilities(
            backend="oci", available=False, execution_env="codesdk_docker", notes=["Start an engine."]
        )


@pytest.mark.parametrize(
    ("sandbox", "options", "words"),
    [
        (Poor(), {}, "Start an engine."),
        (HostSandbox(), {"required": frozenset({"memory"})}, "The host sandbox cannot limit memory here."),
        (HostSandbox(), {"hosts": ["example.com"]}, "The host sandbox cannot allow single hosts."),
    ],
)
async def test_there_is_no_tool_without_the_sandbox_for_it(sandbox, options, words):
    with pytest.raises(SandboxUnavailable) as refused:
        await exec_tool(sandbox, allow=ANYTHING, **options)
    assert refused.value.message == words


@pytest.mark.parametrize(
    "wrong", [{"argv": []}, {"argv": "ls"}, {"argv": ["ls"], "timeout_s": 0}, {"argv": ["ls"], "shell": True}]
)
async def test_an_input_that_makes_no_sense_is_explained(wrong):
    assert "The input of workspace.exec is not valid." in (
        (await registry()).check("workspace.exec", wrong) or ""
    )


MAKE = {
    "mkdir -p .git/hooks; echo x >.git/hooks/post-checkout; echo x >.git/config": ".git, .git/config, .git/hooks/",
    "echo gitdir: elsewhere >.git": ".git",
    "echo x >.envrc; mkdir .vscode; echo x >.vscode/tasks.json": ".envrc, .vscode/tasks.json",
    "mkdir .elsewhere; echo x >.elsewhere/tasks.json; ln -s .elsewhere .vscode": ".vscode/tasks.json",
    "echo y >known/settings.json; touch -r known/before known/settings.json; mv known .claude": ".claude/",
}


@pytest.mark.parametrize("script", MAKE)
@pytest.mark.parametrize("sandbox", [BubblewrapSandbox, HostSandbox])
async def test_what_programs_outside_would_run_is_told_when_a_command_makes_it(workspace, script, sandbox):
    """In a workspace without a repository, nothing can keep a command from making one with hooks."""
    said: list[tuple[str, str]] = []
    tools = await registry(sandbox=sandbox())
    prepare = "mkdir known; echo x >known/before; echo x >known/settings.json"
    assert "Warning" not in (await execute(workspace, ["sh", "-c", prepare], tools=tools)).result
    ran = await tools.run(call(workspace, ["sh", "-c", script]), lambda *output: said.append(output))
    assert f"sandbox run or obey: {MAKE[script]}. Look at it before" in ran.result
    assert [(stream, MAKE[script] in text) for stream, text in said] == [("progress", True)]
    again = await execute(workspace, ["sh", "-c", "cat .git/config .envrc; touch ordinary"], tools=tools)
    assert "Warning" not in again.result


async def test_a_change_is_seen_though_its_time_and_size_are_as_before(workspace):
    tools = await registry()
    await execute(workspace, ["sh", "-c", "echo x >.envrc; echo x >before"], tools=tools)
    change = "echo y >.envrc; touch -r before .envrc"
    assert "obey: .envrc." in (await execute(workspace, ["sh", "-c", change], tools=tools)).result


async def test_a_command_that_is_stopped_is_told_of_too(workspace):
    said: list[tuple[str, str]] = []
    tools = await registry()
    script = "echo x >.envrc; echo made; sleep 1000"
    made = asyncio.Event()

    def take(stream: OutputStream, text: str) -> None:
        said.append((stream, text))
        if text == "made\n":
            made.set()

    running = asyncio.ensure_future(tools.run(call(workspace, ["sh", "-c", script]), take))
    await made.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [stream for stream, text in said if ".envrc" in text] == ["progress"]
