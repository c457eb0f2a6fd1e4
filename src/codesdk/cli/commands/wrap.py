"""`codesdk wrap`: any program that prints its tool requests and waits, decided by CodeSDK's policy and people."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from codesdk.channel import ArbiterLimits, Descriptor, Diagnostics, Launch, ProcessRunner, WrappedProgram
from codesdk.cli.app import Setup
from codesdk.cli.exits import report, report_bug, report_failure
from codesdk.cli.loop import run_async
from codesdk.cli.options import Real, whole
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.resolved import Resolved, resolve
from codesdk.cli.settings.table import EXTENSIONS, POLICY, YOLO
from codesdk.cli.settings.use import extensions
from codesdk.cli.target.place import open_sdk, runner
from codesdk.cli.target.rules import refuse_rules
from codesdk.cli.view.out import Interrupted, ReaderGone
from codesdk.cli.view.prompting import Prompting
from codesdk.contract.capabilities import OF_WRAPPED
from codesdk.contract.entry import WRAPPED
from codesdk.contract.errors import CodeSDKError, ErrorInfo, InvalidRequest
from codesdk.contract.events import TERMINAL_TYPES
from codesdk.contract.settings import SessionSettings
from codesdk.handles import Handles, Session
from codesdk.redaction import Redactor
from codesdk.runtimes import offered
from codesdk.sdk import CodeSDK

if TYPE_CHECKING:
    from codesdk.contract.tools import PermissionMode

USAGE, CONFIGURATION, NOT_RUN, POLICY_FAILURE, INTERNAL = 10, 11, 20, 40, 50
DIAGNOSTICS = "diagnostics"
_OUTCOME_S = 5.0
_SHORT = 60
_OPENING = (POLICY, YOLO, *EXTENSIONS)
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SECRET_CHARS = 8


class WrapCommand(click.Command):
    """A command whose errors have codes of their own: those below belong to the wrapped program."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the line. A mistake in it ends the command with 10."""
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            raise SystemExit(_misused(error)) from None

    def invoke(self, ctx: click.Context) -> int:
        """Run the command. What keeps the program from running ends it with a code that says so."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            return _misused(error)
        except CodeSDKError as error:
            report(error.info(), as_json=False)
            return _exit_of(error)
        except OSError as error:
            report_failure(error, as_json=False)
            return NOT_RUN
        except (click.exceptions.Exit, click.Abort, Interrupted, ReaderGone):
            raise
        except Exception as error:  # noqa: BLE001 - a bug must not look like a code of the program's own
            report_bug(error, as_json=False)
            return INTERNAL


def _misused(error: click.UsageError) -> int:
    message = f"{error.format_message()} See `codesdk wrap --help`."
    report(ErrorInfo(code="INVALID_REQUEST", message=message, retryable=False), as_json=False)
    return USAGE


@click.command(cls=WrapCommand, context_settings={"allow_interspersed_args": False})
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "yolo", "audit"]),
    default="ask",
    help="ask before every call, auto: before all but reading, yolo: never; audit: only record. [default: ask]",
)
@flags(_OPENING)
@click.option("--workspace", metavar="DIR", help="The directory that the program works in. [default: .]")
@click.option("--title", metavar="TEXT", help="A name for the session. [default: the program's]")
@click.option(
    "--interactive",
    is_flag=True,
    help="Without a terminal, wait for answers from `codesdk approve` instead of denying.",
)
@click.option("--require-control", is_flag=True, help="End a program that does not wait for decisions.")
@click.option(
    "--abort-on",
    multiple=True,
    type=click.Choice(["read", "write", "net", "exec"]),
    help="End a program that does this without a decision. Can be given several times.",
)
@click.option(
    "--decision-timeout",
    type=Real(0, 86_400, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="Deny a call that nobody has decided within this time. [default: 300]",
)
@click.option(
    "--execution-timeout",
    type=Real(0, 86_400, min_open=True),
    metavar="SECONDS",
    help="How long an allowed call may run. [default: no limit]",
)
@click.option(
    "--silence-timeout",
    type=Real(0, 86_400, min_open=True),
    metavar="SECONDS",
    help="How long the program may print nothing. [default: no limit]",
)
@click.option(
    "--grace",
    type=Real(0, 3_600, min_open=True),
    default=2.0,
    metavar="SECONDS",
    help="How long it has to end after each step of an abort. [default: 2]",
)
@click.option(
    "--max-parse-errors",
    type=whole(0),
    default=100,
    metavar="N",
    help="How many of its events may be unreadable. [default: 100]",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] PROGRAM [ARGS]...")
@click.pass_obj
def wrap(setup: Setup, program: tuple[str, ...], mode: str, **options: Any) -> int:
    """Run PROGRAM and decide its tool calls before it makes them.

    The program prints a line for each call and waits for the decision on its stdin (docs/policy-channel.md). What else
    it prints passes through. Questions are asked at the terminal; the session is in the log like any other, and can
    be answered from elsewhere. Exit codes: the program's own; 10 usage, 11 configuration, 20 could not run, 40 ended
    for a policy or an approval that failed, 50 a bug.
    """
    if mode == "audit" and options["require_control"]:
        raise click.UsageError(
            "--require-control has no meaning in the mode audit. Leave out one of the two."
        )
    rules = resolve(_OPENING, click.get_current_context())
    workspace = Path(options["workspace"] or ".").resolve()
    if not workspace.is_dir():
        raise InvalidRequest(f"The workspace {options['workspace']} is not a directory.")
    return run_async(_wrap(setup, program, mode, workspace, rules, options))


def _exit_of(error: CodeSDKError) -> int:
    if error.code in ("INVALID_REQUEST", "FORBIDDEN", "AUTH_REQUIRED", "AUTH_FAILED", "NOT_FOUND"):
        return CONFIGURATION
    return INTERNAL if error.code == "INTERNAL" else NOT_RUN


async def _wrap(
    setup: Setup,
    argv: tuple[str, ...],
    mode: str,
    workspace: Path,
    rules: Resolved,
    options: dict[str, Any],
) -> int:
    limits = ArbiterLimits(
        decision_s=options["decision_timeout"],
        execution_s=options["execution_timeout"],
        silence_s=options["silence_timeout"],
        grace_s=options["grace"],
        max_parse_errors=options["max_parse_errors"],
        require_control=options["require_control"],
        abort_on=options["abort_on"],
    )
    data_dir = Path.cwd() / setup.data_dir
    secrets = _own_secrets()
    terminal = Prompting.open()
    try:
        async with _opened(setup, rules) as sdk:
            program = WrappedProgram(
                Launch(argv=argv, cwd=str(workspace)),
                ProcessRunner(Descriptor(1), Descriptor(2), limits),
                limits,
                audit=mode == "audit",
                diagnostics=lambda name: Diagnostics(data_dir / DIAGNOSTICS, name, Redactor(secrets)),
                warn=_warn,
            )
            async with offered(program, data_dir) as channel:
                session = await sdk.create_session(
                    runtime=WRAPPED,
                    workspace=str(workspace),
                    title=options["title"] or Path(argv[0]).name[:_SHORT],
                    permission_mode="ask" if mode == "audit" else cast("PermissionMode", mode),
                    interaction_mode="interactive"
                    if terminal or options["interactive"]
                    else "non_interactive",
                    native_tools=list(OF_WRAPPED.native_tools),
                    secrets=secrets,
                    settings=SessionSettings(
                        runtime_config={"channel": channel}, approval_timeout_s=options["decision_timeout"]
                    ),
                )
                with _signals(program):
                    return await _run(session, program, shlex.join(argv), terminal)
    finally:
        if terminal is not None:
            terminal.close()


@contextlib.asynccontextmanager
async def _opened(setup: Setup, rules: Resolved) -> AsyncGenerator[Handles]:
    """Yield the sessions to work on. Only a process that holds the directory itself can have rules of its own."""
    who = await runner(setup)
    if who != "nobody":
        refuse_rules(who)
        async with open_sdk(setup) as sdk:
            yield sdk
        return
    from codesdk.policy import choose_policy

    policy = None if rules["policy"] is None else rules.use("policy", choose_policy)
    async with CodeSDK.open(
        setup.data_dir,
        policy=policy,
        allow_yolo=rules["allow_yolo"],
        extensions=extensions(rules),
        share=False,
        goes_on=False,
    ) as sdk:
        yield sdk


async def _run(session: Session, program: WrappedProgram, words: str, terminal: Prompting | None) -> int:
    """Run the program as the session's task, and put its questions to whoever is at the terminal."""
    after = await session.service.head(session.id)
    task = await session.start(words)
    following = asyncio.create_task(_follow(session, task.id, after, terminal))
    try:
        # The program may end without its session knowing: whoever held that may be gone.
        await asyncio.wait([following, program.outcome], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([following, program.outcome], timeout=_OUTCOME_S)
    finally:
        following.cancel()
        await asyncio.wait([following])
    if not program.outcome.done() or program.outcome.cancelled():
        _warn("the session ended before the program could be watched to its end")
        return INTERNAL
    try:
        outcome = program.outcome.result()
    except CodeSDKError as error:
        report(error.info(), as_json=False)
        return _exit_of(error)
    if outcome.diagnostics is not None and outcome.abort is not None and outcome.abort.code != "user_cancel":
        _warn(f"what explains it is in {outcome.diagnostics}")
    return outcome.exit_code


async def _follow(session: Session, task_id: str, after: int, terminal: Prompting | None) -> None:
    """Put questions to the person at the terminal until the task has ended."""
    async with contextlib.aclosing(session.service.follow(session.id, after)) as batches:
        async for batch in batches:
            if terminal is not None:
                await terminal.show(session, batch)
            if any(
                item.event.type in TERMINAL_TYPES and item.event.trace.task_id == task_id for item in batch
            ):
                return


@contextlib.contextmanager
def _signals(program: WrappedProgram) -> Generator[None]:
    """Give Ctrl-C to the program first. Other requests to end, and a second Ctrl-C, abort it."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, program.interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, program.cancel, f"{number.name} was received")
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _own_secrets() -> list[str]:
    """Return what the environment calls a secret: the program has the same one, and may put it into its arguments."""
    return [
        value
        for name, value in os.environ.items()
        if name.endswith(_SECRET_NAMES) and len(value) >= _SECRET_CHARS
    ]


def _warn(words: str) -> None:
    from codesdk.cli.view.safe import printable

    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"codesdk wrap: {printable(words)}\n".encode("utf-8", "replace"))
