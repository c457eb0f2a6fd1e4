"""The README works as printed, top to bottom: its blocks run in order, in one shell, in a fresh copy and a fresh environment.

The network has only loopback, and the packages are those of the locked environment.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from codesdk.contract.entry import DEFAULT_RUNTIME
from codesdk.testing.network import alone

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SHIPPED = ("src", "examples", "pyproject.toml", "README.md", "LICENSE")
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # as pip reads it, this is what switches isolation off
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what is shipped."""
    home = tmp_path / "readme"
    home.mkdir()
    for name in SHIPPED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, home / name)
    return home


@pytest.fixture
def env(checkout: Path) -> dict[str, str]:
    """The environment of a shell whose Python has nothing of ours yet, but can import what is locked."""
    venv = checkout / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python3.*/site-packages")
    # Read as a plain path: the editable install of this checkout, which is a .pth file there, does not count.
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (venv / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (venv / "bin" / "pip").chmod(0o755)
    path = f"{venv / 'bin'}:{os.environ['PATH']}"
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CODESDK", "VIRTUAL_ENV"))
    }
    kept = {name: value for name, value in kept.items() if not name.endswith("_API_KEY")}
    return kept | OFFLINE | {"PATH": path, "HOME": str(checkout / "home"), "PYTHONPATH": ""}


def test_it_works_as_printed_from_top_to_bottom(checkout: Path, env: dict[str, str]) -> None:
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    (checkout / "first.py").write_text(example)
    lines = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, block in enumerate(blocks("sh")):
        lines += [f"echo '=== {number}'", block]
    with alone():
        ran = subprocess.run(
            ["bash", "-c", "\n".join([*lines, "wait"])],
            cwd=checkout,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    said = re.split(r"^=== \d\n", ran.stdout, flags=re.MULTILINE)[1:]
    install, first, shell, agent, daemon = said
    assert "Successfully installed codesdk-" in install
    assert "✓" in install
    events = first.splitlines()
    assert (events[0], events[-1]) == ("2 task.started", "Hello from CodeSDK.")
    assert "\nHello" in shell
    assert "all nine invariants hold" in shell
    assert "replayed bit for bit" in shell
    assert "\nHello" in agent
    assert "codex-sdk (codex)" in agent
    assert '"status":"ok"' in daemon
    assert "the greeting is what it should be" in daemon
    assert "port = 0  # default" in daemon
    assert (checkout / "greeting" / "greeting.txt").read_text().startswith("Hello")
    _check_what_is_installed(checkout, env)


def _check_what_is_installed(checkout: Path, env: dict[str, str]) -> None:
    """Every file of the package that git knows is in the wheel, and what reads data files finds them."""
    known = subprocess.run(
        ["git", "ls-files", "src/codesdk"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    (packages,) = (checkout / "venv").glob("lib/python3.*/site-packages")
    assert [name for name in known if not (packages / name.removeprefix("src/")).is_file()] == []
    code = (
        "import codesdk, sys; [getattr(codesdk, name) for name in codesdk.__all__]; print(codesdk.__file__)"
    )
    ran = subprocess.run(
        ["python", "-c", code], cwd=checkout / "home", env=env, capture_output=True, text=True
    )
    assert ran.stdout.startswith(str(packages)), ran.stderr


def test_its_table_has_every_page() -> None:
    listed = set(re.findall(r"^\| \[docs/([\w-]+\.md)\]", README, re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_every_document_it_links_to_is_there() -> None:
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert linked
    assert [target for target in linked if not (ROOT / target).exists()] == []


def test_every_runtime_that_a_block_uses_was_installed_by_an_earlier_one() -> None:
    """All locked packages can be imported above, so a forgotten extra would not show there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed: set[str] = set()
    used: set[str] = set()
    lacking: list[tuple[str, str]] = []
    for block in blocks("(?:sh|python)"):
        for listed in re.findall(r"^pip install '\.\[([\w,-]+)\]'", block, re.MULTILINE):
            installed |= set(listed.split(","))
        for line in block.splitlines():
            if not re.search(r"codesdk (run|chat)\b|create_session\(", line):
                continue
            named = re.search(r"--runtime[ =]([\w:-]+)|runtime=\"([\w:-]+)\"", line)
            runtime = (named[1] or named[2]) if named else DEFAULT_RUNTIME
            used.add(runtime)
            if runtime in extras and runtime not in installed:
                lacking.append((runtime, line))
    assert used == {"minicode", "codex"}
    assert installed <= set(extras)
    assert lacking == []
