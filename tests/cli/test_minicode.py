"""`codesdk minicode`: what holds and where it is from, plugins with their errors, sessions with damaged ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Result, Shell
from tests.minicode.plugins.rig import GREETER

KEY = "sk-very-secret-0123456789"


class User:
    """Somebody with a global file and a project."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.config = shell.home / "config"
        self.config.mkdir()
        self.sessions = shell.home / "kept"
        (shell.workspace / ".minicode").mkdir()

    def write_global(self, value: Any) -> None:
        (self.config / "config.json").write_text(json.dumps(value))
        (self.config / "config.json").chmod(0o600)

    def write_project(self, value: Any) -> None:
        (self.shell.workspace / ".minicode" / "config.json").write_text(json.dumps(value))

    def minicode(self, *args: str, **env: str) -> Result:
        places = {"MINICODE_CONFIG_DIR": str(self.config), "MINICODE_SESSIONS_DIR": str(self.sessions)}
        return self.shell.codesdk("minicode", *args, "--cwd", "ws", **(places | env))


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(Shell(tmp_path))


def test_the_configuration_is_shown_with_the_origin_of_every_value(user: User):
    user.write_global({"agent": {"max_steps": 9}, "providers": {"google": {"api_key": KEY}}})
    user.write_project({"model": "mine", "plugins": {"evil": {}}})
    shown = user.minicode("config", "--origins", MINICODE_PROVIDER="google")
    lines = dict(line.split(" = ", 1) for line in shown.out.splitlines())
    file = user.config / "config.json"
    assert lines["agent.max_steps"] == f"9  # global: {file}"
    assert lines["provider"] == '"google"  # environment: MINICODE_PROVIDER'
    assert lines["providers.google.api_key"] == f'"(set)"  # global: {file}'
    assert lines["hooks.timeout_ms"] == "1500  # default"
    assert shown.err == (
        f"warning: {user.shell.workspace}/.minicode/config.json: plugins is ignored: a project's file cannot set it."
        f" Set it in {file}.\n"
    )
    assert KEY not in shown.out + shown.err
    plain = user.minicode("config").out.splitlines()
    assert "agent.max_steps = 9" in plain
    assert not any(" # " in line for line in plain)


def test_the_same_as_json_without_any_key(user: User):
    user.write_global({"plugins": {"demo": {"token": KEY}}})
    shown = user.minicode("config", "--origins", "--json", OPENAI_API_KEY=KEY)
    (found,) = shown.lines
    assert set(found) == {"config", "origins", "warnings"}
    assert found["config"]["providers"]["openai"] == {"key_from": "OPENAI_API_KEY"}
    assert found["config"]["plugins"] == ["demo"]
    assert found["origins"]["providers.openai.api_key"] == {
        "layer": "environment",
        "source": "OPENAI_API_KEY",
    }
    assert KEY not in shown.out
    assert set(user.minicode("config", "--json").lines[0]) == {"config", "warnings"}


def test_an_invalid_configuration_is_one_error(user: User):
    user.write_project({"provider": "acme"})
    shown = user.minicode("config", "--json")
    assert (shown.code, shown.out) == (2, "")
    assert shown.error["message"] == (
        f"{user.shell.workspace}/.minicode/config.json: provider: invalid enum value 'acme', expected anthropic,"
        " google, openai or openai-compatible."
    )


def test_plugins_are_listed_with_their_errors(user: User):
    good, bad = user.shell.home / "good.py", user.shell.home / "bad.py"
    good.write_text(GREETER)
    bad.write_text("1 / 0")
    user.write_global({"plugins": {good.as_uri(): {"word": "Hi"}, bad.as_uri(): {}}})
    shown = user.minicode("plugins")
    assert shown.code == 1
    assert shown.out.splitlines() == [
        f"✓ greeter 1.2  {good.as_uri()}",
        "tools: greet",
        "actions: shout",
        f"✗ The plugin {bad.as_uri()} failed at the stage import: ZeroDivisionError: division by zero.",
    ]
    one, other = user.minicode("plugins", "--json").lines
    assert one == {"reference": good.as_uri(), "id": "greeter", "version": "1.2"}
    assert (other["reference"], other["error"]["details"]["stage"]) == (bad.as_uri(), "import")


def test_without_plugins_it_says_where_they_would_be_named(user: User):
    shown = user.minicode("plugins")
    assert (shown.code, shown.out) == (
        0,
        f"There are no plugins. They are named in {user.config / 'config.json'}.\n",
    )


def test_sessions_are_listed_with_the_damaged_ones(user: User):
    assert user.minicode("sessions").out == f"There are no sessions in {user.sessions}.\n"
    user.sessions.mkdir()
    state = {
        "version": 1,
        "id": "one",
        "cwd": "/w",
        "created_at": 1,
        "updated_at": 2,
        "provider": "openai",
        "model": "m",
    }
    (user.sessions / "one.json").write_text(json.dumps(state))
    assert user.minicode("sessions").out == "one  openai/m  /w\n"
    (user.sessions / "two.json").write_text("{}")
    shown = user.minicode("sessions")
    assert shown.code == 1
    assert shown.out.splitlines()[1] == (
        f"✗ The session file {user.sessions / 'two.json'} is damaged: Object missing required field `version`. It was"
        " left as it is. Mend it, or delete the session."
    )
    assert [set(line) for line in user.minicode("sessions", "--json").lines] == [
        {"id", "cwd", "provider", "model", "created_at", "updated_at"},
        {"path", "problem"},
    ]
