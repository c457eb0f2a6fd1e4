"""The doors of the packages: what they name is there, and nobody asks for more."""

import ast
import contextlib
import functools
import gc
import importlib
import sys
import tomllib
from pathlib import Path

import pytest

import codesdk
from codesdk import doors

ROOT = Path(codesdk.__file__ or "").parent
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
DOORS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if "open_door(" in path.read_text())
WITHOUT_A_DOOR = {"cli", "contract", "testing"}
"""Nobody imports the first, everybody all of the second, and the command line alone the third."""
NAMED_BY_TEXT = {
    ("runtimes.registry", "codesdk.minicode.runtime"),  # the registry names the package of each runtime
    ("runtimes.acp.launch", "codesdk.cli.main"),  # the command that a program is to start
}


@functools.cache
def asked_for() -> dict[str, set[str]]:
    """Return what modules of this project import through each door."""
    found: dict[str, set[str]] = {package: set() for package in DOORS}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").removeprefix("codesdk.") in found:
                found[str(node.module).removeprefix("codesdk.")] |= {alias.name for alias in node.names}
    return found


def test_every_package_with_a_door_is_protected_whole():
    """A contract that lists modules would let the next one through."""
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    found = {
        contract["id"].removesuffix("-door"): (contract["protected_modules"], contract["allowed_importers"])
        for contract in contracts
        if contract["id"].endswith("-door")
    }
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - WITHOUT_A_DOOR
    assert found == {name: ([f"codesdk.{name}.*"], [f"codesdk.{name}"]) for name in packages}
    assert set(DOORS) <= packages


def test_no_module_behind_a_door_is_named_by_a_text():
    """Import-linter does not see what `import_module` is given."""
    found: set[tuple[str, str]] = set()
    for path in ROOT.rglob("*.py"):
        here = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {(here, name) for name in _behind_a_door(node.value, here)}
    assert found == NAMED_BY_TEXT


def _behind_a_door(text: str, here: str) -> list[str]:
    name = text.partition(":")[0]
    parts = name.split(".")
    inside = ROOT.joinpath(*parts[1:])
    if parts[0] != "codesdk" or len(parts) < 3 or parts[1] == here.partition(".")[0]:
        return []
    return [name] if inside.is_dir() or inside.with_suffix(".py").is_file() else []


@pytest.mark.parametrize("package", DOORS)
def test_what_a_door_names_is_there(package: str):
    door = importlib.import_module(f"codesdk.{package}")
    assert door.__all__
    assert all(getattr(door, name) is not None for name in door.__all__)


@pytest.mark.parametrize("package", DOORS)
@pytest.mark.slow
def test_nobody_asks_a_door_for_what_it_does_not_have(package: str):
    """A door is lazy, so no type checker would notice."""
    door = importlib.import_module(f"codesdk.{package}")
    modules = {path.stem for path in (ROOT / package).iterdir()}
    assert asked_for()[package] - set(door.__all__) - modules == set()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("module", ["there", "broken"])
def test_loading_leaves_the_garbage_collector_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool, module: str
):
    """And it does not run meanwhile."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("door", "door_there", "door_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "door_there.py").write_text("import gc\nvalue = gc.isenabled()\n")
    (tmp_path / "door_broken.py").write_text("raise ImportError('broken')\n")
    door = tmp_path / "door.py"
    door.write_text(
        f"TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from door_{module} import value as value\n"
    )
    load, _ = doors.open_door("door", str(door))
    gc.enable() if enabled else gc.disable()
    try:
        with contextlib.nullcontext() if module == "there" else pytest.raises(ImportError, match="broken"):
            assert load("value") is False
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_loading_leaves_frozen_what_somebody_froze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("cold", "cold_home"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "cold_home.py").write_text("value = 1\n")
    door = tmp_path / "cold.py"
    door.write_text("TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from cold_home import value as value\n")
    load, _ = doors.open_door("cold", str(door))
    gc.freeze()
    try:
        assert load("value") == 1
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
