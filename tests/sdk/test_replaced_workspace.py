"""A workspace that somebody replaces while a session works in it: nothing is read, written or run in its stead."""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.traps import tree

from codesdk import CodeSDK, Conflict, Session, SessionSettings, TaskFailure
from codesdk.contract.events import ModelInput, ToolCallCompleted
from codesdk.tools import ExecOptions

pytestmark = pytest.mark.anyio

REPLACED: dict[str, Callable[[Path, Path], object]] = {
    "by a link": lambda root, outside: root.symlink_to(outside),
    "by another directory": lambda root, outside: shutil.copytree(outside, root),
    "by a link above it": lambda root, outside: _link_above(root, outside),
}
PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-outside\n+changed\n"
CALLS: dict[str, dict[str, Any]] = {
    "workspace.read": {"path": "a.txt"},
    "workspace.list": {},
    "workspace.glob": {"pattern": "*"},
    "workspace.search": {"pattern": "outside"},
    "workspace.write": {"path": "new.txt", "content": "x"},
    "workspace.edit": {"path": "a.txt", "old": "outside", "new": "changed"},
    "patch.apply": {"patch": PATCH},
    "workspace.exec": {"argv": ["cat", "a.txt"]},
}


def _link_above(root: Path, outside: Path) -> None:
    shutil.copytree(outside, outside.parent / "elsewhere" / root.name)
    root.parent.rmdir()
    root.parent.symlink_to(outside.parent / "elsewhere")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.txt").write_text("outside\n")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "workspace"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("inside\n")
    return folder


@pytest.fixture(params=["bubblewrap", "host"])
async def sdk(request: pytest.FixtureRequest) -> AsyncIterator[CodeSDK]:
    run = ExecOptions(allow=[[]], sandbox=request.param)
    async with CodeSDK.open(allow_yolo=True, run=run) as sdk:
        yield sdk


async def session_of(sdk: CodeSDK, root: Path, *turns: Any) -> Session:
    return await sdk.create_session(
        runtime="scripted",
        workspace=root,
        permission_mode="yolo",
        settings=SessionSettings(runtime_config={"script": {"turns": list(turns)}}),
    )


def replace(root: Path, outside: Path, how: str) -> None:
    root.rename(outside.parent / "before")
    REPLACED[how](root, outside)


def put_back(root: Path, outside: Path) -> None:
    root.unlink()
    (outside.parent / "before").rename(root)


@pytest.mark.parametrize("how", REPLACED)
async def test_no_tool_of_a_running_task_works_in_what_took_its_place(
    sdk: CodeSDK, root: Path, outside: Path, how: str
):
    calls = [{"call": {"tool": tool, "input": given}} for tool, given in CALLS.items()]
    session = await session_of(
        sdk, root, {"steps": [{"await_steer": True}, *calls]}, {"steps": [{"text": "Done."}]}
    )
    task = await session.start("Go")
    ended: dict[str, ToolCallCompleted] = {}
    before: dict[str, Any] = {}
    async for event in task.events():
        if isinstance(event.payload, ModelInput):
            replace(root, outside, how)
            before = tree(outside.parent)
            await task.steer("Now.")
        elif isinstance(event.payload, ToolCallCompleted):
            ended[event.payload.tool_call_id] = event.payload
    words = "replaced by another directory" if how == "by another directory" else "is a symbolic link"
    assert [(call.is_error, words in str(call.result_preview)) for call in ended.values()] == [
        (True, True)
    ] * len(CALLS)
    assert tree(outside.parent) == before


@pytest.mark.parametrize("how", REPLACED)
async def test_nothing_is_undone_and_no_task_begins_in_what_took_its_place(
    sdk: CodeSDK, root: Path, outside: Path, how: str
):
    change = {"tool": "workspace.write", "input": {"path": "a.txt", "content": "outside\n"}}
    session = await session_of(sdk, root, {"steps": [{"call": change}]}, {"steps": [{"text": "Done."}]})
    await (await session.start("Go")).result()
    replace(root, outside, how)
    before = tree(outside.parent)
    for act in (session.undo, lambda: session.start("Again"), session.resume):
        with pytest.raises(Conflict, match="Nothing was done: the workspace"):
            await act()
    assert tree(outside.parent) == before


async def test_a_task_that_waited_meanwhile_fails_before_its_runtime_begins(
    sdk: CodeSDK, root: Path, outside: Path
):
    session = await session_of(sdk, root, {"steps": [{"await_steer": True}, {"text": "Done."}]})
    first = await session.start("Go")
    second = await session.start("Then")
    async for event in first.events():
        if isinstance(event.payload, ModelInput):
            replace(root, outside, "by a link")
            await first.steer("Now.")
    with pytest.raises(TaskFailure, match="workspace is a symbolic link") as failed:
        await second.result()
    assert failed.value.code == "CONFLICT"


async def test_a_directory_that_was_put_back_is_worked_in_again(sdk: CodeSDK, root: Path, outside: Path):
    session = await session_of(sdk, root, {"steps": [{"text": "Done."}]})
    replace(root, outside, "by a link")
    with pytest.raises(Conflict):
        await session.start("Go")
    put_back(root, outside)
    assert (await (await session.start("Go")).result()).state == "completed"


async def test_a_fork_works_in_the_directory_that_is_there_when_it_begins(
    sdk: CodeSDK, root: Path, outside: Path
):
    read = {"call": {"tool": "workspace.read", "input": {"path": "a.txt"}}}
    turns = [{"steps": [read]}, {"expect": {"tool_result_contains": "outside"}, "steps": [{"text": "Done."}]}]
    session = await session_of(sdk, root, *turns)
    replace(root, outside, "by another directory")
    assert (await (await (await session.fork()).start("Go")).result()).state == "completed"
