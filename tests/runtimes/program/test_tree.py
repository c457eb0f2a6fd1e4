"""The hash of an installed program: what changes it, what does not, and when it is taken from what is kept."""

import os
import time
from pathlib import Path

import pytest

from codesdk.contract.errors import Conflict
from codesdk.runtimes.program import tree
from codesdk.runtimes.program.tree import hash_tree, tree_of


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A program with a library beside it, and a link onto the search path."""
    root = tmp_path / "lib" / "node_modules" / "agent"
    (root / "bin").mkdir(parents=True)
    (root / "package.json").write_text("{}")
    (root / "bin" / "agent").write_text("#!/bin/sh\necho 1.2.3\n")
    (root / "bin" / "agent").chmod(0o755)
    (root / "bin" / "alias").symlink_to("agent")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "agent").symlink_to(root / "bin" / "agent")
    return tmp_path / "bin" / "agent"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything had been installed long ago."""
    monkeypatch.setattr(tree, "SETTLED_S", -3600.0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read, by name."""
    names: list[str] = []
    described = tree._described

    def watch(root: Path, name: str, status: os.stat_result) -> list[str]:
        names.append(name)
        return described(root, name, status)

    monkeypatch.setattr(tree, "_described", watch)
    return names


def test_the_tree_is_the_folder_with_a_marker_above_the_program_itself(installed: Path):
    root = installed.resolve().parent.parent
    assert tree_of(str(installed), ()) == root
    assert tree_of(str(installed), ("agent",)) == root / "bin"
    (root / "package.json").unlink()
    assert tree_of(str(installed), ()) == root / "bin" / "agent"


def test_a_package_json_in_somebodys_home_makes_no_package_of_it(tmp_path: Path):
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "agent"
    program.write_text("")
    assert tree_of(str(program), ()) == program


def test_a_copy_elsewhere_has_the_same_hash(installed: Path, tmp_path: Path):
    root, copy = installed.resolve().parent.parent, tmp_path / "copy"
    (copy / "bin").mkdir(parents=True)
    for name in ("package.json", "bin/agent"):
        (copy / name).write_bytes((root / name).read_bytes())
    (copy / "bin" / "agent").chmod(0o700)
    (copy / "bin" / "alias").symlink_to("agent")
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "agent.pyc").write_bytes(b"made by itself")
    assert hash_tree(copy) == hash_tree(root)


@pytest.mark.parametrize("change", ["content", "same size", "new", "gone", "mode", "link", "renamed"])
def test_every_change_of_the_files_changes_the_hash(
    installed: Path, tmp_path: Path, settled: None, change: str
):
    root, kept = installed.resolve().parent.parent, tmp_path / "trees.json"
    program = root / "bin" / "agent"
    before, times = hash_tree(root, kept), program.stat()
    match change:
        case "content":
            program.write_text("#!/bin/sh\necho 1.2.3 # and more\n")
        case "same size":  # and the times set back, as far as a program can
            program.write_text("#!/bin/sh\necho 1.2.4\n")
            os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))
        case "new":
            (root / "bin" / "plugin").write_text("")
        case "gone":
            (root / "package.json").unlink()
        case "mode":
            program.chmod(0o644)
        case "link":
            (root / "bin" / "alias").unlink()
            (root / "bin" / "alias").symlink_to("/bin/sh")
        case _:
            program.rename(program.with_name("agent2"))
    assert hash_tree(root, kept) != before


def test_what_has_not_changed_is_not_read_again(
    installed: Path, tmp_path: Path, settled: None, opened: list[str]
):
    root, kept = installed.resolve().parent.parent, tmp_path / "trees.json"
    first = hash_tree(root, kept)
    assert sorted(opened) == ["bin/agent", "bin/alias", "package.json"]
    opened.clear()
    assert hash_tree(root, kept) == first
    assert opened == []
    kept.write_text("{ damaged")
    assert hash_tree(root, kept) == first
    assert opened


def test_what_changed_a_moment_ago_is_read_again(installed: Path, tmp_path: Path, opened: list[str]):
    root, kept = installed.resolve().parent.parent, tmp_path / "trees.json"
    hash_tree(root, kept)
    opened.clear()
    hash_tree(root, kept)
    assert opened
    assert not kept.exists()


def test_a_clock_that_was_set_back_keeps_nothing(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
):
    root, kept = installed.resolve().parent.parent, tmp_path / "trees.json"
    monkeypatch.setattr(time, "time", lambda: 0.0)
    hash_tree(root, kept)
    assert not kept.exists()


def test_files_that_change_while_they_are_read_have_no_hash(installed: Path, monkeypatch: pytest.MonkeyPatch):
    root, described = installed.resolve().parent.parent, tree._described

    def update(folder: Path, name: str, status: os.stat_result) -> list[str]:
        (root / "package.json").write_text('{"version": "2"}')
        return described(folder, name, status)

    monkeypatch.setattr(tree, "_described", update)
    with pytest.raises(Conflict, match="changed while it was being read"):
        hash_tree(root)
