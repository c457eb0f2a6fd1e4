"""docs/architecture.md and CONTRIBUTING.md: the rooms are those on disk, in the rows of import-linter, and the counts are what is counted."""

import ast
import importlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.engine import walks
from tests.engine.calls import walk
from tests.engine.calls.test_origins import MOST_HOPS

import codesdk

ROOT = Path(codesdk.__file__ or "").parent
PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "architecture.md").read_text()
LAYERS: list[str] = next(
    contract["layers"]
    for contract in tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    if contract["id"] == "layers"
)


def rows(title: str) -> list[list[str]]:
    """Return the cells of the first table below a title."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def on_disk() -> set[str]:
    return {
        path.stem for path in ROOT.iterdir() if path.name not in ("__init__.py", "__pycache__", "py.typed")
    }


ROOMS = [(int(row), name, text, door) for row, names, text, door in rows("Rooms") for name in quoted(names)]


def test_the_rooms_are_those_on_disk_in_the_rows_that_import_linter_checks():
    assert {name for _, name, _, _ in ROOMS} == on_disk()
    by_row = [{name for row, name, _, _ in ROOMS if row == number} for number in range(1, len(LAYERS) + 1)]
    assert by_row == [set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", layer))) for layer in LAYERS]


def test_every_folder_of_a_room_is_named_in_its_row():
    told = {name: re.findall(r"`(\w+)/`", text) for _, name, text, _ in ROOMS}
    folders = [path.parent for path in ROOT.glob("*/**/__init__.py") if path.parent.parent != ROOT]
    inside = {name: {path.name for path in folders if path.is_relative_to(ROOT / name)} for name in told}
    inside["minicode"].remove("clients")  # below `models`, one for each provider
    assert {name: set(found) for name, found in told.items() if found or inside[name]} == {
        name: found for name, found in inside.items() if found
    }


def test_what_a_door_is_said_to_show_is_there():
    shown = [(name, door) for _, name, _, door in ROOMS if (ROOT / name / "__init__.py").is_file()]
    for name, door in shown:
        package = importlib.import_module(f"codesdk.{name}")
        for one in quoted(door.partition(";")[0]):
            assert hasattr(package, one), f"codesdk.{name} has no {one}"


def test_contributing_has_the_same_rows():
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    listed = text.partition("a layer imports only from those below it:\n")[2].partition(". Packages on")[0]
    found = [set(re.findall(r"\w+", level)) for level in quoted(listed)]
    assert found == [set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", layer))) for layer in LAYERS]


WALKED = "\n".join(re.findall(r"```\n(.*?)```", PAGE.partition("## A delta")[2], re.DOTALL))
STEP = re.compile(
    r"^ +([a-z_]+(?:/[a-zA-Z_]+)*)(?:, [a-z_]+)? +([a-z_]+)(?=[:;,]| →| \(| or | {2}|$)", re.MULTILINE
)
"""A line of a walk that names a module and what is called there."""


def test_from_the_package_itself_modules_import_its_version_and_whole_rooms_only():
    taken = {
        alias.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "codesdk"
        for alias in node.names
    }
    assert taken <= {"__version__"} | on_disk()


def test_every_module_on_a_walk_exists():
    modules = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.rglob("*.py")}
    places = modules | {str(Path(module).parent) for module in modules}
    named = set(re.findall(r"(?<![\w/.])[a-z_]+(?:/[a-z_]+)+(?![\w/]|\.sock)", WALKED))
    assert len(named) > 60
    assert not {
        one for one in named if not any(place == one or place.endswith(f"/{one}") for place in places)
    } - {"codesdk/prices", "tools/call"}  # the former from above, the latter a method of MCP


def functions_in(place: str) -> set[str]:
    """Return the functions of a module, or of all modules of a package, by the end of its path."""
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT).with_suffix("")
        if any(f"/{one}".endswith(f"/{place}") for one in (module, module.parent)):
            nodes = ast.walk(ast.parse(path.read_text()))
            found |= {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found


def test_what_is_called_on_a_walk_is_in_that_module():
    steps = [(place.removesuffix("/FORMAT"), name) for place, name in STEP.findall(WALKED)]
    assert len(steps) > 55
    assert [step for step in steps if step[1] not in functions_in(step[0])] == [("beside", "it")]


@pytest.mark.slow
async def test_a_tool_call_takes_as_many_hops_as_the_page_says():
    for origin, _, _, now, _, tasks in rows("A tool call"):
        (name,) = quoted(origin)
        traced = await walk.WALKS[name]()
        assert (int(now), int(tasks)) == (len(traced.hops), len(traced.tasks)), name
        assert MOST_HOPS[name] == len(traced.hops)


@pytest.mark.slow
async def test_the_other_walks_take_as_many_hops_as_the_page_says():
    said = {name: [int(one) for one in re.findall(r"\d+", now)] for name, _, _, _, now in rows("Hops")}
    assert said.keys() == walks.WALKS.keys()
    for name, trace in walks.WALKS.items():
        counted = [len((await trace(ground)).hops) for ground in (walk.GROUND, walks.WITH_LOG)]
        # Within a tenth: one call that became two is no reason to write the page again.
        assert said[name] == pytest.approx(counted, rel=0.1, abs=1), name


@pytest.mark.parametrize("row", rows("Files to touch"), ids=lambda row: row[0])
def test_what_is_there_is_in_the_files_that_a_new_one_would_touch(row: list[str]):
    _, count, which, _, found_by, _ = row
    assert quoted(found_by)
    for by in quoted(found_by):
        if by.startswith("tests/"):
            assert (PROJECT / by).is_file()
            continue
        pattern = re.compile(by.replace("\\|", "|"))
        paths = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
        found = {path for path, text in paths.items() if pattern.search(text)}
        assert found <= set(quoted(which))
        assert len(found) == int(count)


def git(*arguments: str) -> str:
    """Return what git says of this checkout; nothing if it says no, or if there is no git."""
    try:
        said = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""
    return said.stdout.decode(errors="replace")


def has_history() -> bool:
    """Return whether this is a checkout with all its commits, and not an export, a copy or a shallow clone."""
    said = git("rev-parse", "--show-toplevel", "--is-shallow-repository").splitlines()
    return len(said) == 2 and Path(said[0]).samefile(PROJECT) and said[1] == "false"


def added(commit: str) -> dict[str, str]:
    """Return the lines that a commit added, by the files of the package that it touched."""
    diff = git("diff-tree", "-p", "--unified=0", "--find-renames", commit, "--", "src/codesdk")
    files = re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]
    return {
        file.partition("\n")[0].rpartition(" b/")[2]: "\n".join(
            re.findall(r"^\+(?!\+\+ )(.*)", file, re.MULTILINE)
        )
        for file in files
    }


COUNTED = re.compile(r"`([0-9a-f]{8})` (\d+) of (\d+)(?: by `([^`]+)`)?")
"""A commit that added one: how many of its files are for that, how many it touched, and a pattern of its own."""


@pytest.mark.skipif(not has_history(), reason="there is no history of git to look at")
@pytest.mark.parametrize("row", rows("Files to touch"), ids=lambda row: row[0])
def test_the_commits_that_added_one_touched_as_many_files_as_the_page_says(row: list[str]):
    found_by, commits = row[4:]
    counted = COUNTED.findall(commits)
    assert counted or commits.startswith("none")
    assert len(counted) == len(re.findall(r"`[0-9a-f]{8}`", commits))
    for commit, mine, touched, by in counted:
        pattern = re.compile("|".join([by] if by else quoted(found_by)).replace("\\|", "|"))
        files = added(commit)
        found = [path for path, text in files.items() if pattern.search(text)]
        assert (len(found), len(files)) == (int(mine), int(touched)), (commit, found)


@pytest.mark.skipif(not has_history(), reason="there is no history of git to look at")
def test_every_commit_that_the_page_names_exists():
    named = set(re.findall(r"`([0-9a-f]{8})`", PAGE))
    assert len(named) > 12
    assert {one for one in named if not git("rev-parse", "--verify", "--quiet", f"{one}^{{commit}}")} == set()
