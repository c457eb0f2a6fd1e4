"""Every setting of the table: as a flag, as a key of the file, out of its bounds, and where it is said to be from."""

import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import platformdirs
import pytest

from codesdk.cli.codesdkd import codesdkd
from codesdk.cli.settings import use
from codesdk.cli.settings.file import NAME, find, own_directory
from codesdk.cli.settings.kinds import is_list, is_switch, parts_of
from codesdk.cli.settings.resolved import Resolved, resolve
from codesdk.cli.settings.table import DAEMON, OPENING, Setting
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.settings import Budget, Limits
from codesdk.extensions import ExtensionOptions
from codesdk.policy import choose_policy
from codesdk.sandbox import SandboxLimits
from codesdk.tools import ExecOptions, FetchOptions

SAMPLES: dict[str, Any] = {
    "policy": "rules.toml",
    "runtimes": ["scripted"],
    "logins": ["codex"],
    "allow_isolation": ["ephemeral"],
    "external": ["small=/bin/agent"],
    "commands.sandbox": "host",
    "commands.hosts": ["example.org"],
    "fetch.allow": ["*.example.org"],
}
"""Values where not any text will do."""
POLICY = '[[rules]]\nid = "no-edits"\nresult = "deny"\ntool = "workspace.edit"\n'
IDS = [setting.key for setting in DAEMON]
ELSEWHERE = {
    "data_dir": "codesdkd opens it itself, with what is made of the other settings",
    "log_level": "how codesdkd logs, which is set up before a daemon is there",
    "log_format": "the same",
    "traces": "an observer that codesdkd opens beside the daemon",
}
"""Settings of which neither a daemon nor its engine is told, and who uses them."""
_COMMAND: dict[str, Any] = {"commands.allow": ["ls"]}
_IN_OCI = _COMMAND | {"commands.sandbox": "oci", "commands.image": "a:1"}
_EXTENSION: dict[str, Any] = {"extensions.roots": ["/e"]}
BEFORE: dict[str, dict[str, Any]] = {
    **{key: _COMMAND for key in IDS if key.startswith("commands.") and key != "commands.allow"},
    **dict.fromkeys(("commands.image", "commands.engine", "commands.cpus"), _IN_OCI),
    **dict.fromkeys(("extensions.trust", "extensions.hosting"), _EXTENSION),
    "extensions.environment": _EXTENSION | {"extensions.hosting": "subprocess"},
}
"""What has to be set before a setting has an effect; without it, the setting is refused."""


def sample(setting: Setting) -> Any:
    """Return a value that is not the default."""
    if setting.key in SAMPLES:
        return SAMPLES[setting.key]
    if is_switch(setting.kind):
        return not setting.default
    if is_list(setting.kind):
        return ["one"]
    if get_origin(setting.kind) is Literal:
        return next(value for value in get_args(setting.kind) if value != setting.default)
    return 3 if hasattr(parts_of(setting.kind)[0], "le") else "one"


def argv_of(setting: Setting, value: Any) -> list[str]:
    if setting.member:
        return [setting.flag, f"{setting.member}={value}"]
    if is_switch(setting.kind):
        return [setting.flag if value else f"--no-{setting.flag.removeprefix('--')}"]
    if is_list(setting.kind):
        return [setting.flag, ",".join(value)] if setting.commas else [setting.flag, value[0]]
    return [setting.flag, str(value)]


def settled(*argv: str, path: Path | None = None) -> Resolved:
    """Return the settings in effect for a command line."""
    with codesdkd.make_context("codesdkd", list(argv)) as ctx:
        return resolve(DAEMON, ctx, path)


def write(folder: Path, text: str) -> Path:
    path = folder / NAME
    path.write_text(text)
    return path


def made(folder: Path, values: dict[str, Any]) -> tuple[Any, ...]:
    """Return what codesdkd makes of a file with these settings."""
    lines = (f"{key} = {toml(value)}\n" for key, value in values.items())
    found = settled(path=write(folder, f"[daemon]\n{''.join(lines)}"))
    return use.daemon(found), use.opening(found), use.limits(found)


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


@pytest.mark.parametrize("setting", DAEMON, ids=IDS)
def test_a_setting_is_a_key_of_the_file_and_its_flag_wins(tmp_path: Path, setting: Setting):
    value: Any = sample(setting)
    path = write(tmp_path, f"[daemon]\n{setting.key} = {toml(value)}\n")
    found = settled(path=path)
    expected = tuple(value) if isinstance(value, list) else value
    if setting.is_path:
        expected = (str(tmp_path / "one"),) if is_list(setting.kind) else str(tmp_path / str(value))
    assert found[setting.key] == expected != setting.default
    assert next(line for line in found.lines() if str(path) in line).startswith(f"{setting.key} = ")
    assert found.name(setting.key) == f"{path}: daemon.{setting.key}"
    given = settled(*argv_of(setting, value), path=path)
    assert given[setting.key] == (tuple(value) if isinstance(value, list) else value)
    assert given.name(setting.key).startswith(setting.flag)


@pytest.mark.parametrize("setting", DAEMON, ids=IDS)
def test_a_value_that_does_not_fit_is_refused_with_the_file_and_the_field(tmp_path: Path, setting: Setting):
    for wrong in ("[[1]]", "-1", '""'):
        path = write(tmp_path, f"[daemon]\n{setting.key} = {wrong}\n")
        with pytest.raises(InvalidRequest) as refused:
            settled(path=path)
        assert refused.value.message.startswith(f"{path}: daemon.{setting.key} must be ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[daemon]\nprot = 1\n", "daemon.prot is not a setting. Did you mean daemon.port?"),
        (
            "[daemon]\nwall_s = 1\n",
            "daemon.wall_s is not a setting. Did you mean daemon.commands.limits.wall_s?",
        ),
        (
            "[daemon.comands]\nallow = ['ls']\n",
            "daemon.comands is not a setting. Did you mean daemon.commands?",
        ),
        ("[daemon]\nzzz = 1\n", "daemon.zzz is not a setting. docs/configuration.md lists what there is."),
        ("[deamon]\nport = 1\n", "deamon is not a section. Did you mean daemon?"),
        ("port = 1\n", "port is not a section. docs/configuration.md lists what there is."),
        ("[daemon\n", "this is not TOML: "),
        ("[daemon]\nport = 1\nport = 2\n", "this is not TOML: "),
        ("[daemon]\nport = 70_000\n", "must be a whole number, at least 0 and at most 65535, not 70000."),
        ('[daemon]\nkeep_days = "never"\n', 'and at most 36500, or "none", not "never".'),
        ('[daemon]\nlog_level = "loud"\n', "daemon.log_level must be one of debug, error, info, warning"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, message: str):
    path = write(tmp_path, text)
    with pytest.raises(InvalidRequest) as refused:
        settled(path=path)
    assert refused.value.message.startswith(f"{path}: ")
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"\xff", "this is not TOML"), (b"#" * 1_000_001, "at most 1,000,000 bytes"), (None, "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, data: bytes | None, message: str):
    path = tmp_path / NAME
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InvalidRequest, match=message):
        settled(path=path)


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path):
    path = write(tmp_path, "[daemon]\nallow_yolo = true\n")
    path.chmod(0o666)
    with pytest.raises(InvalidRequest, match="everybody on this machine may write to it"):
        settled(path=path)


def test_the_file_is_the_operators_and_never_one_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "[daemon]\nallow_yolo = true\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert find(None) is None
    own = tmp_path / "config" / "codesdk"
    own.mkdir(parents=True)
    assert find(None) is None
    path = write(own, "[daemon]\nport = 7\n")
    assert find(None) == path
    assert find("other.toml") == Path("other.toml")


def test_the_operators_directory_is_where_other_programs_have_theirs(monkeypatch: pytest.MonkeyPatch):
    for given in ("", "/etc/own"):
        monkeypatch.setenv("XDG_CONFIG_HOME", given)
        assert own_directory() == platformdirs.user_config_path("codesdk", appauthor=False)
    monkeypatch.setenv(
        "XDG_CONFIG_HOME", "config"
    )  # relative: it would be looked for in the working directory
    assert own_directory() == Path.home() / ".config" / "codesdk"


def test_variables_win_over_the_file_and_flags_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path, '[daemon]\ndata_dir = "data"\nallow_yolo = true\n')
    assert settled(path=path)["data_dir"] == str(tmp_path / "data")
    monkeypatch.setenv("CODESDK_DATA_DIR", "/elsewhere")
    monkeypatch.setenv("CODESDK_ALLOW_YOLO", "0")
    found = settled(path=path)
    assert (found["data_dir"], found.name("data_dir")) == ("/elsewhere", "CODESDK_DATA_DIR")
    assert found["allow_yolo"] is False
    assert settled("--data-dir", "here", "--allow-yolo", path=path)["data_dir"] == "here"
    assert settled("--allow-yolo", path=path)["allow_yolo"] is True


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--data-dir", ""], "--data-dir must be a text"),
        (["--runtimes", "scripted,"], "--runtimes must be a list of texts"),
        (["--allow-command", ""], "--allow-command must be a list of texts"),
        (["--allow-command", "'"], "--allow-command: .* cannot be split into words"),
        (["--runtimes", "nonsense"], "--runtimes: "),
        (["--allow-fetch", "https://example.org/"], "--allow-fetch: .* cannot be allowed"),
        (["--allow-command", "ls", "--command-host", "*"], "--command-host: .* cannot be allowed"),
        (["--sandbox", "oci"], "--sandbox has no effect: no command is allowed"),
        (["--command-limit", "wall_s=5"], "--command-limit wall_s has no effect"),
        (["--allow-command", "ls", "--image", "a:1"], "--image has no effect: it is for the sandbox oci"),
        (["--allow-command", "ls", "--sandbox", "oci"], "--sandbox: the sandbox oci needs an image"),
        (
            ["--allow-command", "ls", "--sandbox", "host", "--give-workspace"],
            "--give-workspace has no effect",
        ),
        (["--policy", "/nowhere.toml"], "--policy: /nowhere.toml: the policy cannot be read"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_opened(argv: list[str], message: str):
    with pytest.raises(InvalidRequest, match=message):
        codesdkd.main([*argv, "--check-config"], standalone_mode=False)


@pytest.mark.parametrize(
    "pair", ["wall_s", "walls=1", "wall_s=nan", "wall_s=x", "processes=1.5", "processes=0"]
)
def test_a_limit_that_is_none_is_a_mistake_in_the_command_line(pair: str):
    with pytest.raises(click.UsageError):
        settled("--command-limit", pair)


def test_the_shown_settings_are_a_file_that_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    argv = ["--allow-command", 'git diff "a b"', "--command-limit", "memory_bytes=none", "--port", "7"]
    codesdkd.main([*argv, "--check-config"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "port = 7  # --port\n" in said
    assert 'commands.limits.memory_bytes = "none"  # --command-limit memory_bytes\n' in said
    assert "grace_s = 10.0  # default\n" in said
    path = write(tmp_path, said)
    again, first = settled(path=path), settled(*argv)
    paths = [setting.key for setting in DAEMON if setting.is_path]
    assert [key for key in IDS if again[key] != first[key] and key not in paths] == []
    assert use.commands(again) == use.commands(first)
    assert "commands" in tomllib.loads(said)["daemon"]


def test_settings_become_the_options_of_the_engine():
    found = settled(
        *("--allow-command", "git diff", "--sandbox", "oci", "--image", "a:1", "--engine", "/e.sock"),
        *(
            "--cpus",
            "1.5",
            "--command-limit",
            "wall_s=5",
            "--command-limit",
            "cpu_s=2",
            "--no-command-writes",
        ),
        *("--external", "small=/bin/agent --x 'a b'", "--hosting", "subprocess"),
        *("--extension", "/e/one", "--extension", "/e/two", "--extension-trust", "warn"),
        *("--extension-hosting", "subprocess", "--extension-env", "HOME"),
        *(
            "--allow-fetch",
            "example.org",
            "--limit",
            "max_tasks=3",
            "--limit",
            "principal_budget.cost_usd=2.5",
        ),
    )
    assert use.opening(found) == {
        "policy": None,
        "external": {"small": ["/bin/agent", "--x", "a b"]},
        "hosting": "subprocess",
        "run": ExecOptions(
            allow=[["git", "diff"]],
            sandbox="oci",
            sandbox_options={"image": "a:1", "engine": "/e.sock", "cpus": 1.5, "give_workspace": False},
            limits=SandboxLimits(wall_s=5, cpu_s=2),
            hosts=(),
            writable=False,
        ),
        "fetch": FetchOptions(hosts=("example.org",)),
        "extensions": ExtensionOptions(
            roots=("/e/one", "/e/two"), trust="warn", hosting="subprocess", environment=("HOME",)
        ),
    }
    assert use.limits(found) == Limits(max_tasks=3, principal_budget=Budget(cost_usd=2.5))
    assert use.fetch(settled("--allow-fetch", "*")) == FetchOptions()


@pytest.mark.parametrize("setting", DAEMON, ids=IDS)
def test_no_setting_is_read_and_then_forgotten(tmp_path: Path, setting: Setting):
    (tmp_path / "rules.toml").write_text(POLICY)
    before = BEFORE.get(setting.key, {})
    usual, changed = made(tmp_path, before), made(tmp_path, before | {setting.key: sample(setting)})
    assert (changed != usual) is (setting.key not in ELSEWHERE)


@pytest.mark.parametrize("key", BEFORE)
def test_a_setting_without_what_it_needs_is_refused(tmp_path: Path, key: str):
    setting = next(each for each in DAEMON if each.key == key)
    with pytest.raises(InvalidRequest, match="has no effect"):
        made(tmp_path, {key: sample(setting)})


def test_a_preset_of_the_policy_is_no_path(tmp_path: Path):
    for name in ("edits", "preset:edits"):
        found = settled(path=write(tmp_path, f"[daemon]\npolicy = '{name}'\n"))
        assert found["policy"] == name
        assert use.opening(found)["policy"] == choose_policy(name)


def test_every_limit_and_every_option_of_the_tools_is_in_the_table():
    assert {f"limits.{name}" for name in Limits.__struct_fields__} - set(IDS) == {"limits.principal_budget"}
    assert {f"commands.limits.{name}" for name in SandboxLimits.__struct_fields__} <= set(IDS)
    named = {"allow", "sandbox", "sandbox_options", "limits", "hosts", "writable"}
    assert set(ExecOptions.__struct_fields__) == named, "give a new option a row in the table"
    assert use.commands(settled()) is None
    assert use.fetch(settled()) is None
    assert use.limits(settled()) == Limits()
    assert set(OPENING) < set(DAEMON)
