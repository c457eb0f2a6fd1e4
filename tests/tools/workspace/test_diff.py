"""Unified diffs: applying one to the old content gives the new content."""

import shutil
import subprocess

import pytest
from hypothesis import given, strategies as st

from codesdk.tools.workspace.diff import unified


def apply(before: bytes, diff: str) -> bytes:
    """A small, strict `patch`: every context line must be where the hunk says."""
    old = before.split(b"\n")
    old = [line + b"\n" for line in old[:-1]] + ([old[-1]] if old[-1] else [])
    out: list[bytes] = []
    at = 0
    lines = diff.encode().split(b"\n")[2:-1] if diff else []
    for number, line in enumerate(lines):
        sign, body = line[:1], line[1:] + b"\n"
        if number + 1 < len(lines) and lines[number + 1].startswith(b"\\"):
            body = body[:-1]
        if line.startswith(b"@@"):
            start, _, count = line.split()[1][1:].partition(b",")
            to = int(start) - (count != b"0")
            out += old[at:to]
            at = to
        elif sign in (b" ", b"-"):
            assert old[at] == body
            at += 1
        if sign in (b" ", b"+"):
            out.append(body)
    return b"".join(out + old[at:])


contents = st.lists(
    st.sampled_from(["a", "b", "c", "", "\r", "é", "@@ x", "\\ y", "--- z"]), max_size=30
).flatmap(lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])]))


@given(contents, contents)
def test_applying_a_diff_gives_the_new_content(before, after):
    diff = unified("a.txt", before.encode(), after.encode())
    assert apply(before.encode(), diff) == after.encode()
    assert (diff == "") == (before == after)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=5, unique=True))
def test_changes_far_apart_in_a_long_file_give_small_hunks(changed):
    before = [f"line {n}\n" for n in range(201)]
    after = [line if n not in changed else "new\n" for n, line in enumerate(before)]
    diff = unified("a.txt", "".join(before).encode(), "".join(after).encode())
    assert apply("".join(before).encode(), diff) == "".join(after).encode()
    assert diff.count("\n") <= 2 + len(changed) * 9


def test_a_huge_change_is_shown_as_a_whole_without_comparing_every_line():
    before = b"".join(b"%d\n" % (n % 7) for n in range(50_000))
    after = b"".join(b"%d\n" % (n % 5) for n in range(50_000))
    diff = unified("a.txt", b"same\n" + before, b"same\n" + after)
    assert apply(b"same\n" + before, diff) == b"same\n" + after
    assert diff.count("@@ -") == 1


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("a.txt", "--- a/a.txt"),
        ("with space.txt", "--- a/with space.txt\t"),
        ("é.txt", "--- a/é.txt"),
        ('quo"te\\.txt', '--- "a/quo\\042te\\134.txt"'),
        ("line\nend.txt", '--- "a/line\\012end.txt"'),
    ],
)
def test_a_name_cannot_break_the_header(path, header):
    assert unified(path, b"x\n", b"y\n").split("\n")[0] == header


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("name", ["a.txt", "with space.txt", 'quo"te\\.txt', "é.txt"])
@pytest.mark.parametrize(
    "contents", [(b"a\nb\nc\n", b"a\nB\nc\n"), (b"a", b"a\n"), (b"a\r\nb", b"a\r\n"), (b"x\n", b"")]
)
def test_git_takes_it(tmp_path, name, contents):
    before, after = contents
    (tmp_path / name).write_bytes(before)
    subprocess.run(
        ["git", "apply", "--unsafe-paths", "-"],
        input=unified(name, before, after).encode(),
        cwd=tmp_path,
        check=True,
        timeout=60,
        env={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    left = (tmp_path / name).read_bytes() if (tmp_path / name).exists() else b""
    assert left == after
