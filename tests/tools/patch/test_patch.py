"""patch.apply on real files: what applies, what does not and why, all or nothing, and what git says to the same."""

import asyncio
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st
from tests.counts import COUNTS
from tests.sandbox.traps import tree
from tests.tools.calling import REGISTRY, changed, error, ready, use

from codesdk.contract.ports import ToolRun
from codesdk.contract.tools import Subjects
from codesdk.sandbox.files import batch
from codesdk.tools.patch.hunks import DoesNotApply, apply_hunks
from codesdk.tools.patch.parsing import BadPatch, FilePatch, Hunk, parse
from codesdk.tools.workspace.diff import lines_of, unified

GIT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(
    folder: Path, *args: str, stdin: bytes = b"", check: bool = True
) -> "subprocess.CompletedProcess[bytes]":
    """Run git where no other repository is above."""
    env = {**GIT, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return subprocess.run(
        ["git", *args], cwd=folder, input=stdin, capture_output=True, check=check, timeout=60, env=env
    )


async def apply(root: Path, patch: str) -> ToolRun:
    return await use(root, "patch.apply", patch=patch)


def fill(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def files_of(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(root).items() if isinstance(data, bytes)}


TEN = b"".join(b"%d\n" % n for n in range(1, 11))
CHANGE_FIVE = "--- a/a.txt\n+++ b/a.txt\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"


async def test_a_hunk_is_applied_and_reported(tmp_path):
    fill(tmp_path, {"a.txt": TEN})
    (tmp_path / "a.txt").chmod(0o750)
    after = TEN.replace(b"5", b"five")
    assert await apply(tmp_path, CHANGE_FIVE) == ToolRun(
        result="Changed a.txt.",
        changes=[changed("a.txt", unified("a.txt", TEN, after), TEN, after, mode=0o750)],
    )
    assert files_of(tmp_path) == {"a.txt": after}


async def test_line_numbers_may_be_off(tmp_path):
    fill(tmp_path, {"a.txt": b"new\nnew\n" + TEN})
    assert (await apply(tmp_path, CHANGE_FIVE)).result == "Changed a.txt (hunk 1 +2 lines)."
    assert files_of(tmp_path) == {"a.txt": b"new\nnew\n" + TEN.replace(b"5", b"five")}


async def test_files_are_made_removed_renamed_copied_and_made_executable(tmp_path):
    fill(tmp_path, {"gone.txt": b"x\n", "old.txt": TEN, "run.sh": b"#!\n", "from.txt": b"copy\n"})
    (tmp_path / "old.txt").chmod(0o600)
    patch = (
        "A message before it.\n\n"
        "--- /dev/null\n+++ b/new/deep.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
        "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/old.txt b/sub/moved.txt\nsimilarity index 90%\nrename from old.txt\nrename to sub/moved.txt\n"
        "--- a/old.txt\n+++ b/sub/moved.txt\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
        "diff --git a/from.txt b/to.txt\nsimilarity index 100%\ncopy from from.txt\ncopy to to.txt\n"
        "diff --git a/empty b/empty\nnew file mode 100755\nindex 0000000..e69de29\n"
    )
    run = await apply(tmp_path, patch)
    assert run.result.split("\n") == [
        "Created new/deep.txt.",
        "Removed gone.txt.",
        "Removed old.txt.",
        "Renamed old.txt to sub/moved.txt.",
        "Changed run.sh.",
        "Copied from.txt to to.txt.",
        "Created empty.",
    ]
    assert files_of(tmp_path) == {
        "new/deep.txt": b"one\ntwo",
        "sub/moved.txt": TEN.replace(b"5", b"five"),
        "run.sh": b"#!\n",
        "from.txt": b"copy\n",
        "to.txt": b"copy\n",
        "empty": b"",
    }
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in files_of(tmp_path)}
    assert modes == {
        "new/deep.txt": 0o644,
        "sub/moved.txt": 0o600,
        "run.sh": 0o755,
        "from.txt": 0o644,
        "to.txt": 0o644,
        "empty": 0o755,
    }
    assert [change.path for change in run.changes] == [
        "new/deep.txt", "gone.txt", "old.txt", "sub/moved.txt", "run.sh", "to.txt", "empty"
    ]  # fmt: skip


async def test_a_copy_is_of_the_file_before_the_patch_that_changes_it_too(tmp_path: Path):
    fill(tmp_path, {"a.txt": TEN})
    copy = "diff --git a/a.txt b/b.txt\nsimilarity index 100%\ncopy from a.txt\ncopy to b.txt\n"
    await apply(tmp_path, CHANGE_FIVE + copy)
    assert files_of(tmp_path) == {"a.txt": TEN.replace(b"5\n", b"five\n"), "b.txt": TEN}


async def test_a_file_may_be_changed_by_two_parts_of_a_patch(tmp_path):
    fill(tmp_path, {"a.txt": TEN})
    again = CHANGE_FIVE.replace("-5\n+five", " five\n+more").replace("@@ -4,3 +4,3 @@", "@@ -4,3 +4,4 @@")
    assert not (await apply(tmp_path, CHANGE_FIVE + again)).is_error
    assert files_of(tmp_path) == {"a.txt": TEN.replace(b"5", b"five\nmore")}


MISFITS: dict[str, tuple[bytes | None, str, str]] = {
    "another line": (
        TEN.replace(b"5", b"FIVE"),
        CHANGE_FIVE,
        "hunk 1 does not fit: line 5 of the file is 'FIVE', the hunk has '5'",
    ),
    "moved and another line": (
        b"x\n" * 3 + TEN.replace(b"6", b"six"),
        CHANGE_FIVE,
        "hunk 1 does not fit: line 9 of the file is 'six', the hunk has '6'",
    ),
    "the end": (
        b"1\n2\n3\n4\n5\n",
        CHANGE_FIVE,
        "hunk 1 does not fit: the file ends after line 5, the hunk goes on with '6'",
    ),
    "no line end": (
        b"1\n2\n3\n4\n5\n6",
        CHANGE_FIVE,
        "hunk 1 does not fit: line 6 of the file has no line end, in the hunk it is the other way",
    ),
    "Windows line ends": (
        TEN.replace(b"\n", b"\r\n"),
        CHANGE_FIVE,
        "hunk 1 does not fit: the file has Windows line ends (\\r\\n) and the patch has \\n;"
        " end its lines with \\r\\n",
    ),
    "Windows line ends in the patch": (
        TEN,
        CHANGE_FIVE.replace("\n", "\r\n"),
        "hunk 1 does not fit: the patch has Windows line ends (\\r\\n) and the file has \\n",
    ),
    "several places": (
        b"0\n" + TEN + TEN,
        CHANGE_FIVE,
        "hunk 1 says line 4, but could go to lines 5, 15; include more lines around the change",
    ),
    "where it says, or at the end": (
        b"a\nb\na\n",
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n a\n+new\n",
        "hunk 1 says line 1, but could go to lines 1, 3; include more lines around the change",
    ),
    "hunks in the wrong order": (
        TEN,
        "--- a/a.txt\n+++ b/a.txt\n@@ -8 +8 @@\n-8\n+eight\n@@ -2 +2 @@\n-2\n+two\n",
        "hunk 2 does not fit: its lines come before those of the hunk before it; put the hunks in order",
    ),
    "nothing of the file shown": (
        TEN,
        "--- a/a.txt\n+++ b/a.txt\n@@ -3,0 +4 @@\n+new\n",
        "hunk 1 only adds lines and shows none of the file; include some lines around them",
    ),
    "lines after the last": (
        b"x",
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,0 +2 @@\n+new\n",
        "it would put lines after one that is marked as having no line end",
    ),
    "no file": (None, CHANGE_FIVE, "there is no such file"),
    "a file that is there": (
        TEN,
        "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n",
        "it should be created, but already exists",
    ),
    "a file that would not be empty": (
        TEN,
        "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n",
        "it should be removed, but the hunks keep some of its lines",
    ),
    "removed twice": (
        b"x\n",
        "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" * 2,
        "there is no such file any more",
    ),
    "another encoding": ("5\n".encode("utf-16"), CHANGE_FIVE, "it is UTF-16, and a patch is UTF-8; convert it first"),
    "too much": (
        b"x\n",
        f"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+{'y' * 2_000_000}\n",
        "it would have 2000001 bytes; files over 2000000 are not written",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "patch", "why"), MISFITS.values(), ids=MISFITS)
async def test_a_hunk_that_does_not_fit_is_explained_and_nothing_changes(tmp_path, content, patch, why):
    fill(tmp_path, {"b.txt": b"b\n"} | ({} if content is None else {"a.txt": content}))
    before = tree(tmp_path)
    first = "--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-b\n+c\n"
    assert await apply(tmp_path, first + patch) == error(
        f"The patch does not apply. Nothing was changed.\n- a.txt: {why}"
    )
    assert tree(tmp_path) == before


async def test_all_that_does_not_fit_is_told_at_once(tmp_path):
    fill(tmp_path, {"a.txt": b"x\n"})
    many = "".join(CHANGE_FIVE.replace("a.txt", f"{n}.txt") for n in range(12))
    assert (await apply(tmp_path, CHANGE_FIVE + many)).result.split("\n") == [
        "The patch does not apply. Nothing was changed.",
        "- a.txt: hunk 1 does not fit: the file ends after line 1, the hunk goes on with '4'",
        *[f"- {n}.txt: there is no such file" for n in range(9)],
        "- and 3 more",
    ]


UNREADABLE = {
    "Just words.": "it has no file: a file begins with the lines --- a/path and +++ b/path",
    "@@ -1 +1 @@\n-a\n+b\n": "line 1: a hunk must come after the --- and +++ lines of its file",
    "--- a/x\n+++ b/x\n": "line 3: a hunk such as @@ -1,3 +1,4 @@ must follow the names",
    "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n": "line 3: the hunk says 2 old and 2 new lines, but up to where it"
    " ends there are 2 and 1; each line begins with a space, - or +",
    "--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n+b\nwords\n": "line 3: the hunk says 2 old and 1 new lines, but up to where"
    " it ends there are 1 and 1; each line begins with a space, - or +",
    "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n-b\n+c\n+d\n": "line 3: the hunk says 1 old and 2 new lines, but up to where"
    " it ends there are 2 and 2; each line begins with a space, - or +",
    "--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n": "line 3: a file has no name",
    "--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n": "line 3: the names x and y differ; a rename needs the lines rename from"
    " and rename to",
    "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\n": "line 3: binary changes cannot be applied; write"
    " the file another way",
    "diff --git a/x b/x\nnew file mode 120000\n": "line 3: the mode 120000 is not one of a regular file",
    "diff --git a/x b/y\nrename to y\n": "line 3: rename to comes without rename from",
    "diff --git a/x b/y\n": "line 2: a file has no name",
    '--- "a/x\n+++ b/x\n': "line 1: a quoted name has no end",
    '--- "a/\\377"\n+++ b/x\n': "line 1: a name is not UTF-8",
    "--- \n+++ b/x\n": "line 1: a name is missing",
    "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n" * 501: "line 2506: a patch may change 500 files, not more",
}


@pytest.mark.parametrize(("patch", "why"), UNREADABLE.items(), ids=[p[:30] for p in UNREADABLE])
async def test_what_is_no_patch_is_explained_by_its_line(tmp_path, patch, why):
    assert await apply(tmp_path, patch) == error(f"The patch cannot be read: {why}. Nothing was changed.")
    assert ready(REGISTRY, "patch.apply", {"patch": patch}).subjects == Subjects()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../x", 'the path contains ".."; it must stay inside the workspace'),
        ("/etc/x", "the path is absolute; give it relative to the workspace"),
        (".git/hooks/x", "it belongs to git itself, which runs what is in there; use git to change it"),
        ("link/x", "link is a symbolic link; symbolic links are not followed"),
        ("link", "link is a symbolic link; symbolic links are not followed"),
        ("fifo", "fifo is not a regular file"),
        ("x\0", "a path cannot contain a NUL character"),
    ],
)
async def test_a_patch_leads_nowhere_else(tmp_path, path, why):
    workspace = fill(tmp_path / "workspace", {"a.txt": TEN})
    (workspace / "link").symlink_to("..")
    os.mkfifo(workspace / "fifo")
    before = tree(tmp_path)
    create = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    assert await apply(workspace, CHANGE_FIVE + create) == error(
        f"The patch does not apply. Nothing was changed.\n- {path}: {why}"
    )
    assert tree(tmp_path) == before


async def test_a_patch_whose_last_file_fails_leaves_all_others_as_they_were(tmp_path, monkeypatch):
    fill(tmp_path, {"a.txt": TEN, "b.txt": b"x\n"})
    before, real = tree(tmp_path), batch._place

    def fail(step: Any) -> None:
        if step.name == "c.txt":
            raise OSError(28, "No space left on device")
        real(step)

    monkeypatch.setattr(batch, "_place", fail)
    patch = f"{CHANGE_FIVE}--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/c.txt\n@@ -0,0 +1 @@\n+x\n"
    assert await apply(tmp_path, patch) == error("Cannot do it: the disk is full.")
    assert tree(tmp_path) == before


async def test_a_patch_that_changes_nothing_says_so(tmp_path):
    fill(tmp_path, {"a.txt": TEN})
    for patch in (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n 1\n",
        "diff --git a/a.txt b/a.txt\nold mode 100755\nnew mode 100644\n",
    ):
        assert await apply(tmp_path, patch) == error(
            "The patch changes nothing: the files are already as it says."
        )


def test_the_policy_is_told_every_path_that_a_patch_names():
    patch = (
        f"{CHANGE_FIVE}--- /dev/null\n+++ b/./new//x\n@@ -0,0 +1 @@\n+x\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/old b/moved\nrename from old\nrename to moved\n"
    )
    assert ready(REGISTRY, "patch.apply", {"patch": patch}).subjects == Subjects(
        paths=["a.txt", "new/x", "gone", "old", "moved"]
    )


def test_names_are_read_in_every_spelling():
    spelled = {
        "--- a/x\n+++ b/x": "x",
        "--- x\n+++ x": "x",
        "--- a/x\t2026-01-01 00:00:00\n+++ b/x\t2026-01-01 00:00:01": "x",
        "--- a/with space\t\n+++ b/with space\t": "with space",
        '--- "a/quo\\"te\\\\\\303\\251\\t"\n+++ "b/quo\\"te\\\\\\303\\251\\t"': 'quo"te\\é\t',
        "--- a/x\r\n+++ b/x\r": "x",
    }
    for head, name in spelled.items():
        assert parse(f"{head}\n@@ -1 +1 @@\n-a\n+b\n".encode()) == [
            FilePatch(name, name, [Hunk(1, [b"a\n"], [b"b\n"], 1, ends=True)])
        ]


LINE = st.sampled_from(
    [b"a\n", b"b\n", b"c\n", b"\n", b"- x\n", b"+ x\n", b"-- x\n", b"++ x\n", b"d\r\n", b"\xff\n"]
)
TEXT = st.tuples(st.lists(LINE, max_size=14), st.sampled_from([b"", b"end", b"\\ No"])).map(
    lambda parts: b"".join(parts[0]) + parts[1]
)
PLAIN = TEXT.filter(lambda data: b"\xff" not in data)


def hunks_of(before: bytes, after: bytes) -> list[Hunk]:
    diff = unified("a.txt", before, after)
    return parse(diff.encode())[0].hunks if diff else []


@given(PLAIN, PLAIN)
def test_a_difference_turns_the_one_text_into_the_other(before, after):
    result, offsets = apply_hunks(before, hunks_of(before, after))
    assert (result, set(offsets)) == (after, {0} if offsets else set())


@given(PLAIN, PLAIN, TEXT)
def test_what_was_applied_anywhere_can_be_taken_back(before, after, target):
    """Wherever the hunks went in another text, putting their old lines back there gives that text again."""
    hunks = hunks_of(before, after)
    try:
        result, offsets = apply_hunks(target, hunks)
    except DoesNotApply:
        return
    reverse: list[Hunk] = []
    grown = 0
    for hunk, offset in zip(hunks, offsets, strict=True):
        at = (hunk.start - 1 if hunk.old else hunk.start) + offset + grown
        reverse.append(Hunk(at + 1 if hunk.new else at, hunk.new, hunk.old, hunk.number))
        grown += len(hunk.new) - len(hunk.old)
    lines = lines_of(result)
    for hunk in reversed(reverse):
        at = hunk.start - 1 if hunk.old else hunk.start
        assert lines[at : at + len(hunk.old)] == hunk.old
        lines[at : at + len(hunk.old)] = hunk.new
    assert b"".join(lines) == target


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_text_is_a_crash(data, text):
    try:
        files = parse(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n" + text)
        for file in files:
            apply_hunks(data, file.hunks)
    except (BadPatch, DoesNotApply):
        pass


def outcome(target: bytes, diff: str) -> bytes | str:
    """Return what the hunks make of a text, or why they do not fit."""
    try:
        return apply_hunks(target, parse(diff.encode())[0].hunks)[0]
    except DoesNotApply as error:
        return str(error)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=COUNTS.examples)
@given(PLAIN, PLAIN, PLAIN.map(lambda data: data and data + b"\n"), st.integers(0, 3))
def test_git_agrees_on_what_a_patch_makes_of_a_file(before, after, extra, copies):
    """What git applies, we apply with the same result, unless it could go to several places: git picks one.

    Not everything that we apply git does: it wants a hunk without lines after it to be at the very end. And a last line
    without an end is for git the beginning of any line, so those are only tried where they belong.
    """
    target = before
    if before.endswith(b"\n"):
        target = extra + before + b"x\n" * copies
    diff = unified("a.txt", before, after)
    assume(diff)
    with tempfile.TemporaryDirectory() as name:
        folder = fill(Path(name), {"a.txt": target})
        done = git(folder, "apply", "--whitespace=nowarn", "-", stdin=diff.encode(), check=False)
        by_git = files_of(folder).get("a.txt", b"") if done.returncode == 0 else None
    ours = outcome(target, diff)
    if isinstance(ours, str):
        assert by_git is None or "include more lines around the change" in ours
    else:
        assert by_git in (None, ours)
    if target == before:
        assert (by_git, ours) == (after, after)


NAMES = st.sampled_from(
    ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "with space.txt", "é.txt", 'quo"te.txt']
)
TREES = st.dictionaries(NAMES, TEXT.filter(lambda data: b"\0" not in data), max_size=4)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=COUNTS.examples // 4)
@given(TREES, TREES, st.booleans())
def test_what_git_diff_writes_for_a_whole_tree_is_applied(before, after, move):
    """Renames and all. A text that is not UTF-8 cannot be in a patch that comes as JSON."""
    if move and before:
        name = next(iter(before))
        after = {key: data for key, data in after.items() if key != name} | {"moved/here.txt": before[name]}
    with tempfile.TemporaryDirectory() as home:
        repository, workspace = Path(home) / "repository", Path(home) / "workspace"
        for folder in (repository, workspace):
            folder.mkdir()
            fill(folder, before)
        git(repository, "init", "-q")
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "--allow-empty", "-m", "before")
        for name in before:
            (repository / name).unlink()
        fill(repository, after)
        git(repository, "add", "-A")
        diff = git(repository, "diff", "--cached", "-M", "-C", "--find-copies-harder").stdout
        try:
            patch = diff.decode()
        except UnicodeDecodeError:
            return
        if patch:
            run = asyncio.run(apply(workspace, patch))
            assert not run.is_error, run.result
        assert files_of(workspace) == after
