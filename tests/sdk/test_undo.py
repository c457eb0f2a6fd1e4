"""Undo, from the application's side: files come back byte for byte, nothing of anyone else's is lost."""

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.traps import tree

from codesdk import Busy, CodeSDK, Conflict, NotFound, Session, SessionSettings
from codesdk.contract.codec import decode
from codesdk.contract.events import FilesUndone, ToolCallCompleted
from codesdk.contract.tools import Actor, UndoneFile, UndoRefusal, UndoReport
from codesdk.engine.calls.undo import changed_calls
from codesdk.engine.checks.verify import verify_session

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_bytes(b"one\r\ntwo")
    (workspace / "tool.sh").write_bytes(b"#!\n")
    (workspace / "tool.sh").chmod(0o751)
    return workspace


@pytest.fixture(params=["memory", "directory"])
async def sdk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CodeSDK]:
    where = None if request.param == "memory" else tmp_path / "data"
    async with CodeSDK.open(where, secrets=["hunter2"], allow_yolo=True) as sdk:
        yield sdk


async def work(sdk: CodeSDK, root: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[Session, list[str]]:
    """Have tools called one after the other in a new session; return it and the ids of the calls."""
    turns = [{"steps": [{"call": {"tool": tool, "input": given}}]} for tool, given in calls]
    turns += [{"steps": [{"text": "Done."}]}, {"steps": [{"await_steer": True}]}]
    session = await sdk.create_session(
        runtime="scripted",
        workspace=root,
        permission_mode="yolo",
        settings=SessionSettings(runtime_config={"script": {"turns": turns}}),
    )
    task = await session.start("Go")
    ids: list[str] = []
    async for event in task.events():
        if isinstance(event.payload, ToolCallCompleted):
            assert not event.payload.is_error, event.payload.result_preview
            ids.append(event.payload.tool_call_id)
    return session, ids


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "workspace.write", {"path": path, "content": content}


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "workspace.edit", {"path": path, "old": old, "new": new}


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}


PATCH = """\
diff --git a/tool.sh b/bin/tool
rename from tool.sh
rename to bin/tool
diff --git a/gone.bin b/gone.bin
deleted file mode 100644
--- a/gone.bin
+++ /dev/null
@@ -1 +0,0 @@
-x
\\ No newline at end of file
--- /dev/null
+++ b/bin/deep/new.txt
@@ -0,0 +1 @@
+new
"""


async def test_everything_that_tools_did_is_taken_back_byte_for_byte(sdk: CodeSDK, root: Path):
    (root / "gone.bin").write_bytes(b"x")
    (root / "gone.bin").chmod(0o604)
    (root / "other.bin").write_bytes(bytes(range(256)))
    before = tree(root), modes(root)
    session, ids = await work(
        sdk,
        root,
        edit("a.txt", "two", "2\r\nhunter2"),
        write("other.bin", "text\n"),
        write("new/deep/er.txt", ""),
        ("patch.apply", {"patch": PATCH}),
        edit("a.txt", "one", "1"),
    )
    assert (tree(root), modes(root)) != before
    report = await session.undo()
    assert (tree(root), modes(root)) == before
    assert report == UndoReport(
        restored=[
            UndoneFile(path="a.txt", tool_call_id=ids[4], attempt=1),
            *[
                UndoneFile(path=path, tool_call_id=ids[3], attempt=1, removed=removed)
                for path, removed in (
                    ("tool.sh", False),
                    ("bin/tool", True),
                    ("gone.bin", False),
                    ("bin/deep/new.txt", True),
                )
            ],
            UndoneFile(path="new/deep/er.txt", tool_call_id=ids[2], attempt=1, removed=True),
            UndoneFile(path="other.bin", tool_call_id=ids[1], attempt=1),
            UndoneFile(path="a.txt", tool_call_id=ids[0], attempt=1),
        ],
        refused=[],
    )


async def test_what_was_undone_is_in_the_log_and_the_log_is_sound(sdk: CodeSDK, root: Path):
    session, ids = await work(sdk, root, write("hunter2.txt", "x"))
    await session.undo(ids[0])
    frames = await sdk.archive.log.read(session.id, 0, 1000)
    last = decode(frames[-1].data)
    assert last.trace.task_id is None
    assert last.payload == FilesUndone(
        by=Actor(kind="user"),
        restored=[UndoneFile(path="[redacted].txt", tool_call_id=ids[0], attempt=1, removed=True)],
        refused=[],
    )
    assert (await verify_session(sdk.archive.log, sdk.archive.blobs, session.id)) == []


async def test_a_call_is_undone_once(sdk: CodeSDK, root: Path):
    session, ids = await work(sdk, root, edit("a.txt", "two", "2"), write("b.txt", "b"))
    await session.undo(ids[0])
    with pytest.raises(Conflict, match=rf"Nothing was undone\. {ids[0]}: it was already undone\."):
        await session.undo(ids[0])
    assert [file.path for file in (await session.undo()).restored] == ["b.txt"]
    with pytest.raises(Conflict, match=rf"All changes of session {session.id} were already undone\."):
        await session.undo()
    assert (root / "a.txt").read_bytes() == b"one\r\ntwo"


async def test_a_file_that_was_changed_since_is_left_alone_and_named(sdk: CodeSDK, root: Path):
    session, ids = await work(sdk, root, edit("a.txt", "two", "2"), write("b.txt", "b"), write("c.txt", "c"))
    (root / "a.txt").write_bytes(b"mine")
    (root / "c.txt").chmod(0o600)
    words = "is not as the tool left it; what was done since then would be lost"
    assert await session.undo() == UndoReport(
        restored=[UndoneFile(path="b.txt", tool_call_id=ids[1], attempt=1, removed=True)],
        refused=[
            UndoRefusal(tool_call_id=ids[2], attempt=1, reason=f"c.txt {words}"),
            UndoRefusal(tool_call_id=ids[0], attempt=1, reason=f"a.txt {words}"),
        ],
    )
    assert {name: (root / name).read_bytes() for name in ("a.txt", "c.txt")} == {
        "a.txt": b"mine",
        "c.txt": b"c",
    }
    with pytest.raises(Conflict, match=r"a\.txt is not as the tool left it"):
        await session.undo(ids[0])


async def test_an_older_change_waits_for_the_newer_ones_of_the_same_file(sdk: CodeSDK, root: Path):
    session, ids = await work(sdk, root, edit("a.txt", "two", "2"), edit("a.txt", "one", "1"))
    with pytest.raises(Conflict, match=r"a\.txt is not as the tool left it"):
        await session.undo(ids[0])
    await session.undo(ids[1])
    await session.undo(ids[0])
    assert (root / "a.txt").read_bytes() == b"one\r\ntwo"


async def test_a_call_with_several_files_is_undone_as_a_whole_or_not_at_all(sdk: CodeSDK, root: Path):
    (root / "gone.bin").write_bytes(b"x")
    session, ids = await work(sdk, root, ("patch.apply", {"patch": PATCH}))
    (root / "bin" / "deep" / "new.txt").write_bytes(b"mine")
    before = tree(root)
    with pytest.raises(Conflict, match=r"bin/deep/new\.txt is not as the tool left it"):
        await session.undo(ids[0])
    assert tree(root) == before


async def test_a_file_that_is_already_as_it_was_counts_as_undone(sdk: CodeSDK, root: Path):
    """As after a crash between putting a file back and writing it down."""
    session, _ = await work(sdk, root, edit("a.txt", "two", "2"), write("b.txt", "b"))
    (root / "a.txt").write_bytes(b"one\r\ntwo")
    (root / "b.txt").unlink()
    assert [file.path for file in (await session.undo()).restored] == ["b.txt", "a.txt"]
    assert tree(root) == {"a.txt": b"one\r\ntwo", "tool.sh": b"#!\n"}


async def test_a_link_in_the_place_of_a_file_is_not_written_through(sdk: CodeSDK, root: Path):
    outside = root.parent / "outside.txt"
    outside.write_bytes(b"one\r\n2")
    session, ids = await work(sdk, root, edit("a.txt", "two", "2"))
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to(outside)
    with pytest.raises(Conflict, match="symbolic links are not followed"):
        await session.undo(ids[0])
    assert outside.read_bytes() == b"one\r\n2"


async def test_nothing_to_undo_is_said(sdk: CodeSDK, root: Path):
    session, ids = await work(sdk, root, ("workspace.read", {"path": "a.txt"}))
    with pytest.raises(NotFound, match="No tool has changed a file in session"):
        await session.undo()
    for call in (ids[0], "call_nothere"):
        with pytest.raises(NotFound, match=f"There is no call {call} in session"):
            await session.undo(call)


async def test_nothing_is_undone_while_a_task_runs(sdk: CodeSDK, root: Path):
    session, _ = await work(sdk, root, write("b.txt", "b"))
    task = await session.start("Wait")
    with pytest.raises(Busy, match="has a task that runs or waits") as caught:
        await session.undo()
    assert caught.value.code == "SESSION_BUSY"
    await task.stop()
    await task.result()
    await session.undo()
    assert not (root / "b.txt").exists()


async def test_a_task_that_is_started_while_files_are_restored_begins_when_they_are(
    sdk: CodeSDK, root: Path, monkeypatch: pytest.MonkeyPatch
):
    session, _ = await work(sdk, root, write("a.txt", "new"))
    store = sdk.engine.ports.undo
    looked, go, find = asyncio.Event(), asyncio.Event(), store.find

    async def held(session_id: str, name: str) -> Any:
        looked.set()
        await go.wait()
        return await find(session_id, name)

    monkeypatch.setattr(store, "find", held)
    undoing = asyncio.create_task(session.undo())
    await looked.wait()
    starting = [asyncio.create_task(session.start(f"Go on {number}")) for number in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in starting)
    go.set()
    await undoing
    first, second = [await task for task in starting]
    assert (root / "a.txt").read_bytes() == b"one\r\ntwo"
    await second.stop()
    await first.stop()
    await session.close()
    assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
    types = [decode(frame.data).type async for frame in sdk.archive.frames(session.id)]
    assert types.index("files.undone") < [i for i, kind in enumerate(types) if kind == "task.started"][1]


async def test_a_closed_session_can_still_be_undone(sdk: CodeSDK, root: Path):
    session, _ = await work(sdk, root, write("b.txt", "b"))
    await session.close()
    await session.undo()
    assert not (root / "b.txt").exists()
    assert (await verify_session(sdk.archive.log, sdk.archive.blobs, session.id)) == []


async def test_what_an_undo_needs_goes_with_its_session(sdk: CodeSDK, root: Path):
    kept = sdk.engine.ports.undo
    first, _ = await work(sdk, root, write("b.txt", "b"))
    second, _ = await work(sdk, root, write("c.txt", "c"))
    assert sorted(await kept.sessions()) == sorted([first.id, second.id])
    await sdk.delete_session(first.id)
    assert await kept.sessions() == [second.id]
    await sdk.archive.log.delete(second.id)  # as if the process had died in the middle of a deletion
    await sdk.engine.collect_garbage()
    assert await kept.sessions() == []


async def test_content_that_is_lost_is_said_to_be_lost(sdk: CodeSDK, root: Path):
    session, ids = await work(sdk, root, write("b.txt", "b"))
    await sdk.engine.ports.undo.drop(session.id)
    with pytest.raises(Conflict, match=f"{ids[0]}: what that takes is not kept any more"):
        await session.undo()


async def test_what_was_there_before_is_in_no_event_and_no_artifact(tmp_path: Path, root: Path):
    """Not even a secret that is known: the undo content is the one place that has it."""
    (root / "a.txt").write_bytes(b"password = hunter2\n")
    data = tmp_path / "data"
    async with CodeSDK.open(data, secrets=["hunter2"], allow_yolo=True) as sdk:
        session, _ = await work(sdk, root, edit("a.txt", "password", "secret"))
        (completed,) = await changed_calls(sdk.archive.log, session.id)
        assert completed.changes[0].undo == f"{completed.tool_call_id}.1.0"
    holders = [
        path.relative_to(data).parts[0] for path in await files(data) if b"hunter2" in path.read_bytes()
    ]
    assert holders == ["undo"]


async def files(root: Path) -> list[Path]:
    return await asyncio.to_thread(lambda: [path for path in root.rglob("*") if path.is_file()])
