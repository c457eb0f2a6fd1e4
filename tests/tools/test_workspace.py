"""workspace.read and workspace.edit on real files: what a model reads, and what happens to the files."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.ports import FileChange, ToolInvocation, ToolRun
from codesdk.sandbox.paths import Beneath
from codesdk.tools import builtin_registry

REGISTRY = builtin_registry()


def call(name: str, workspace: Path, arguments: Any) -> ToolInvocation:
    return ToolInvocation(
        session_id="ses_1",
        task_id="task_1",
        tool_call_id="call_1",
        attempt=1,
        name=name,
        input=arguments,
        workspace=str(workspace),
    )


async def read(workspace: Path, path: str = "a.txt", **arguments: Any) -> ToolRun:
    return await REGISTRY.run(call("workspace.read", workspace, {"path": path, **arguments}), lambda *_: None)


async def edit(workspace: Path, old: str, new: str, path: str = "a.txt") -> ToolRun:
    arguments = {"path": path, "old": old, "new": new}
    return await REGISTRY.run(call("workspace.edit", workspace, arguments), lambda *_: None)


def error(message: str) -> ToolRun:
    return ToolRun(result=message, is_error=True)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\ntwo\n", "     1\tone\n     2\ttwo"),
        (b"one\ntwo", "     1\tone\n     2\ttwo"),
        (b"one\r\ntwo\r\n", "     1\tone\n     2\ttwo"),
        (b"\n\n", "     1\t\n     2\t"),
        (
            b"a\x0bb\xe2\x80\xa8c\x85d\n",
            "     1\ta\x0bb\u2028c\ufffdd\n(some bytes are not UTF-8; they are shown as \ufffd)",
        ),
        ("fine \ufffd\n".encode(), "     1\tfine \ufffd"),
        (b"", "(a.txt is empty)"),
    ],
)
async def test_a_file_is_shown_with_line_numbers(tmp_path, data, shown):
    (tmp_path / "a.txt").write_bytes(data)
    assert await read(tmp_path) == ToolRun(result=shown)


async def test_a_part_of_a_file_says_that_there_is_more(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert await read(tmp_path, offset=3, limit=2) == ToolRun(
        result="     3\tline 3\n     4\tline 4\n(lines 3-4 of 10; for more use offset 5)"
    )
    assert await read(tmp_path, offset=9, limit=2) == ToolRun(result="     9\tline 9\n    10\tline 10")
    assert await read(tmp_path, offset=11) == error("a.txt has only 10 lines; there is no line 11.")


async def test_following_the_offsets_shows_every_line_once(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{n} {'x' * 1500}\n" for n in range(1, 501)))
    seen: list[str] = []
    offset = 1
    while offset:
        *lines, note = (await read(tmp_path, offset=offset)).result.split("\n")
        assert len("\n".join(lines)) <= 200_000
        seen += lines if note.startswith("(lines") else [*lines, note]
        offset = int(note.rpartition(" ")[2][:-1]) if note.startswith("(lines") else 0
    assert [int(line.split("\t")[0]) for line in seen] == list(range(1, 501))


async def test_a_very_long_line_is_cut(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 2500)
    assert await read(tmp_path) == ToolRun(result=f"     1\t{'x' * 2000}… (500 more characters)")


async def test_what_is_no_text_or_too_much_of_it_is_not_shown(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\x7fELF\0\0")
    assert await read(tmp_path) == error("a.txt is a binary file of 6 bytes, not text.")
    (tmp_path / "a.txt").write_bytes(b"x" * 2_000_001)
    assert await read(tmp_path) == error(
        'Cannot use the path "a.txt": a.txt has 2000001 bytes; files over 2000000 bytes are not opened.'
    )


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "link", "fifo", "missing", "dir", ".", "dir/../a.txt"]
)
async def test_neither_tool_leaves_the_workspace(tmp_path, path):
    workspace = tmp_path / "workspace"
    (workspace / "dir").mkdir(parents=True)
    (workspace / "a.txt").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (workspace / "link").symlink_to("../secret")
    os.mkfifo(workspace / "fifo")
    for run in (await read(workspace, path), await edit(workspace, "outside", "changed", path)):
        assert run.is_error
        assert run.result.startswith(f'Cannot use the path "{path}": ')
        assert str(tmp_path) not in run.result
    assert (tmp_path / "secret").read_text() == "outside"
    assert (workspace / "a.txt").read_text() == "inside"


async def test_a_workspace_that_is_gone_is_said_to_be_gone(tmp_path):
    assert await read(tmp_path / "gone") == error(
        'Cannot use the path "a.txt": the workspace directory cannot be opened.'
    )


async def test_an_edit_replaces_the_one_match_and_shows_the_difference(tmp_path):
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "a.txt"
    path.write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    path.chmod(0o750)
    assert await edit(tmp_path, "three\nfour", "3", "./sub//a.txt") == ToolRun(
        result="Edited sub/a.txt at line 3.",
        changes=[
            FileChange(
                path="sub/a.txt",
                diff="--- a/sub/a.txt\n+++ b/sub/a.txt\n@@ -1,6 +1,5 @@\n"
                " one\n two\n-three\n-four\n+3\n five\n six\n",
            )
        ],
    )
    assert path.read_text() == "one\ntwo\n3\nfive\nsix\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert [entry.name for entry in (tmp_path / "sub").iterdir()] == ["a.txt"]


async def test_bytes_that_are_not_touched_stay_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe old \r\n\x80 tail without end")
    assert not (await edit(tmp_path, "old", "né\nw")).is_error
    assert (tmp_path / "a.txt").read_bytes() == b"\xff\xfe n\xc3\xa9\nw \r\n\x80 tail without end"


async def test_a_text_can_be_taken_away(tmp_path):
    (tmp_path / "a.txt").write_text("all of it")
    assert (await edit(tmp_path, "all of it", "")).changes == [
        FileChange(
            path="a.txt",
            diff="--- a/a.txt\n+++ b/a.txt\n@@ -1 +0,0 @@\n-all of it\n\\ No newline at end of file\n",
        )
    ]
    assert (tmp_path / "a.txt").read_bytes() == b""


MISMATCHES = {
    "nothing like it": (
        "one\n",
        "two",
        "old was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly.",
    ),
    "an empty file": (
        "",
        "two",
        "old was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly.",
    ),
    "white space": (
        "x\n\tif a:\n\t\tb\n",
        "if a:\n    b\n",
        "old was not found in a.txt. Nothing was changed. The text at line 2 would match without its white space;"
        " copy the text exactly.",
    ),
    "white space in several places": (
        "a  b\nc\na  b\n",
        "a b",
        "old was not found in a.txt. Nothing was changed. Texts at lines 1, 3 would match without its white space;"
        " copy the text exactly.",
    ),
    "only white space": (
        "a\n",
        "\t\t",
        "old was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly.",
    ),
    "line ends": (
        "one\r\ntwo\r\n",
        "one\ntwo",
        "old was not found in a.txt. Nothing was changed. The file has Windows line ends (\\r\\n) and old has \\n;"
        " use \\r\\n in old and new.",
    ),
    "line numbers": (
        "one\ntwo\n",
        "     1\tone\n     2\ttwo",
        "old was not found in a.txt. Nothing was changed. Leave out the line numbers: they are not part of the file.",
    ),
    "two matches": (
        "a b\na c\n",
        "a",
        "old occurs 2 times in a.txt, on lines 1, 2. Nothing was changed. Add lines around it until it occurs once.",
    ),
    "matches that overlap": (
        "x\naaa\n",
        "aa",
        "old occurs 2 times in a.txt, on lines 2, 2. Nothing was changed. Add lines around it until it occurs once.",
    ),
    "many matches": (
        "a\n" * 12,
        "a",
        "old occurs 12 times in a.txt, on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more. Nothing was changed."
        " Add lines around it until it occurs once.",
    ),
}


@pytest.mark.parametrize(("content", "old", "message"), MISMATCHES.values(), ids=MISMATCHES)
async def test_a_mismatch_is_explained_and_changes_nothing(tmp_path, content, old, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content.encode())
    inode = path.stat().st_ino
    assert await edit(tmp_path, old, "new") == error(message)
    assert (path.read_bytes(), path.stat().st_ino) == (content.encode(), inode)


async def test_an_edit_that_makes_no_sense_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    assert await edit(tmp_path, "a", "a") == error("old and new are the same text; nothing would change.")
    assert await edit(tmp_path, "a", "\ud800") == error(
        "new contains characters that cannot be written as UTF-8."
    )
    assert (await edit(tmp_path, "", "b")).result.startswith(
        "The input of workspace.edit is not valid. old: "
    )
    assert await edit(tmp_path, "a", "b" * 2_000_001) == error(
        "a.txt would have 2000001 bytes; files over 2000000 are not written."
    )
    assert (tmp_path / "a.txt").read_text() == "a"


async def test_a_file_with_other_names_is_not_edited(tmp_path):
    (tmp_path / "elsewhere").write_text("a")
    (tmp_path / "workspace").mkdir()
    os.link(tmp_path / "elsewhere", tmp_path / "workspace" / "a.txt")
    assert await edit(tmp_path / "workspace", "a", "b") == error(
        'Cannot use the path "a.txt": a.txt has other names (hard links); changing it could change files elsewhere.'
    )
    assert (tmp_path / "elsewhere").read_text() == "a"


class Gate:
    """Holds a function that runs in a thread, so that a test decides what happens meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        real = getattr(Beneath, name)

        def held(*args: Any) -> Any:
            result = real(*args) if after else None
            self.reached.set()
            assert self.released.wait(30)
            return result if after else real(*args)

        monkeypatch.setattr(Beneath, name, held)

    async def cancel(self, task: asyncio.Task[ToolRun]) -> None:
        """Cancel the task while the thread is held, then let the thread go on."""
        await asyncio.to_thread(self.reached.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        self.released.set()


async def test_an_edit_that_is_cancelled_before_it_happened_does_not_happen(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("old")
    gate = Gate(monkeypatch, "replace", after=False)
    task = asyncio.create_task(edit(tmp_path, "old", "new"))
    await gate.cancel(task)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


async def test_an_edit_that_is_cancelled_after_it_happened_is_reported(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("old")
    gate = Gate(monkeypatch, "replace", after=True)
    task = asyncio.create_task(edit(tmp_path, "old", "new"))
    await gate.cancel(task)
    assert (await task).result == "Edited a.txt at line 1."
    assert (tmp_path / "a.txt").read_text() == "new"


async def test_a_read_that_is_cancelled_ends_when_the_file_is_closed(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    gate = Gate(monkeypatch, "read", after=True)
    task = asyncio.create_task(read(tmp_path))
    await gate.cancel(task)
    with pytest.raises(asyncio.CancelledError):
        await task
