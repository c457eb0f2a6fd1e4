"""Tools on files whose editor has changes that are not saved: what a model sees, what is on disk, what an undo needs."""

from pathlib import Path
from typing import Any

import pytest
from tests.tools.calling import use, use_for

from codesdk.contract.canonical import content_hash
from codesdk.contract.ports import Kept
from codesdk.tools.workspace.diff import unified
from codesdk.tools.workspace.unsaved import NOTE

SAVED = "one\ntwo\n"
TYPED = "one\nTWO\nthree\n"
KEPT = "(the changes to a.txt that were not saved in the editor are kept, and saved with it)"


class Typed:
    """An editor with open files. `asked` are the paths that it was asked for, `given` the texts that it was given."""

    def __init__(
        self, texts: dict[str, str] | None = None, *, takes: bool = True, deaf: bool = False
    ) -> None:
        self.texts = texts or {}
        self.takes = takes
        self.deaf = deaf
        self.asked: list[str] = []
        self.given: dict[str, str] = {}

    async def text_of(self, path: str) -> str | None:
        self.asked.append(path)
        return self.texts.get(path)

    async def take(self, path: str, text: str) -> bool:
        self.given[path] = text
        return not self.deaf


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "a.txt").write_text(SAVED)
    return place


async def test_a_file_is_read_as_the_editor_has_it(workspace: Path):
    editor = Typed({"a.txt": TYPED})
    run = await use_for(editor, workspace, "workspace.read", path="./a.txt")
    assert run.result == f"     1\tone\n     2\tTWO\n     3\tthree\n{NOTE}"
    assert editor.asked == ["a.txt"]
    assert (workspace / "a.txt").read_text() == SAVED


async def test_an_edit_is_made_on_what_was_typed_and_an_undo_would_bring_that_back(workspace: Path):
    editor = Typed({"a.txt": TYPED})
    run = await use_for(editor, workspace, "workspace.edit", path="a.txt", old="TWO\n", new="2\n")
    now = "one\n2\nthree\n"
    assert (run.is_error, run.result) == (False, f"Edited a.txt at line 2.\n{KEPT}")
    assert (workspace / "a.txt").read_text() == now
    assert editor.given == {"a.txt": now}
    (change,) = run.changes
    assert change.diff == unified("a.txt", TYPED.encode(), now.encode())
    assert isinstance(change.kept, Kept)
    assert (change.kept.before, change.kept.after_hash) == (TYPED.encode(), content_hash(now.encode()))


async def test_a_whole_file_is_written_even_if_the_disk_has_it_already(workspace: Path):
    editor = Typed({"a.txt": TYPED})
    run = await use_for(editor, workspace, "workspace.write", path="a.txt", content=SAVED)
    assert run.result == f"Replaced a.txt (8 bytes).\n{KEPT}"
    assert editor.given == {"a.txt": SAVED}
    assert run.changes[0].diff == unified("a.txt", TYPED.encode(), SAVED.encode())


async def test_a_patch_fits_what_was_typed(workspace: Path):
    (workspace / "b.txt").write_text("b\n")
    editor = Typed({"a.txt": TYPED, "b.txt": "b\n"})
    patch = unified("a.txt", TYPED.encode(), b"one\nTWO\n3\n") + unified("b.txt", b"b\n", b"B\n")
    run = await use_for(editor, workspace, "patch.apply", patch=patch)
    assert run.result == f"Changed a.txt.\nChanged b.txt.\n{KEPT}"
    assert (workspace / "a.txt").read_text() == "one\nTWO\n3\n"
    assert editor.given == {"a.txt": "one\nTWO\n3\n"}


@pytest.mark.parametrize("to", [None, "c.txt"])
async def test_a_file_with_unsaved_changes_is_not_removed_or_moved_by_a_patch(
    workspace: Path, to: str | None
):
    editor = Typed({"a.txt": TYPED})
    patch = unified("a.txt", TYPED.encode(), None)
    if to is not None:
        patch = f"diff --git a/a.txt b/{to}\nrename from a.txt\nrename to {to}\n"
    run = await use_for(editor, workspace, "patch.apply", patch=patch)
    assert run.is_error
    assert "the editor has changes in it that are not saved" in run.result
    assert (workspace / "a.txt").read_text() == SAVED
    assert not (workspace / "c.txt").exists()


async def test_an_editor_that_takes_nothing_is_asked_to_save_first(workspace: Path):
    editor = Typed({"a.txt": TYPED}, takes=False)
    run = await use_for(editor, workspace, "workspace.edit", path="a.txt", old="one", new="1")
    assert run.is_error
    assert run.result == (
        "The editor has changes in a.txt that are not saved. Nothing was changed. Ask the user to save first."
    )
    assert (workspace / "a.txt").read_text() == SAVED
    assert editor.given == {}


async def test_a_change_that_the_editor_was_not_told_of_says_so(workspace: Path):
    editor = Typed({"a.txt": TYPED}, deaf=True)
    run = await use_for(editor, workspace, "workspace.edit", path="a.txt", old="one", new="1")
    assert run.result.endswith("are kept, but the editor was not told)")
    assert (workspace / "a.txt").read_text() == TYPED.replace("one", "1")


@pytest.mark.parametrize(
    "text", [None, SAVED, SAVED.rstrip("\n"), SAVED.replace("\n", "\r\n"), "", "\0", "\ud800"]
)
async def test_an_editor_without_changes_or_without_a_text_changes_nothing(workspace: Path, text: Any):
    editor = Typed({"a.txt": text} if text is not None else {})
    for tool, arguments in (
        ("workspace.read", {}),
        ("workspace.edit", {"old": "two", "new": "2"}),
        ("workspace.write", {"content": "new\n"}),
    ):
        plain = await use(_copy(workspace), tool, path="a.txt", **arguments)
        assert await use_for(editor, _copy(workspace), tool, path="a.txt", **arguments) == plain
    assert editor.given == {}


@pytest.mark.parametrize(
    "data", [b"one\r\n", "né".encode("latin-1"), "x".encode("utf-16"), b"\xef\xbb\xbfx", b"\0"]
)
async def test_what_editors_show_in_another_form_is_read_from_disk(workspace: Path, data: bytes):
    (workspace / "a.txt").write_bytes(data)
    editor = Typed({"a.txt": TYPED})
    plain = await use(workspace, "workspace.read", path="a.txt")
    assert await use_for(editor, workspace, "workspace.read", path="a.txt") == plain
    assert editor.asked == []


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/etc/hostname", "link.txt", "folder", "none.txt", "a.txt/x"]
)
async def test_an_editor_is_not_asked_for_what_the_tools_cannot_reach(workspace: Path, path: str):
    (workspace.parent / "outside.txt").write_text("secret\n")
    (workspace / "link.txt").symlink_to(workspace.parent / "outside.txt")
    (workspace / "folder").mkdir()
    editor = Typed(dict.fromkeys((path, "outside.txt", "link.txt"), "secret, not saved\n"))
    for tool, more in (("workspace.read", {}), ("workspace.edit", {"old": "secret", "new": "x"})):
        run = await use_for(editor, workspace, tool, path=path, **more)
        assert run.is_error
        assert "not saved" not in run.result
    assert (editor.asked, editor.given) == ([], {})
    assert (workspace.parent / "outside.txt").read_text() == "secret\n"


def _copy(workspace: Path) -> Path:
    (workspace / "a.txt").write_text(SAVED)
    return workspace
