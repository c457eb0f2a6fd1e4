"""The `codesdk` command group: commands loaded when they are used, errors turned into exit codes."""

import functools
import os
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

from codesdk import __version__
from codesdk.cli.exits import (
    BAD_INPUT,
    INTERRUPTED,
    MEANINGS,
    READER_GONE,
    report,
    report_bug,
    report_failure,
)
from codesdk.cli.options import DATA_DIR_HELP, DEFAULT_DATA_DIR
from codesdk.cli.view.out import Interrupted, ReaderGone
from codesdk.contract.errors import CodeSDKError, ErrorInfo, InvalidRequest


class Entry(NamedTuple):
    """A command that is not loaded yet: where it is, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Work": {
        "demo": Entry("demo", "demo", "Run a short session that needs no key and no network."),
        "chat": Entry("chat", "chat", "Talk to any runtime at the terminal."),
        "run": Entry("run", "run", "Run a task and show what happens."),
        "resume": Entry("run", "resume", "Continue a session that was interrupted."),
        "rerun": Entry("rerun", "rerun", "Run a recorded session again, with its model's recorded answers."),
        "wrap": Entry("wrap", "wrap", "Run any program, and decide the tool calls that it asks about."),
        "undo": Entry("session", "undo", "Put files back as they were before tools changed them."),
    },
    "Change a session": {
        "set": Entry("session", "set_", "Change a session's title, model, mode, budgets and the like."),
        "fork": Entry("session", "fork", "Start a new session from another's transcript."),
        "move": Entry("session", "move", "Continue a session on another runtime."),
        "compact": Entry("session", "compact", "Give the runtime less of a long conversation."),
        "close": Entry("session", "close", "End a session; its log stays."),
        "delete": Entry("session", "delete", "Delete a session and everything stored for it."),
    },
    "Answer a running task": {
        "approve": Entry("answer", "approve", "Approve a waiting tool call, or list those that wait."),
        "deny": Entry("answer", "deny", "Deny a waiting tool call, or list those that wait."),
        "answer": Entry("answer", "answer", "Answer a question with text, or list those that wait."),
        "steer": Entry("answer", "steer", "Add a message to the running task."),
        "stop": Entry("answer", "stop", "Stop the running task."),
        "approvals": Entry("approvals", "approvals", "Show what waits in all sessions, and answer it."),
        "grants": Entry("answer", "grants", "List the tools that are approved for a whole session."),
        "revoke": Entry("answer", "revoke", "Take such an approval back: the tool is asked about again."),
    },
    "Look": {
        "sessions": Entry("look", "sessions", "List sessions, newest first."),
        "top": Entry("top", "top", "Watch sessions at work: tasks, events per second, cost."),
        "events": Entry("look", "events", "Show a session's events, even while it runs."),
        "transcript": Entry("look", "transcript", "Show a session's messages."),
        "suggest": Entry("suggest", "suggest", "Ask the extensions what to ask a session for next."),
        "artifacts": Entry("artifacts", "artifacts", "List or read what a session stored."),
        "jobs": Entry("jobs", "jobs", "List the jobs that extensions queued; cancel or retry one."),
        "audit": Entry("audit", "audit", "Show who did and allowed what; check that no record is missing."),
        "bundle": Entry(
            "bundle", "bundle", "Pack what explains a session, without secrets, or inspect such a bundle."
        ),
    },
    "Check": {
        "verify": Entry("check", "verify", "Check stored logs against the contract."),
        "replay": Entry("check", "replay", "Replay a log; the same events must come out."),
        "runtimes": Entry(
            "runtimes", "runtimes", "List the runtimes, find out what one lacks, or install its program."
        ),
        "conformance": Entry("conformance", "conformance", "Run the conformance matrix on real runtimes."),
        "policy": Entry("policy", "policy", "Try out rules on one call, or on all past ones."),
    },
    "Work in an editor": {
        "acp": Entry("acp", "acp", "Serve an editor as its agent, over the Agent Client Protocol."),
    },
    "Talk to models": {
        "gateway": Entry("gateway", "gateway", "Serve a model to any agent: scripted, replayed or recorded."),
    },
    "Use the built-in agent": {
        "minicode": Entry(
            "minicode", "minicode", "Show the configuration, the plugins and the sessions of minicode."
        ),
    },
    "Serve tools": {
        "mcp": Entry("mcp", "mcp", "Serve a session's tools, or those on a directory, over MCP."),
    },
    "Set up": {
        "doctor": Entry("doctor", "doctor", "Check what this machine offers, such as sandboxes."),
        "gc": Entry("gc", "gc", "Remove old or excess data, and free the space."),
        "keys": Entry("keys", "keys", "Store provider keys that pay for the sessions of a principal."),
        "login": Entry("login", "login", "Log in to a runtime's own account, where the operator allows it."),
        "extensions": Entry(
            "extensions",
            "extensions",
            "List, check, trust, reload or create extensions: code that reacts to events.",
        ),
        "tokens": Entry("tokens", "tokens", "Manage who may use the daemon, and for what."),
        "completion": Entry("completion", "completion", "Print the completion script for a shell."),
    },
}
_PLACE = "place_"  # before the names of these parameters, so that a command can have one of the same name
_GIVEN = "codesdk.given"  # in a context's meta, which a command shares with the group
HERE_ONLY = frozenset({"demo", "mcp", "policy", "tokens", "wrap"})
"""Commands that work only on a data directory, and refuse a daemon's address."""
_ENTRIES = {name: entry for entries in COMMANDS.values() for name, entry in entries.items()}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the help."""
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        entry = _ENTRIES.get(cmd_name)
        if entry is None:
            return None
        found = getattr(import_module(f"codesdk.cli.commands.{entry.module}"), entry.attribute)
        assert isinstance(found, click.Command), "the table names commands only"
        _accept_place(found, here_only=cmd_name in HERE_ONLY)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading any."""
        for title, entries in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()], col_spacing=3)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the meaning of the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in MEANINGS.items()], col_spacing=3)


class Setup(NamedTuple):
    """The group's options, for the commands. `given` is false if the default directory is used."""

    data_dir: str
    given: bool
    shown: str
    """The option that says where the sessions are, for commands that a person is told to type."""
    url: str | None = None
    """The daemon to talk to, if one is named."""
    token: str | None = None


def _note(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Take where the sessions are from one of the three options, before or after the command: the later one counts."""
    typed = ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    name = str(param.name).removeprefix(_PLACE)
    given: dict[str, _Given] = ctx.meta.setdefault(_GIVEN, {})
    if value and (typed or name not in given):
        given[name] = _Given(value, typed)
    if not ctx.resilient_parsing and all(name in given and given[name].typed for name in ("url", "data_dir")):
        raise click.UsageError("Give --url or --data-dir, not both: sessions are in one of them.", ctx)
    ctx.obj = _setup(given)
    return value


class _Given(NamedTuple):
    """The value of an option, and whether it is from the command line."""

    value: str
    typed: bool


def _setup(given: dict[str, _Given]) -> Setup:
    data_dir, url, token = (given.get(name, _Given("", False)) for name in ("data_dir", "url", "token"))
    if data_dir.typed:
        url = _Given("", False)  # what is typed wins over CODESDK_URL
    shown = ""
    if url.typed:
        shown = f" --url {shlex.quote(url.value)}"
    elif data_dir.typed:
        shown = f" --data-dir {shlex.quote(data_dir.value)}"
    return Setup(
        data_dir=data_dir.value or DEFAULT_DATA_DIR,
        given=bool(data_dir.value),
        shown=shown,
        url=url.value or None,
        token=token.value or None,
    )


def _place_options(*, after: bool) -> list[click.Option]:
    """Return the options that say where sessions are. After a command they are not shown again in its help."""
    url_help = "Use the daemon at this address instead. [env: CODESDK_URL]"
    token_help = "The daemon's token. Prefer CODESDK_TOKEN: others on this machine can read a command line."
    rows = [
        ("--data-dir", "DIR", "CODESDK_DATA_DIR", DATA_DIR_HELP),
        ("--url", "URL", "CODESDK_URL", url_help),
        ("--token", "TOKEN", "CODESDK_TOKEN", token_help),
    ]
    return [
        click.Option(
            [flag, _PLACE + flag.removeprefix("--").replace("-", "_")],
            metavar=metavar,
            envvar=None if after else variable,  # the group has read it
            help=text,
            callback=_note,
            expose_value=False,
            hidden=after,
        )
        for flag, metavar, variable, text in rows
    ]


def _accept_place(command: click.Command, *, here_only: bool) -> None:
    """Let a command, and those below it, take these options as well. Commands are loaded once and asked for often."""
    if any(option.callback is _note for option in command.params):
        return
    command.params.extend(_place_options(after=True))
    command.callback = _checked(command.callback, here_only)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _accept_place(each, here_only=here_only)


def _checked(run: Callable[..., Any] | None, here_only: bool) -> Callable[..., Any]:
    """Return a command's function behind the checks that need every option of the line to be known."""
    assert run is not None, "every command does something"

    @functools.wraps(run)
    def checked(*args: Any, **options: Any) -> Any:
        ctx = click.get_current_context()
        if ctx.invoked_subcommand is None:
            _check_place(ctx, here_only)
        return run(*args, **options)

    return checked


def _check_place(ctx: click.Context, here_only: bool) -> None:
    setup: Setup = ctx.obj
    if here_only and setup.url:
        name = ctx.command_path.split(" ")[1]
        raise InvalidRequest(
            f"`codesdk {name}` works only on a data directory of this machine, not with a"
            " daemon. Name the directory with --data-dir, or unset CODESDK_URL."
        )
    given: dict[str, _Given] = ctx.meta.get(_GIVEN, {})
    if "token" in given and given["token"].typed and sys.stderr.isatty():
        words = "a token on the command line can be read by others on this machine; use CODESDK_TOKEN"
        click.echo(f"warning: {words}.", err=True)


@click.group(
    cls=LazyGroup,
    params=list[click.Parameter](_place_options(after=False)),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="codesdk", message="%(prog)s %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Run coding agents behind one recorded, policed and testable interface.

    A SESSION is named by its id, by the beginning or end of it, or by the word `last`. The options below can also
    follow the command.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(args: list[str]) -> int:
    """Run one command line. Must not raise; return the exit code."""
    _open_missing_streams()
    # Looked for before the line is parsed, so that an error in the line itself is JSON, too.
    as_json = "--json" in (args[: args.index("--")] if "--" in args else args)
    try:
        return _run(args, as_json)
    except ReaderGone:
        _silence_stdout()
        return READER_GONE
    except (click.Abort, KeyboardInterrupt, Interrupted):
        return INTERRUPTED
    except SystemExit as error:  # how click exits after completion, and when a pipe breaks
        return error.code if isinstance(error.code, int) else 1
    except Exception as error:  # noqa: BLE001 - the last stop: a bug must be reported like every other error
        return report_bug(error, as_json=as_json)


def _run(args: list[str], as_json: bool) -> int:
    # What models say may not fit the terminal's encoding; that must not end the command.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:  # not standalone: click would print errors in its own way and exit
        result: object = group.main(args, prog_name="codesdk", standalone_mode=False)
    except click.ClickException as error:
        return _report_usage(error, as_json)
    except (CodeSDKError, OSError) as error:
        return report_failure(error, as_json=as_json)
    return result if isinstance(result, int) else 0


def _report_usage(error: click.ClickException, as_json: bool) -> int:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if isinstance(context, click.Context):
        message += f" See `{context.command_path} --help`."
    report(ErrorInfo(code="INVALID_REQUEST", message=message, retryable=False), as_json=as_json)
    return BAD_INPUT


def _open_missing_streams() -> None:
    """Put /dev/null in the place of closed standard streams, or the next opened file would become one."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    # Python sets the object to None for a descriptor that was closed when it started.
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - stays open


def _silence_stdout() -> None:
    """Send what is still buffered to /dev/null, so that Python does not complain on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
