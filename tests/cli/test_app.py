import subprocess
import sys
from importlib import import_module
from typing import Any, get_args

import click
import pytest
from tests.cli.shell import MODULE, Shell, environment

from codesdk import __version__
from codesdk.cli.app import COMMANDS, group
from codesdk.cli.codesdkd import codesdkd
from codesdk.cli.exits import EXIT_OF, MEANINGS, exit_of
from codesdk.cli.options import Real
from codesdk.contract.errors import ErrorCode

NAMES = [name for entries in COMMANDS.values() for name in entries]
EXITS = {
    "INVALID_REQUEST": 2,
    "NOT_FOUND": 3,
    "CONFLICT": 4,
    "FORBIDDEN": 2,
    "SESSION_BUSY": 4,
    "QUEUE_FULL": 4,
    "RATE_LIMITED": 4,
    "OVERLOADED": 4,
    "AUTH_REQUIRED": 2,
    "AUTH_FAILED": 2,
    "CONTEXT_TOO_LARGE": 2,
    "CONTENT_FILTERED": 1,
    "BUDGET_EXCEEDED": 1,
    "TIMEOUT": 1,
    "RUNTIME_UNAVAILABLE": 1,
    "RUNTIME_CRASHED": 1,
    "RUNTIME_PROTOCOL": 1,
    "MODEL_ERROR": 1,
    "TOOL_FAILED": 1,
    "SANDBOX_UNAVAILABLE": 1,
    "STORAGE_FAILED": 5,
    "INTERRUPTED": 1,
    "INTERNAL": 1,
}


def loaded_by(*args: str) -> set[str]:
    """Return the modules that a command line loads."""
    code = (
        "import sys\n"
        f"sys.argv = ['codesdk', *{args!r}]\n"
        "from codesdk.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment({}), capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_the_version_is_said_without_loading_anything():
    modules = loaded_by("--version")
    assert not modules & {
        "click",
        "rich",
        "mcp",
        "msgspec",
        "asyncio",
        "sqlite3",
        "uvloop",
        "codesdk.cli.app",
    }


def test_help_loads_no_command():
    modules = loaded_by("--help")
    assert "click" in modules
    assert not modules & {"rich", "asyncio", "sqlite3", "uvloop", "codesdk.sdk", "codesdk.cli.commands"}


def test_output_for_programs_does_not_load_rich(stored: Shell):
    data = str(stored.data)
    for args in (["sessions"], ["events", "last"], ["transcript", "last"], ["verify", "last"]):
        assert not {
            name for name in loaded_by("--data-dir", data, *args, "--json") if name.startswith("rich")
        }


@pytest.mark.parametrize("module", ["main", "codesdkd"])
def test_the_version_is_the_one_of_the_package(module: str):
    done = subprocess.run(
        [sys.executable, "-m", f"codesdk.cli.{module}", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{'codesdk' if module == 'main' else 'codesdkd'} {__version__}\n"


def test_the_version_is_also_said_among_other_options(shell: Shell):
    assert shell.codesdk("--data-dir", "x", "--version").out == f"codesdk {__version__}\n"


@pytest.mark.parametrize(("args", "code"), [(["--help"], 0), (["--port", "70000"], 2), (["--nonsense"], 2)])
def test_the_daemon_explains_its_options(args: list[str], code: int):
    done = subprocess.run(
        [sys.executable, "-m", "codesdk.cli.codesdkd", *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Usage: codesdkd" in (done.stdout if code == 0 else done.stderr)


def test_every_command_can_be_loaded_and_has_help():
    for entries in COMMANDS.values():
        for name, entry in entries.items():
            command = getattr(import_module(f"codesdk.cli.commands.{entry.module}"), entry.attribute)
            assert isinstance(command, click.Command)
            assert command.name == name
            assert command.help
            assert all(param.help for param in command.params if isinstance(param, click.Option))


def test_help_lists_all_commands_and_exit_codes(shell: Shell):
    shown = shell.codesdk("--help")
    assert shown.code == 0
    assert shell.codesdk().out == shown.out
    for name in NAMES:
        assert f"\n  {name} " in shown.out
    for code, meaning in MEANINGS.items():
        assert f"\n  {code} " in shown.out
        assert meaning in shown.out


def test_every_error_code_has_its_exit_code():
    assert set(EXITS) == set(get_args(ErrorCode))
    assert {code: exit_of(code) for code in get_args(ErrorCode)} == EXITS
    assert set(EXIT_OF.values()) <= set(MEANINGS)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(shell: Shell, name: str):
    ran = shell.codesdk("completion", name)
    assert ran.code == 0
    assert "_CODESDK_COMPLETE" in ran.out
    assert shell.codesdk("completion", SHELL=f"/usr/bin/{name}").out == ran.out


def test_completion_without_a_known_shell_asks_for_one(shell: Shell):
    ran = shell.codesdk("completion", SHELL="/bin/csh")
    assert (ran.code, ran.err) == (
        2,
        "error (INVALID_REQUEST): There is no completion for this shell. Name one of bash, zsh, fish.\n",
    )


def test_commands_and_sessions_are_completed(stored: Shell):
    def complete(words: str) -> list[str]:
        ran = stored.here(
            _CODESDK_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1)
        )
        return [line.partition(",")[2] for line in ran.out.split()]

    assert complete("codesdk re") == ["resume", "rerun", "revoke", "replay"]
    assert complete("codesdk events ") == ["last", stored.last()]
    assert complete("codesdk --data-dir nowhere events ") == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(stored: Shell, closed: str):
    command = f'"{sys.executable}" -m codesdk.cli.main sessions {closed}'
    done = subprocess.run(
        ["sh", "-c", command], cwd=stored.home, env=environment({}), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_disk_that_is_full_is_said_in_one_line(stored: Shell):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - no path, a device
        done = subprocess.run(
            [*MODULE, "sessions", "--json"],
            cwd=stored.home,
            env=environment({}),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 5
    assert '"message":"No space left on device."' in done.stderr


def test_a_bug_is_one_line_and_its_place_is_shown_on_request(shell: Shell):
    breaking = "import codesdk.engine.log.archive as a; a.Archive = None; from codesdk.cli.app import run; run(['sessions'])"
    shell.run("turns: [{steps: [{text: Hi.}]}]")
    for extra, traced in (({}, False), ({"CODESDK_DEBUG": "1"}, True)):
        done = subprocess.run(
            [sys.executable, "-c", breaking],
            cwd=shell.home,
            env=environment(extra),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "error (INTERNAL): TypeError: " in done.stderr
        assert ("Traceback" in done.stderr) is traced


def _numbers(command: click.Command, path: str) -> list[tuple[str, Any]]:
    """Return the options of a command and its subcommands that take a number."""
    found = [
        (f"{path} {option.opts[0]}", option.type)
        for option in command.params
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        and not getattr(option, "count", False)
    ]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += _numbers(inner, f"{path} {name}")
    return found


NUMBERS = [*_numbers(group, "codesdk"), *_numbers(codesdkd, "codesdkd")]


@pytest.mark.parametrize(("option", "kind"), NUMBERS)
def test_every_option_that_is_a_number_has_bounds_and_refuses_what_is_outside(option: str, kind: Any):
    assert type(kind) in (click.IntRange, Real)
    assert kind.max is not None, "an upper bound"
    assert kind.min is not None, "a lower bound"
    for value in ("nan", "inf", "-inf", "-1", "1e308", "1" + "0" * 400, "True"):
        with pytest.raises(click.BadParameter):
            kind.convert(value, None, None)
