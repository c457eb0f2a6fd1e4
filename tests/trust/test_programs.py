"""A workspace that brings programs of its own, and a search path that leads into it: none of them is ever run."""

import os
from pathlib import Path

import pytest
from tests.runtimes.program.test_finding import ENTRY, program

from codesdk import CodeSDK
from codesdk.contract.errors import TaskFailure
from codesdk.contract.workspace import Workspace
from codesdk.processes import child
from codesdk.runtimes.program.finding import Program, find_program
from codesdk.sandbox.bubblewrap import sandbox

SYSTEM = os.environ["PATH"]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a program for every name that CodeSDK starts; each leaves a mark and says what is wanted."""
    folder = tmp_path / "workspace" / "node_modules" / ".bin"
    folder.mkdir(parents=True)
    for name in ("claude", "codex", "bwrap", "setpriv", "git", "node", "uv", "someprogram", "prlimit", "env"):
        path = folder / name
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\necho 1.2.3\n")
        path.chmod(0o755)
    monkeypatch.chdir(tmp_path / "workspace")
    return tmp_path / "workspace"


def ran(workspace: Path) -> list[str]:
    return sorted(path.name for path in workspace.parent.glob("ran-*"))


@pytest.mark.parametrize("entry", ["node_modules/.bin", ".", "", "{workspace}/node_modules/.bin"])
async def test_an_agents_program_is_not_taken_out_of_the_workspace(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, entry: str
):
    if entry in (".", ""):
        monkeypatch.chdir(hostile / "node_modules" / ".bin")
    monkeypatch.setenv("PATH", f"{entry.format(workspace=hostile)}:{SYSTEM}")
    with pytest.raises(TaskFailure, match="the program someprogram is not installed"):
        await find_program(ENTRY, workspace=str(hostile))
    assert ran(hostile) == []


async def test_a_link_to_the_workspace_on_the_search_path_is_seen_through(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
):
    link = hostile.parent / "tools"
    link.symlink_to(hostile / "node_modules" / ".bin")
    monkeypatch.setenv("PATH", f"{link}:{SYSTEM}")
    with pytest.raises(TaskFailure, match="not installed"):
        await find_program(ENTRY, workspace=str(hostile))
    assert ran(hostile) == []


async def test_the_operators_program_behind_that_of_the_workspace_is_found(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "bin").mkdir()
    real = program(tmp_path / "bin", "echo 1.2.3")
    monkeypatch.setenv("PATH", f"{hostile}/node_modules/.bin:{tmp_path}/bin:{SYSTEM}")
    assert await find_program(ENTRY, workspace=str(hostile)) == Program(real, "1.2.3")


async def test_what_codesdk_wraps_programs_with_is_the_systems(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{hostile}/node_modules/.bin:node_modules/.bin:{SYSTEM}")
    found = [child._own_tool("bwrap"), child._own_tool("setpriv"), sandbox.find_program()]
    assert [path for path in found if path is not None and not path.startswith("/usr/")] == []
    env = {"PATH": f"{hostile}/node_modules/.bin"}
    started = await child.start_child(["/bin/true"], cwd=Workspace(str(hostile)), env=env)
    await started.wait()
    await started.stop()
    assert ran(hostile) == []


@pytest.mark.parametrize(
    ("runtime", "bundled"),
    [
        ("claude", "codesdk.runtimes.claude.options.bundled"),
        ("codex", "codesdk.runtimes.codex.adapter.bundled"),
    ],
)
async def test_a_task_does_not_start_the_agent_that_its_workspace_brings(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, bundled: str
):
    monkeypatch.setattr(bundled, lambda: None)
    monkeypatch.setenv("PATH", f"{hostile}/node_modules/.bin")
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):  # else nothing would even be looked for
        monkeypatch.setenv(variable, "key-of-the-operator")
    async with CodeSDK.open(hostile.parent / "data") as sdk:
        session = await sdk.create_session(runtime=runtime, workspace=hostile)
        with pytest.raises(TaskFailure, match=f"the program {runtime} is not installed"):
            await (await session.start("Go")).result()
    assert ran(hostile) == []
