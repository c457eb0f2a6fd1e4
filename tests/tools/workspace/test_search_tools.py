"""workspace.list, workspace.glob and workspace.search on real trees: what they find, skip, say and refuse."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.tools.calling import REGISTRY, call, error, use

from codesdk.contract.ports import ToolRun
from codesdk.tools.workspace import pattern, search_tools as finding
from codesdk.tools.workspace.globs import BadGlob, Glob
from codesdk.tools.workspace.pattern import Place, PlainText, RegularExpression


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project with what should be passed over beside it."""
    root = tmp_path / "workspace"
    for path, content in {
        "README.md": "# Hello\n",
        "src/app.py": "import os\n\ndef main():\n    return 'Hello'\n",
        "src/deep/er/util.py": "HELLO = 1\r\nhello = 2\r\n",
        "src/deep/data.bin": "hello\0",
        "node_modules/x/index.js": "hello\n",
        ".git/HEAD": "hello\n",
        ".codesdk/codesdk.db": "hello\n",
        ".hidden/a.py": "hello\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode())
    (tmp_path / "outside.py").write_text("hello from outside\n")
    (root / "link.py").symlink_to("../outside.py")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "src" / "fifo.py")
    return root


async def test_a_directory_is_listed_with_what_its_entries_are(root):
    assert await use(root, "workspace.list") == ToolRun(
        result=".codesdk/\n.git/\n.hidden/\nREADME.md  8\nlink.py  (symbolic link, not followed)\nnode_modules/\nsrc/\n"
        "up  (symbolic link, not followed)"
    )
    assert (await use(root, "workspace.list", path="./src/")).result == (
        "app.py  42\ndeep/\nfifo.py  (not a regular file)"
    )


async def test_a_name_that_could_be_taken_for_something_else_is_quoted(tmp_path):
    (tmp_path / "a\nb.txt").write_text("")
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    assert (await use(tmp_path, "workspace.list")).result == '"a\\nb.txt"  0\n"\\udcff"/'
    assert (await use(tmp_path, "workspace.glob", pattern="*")).result == '"a\\nb.txt"'


async def test_a_long_or_an_empty_directory_is_said_to_be_so(tmp_path):
    assert (await use(tmp_path, "workspace.list")).result == "(. is empty)"
    for number in range(1_003):
        (tmp_path / f"{number:04}").touch()
    lines = (await use(tmp_path, "workspace.list")).result.split("\n")
    assert (len(lines), lines[-1]) == (1_001, "(3 more; use workspace.glob to choose)")


@pytest.mark.parametrize("name", ["workspace.list", "workspace.glob", "workspace.search"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("..", 'the path contains ".."; it must stay inside the workspace'),
        ("/etc", "the path is absolute; give it relative to the workspace"),
        ("up", "up is a symbolic link; symbolic links are not followed"),
        ("up/outside.py", "up is a symbolic link; symbolic links are not followed"),
        ("missing", "missing does not exist"),
        (".codesdk", "it is in CodeSDK's own data directory, which is closed to tools"),
        ("a\0", "a path cannot contain a NUL character"),
    ],
)
async def test_no_tool_looks_elsewhere(root, name, path, why):
    arguments = {} if name == "workspace.list" else {"pattern": "hello"}
    assert await use(root, name, path=path, **arguments) == error(f'Cannot use the path "{path}": {why}.')


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "*.py"}, [".hidden/a.py", "src/app.py", "src/deep/er/util.py"]),
        ({"pattern": "src/*.py"}, ["src/app.py"]),
        ({"pattern": "**/*.{py,md}", "path": "src"}, ["src/app.py", "src/deep/er/util.py"]),
        ({"pattern": "deep/**", "path": "src"}, ["src/deep/data.bin", "src/deep/er/util.py"]),
        ({"pattern": "*", "path": "node_modules"}, ["node_modules/x/index.js"]),
        ({"pattern": "*.js"}, ["No file matches."]),
        (
            {"pattern": "*.py", "limit": 1},
            [".hidden/a.py", "(there are more than 1; narrow the pattern or the path)"],
        ),
    ],
)
async def test_files_are_found_by_their_paths(root, arguments, found):
    assert (await use(root, "workspace.glob", **arguments)).result.split("\n") == found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "Hello"}, ["README.md:1:# Hello", "src/app.py:4:    return 'Hello'"]),
        ({"pattern": "hello$", "path": "src"}, ["No line matches."]),
        ({"pattern": "^hello = 2$"}, ["src/deep/er/util.py:2:hello = 2"]),
        (
            {"pattern": "hello", "ignore_case": True, "path": "src"},
            [
                "src/app.py:4:    return 'Hello'",
                "src/deep/er/util.py:1:HELLO = 1",
                "src/deep/er/util.py:2:hello = 2",
            ],
        ),
        ({"pattern": "main()", "literal": True}, ["src/app.py:3:def main():"]),
        ({"pattern": "MAIN()", "literal": True, "ignore_case": True}, ["src/app.py:3:def main():"]),
        ({"pattern": "hello", "glob": "*.js"}, ["No line matches."]),
        ({"pattern": "hello", "path": "node_modules"}, ["node_modules/x/index.js:1:hello"]),
        ({"pattern": "Hello", "path": "README.md"}, ["README.md:1:# Hello"]),
        (
            {"pattern": "hello", "ignore_case": True, "limit": 1},
            ["README.md:1:# Hello", "(there are more than 1; narrow the pattern, path or glob)"],
        ),
    ],
)
async def test_lines_are_found_in_text_files(root, arguments, found):
    assert (await use(root, "workspace.search", **arguments)).result.split("\n") == found


async def test_a_long_line_is_shown_around_the_match(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 5_000 + "needle" + "y" * 5_000 + "\n")
    for is_literal in (True, False):
        run = await use(tmp_path, "workspace.search", pattern="needle", literal=is_literal)
        assert run.result == f"a.txt:1:…{'x' * 100}needle{'y' * 194}…"


async def test_a_file_that_is_too_large_is_passed_over_and_counted(tmp_path):
    (tmp_path / "big.txt").write_text("needle\n" + "x" * 2_000_000)
    assert (await use(tmp_path, "workspace.search", pattern="needle")).result == (
        "No line matches.\n(1 files over 2000000 bytes were skipped)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"pattern": "("},
            "The pattern is not a regular expression: missing ), unterminated subpattern at position 0."
            " For plain text set literal.",
        ),
        (
            {"pattern": "a\nb"},
            "The pattern contains a line end; it is looked for in each line on its own.",
        ),
        (
            {"pattern": "a", "glob": "../*"},
            'The glob cannot be used: a glob cannot contain ".."; it looks inside the workspace only.',
        ),
        (
            {"pattern": "a", "glob": "{a,b}" * 7},
            "The glob cannot be used: a glob may stand for 100 patterns; the braces make more.",
        ),
    ],
)
async def test_a_pattern_that_cannot_be_used_is_explained(root, arguments, message):
    assert await use(root, "workspace.search", **arguments) == error(message)


CATASTROPHIC = r"(a+)+$"
VICTIM = "a" * 64 + "b\n"


@pytest.mark.slow
async def test_a_pattern_that_would_take_for_ever_is_stopped(tmp_path, monkeypatch):
    """This one takes longer than the age of the universe; the search ends, and says why."""
    monkeypatch.setattr(finding, "PATTERN_S", 1.0)
    (tmp_path / "a.txt").write_text("aaa\n" + VICTIM)
    (tmp_path / "0.txt").write_text("aaa\n")
    assert (await use(tmp_path, "workspace.search", pattern=CATASTROPHIC)).result == (
        "0.txt:1:aaa\n(stopped: the pattern needs more than 1 s or too much memory; make it simpler, or use literal)"
    )


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_search_that_is_cancelled_ends_with_its_process(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(VICTIM)
    started: list[int] = []
    ready, real, loop = asyncio.Event(), pattern.subprocess.Popen, asyncio.get_running_loop()

    def popen(*args, **options):
        process = real(*args, **options)
        started.append(process.pid)
        loop.call_soon_threadsafe(ready.set)
        return process

    monkeypatch.setattr(pattern.subprocess, "Popen", popen)
    search = call("workspace.search", tmp_path, {"pattern": CATASTROPHIC})
    task = asyncio.create_task(REGISTRY.run(search, lambda *_: None))
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_there(started[0])


def test_a_pattern_process_that_dies_counts_as_too_slow():
    with RegularExpression("a", ignore_case=False, seconds=30, go_on=lambda: True) as hits:
        assert hits.find(b"xa\na\n", 10) == [Place(1, 1), Place(2, 0)]
        process = hits._process
        process.kill()
        process.wait()
        with pytest.raises(pattern.TooSlow):
            hits.find(b"a", 10)


async def test_a_walk_that_takes_too_long_says_where_it_stopped(root, monkeypatch):
    monkeypatch.setattr(finding, "WALK_S", -1.0)
    assert (await use(root, "workspace.glob", pattern="*")).result == (
        "No file matches.\n(stopped after -1 s; name a directory to see the rest)"
    )


LINES = st.lists(st.text(st.sampled_from("ab\r é\u2028"), max_size=6), max_size=6).map("\n".join)


@given(LINES, st.text(st.sampled_from("ab é"), min_size=1, max_size=2), st.integers(1, 4))
def test_plain_text_is_found_where_python_finds_it(text, wanted, most):
    expected = [
        Place(number, line.find(wanted))
        for number, line in enumerate(text.split("\n"), start=1)
        if wanted in line
    ]
    assert PlainText(wanted).find(text.encode(), most) == expected[:most]


async def test_plain_text_in_any_case_can_be_stopped_like_a_pattern(tmp_path, monkeypatch):
    """Each place of a long line would be compared with all of the text, in a thread that nobody can stop."""
    (tmp_path / "a.txt").write_text("a" * 1_900_000)
    monkeypatch.setattr(finding, "PATTERN_S", 0.0)
    found = await use(tmp_path, "workspace.search", pattern="A" * 999 + "b", literal=True, ignore_case=True)
    assert found.result.startswith("No line matches.\n(stopped: the pattern needs more than 0 s")


async def test_many_hits_far_down_a_file_are_shown_without_splitting_it_for_each(tmp_path):
    (tmp_path / "a.txt").write_text("\n" * 1_900_000 + "hit\n" * 1_000)
    found = (await use(tmp_path, "workspace.search", pattern="hit", literal=True, limit=1000)).result
    assert found.split("\n")[-1] == "a.txt:1901000:hit"


GLOBS = {
    "*.py": (["a.py", "x/a.py", "x/y/.py"], ["a.pyc", "apy"]),
    "/*.py": (["a.py"], ["x/a.py"]),
    "./a": (["a"], ["x/a"]),
    "src/**/*.py": (["src/a.py", "src/x/y/a.py"], ["a.py", "other/src/a.py", "src/a.txt"]),
    "**": (["a", "a/b"], []),
    "a/**/b": (["a/b", "a/x/b", "a/x/y/b"], ["a/x", "b"]),
    "**/x/**": (["x/a", "a/x/b", "x"], ["a/y"]),
    "a?c": (["abc", "x/abc"], ["ac", "abbc", "a/c"]),
    "[ab].{js,ts}": (["a.js", "b.ts"], ["c.js", "a.py"]),
    "{a,b{c,d}}/x": (["a/x", "bc/x", "bd/x"], ["b/x", "{a/x"]),
    "a{b": (["a{b"], ["ab"]),
    "A": (["A"], ["a"]),
}


@pytest.mark.parametrize(("glob", "paths"), GLOBS.items())
def test_a_glob_means_these_paths_and_not_those(glob, paths):
    means, not_these = paths
    assert [path for path in means if not Glob(glob).matches(path)] == []
    assert [path for path in not_these if Glob(glob).matches(path)] == []


@pytest.mark.parametrize("glob", ["", "x" * 501, "a\0", "../a", "a/../b"])
def test_a_glob_that_makes_no_sense_is_refused(glob):
    with pytest.raises(BadGlob):
        Glob(glob)


def test_no_glob_takes_long():
    """As one regular expression this would try every way to share the letters among the stars, and never end."""
    assert not Glob("*a" * 120 + "b").matches("a" * 250)
    assert not Glob("**/" * 100 + "b").matches("a/" * 100 + "a")
