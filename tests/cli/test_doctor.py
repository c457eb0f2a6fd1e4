import platform
import sqlite3

import pytest
from tests.cli.shell import Shell, Terminal

from codesdk import __version__
from codesdk.sandbox.bubblewrap import sandbox as bubblewrap


def test_the_report_says_what_each_sandbox_enforces(shell: Shell):
    told = shell.codesdk("doctor")
    lines = told.out.splitlines()
    assert (told.code, told.err) == (0, "")
    assert lines[0].startswith(
        f"codesdk {__version__} · Python {platform.python_version()} · SQLite {sqlite3.sqlite_version} · Linux "
    )
    assert lines[1] == "✓ data directory .codesdk: not there yet; the first task creates it"
    assert lines[3].split() == ["SANDBOX", "bubblewrap", "oci", "host"]
    table = {" ".join(line.split()[:-3]): line.split()[-3:] for line in lines[4:17]}
    assert table["works here"] == ["yes", "-", "yes"]
    assert table["cuts the network"] == ["yes", "-", "no"]
    assert table["limits time"] == ["yes", "-", "yes"]
    assert "oci: Not looked at: name an image with --image." in lines


def test_as_json_it_is_the_capabilities_themselves(shell: Shell):
    (report,) = shell.codesdk("doctor", "--json").lines
    assert (report["ok"], report["data_dir"]["ok"]) == (True, True)
    by_name = {each["backend"]: each for each in report["sandboxes"]}
    assert list(by_name) == ["bubblewrap", "oci", "host"]
    host = by_name["host"]
    assert host == {
        "backend": "host",
        "available": True,
        "execution_env": "codesdk_host",
        "limits": ["file_size", "open_files", "output", "wall"],
        "filesystem": False,
        "network": False,
        "egress": False,
        "syscalls": False,
        "notes": host["notes"],
    }


def test_without_any_sandbox_but_the_host_it_fails_and_names_the_package(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bubblewrap, "PROGRAMS", ())
    told = shell.codesdk("doctor")
    assert told.code == 1
    assert "bubblewrap: bubblewrap is not installed; on Debian or Ubuntu: apt install bubblewrap." in told.out


def test_an_engine_that_does_not_answer_is_no_failure(shell: Shell):
    told = shell.codesdk("doctor", "--image", "none:1", "--json", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert told.code == 0
    (oci,) = [each for each in told.lines[0]["sandboxes"] if each["backend"] == "oci"]
    assert (oci["available"], len(oci["notes"])) == (False, 1)


def test_a_data_directory_that_is_something_else_is_a_problem(shell: Shell):
    shell.data.mkdir()
    (shell.data / "codesdk.db").write_text("not a database")
    told = shell.codesdk("doctor")
    assert told.code == 1
    assert "✗ data directory .codesdk: " in told.out


def test_stored_sessions_are_counted(stored: Shell):
    assert "✓ data directory .codesdk: 1 session\n" in stored.codesdk("doctor").out


def test_on_a_narrow_terminal_the_table_still_fits(shell: Shell):
    with Terminal(shell, "doctor", columns=60) as terminal:
        assert terminal.end() == 0
        assert max(len(line) for line in terminal.plain.splitlines()) <= 60


def test_secrets_that_others_could_read_are_a_problem(shell: Shell):
    shell.run("turns: [{steps: [{text: Hello.}]}]")
    folder = shell.data / "equipment"
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    problem = ".codesdk/equipment is open to others (mode 0755); run chmod 700 on it"
    (report,) = shell.codesdk("doctor", "--json").lines
    state = f"sessions' secrets are not for their owner only: {problem}"
    assert (report["ok"], report["data_dir"]) == (False, {"path": ".codesdk", "ok": False, "state": state})
    verified = shell.codesdk("verify", "last")
    assert (verified.code, verified.out.splitlines()[1:]) == (
        1,
        [f"  equipment: {problem.removeprefix('.codesdk/')}"],
    )
