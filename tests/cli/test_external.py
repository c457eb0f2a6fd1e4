"""`--external` on the command line: a run, what the doctor says, a login, and the conformance matrix on somebody's executable."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.external.adapters import LIAR, PYTHON_AGENT

from codesdk.cli.app import run
from codesdk.runtimes import runtime_names


def test_a_run_uses_an_executable(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    program = tmp_path / "liar.py"
    program.write_text(LIAR)
    data = str(tmp_path / "data")
    external = f"liar={sys.executable} {program} {{}}"
    words = ["run", "Go.", "--external", external, "--runtime", "external:liar", "--workspace", str(tmp_path)]
    assert run(["--data-dir", data, *words]) == 0
    assert "Hello." in capfd.readouterr().out


@pytest.mark.parametrize(
    ("given", "why"),
    [("liar", "NAME=COMMAND"), ("a b=true", "cannot name"), ("a=", "is empty"), ("a='", "cannot be split")],
)
def test_a_command_that_cannot_be_is_refused(
    given: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    words = ["run", "Go.", "--external", given, "--runtime", "external:liar"]
    assert run(["--data-dir", str(tmp_path / "data"), *words]) != 0
    assert why in capfd.readouterr().err


ABLE = {"login_traffic": ["beside"], "auth_model": "oauth_local"}
KNOWN = {"protocol_version": 1, "name": "small", "version": "1.4", "capabilities": ABLE}
ADA = {"ok": True, "logged_in": True, "auth_model": "oauth_local", "account_label": "ada"}
DOOR = {"message": "Open this page.", "url": "https://login.example/door", "code": "XY-12"}
PLAN = {
    "initialize": [{"result": KNOWN}],
    "auth_status": [{"result": ADA}],
    "ensure_login": [
        {"send": {"id": 7, "method": "show", "params": {"prompt": DOOR}}},
        {"result": {"logged_in": True, "account_label": "ada"}},
    ],
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An executable with logins of its own, which are switched on; as an operator names it."""
    program = tmp_path / "small.py"
    program.write_text(LIAR)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CODESDK_LOGINS", "external:small=beside")
    return f"small={shlex.join([sys.executable, str(program), json.dumps(PLAN)])}"


def operators_file(tmp_path: Path, **settings: Any) -> None:
    """Write the file that a daemon of this operator would read."""
    file = tmp_path / "config" / "codesdk" / "codesdk.toml"
    file.parent.mkdir(parents=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    file.write_text("\n".join(["[daemon]", *lines]))


@pytest.mark.parametrize("named", ["on the command line", "in the file"])
@pytest.mark.slow
def test_the_doctor_looks_at_an_executable_without_a_daemon(
    named: str, small: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    if named == "in the file":
        operators_file(tmp_path, external=[small])
    typed = ["--external", small] if named == "on the command line" else []
    words = ["--data-dir", str(tmp_path / "data"), "runtimes"]
    assert run([*words, "doctor", "external:small", *typed, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert [(found["check"], found["state"]) for found in report["findings"]] == [
        ("program", "ok"),
        ("login", "ok"),
        ("isolation", "ok"),
        ("gateway", "ok"),
    ]
    assert report["findings"][0]["found"] == f"{sys.executable}, version 1.4, the operator's own"
    assert report["findings"][1]["found"] == "ada"
    assert run([*words, "list", "external:small", *typed]) == 0
    assert capfd.readouterr().out == "✓ external:small               1.4 · ada\n"


def test_an_executable_is_in_the_list_of_all(small: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    run(["--data-dir", str(tmp_path / "data"), "runtimes", "list", "--external", small, "--json"])
    found = {(line := json.loads(text))["name"]: line for text in capfd.readouterr().out.splitlines()}
    assert set(found) == {*runtime_names(), "external:small"}
    assert found["external:small"]["capabilities"]["login_traffic"] == ["beside"]


def test_the_doctor_says_why_an_executable_does_not_work(
    small: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    words = ["--data-dir", str(tmp_path / "data"), "runtimes", "doctor"]
    assert run([*words, "external:broken", "--external", "broken=/bin/false", "--json"]) == 1
    program, login, *_ = json.loads(capfd.readouterr().out)["findings"]
    assert (program["state"], login["state"]) == ("failed", "failed")
    assert "/bin/false" not in program["found"]
    assert "ended with code 1" in program["found"]
    assert "ended with code 1" in login["found"]
    assert run([*words, "external:other", "--external", small]) == 2
    assert "There is no runtime external:other here. Name its command" in capfd.readouterr().err


@pytest.mark.slow
def test_a_login_of_an_executable_needs_no_daemon(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    words = ["--data-dir", str(tmp_path / "data"), "login", "external:small"]
    assert run([*words, "--external", small]) == 0
    door = "Open this page.\n  https://login.example/door\n  code: XY-12\n"
    assert capfd.readouterr().out == f"{door}Logged in to external:small as ada.\n"
    # Switched off, unless the operator's file switches it on.
    monkeypatch.delenv("CODESDK_LOGINS")
    assert run([*words, "--external", small]) != 0
    assert "Logins of external:small are switched off here" in capfd.readouterr().err
    operators_file(tmp_path, external=[small], logins=["external:small=beside"])
    assert run(words) == 0


@pytest.mark.slow
def test_what_the_operators_file_makes_ready_also_runs(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("CODESDK_LOGINS")
    operators_file(tmp_path, external=[small], logins=["external:small=beside"])
    place = ["--data-dir", str(tmp_path / "data")]
    assert run([*place, "runtimes", "list", "external:small"]) == 0
    workspace = ["--workspace", str(tmp_path)]
    assert run([*place, "run", "Go.", "--runtime", "external:small", *workspace]) == 0
    assert "Hello." in capfd.readouterr().out
    assert run([*place, "run", "Again.", "--session", "last"]) == 0
    assert run([*place, "chat", "-p", "Go.", "--runtime", "external:small", *workspace]) == 0
    assert capfd.readouterr().out.count("Hello.") == 2


@pytest.mark.parametrize("logins", [[], ["codex"]])
def test_a_list_and_a_run_say_the_same_of_what_is_missing(
    logins: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CODESDK_LOGINS", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    operators_file(tmp_path, logins=logins)
    place = ["--data-dir", str(tmp_path / "data")]
    assert run([*place, "runtimes", "list", "codex", "--json"]) == 1
    auth = json.loads(capfd.readouterr().out)["auth"]
    assert ("codesdk login codex" in auth["to_do"]) == bool(logins)
    run([*place, "run", "Go.", "--runtime", "codex", "--workspace", str(tmp_path)])
    shown = " ".join(capfd.readouterr().out.split())  # a narrow terminal breaks lines
    assert f"AUTH_REQUIRED: {auth['problem']} {auth['to_do']}" in shown


def test_a_daemon_has_executables_of_its_own(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for words in (["runtimes", "doctor"], ["runtimes", "list"], ["login", "external:small"]):
        assert run(["--url", "http://127.0.0.1:9", *words, "--external", small]) != 0
        assert "--external would have no effect here: start codesdkd with it" in capfd.readouterr().err


@pytest.mark.slow
def test_the_matrix_runs_on_an_executable(capfd: pytest.CaptureFixture[str]):
    command = f"{sys.executable} {PYTHON_AGENT}"
    rows = ["streaming", "program missing", "MCP transport recorded", "no connection except loopback"]
    only = [word for row in rows for word in ("--only", row)]
    assert run(["conformance", "--external", command, *only, "--json"]) == 0
    cells = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(cell["runtime"], cell["name"], cell["outcome"]) for cell in cells] == [
        (command, "streaming", "pass"),
        (command, "MCP transport recorded", "unsupported"),
        (command, "program missing", "pass"),
        (command, "no connection except loopback", "pass"),
    ]


def test_an_executable_that_does_not_speak_fails_each_row_and_says_why(capfd: pytest.CaptureFixture[str]):
    assert run(["conformance", "--external", "/bin/false", "--only", "streaming", "--json"]) == 1
    [cell] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (cell["outcome"], "ended with code 1" in cell["detail"]) == ("fail", True)


def test_what_is_checked_is_named_once(capfd: pytest.CaptureFixture[str]):
    assert run(["conformance", "--external", "/bin/false", "--runtime", "codex"]) != 0
    assert "Use only one of --runtime" in capfd.readouterr().err
