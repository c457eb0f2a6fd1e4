"""workspace.read, workspace.write and workspace.edit on real files: what a model reads, and what happens to the files."""

import asyncio
import codecs
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.tools.calling import changed, error, use

from codesdk.contract.ports import ToolRun
from codesdk.sandbox.files.batch import Batch
from codesdk.sandbox.files.paths import Beneath


async def read(workspace: Path, path: str = "a.txt", **arguments: Any) -> ToolRun:
    return await use(workspace, "workspace.read", path=path, **arguments)


async def write(workspace: Path, content: str, path: str = "a.txt") -> ToolRun:
    return await use(workspace, "workspace.write", path=path, content=content)


async def edit(workspace: Path, old: str, new: str, path: str = "a.txt") -> ToolRun:
    return await use(workspace, "workspace.edit", path=path, old=old, new=new)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\ntwo\n", "     1\tone\n     2\ttwo"),
        (b"one\ntwo", "     1\tone\n     2\ttwo"),
        (b"one\r\ntwo\r\n", "     1\tone\n     2\ttwo"),
        (b"\n\n", "     1\t\n     2\t"),
        (
            b"a\x0bb\xe2\x80\xa8c\x85d\n",
            "     1\ta\x0bb\u2028c\ufffdd\n(some bytes are not UTF-8, the file may be Latin-1 or similar;"
            " they are shown as \ufffd)",
        ),
        ("fine \ufffd\n".encode(), "     1\tfine \ufffd"),
        ("marked\n".encode("utf-8-sig"), "     1\tmarked"),
        (
            "né\n".encode("utf-16"),
            "     1\tné\n(the file is UTF-16; edits and patches only change UTF-8)",
        ),
        (
            codecs.BOM_UTF32_BE + "né".encode("utf-32-be"),
            "     1\tné\n(the file is UTF-32; edits and patches only change UTF-8)",
        ),
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
        'Cannot use the path "a.txt": the workspace cannot be opened: gone does not exist.'
    )


async def test_an_edit_replaces_the_one_match_and_shows_the_difference(tmp_path):
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "a.txt"
    path.write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    path.chmod(0o750)
    assert await edit(tmp_path, "three\nfour", "3", "./sub//a.txt") == ToolRun(
        result="Edited sub/a.txt at line 3.",
        changes=[
            changed(
                "sub/a.txt",
                "--- a/sub/a.txt\n+++ b/sub/a.txt\n@@ -1,6 +1,5 @@\n one\n two\n-three\n-four\n+3\n five\n six\n",
                b"one\ntwo\nthree\nfour\nfive\nsix\n",
                b"one\ntwo\n3\nfive\nsix\n",
                mode=0o750,
            )
        ],
    )
    assert path.read_text() == "one\ntwo\n3\nfive\nsix\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert [entry.name for entry in (tmp_path / "sub").iterdir()] == ["a.txt"]


async def test_bytes_that_are_not_touched_stay_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xfe\0 old \r\n\x80 tail without end")
    assert not (await edit(tmp_path, "old", "ne\nw")).is_error
    assert (tmp_path / "a.txt").read_bytes() == b"\xfe\0 ne\nw \r\n\x80 tail without end"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("old né\n".encode("latin-1"), "not UTF-8 (it may be Latin-1 or similar)"),
        ("old né\n".encode("utf-16"), "UTF-16"),
    ],
)
async def test_an_edit_does_not_mix_two_encodings_in_one_file(tmp_path, data, what):
    (tmp_path / "a.txt").write_bytes(data)
    assert await edit(tmp_path, "old", "né") == error(
        f"a.txt is {what}, and this edit is UTF-8. Nothing was changed."
        " Convert the file to UTF-8 first, or write all of it."
    )
    assert (tmp_path / "a.txt").read_bytes() == data


async def test_bytes_that_only_begin_like_another_encoding_are_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(codecs.BOM_UTF16_LE + b"odd")
    assert await read(tmp_path) == error("a.txt has a UTF-16 byte order mark, but is not valid UTF-16.")


@pytest.mark.parametrize("content", ["", "one\n", "no end", "dos\r\n", "né \u2028\n", "nul \0\n"])
async def test_a_file_is_created_with_exactly_this_content_and_the_folders_it_needs(tmp_path, content):
    run = await write(tmp_path, content, "./new//deep/a.txt")
    data = content.encode()
    assert run.result == f"Created new/deep/a.txt ({len(data)} bytes)."
    assert [change.kept for change in run.changes] == [changed("new/deep/a.txt", "", None, data, made=2).kept]
    assert (tmp_path / "new" / "deep" / "a.txt").read_bytes() == data


async def test_a_file_is_replaced_as_a_whole_and_the_difference_shown(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "a.txt").chmod(0o640)
    assert await write(tmp_path, "one\n2\n") == ToolRun(
        result="Replaced a.txt (6 bytes).",
        changes=[
            changed(
                "a.txt",
                "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
                b"one\ntwo\n",
                b"one\n2\n",
                mode=0o640,
            )
        ],
    )
    assert await write(tmp_path, "one\n2\n") == ToolRun(
        result="a.txt already has this content; nothing was changed."
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


async def test_a_new_file_is_shown_as_coming_from_nowhere(tmp_path):
    assert (await write(tmp_path, "x\n")).changes[0].diff == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n"


async def test_what_cannot_be_written_is_said_and_nothing_is_changed(tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("/etc/hosts")
    (tmp_path / "big").write_bytes(b"x" * 2_000_001)
    os.mkfifo(tmp_path / "fifo")
    for path, why in {
        "dir": "dir is a directory, not a file",
        "link": "link is a symbolic link; symbolic links are not followed",
        "fifo": "fifo is not a regular file",
        "fifo/x": "fifo is not a directory",
        "big": "big has 2000001 bytes; files over 2000000 bytes are not opened",
        ".git/hooks/pre-commit": "it belongs to git itself, which runs what is in there; use git to change it",
        "../x": 'the path contains ".."; it must stay inside the workspace',
        "x\0": "a path cannot contain a NUL character",
        "x" * 300: "the path is too long",
    }.items():
        assert await write(tmp_path, "new", path) == error(f'Cannot use the path "{path[:200]}": {why}.')
    assert await write(tmp_path, "x" * 2_000_001) == error(
        "a.txt would have 2000001 bytes; files over 2000000 are not written."
    )
    assert await write(tmp_path, "\ud800") == error(
        "The content contains characters that cannot be written as UTF-8."
    )
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["big", "dir", "fifo", "link"]


async def test_a_data_directory_is_closed_to_writing_too(tmp_path):
    (tmp_path / ".codesdk").mkdir()
    (tmp_path / ".codesdk" / "codesdk.db").write_bytes(b"")
    for path in (".codesdk/codesdk.db", ".codesdk/undo/x"):
        assert "closed to tools" in (await write(tmp_path, "x", path)).result
    assert [entry.name for entry in (tmp_path / ".codesdk").iterdir()] == ["codesdk.db"]


async def test_a_text_can_be_taken_away(tmp_path):
    (tmp_path / "a.txt").write_text("all of it")
    assert (await edit(tmp_path, "all of it", "")).changes == [
        changed(
            "a.txt",
            "--- a/a.txt\n+++ b/a.txt\n@@ -1 +0,0 @@\n-all of it\n\\ No newline at end of file\n",
            b"all of it",
            b"",
        )
    ]
    assert (tmp_path / "a.txt").read_bytes() == b""


MISMATCHES = {
    "nothing like it": (
        "one\n",
        "two",
        "The old text was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly.",
    ),
    "an empty file": (
        "",
        "two",
        "The old text was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly.",
    ),
    "white space": (
        "x\n\tif a:\n\t\tb\n",
        "if a:\n    b\n",
        "The old text was not found in a.txt. Nothing was changed. The text at line 2 would match without its white space;"
        " copy the text exactly.",
    ),
    "white space in several places": (
        "a  b\nc\na  b\n",
        "a b",
        "The old text was not found in a.txt. Nothing was changed. Texts at lines 1, 3 would match without its white space;"
        " copy the text exactly.",
    ),
    "only white space": (
        "a\n",
        "\t\t",
        "The old text was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly.",
    ),
    "line ends": (
        "one\r\ntwo\r\n",
        "one\ntwo",
        "The old text was not found in a.txt. Nothing was changed. The file has Windows line ends (\\r\\n) and the old text has \\n;"
        " use \\r\\n in both texts.",
    ),
    "line numbers": (
        "one\ntwo\n",
        "     1\tone\n     2\ttwo",
        "The old text was not found in a.txt. Nothing was changed. Leave out the line numbers: they are not part of the file.",
    ),
    "two matches": (
        "a b\na c\n",
        "a",
        "The old text occurs 2 times in a.txt, on lines 1, 2. Nothing was changed. Add lines around it until it occurs once.",
    ),
    "matches that overlap": (
        "x\naaa\n",
        "aa",
        "The old text occurs 2 times in a.txt, on lines 2, 2. Nothing was changed. Add lines around it until it occurs once.",
    ),
    "many matches": (
        "a\n" * 12,
        "a",
        "The old text occurs more than 10 times in a.txt, on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and others. Nothing was changed."
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
    assert await edit(tmp_path, "a", "a") == error(
        "The old text and the new one are the same; nothing would change."
    )
    assert await edit(tmp_path, "a", "\ud800") == error(
        "The new text contains characters that cannot be written as UTF-8."
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        real = getattr(owner, name)

        def held(*args: Any) -> Any:
            result = real(*args) if after else None
            self.reached.set()
            assert self.released.wait(30)
            return result if after else real(*args)

        monkeypatch.setattr(owner, name, held)

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
    gate = Gate(monkeypatch, Batch, "commit", after=False)
    task = asyncio.create_task(edit(tmp_path, "old", "new"))
    await gate.cancel(task)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


async def test_an_edit_that_is_cancelled_after_it_happened_is_reported(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("old")
    gate = Gate(monkeypatch, Batch, "commit", after=True)
    task = asyncio.create_task(edit(tmp_path, "old", "new"))
    await gate.cancel(task)
    assert (await task).result == "Edited a.txt at line 1."
    assert (tmp_path / "a.txt").read_text() == "new"


async def test_a_read_that_is_cancelled_ends_when_the_file_is_closed(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    gate = Gate(monkeypatch, Beneath, "read", after=True)
    task = asyncio.create_task(read(tmp_path))
    await gate.cancel(task)
    with pytest.raises(asyncio.CancelledError):
        await task
