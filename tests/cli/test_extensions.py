"""`codesdk extensions`: started, checked, trusted, listed, and loaded again by a daemon."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.daemon.rig import daemon
from tests.extensions.rig import Extensions


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_extension_loads_and_its_test_passes(shell: Shell, here: Path):
    made = shell.codesdk("extensions", "new", "mine")
    assert (made.code, "codesdk extensions check mine" in made.out) == (0, True)
    found = shell.codesdk("extensions", "check", "mine")
    assert (found.code, found.out.split()[:3]) == (0, ["loaded", "mine", "0.1.0"])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=here / "mine",
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout
    again = shell.codesdk("extensions", "new", "mine")
    assert again.code == 4
    assert shell.codesdk("extensions", "new", "Not A Name").code == 2


def test_one_that_cannot_be_loaded_is_named_with_its_reason(shell: Shell, here: Path):
    Extensions(here).write("bad", "1/0\n")
    found = shell.codesdk("extensions", "check", "bad")
    assert found.code == 1
    assert "ZeroDivisionError" in found.out
    assert shell.codesdk("extensions", "check", "nothing").code == 1


def test_a_project_extension_is_trusted_until_it_changes(shell: Shell, here: Path):
    root = Extensions(here / ".codesdk" / "extensions").write("mine")
    options = ("extensions", "list", "--project-extensions", str(here), "--json")
    (row,) = shell.codesdk(*options).lines
    assert row["reason"] == f"It is not trusted. Read it, then: codesdk extensions trust {root}"
    assert shell.codesdk("extensions", "trust", str(root)).code == 0
    (row,) = shell.codesdk(*options).lines
    assert (row["status"], row["source"], row["name"]) == ("loaded", "project", "mine")
    (root / "events.py").write_text("def register(registry): print('changed')\n")
    (row,) = shell.codesdk(*options).lines
    assert "changed since it was trusted" in row["reason"]
    assert shell.codesdk("extensions", "trust", str(here)).code == 2


def test_where_none_are_switched_on_the_command_says_so(shell: Shell, here: Path):
    assert shell.codesdk("extensions", "list").out.startswith("No extensions are switched on.")
    assert shell.codesdk("extensions", "list", "--extension-trust", "warn").code == 2
    assert shell.codesdk("extensions", "list", "--extension-hosting", "subprocess").code == 2
    assert shell.codesdk("extensions", "list", "--extension-env", "HOME").code == 2
    idle = shell.codesdk("extensions", "list", "--extension", ".", "--extension-env", "HOME")
    assert (idle.code, "--extension-env has no effect" in idle.err) == (2, True)
    assert "No daemon runs here" in shell.codesdk("extensions", "reload").err


TELLS = "import os\nraise RuntimeError(f'{os.environ.get(\"MARK\")} in {os.getppid()}')\n"


@pytest.mark.process
def test_with_a_process_of_its_own_an_extension_has_none_of_the_environment(
    shell: Shell, here: Path, monkeypatch: pytest.MonkeyPatch
):
    """Wherever the operator says so: on the command line, in the file, for a daemon."""
    monkeypatch.setenv("MARK", "marked")
    Extensions(here).write("tells", TELLS)
    listed = ("extensions", "list", "--extension", "tells", "--json")
    (row,) = shell.codesdk(*listed).lines
    assert f"marked in {os.getppid()}" in row["reason"]
    (row,) = shell.codesdk(*listed, "--extension-hosting", "subprocess").lines
    assert "None in" in row["reason"]
    hosted = ("--extension-hosting", "subprocess", "--extension-env", "NOT_SET")
    (row,) = shell.codesdk(*listed, *hosted, "--extension-env", "MARK").lines
    assert "marked in" in row["reason"]
    with daemon(shell.data, "--extension", str(here / "tells"), *hosted):
        (row,) = shell.codesdk("extensions", "list", "--json").lines
        assert "None in" in row["reason"]


def test_a_daemon_lists_its_extensions_and_loads_them_again(shell: Shell, here: Path):
    ext = Extensions(here / "ext")
    ext.write("one")
    with daemon(shell.data, "--extension", str(ext.root)):
        (row,) = shell.codesdk("extensions", "list", "--json").lines
        assert (row["name"], row["status"]) == ("one", "loaded")
        ext.write("two")
        rows = shell.codesdk("extensions", "reload", "--json").lines
        assert [one["name"] for one in rows] == ["one", "two"]
        ext.write("two", "1/0\n")
        refused = shell.codesdk("extensions", "reload", "--json")
        assert (refused.code, refused.error["code"]) == (2, "INVALID_REQUEST")
        assert "stay as they were" in refused.error["message"]
        typed = shell.codesdk("extensions", "list", "--extension", str(ext.root))
        assert typed.code == 2
    with daemon(shell.data):
        missing = shell.codesdk("extensions", "list", "--json")
        assert (missing.code, missing.error["code"]) == (3, "NOT_FOUND")
