"""Finding programs of npm and tools of Python: ours first, then the search path, and none is started for it."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.program.pinned.registry import NAME, PROGRAM, SOURCE

from codesdk.contract.entry import ProgramEntry, PythonTool, RuntimeEntry
from codesdk.contract.errors import TaskFailure
from codesdk.runtimes.program.certificates import (
    OWNERSHIP_ROWS,
    Certificate,
    Row,
    adapter_version,
    codesdk_version,
    program_tree,
    store_certificate,
)
from codesdk.runtimes.program.finding import Program, find_program
from codesdk.runtimes.program.pinned import folders
from codesdk.runtimes.program.pinned.folders import program_folder
from codesdk.runtimes.program.pinned.node import node_in
from codesdk.runtimes.program.pinned.versions import needed_by, needs_node

ENTRY = RuntimeEntry(name="little", adapter="some.where:Else", program=PROGRAM)
TOOL = ProgramEntry(
    command="little-tool",
    version="1.2.3",
    source=PythonTool(name="Little.Tool", lock="little-tool", program="little-tool", python=(3, 12)),
)
TOOL_ENTRY = msgspec.structs.replace(ENTRY, program=TOOL)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODESDK_PROGRAMS", str(tmp_path / "programs"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr(folders, "lock_hash", lambda lock: "0" * 64)
    return tmp_path / "programs"


@pytest.fixture(autouse=True)
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The search path: one folder, with a node of version 20."""
    folder = tmp_path / "bin"
    script(folder / "node", "#!/bin/sh\necho v20.1.0\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def package(modules: Path, name: str, version: str = "1.2.3", **said: Any) -> Path:
    """Write a package whose program must not be started."""
    folder = modules / name
    script(folder / "agent.js", "#!/usr/bin/env node\nthrow new Error('it was started')\n")
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version, **said}))
    return folder


@pytest.fixture
def on_path(tmp_path: Path, bin_folder: Path) -> Callable[..., Path]:
    """Install a package for everybody, as `npm install -g` does, with the link on the search path."""

    def install(name: str = NAME, version: str = "2.0.0", **said: Any) -> Path:
        folder = package(tmp_path / "lib" / "node_modules", name, version, **said)
        (bin_folder / NAME).symlink_to(folder / "agent.js")
        return bin_folder / NAME

    return install


def ours(version: str = "1.2.3") -> Path:
    """Put the program where CodeSDK would have installed it."""
    return package(program_folder(PROGRAM, SOURCE) / "node_modules", NAME, version) / "agent.js"


async def problem(entry: RuntimeEntry = ENTRY, given: str | None = None) -> str:
    with pytest.raises(TaskFailure) as raised:
        await find_program(entry, given)
    assert raised.value.code == "RUNTIME_UNAVAILABLE"
    return raised.value.message.partition("cannot run: ")[2]


async def test_what_we_installed_comes_before_the_search_path(on_path: Callable[..., Path], bin_folder: Path):
    on_path()
    path = ours()
    found = await find_program(ENTRY)
    assert found == Program(str(path), "1.2.3", launcher=(str(bin_folder / "node"),))
    assert found.argv == [str(bin_folder / "node"), str(path)]


async def test_the_tested_version_may_be_on_the_search_path(on_path: Callable[..., Path], bin_folder: Path):
    path = on_path(version="1.2.3")
    assert await find_program(ENTRY) == Program(str(path), "1.2.3", launcher=(str(bin_folder / "node"),))


async def test_another_version_on_the_search_path_is_refused_or_allowed(on_path: Callable[..., Path]):
    path = on_path()
    assert (await problem()).startswith(
        f"{path} is version 2.0.0, and 1.2.3 is the one that was tested."
        " Check this version with: codesdk runtimes certify little"
        " - or install the tested one with: codesdk runtimes install little-agent"
    )
    assert (await find_program(ENTRY, allow_untested=True)).state == "untested"


async def test_what_no_package_of_its_brings_is_of_an_unknown_version(
    on_path: Callable[..., Path], bin_folder: Path, tmp_path: Path
):
    path = on_path("somebody-elses")
    assert f"{path} is of an unknown version, and 1.2.3 is the one that was tested." in await problem()
    path.unlink()
    script(path, f"#!/bin/sh\ntouch {tmp_path / 'started'}\necho 1.2.3\n")
    assert "is of an unknown version" in await problem()
    assert not (tmp_path / "started").exists()
    assert (await find_program(ENTRY, allow_untested=True)).argv == [str(path)]


async def test_a_package_by_another_name_may_bring_the_same_program(on_path: Callable[..., Path]):
    on_path("little-everywhere", "1.2.3")
    source = msgspec.structs.replace(SOURCE, also=("little-everywhere",))
    known = msgspec.structs.replace(ENTRY, program=msgspec.structs.replace(PROGRAM, source=source))
    assert (await find_program(known)).version == "1.2.3"


async def test_a_package_that_cannot_be_read_says_no_version(on_path: Callable[..., Path]):
    path = on_path(version="1.2.3")
    (path.resolve().parent / "package.json").write_text("{")
    assert "is of an unknown version" in await problem()


async def test_a_given_program_is_taken_whatever_we_installed(tmp_path: Path, bin_folder: Path):
    ours()
    given = package(tmp_path / "node_modules", NAME) / "agent.js"
    given.chmod(0o644)  # node reads it, nobody runs it
    found = await find_program(ENTRY, str(given))
    assert found.argv == [str(bin_folder / "node"), str(given)]
    assert await problem(given=str(given.parent)) == (
        f"there is no program at {given.parent}. Install it with: codesdk runtimes install little-agent"
    )


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/usr/bin/env node", True),
        ("#!/usr/bin/env -S node --x", True),
        ("#!/opt/node/bin/node", True),
        ("#!/home/node/venv/bin/python", False),
        ("node", False),
        ("", False),
    ],
)
def test_a_script_for_node_says_so_in_its_first_line(tmp_path: Path, first: str, expected: bool):
    assert needs_node(script(tmp_path / "agent", f"{first}\nnode\n")) is expected


async def test_nothing_anywhere_names_what_installs_it():
    assert await problem() == (
        "the program little-agent is not installed. Install it with: codesdk runtimes install little-agent"
    )


async def test_none_of_a_workspace_is_taken_and_no_node_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    work = tmp_path / "work"
    script(work / "bin" / NAME, "#!/bin/sh\n")
    script(work / "bin" / "node", "#!/bin/sh\necho v99.0.0\n")
    monkeypatch.setenv("PATH", str(work / "bin"))
    with pytest.raises(TaskFailure, match="the program little-agent is not installed"):
        await find_program(ENTRY, workspace=str(work))
    ours()
    with pytest.raises(TaskFailure, match="it needs node 18 or newer, and there is none"):
        await find_program(ENTRY, workspace=str(work))


async def test_our_own_node_is_used_where_the_systems_is_too_old(root: Path, bin_folder: Path):
    ours()
    own = node_in(folders.node_folder())
    script(own, "#!/bin/sh\necho v22.20.0\n")
    assert (await find_program(ENTRY)).launcher == (str(bin_folder / "node"),)
    script(bin_folder / "node", "#!/bin/sh\n# other\necho v17.0.0\n")
    assert (await find_program(ENTRY)).launcher == (str(own),)
    script(bin_folder / "node", "#!/bin/sh\necho hello\n")
    assert (await find_program(ENTRY)).launcher == (str(own),)
    shutil.rmtree(root / "node")
    assert f"it needs node 18 or newer, and {bin_folder}/node does not say its version" in await problem()


async def test_a_folder_for_programs_must_be_absolute(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CODESDK_PROGRAMS", "here")
    assert (await problem()).startswith("CODESDK_PROGRAMS is here, which is not an absolute path.")


def test_without_another_word_programs_are_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CODESDK_PROGRAMS")
    assert folders.programs_folder() == tmp_path / "share" / "codesdk" / "programs"


def certify(entry: RuntimeEntry, path: str, version: str) -> None:
    assert entry.program is not None
    certificate = Certificate(
        runtime=entry.name,
        version=version,
        tree=program_tree(entry.program, path),
        codesdk=codesdk_version(),
        adapter=adapter_version(entry),
        made_at="2026-11-17T00:00:00.000Z",
        rows=tuple(Row(name, "pass") for name in OWNERSHIP_ROWS),
    )
    store_certificate(certificate)


async def test_a_certificate_is_for_a_package_and_all_that_it_needs(
    on_path: Callable[..., Path], tmp_path: Path
):
    modules = tmp_path / "lib" / "node_modules"
    path = on_path(dependencies={"near": "*"}, optionalDependencies={"absent": "*"})
    near = package(modules, "near", peerDependencies={"far": "*"})
    far = package(modules, "far", dependencies={NAME: "*"})
    unrelated = package(modules, "unrelated")
    nested = package(path.resolve().parent / "node_modules", "inside", dependencies={"far": "*"})
    assert needed_by(path.resolve().parent) == (far, near)
    certify(ENTRY, str(path), "2.0.0")
    (unrelated / "agent.js").write_text("changed")
    assert (await find_program(ENTRY)).state == "certified"
    for changed in (far, near, nested):
        before = (changed / "agent.js").read_text()
        (changed / "agent.js").write_text("changed")
        assert "void: the program's files are others now" in await problem()
        (changed / "agent.js").write_text(before)
    assert (await find_program(ENTRY)).state == "certified"


@pytest.fixture
def tool(tmp_path: Path, bin_folder: Path) -> Path:
    """A tool in a virtual environment of somebody's, with a link on the search path."""
    venv = tmp_path / "venv"
    path = script(venv / "bin" / "little-tool", "#!/bin/sh\nexit 1\n")
    (venv / "pyvenv.cfg").touch()
    (venv / "lib" / "python3.12" / "site-packages" / "little_tool-2.0.0.dist-info").mkdir(parents=True)
    (venv / "lib" / "python3.12" / "site-packages" / "library.py").touch()
    (bin_folder / "little-tool").symlink_to(path)
    return bin_folder / "little-tool"


async def test_a_tool_of_python_is_found_by_what_its_environment_says(tool: Path, tmp_path: Path):
    assert f"{tool} is version 2.0.0, and 1.2.3 is the one that was tested." in await problem(TOOL_ENTRY)
    certify(TOOL_ENTRY, str(tool), "2.0.0")
    found = await find_program(TOOL_ENTRY)
    assert (found.state, found.argv) == ("certified", [str(tool)])
    (tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "library.py").write_text("pass\n")
    assert "void: the program's files are others now" in await problem(TOOL_ENTRY)


async def test_a_tool_that_we_installed_is_run_by_its_own_python_and_is_gone_with_it(root: Path):
    venv = root / "little-tool" / "1.2.3-000000000000" / "venv"
    path = script(venv / "bin" / "little-tool", "")
    (venv / "lib" / "python3.13" / "site-packages" / "Little_Tool-1.2.3.dist-info").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    found = await find_program(TOOL_ENTRY)
    assert found == Program(str(path), "1.2.3", launcher=(str(venv / "bin" / "python"),))
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/no/such/python")
    assert (await problem(TOOL_ENTRY)).startswith("the program little-tool is not installed.")
