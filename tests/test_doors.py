"""The doors of the packages: what they name is there, and nobody asks for more."""

import ast
import functools
import importlib
from pathlib import Path

import pytest

import codesdk

ROOT = Path(codesdk.__file__ or "").parent
DOORS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if "open_door(" in path.read_text())


@functools.cache
def asked_for() -> dict[str, set[str]]:
    """Return what modules of this project import through each door."""
    found: dict[str, set[str]] = {package: set() for package in DOORS}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").removeprefix("codesdk.") in found:
                found[str(node.module).removeprefix("codesdk.")] |= {alias.name for alias in node.names}
    return found


def test_the_packages_with_a_door_are_these():
    wanted = {"client", "daemon", "engine", "gateway", "local", "observe", "policy", "redaction", "runtimes"}
    assert wanted | {"sandbox", "serving", "store", "tools"} <= set(DOORS)


@pytest.mark.parametrize("package", DOORS)
def test_what_a_door_names_is_there(package: str):
    door = importlib.import_module(f"codesdk.{package}")
    assert door.__all__
    assert all(getattr(door, name) is not None for name in door.__all__)


@pytest.mark.parametrize("package", DOORS)
def test_nobody_asks_a_door_for_what_it_does_not_have(package: str):
    """A door is lazy, so no type checker would notice."""
    door = importlib.import_module(f"codesdk.{package}")
    modules = {path.stem for path in (ROOT / package).iterdir()}
    assert asked_for()[package] - set(door.__all__) - modules == set()
