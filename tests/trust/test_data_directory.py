"""A data directory inside of the workspace, which is where the command line puts it: the agent does not get to its secrets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codesdk import CodeSDK
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.tools.options import ExecOptions

SECRET = "correct-horse-battery"


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A folder that the sandbox's user can get to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


async def told(workspace: Path, tool: str, given: Any) -> str:
    """Have an agent call a tool, with an input made for a session's id, and return what the log says of its end."""
    data = workspace / ".codesdk"
    async with CodeSDK.open(data) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=workspace, secrets=[SECRET])
    assert (data / "equipment" / session.id).exists()
    text = {"turns": [{"steps": [{"call": {"tool": tool, "input": given(session.id)}}]}, {"steps": []}]}
    runtime = ScriptedRuntime(parse_object(text, "script"))
    options = ExecOptions(allow=[["cat"], ["ls"], ["mv"], ["rm"]])
    async with CodeSDK.open(data, runtimes={"scripted": runtime}, run=options, allow_yolo=True) as sdk:
        worker = await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
        await (await worker.start("Go")).result()
        frames = [frame.data async for frame in sdk.archive.frames(worker.id)]
        assert (data / "equipment" / session.id).exists()
    # The worker's session does not know the secret, so nothing would have redacted it.
    assert [frame for frame in frames if SECRET.encode() in frame] == []
    (end,) = [frame for frame in frames if b'"tool.call.completed"' in frame]
    return end.decode()


@pytest.mark.parametrize(
    "spelled", [".codesdk/equipment/{}", "./.codesdk//equipment/./{}", ".codesdk/equipment/../equipment/{}"]
)
@pytest.mark.slow
async def test_the_file_tools_do_not_read_it(workspace: Path, spelled: str):
    end = await told(workspace, "workspace.read", lambda session_id: {"path": spelled.format(session_id)})
    assert '"is_error":true' in end


@pytest.mark.parametrize(
    ("tool", "more"),
    [("workspace.write", {"content": "planted"}), ("workspace.edit", {"old": "c", "new": "d"})],
)
async def test_the_file_tools_do_not_change_it(workspace: Path, tool: str, more: dict[str, str]):
    end = await told(workspace, tool, lambda session_id: {"path": f".codesdk/equipment/{session_id}", **more})
    assert '"is_error":true' in end


async def test_searching_does_not_find_it(workspace: Path):
    end = await told(workspace, "workspace.search", lambda _: {"pattern": "correct-horse-b"})
    assert "equipment" not in end


@pytest.mark.parametrize("argv", [["cat", ".codesdk/equipment/{}"], ["rm", ".codesdk/equipment/{}"]])
@pytest.mark.slow
async def test_a_sandboxed_command_does_not_get_to_it(workspace: Path, argv: list[str]):
    end = await told(
        workspace, "workspace.exec", lambda session_id: {"argv": [part.format(session_id) for part in argv]}
    )
    assert '"exit_code":1' in end


async def test_a_sandboxed_command_does_not_see_it(workspace: Path):
    end = await told(workspace, "workspace.exec", lambda _: {"argv": ["ls", "-lR", "."]})
    assert "equipment" not in end
