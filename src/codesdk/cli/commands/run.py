"""`codesdk run` and `codesdk resume`: a prompt → a task, shown while it runs."""

import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import exit_of_ending
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.loop import run_async
from codesdk.cli.options import command_options, json_option, policy_options, session_argument
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import Runner, open_reader, open_sdk, runner
from codesdk.cli.view.working import Playing, Setting, choose_answering, scripted, work
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import Event, SessionCreated
from codesdk.contract.records import SessionRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.service import SessionReader
from codesdk.contract.settings import Budget, Budgets, SessionSettings
from codesdk.contract.tools import PermissionMode
from codesdk.handles import Handles, Session, Task
from codesdk.sandbox import SandboxKind
from codesdk.sdk import CodeSDK

if TYPE_CHECKING:
    from codesdk.contract.ports import Policy
    from codesdk.tools import ExecOptions

_JSON_HELP = "Print one stored event a line and nothing else; errors go to stderr as JSON."
_INTERACTIVE_HELP = "Without a terminal, wait for answers from `codesdk approve` instead of denying."
_MODES = {"ask": "ask", "auto": "auto", "yolo": "yolo"}


class Rules(NamedTuple):
    """What the operator of this process allows."""

    policy: str | None
    allow_yolo: bool
    commands: tuple[str, ...]
    sandbox: SandboxKind
    given: Sequence[str] = ()
    """The options that were on the command line."""

    @classmethod
    def of(
        cls, policy: str | None, allow_yolo: bool, commands: tuple[str, ...], sandbox: SandboxKind
    ) -> "Rules":
        """Return the rules of the command that is being run."""
        ctx = click.get_current_context()
        names = {
            "policy": "--policy",
            "allow_yolo": "--allow-yolo",
            "commands": "--allow-command",
            "sandbox": "--sandbox",
        }
        said = click.core.ParameterSource.COMMANDLINE
        given = [option for name, option in names.items() if ctx.get_parameter_source(name) is said]
        return cls(policy, allow_yolo, commands, sandbox, given)

    def refuse_elsewhere(self, who: Runner) -> None:
        """Raise `InvalidRequest` if there are rules: whoever runs the sessions has its own."""
        if self.given:
            advice = (
                "a daemon: start codesdkd with it"
                if who == "daemon"
                else "another process, with its own rules"
            )
            raise InvalidRequest(
                f"{self.given[0]} is for a process of one's own. These sessions are run by {advice}."
            )

    def load(self) -> "Policy | None":
        """Return the policy of the rules, read from its file."""
        if self.policy is None:
            return None
        from codesdk.policy import load_policy

        return load_policy(self.policy)

    def exec_options(self) -> "ExecOptions | None":
        """Return the options that allow running programs, or None."""
        if not self.commands:
            return None
        from codesdk.tools import ExecOptions

        return ExecOptions(allow=[shlex.split(words) for words in self.commands], sandbox=self.sandbox)


class NewSession(NamedTuple):
    """The options of a session that `run` creates."""

    runtime: str
    workspace: str
    permission_mode: PermissionMode
    title: str | None
    model: str | None
    record: bool
    budget: Budget
    native_tools: tuple[str, ...]
    capture: bool

    def settings(self) -> SessionSettings:
        """Return the settings that differ from the default ones."""
        return SessionSettings(
            gateway="record" if self.record else "passthrough",
            implicit_sources="capture" if self.capture else "off",
        )


@click.command()
@click.argument("prompt")
@click.option("--runtime", metavar="NAME", help="What runs the task. [default: scripted]")
@click.option("--script", metavar="FILE", help="A script to play in place of a model.")
@click.option("--workspace", metavar="DIR", help="The directory to work in. [default: .]")
@click.option(
    "--permission-mode",
    "mode",
    type=click.Choice(list(_MODES)),
    help="ask before every tool, auto: before all but reading, yolo: never. [default: ask]",
)
@policy_options
@command_options
@click.option(
    "--native-tool",
    "native_tools",
    multiple=True,
    metavar="NAME",
    help="A tool of the runtime's own that it may run, which cannot be confined. Can be given several times.",
)
@click.option(
    "--implicit-sources",
    type=click.Choice(["off", "capture"]),
    help="capture: the workspace's own instruction file reaches the model and is listed. [default: off]",
)
@click.option("--model", metavar="NAME", help="The model, where the runtime has a choice.")
@click.option("--title", metavar="TEXT", help="A name for the new session.")
@click.option(
    "--record", is_flag=True, help="Keep the model's answers, so that `codesdk rerun` can play them."
)
@click.option("--max-requests", type=click.IntRange(1), metavar="N", help="Model requests that it may make.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens that it may use.")
@click.option("--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help="What it may cost.")
@click.option("--session", metavar="SESSION", help="Go on in this session instead of a new one.")
@click.option("--interactive", is_flag=True, help=_INTERACTIVE_HELP)
@json_option(_JSON_HELP)
@click.pass_obj
def run(
    setup: Setup,
    prompt: str,
    runtime: str | None,
    script: str | None,
    workspace: str | None,
    mode: PermissionMode | None,
    policy: str | None,
    allow_yolo: bool,
    commands: tuple[str, ...],
    sandbox: SandboxKind,
    native_tools: tuple[str, ...],
    implicit_sources: str | None,
    model: str | None,
    title: str | None,
    record: bool,
    max_requests: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    session: str | None,
    interactive: bool,
    as_json: bool,
) -> int:
    """Run a task: PROMPT is what to do, or - to read it from stdin.

    A tool call that needs an answer is asked about at the terminal. Without a terminal it is denied at once,
    or, with --interactive, waits for `codesdk approve` from elsewhere. Ctrl-C stops the task.
    """
    text = _read_prompt(prompt)
    setting = Setting(as_json, choose_answering(as_json, interactive), setup.shown)
    rules = Rules.of(policy, allow_yolo, commands, sandbox)
    if session is None:
        budget = Budget(requests=max_requests, tokens=max_tokens, cost_usd=max_cost)
        new = NewSession(
            runtime or "scripted",
            workspace or ".",
            mode or "ask",
            title,
            model,
            record,
            budget,
            native_tools,
            implicit_sources == "capture",
        )
        if setup.url is None and not Path(new.workspace).is_dir():
            raise InvalidRequest(f"The workspace {new.workspace} is not a directory.")
        return run_async(_run_new(setup, text, new, scripted(new.runtime, script), rules, setting))
    for option, value in (
        ("--runtime", runtime),
        ("--workspace", workspace),
        ("--permission-mode", mode),
        ("--native-tool", native_tools or None),
        ("--implicit-sources", implicit_sources),
        ("--model", model),
        ("--title", title),
        ("--record", record or None),
        ("--max-requests", max_requests),
        ("--max-tokens", max_tokens),
        ("--max-cost", max_cost),
    ):
        if value is not None:
            raise InvalidRequest(
                f"{option} is for a new session; {session} has its own. Leave out one of the two."
            )
    return run_async(_go_on(setup, session, script, rules, setting, lambda found: found.start(text)))


@click.command()
@session_argument()
@click.argument("prompt", required=False)
@click.option("--script", metavar="FILE", help="A script to play in place of a model.")
@policy_options
@command_options
@click.option("--interactive", is_flag=True, help=_INTERACTIVE_HELP)
@json_option(_JSON_HELP)
@click.pass_obj
def resume(
    setup: Setup,
    session: str,
    prompt: str | None,
    script: str | None,
    policy: str | None,
    allow_yolo: bool,
    commands: tuple[str, ...],
    sandbox: SandboxKind,
    interactive: bool,
    as_json: bool,
) -> int:
    """Continue a session whose task was interrupted.

    Calls that were approved meanwhile run first. PROMPT adds a message; - reads it from stdin.
    """
    text = None if prompt is None else _read_prompt(prompt)
    setting = Setting(as_json, choose_answering(as_json, interactive), setup.shown)
    rules = Rules.of(policy, allow_yolo, commands, sandbox)
    return run_async(_go_on(setup, session, script, rules, setting, lambda found: found.resume(text)))


async def _run_new(
    setup: Setup,
    text: str,
    new: NewSession,
    playing: Playing,
    rules: Rules,
    setting: Setting,
) -> int:
    with Interrupts() as interrupts:
        async with _opened(setup, playing.runtimes, rules) as (sdk, is_here):
            session = await sdk.create_session(
                runtime=new.runtime,
                workspace=new.workspace,
                permission_mode=new.permission_mode,
                interaction_mode="non_interactive" if setting.answering == "nobody" else "interactive",
                title=new.title,
                model=new.model,
                budgets=Budgets(session=new.budget) if new.budget != Budget() else None,
                native_tools=list(new.native_tools) or "off",
                settings=_settings(new, playing, stored=not is_here),
                plays=playing.plays,
            )
            ending = await work(sdk, session, lambda: session.start(text), setting, interrupts, after=0)
            return await _close(ending, setting)


def _settings(new: NewSession, playing: Playing, *, stored: bool) -> SessionSettings:
    """Return a new session's settings. Another process gets the script for its scripted runtime from them."""
    settings = new.settings()
    if not stored or playing.script is None:
        return settings
    from codesdk.script import dump

    return msgspec.structs.replace(settings, runtime_config={"script": dump(playing.script)})


@asynccontextmanager
async def _opened(
    setup: Setup, runtimes: Mapping[str, Runtime], rules: Rules
) -> AsyncGenerator[tuple[Handles, bool]]:
    """Yield the sessions to work on, and whether they run here: only this process can have rules of its own."""
    who = await runner(setup)
    if who != "nobody":
        rules.refuse_elsewhere(who)
        async with open_sdk(setup) as sdk:
            yield sdk, False
        return
    async with CodeSDK.open(
        setup.data_dir,
        runtimes=runtimes,
        policy=rules.load(),
        allow_yolo=rules.allow_yolo,
        run=rules.exec_options(),
        share=False,
    ) as sdk:
        yield sdk, True


async def _go_on(
    setup: Setup,
    given: str,
    script: str | None,
    rules: Rules,
    setting: Setting,
    begin: Callable[[Session], Awaitable[Task]],
) -> int:
    """Begin a task in a stored session. The seq to show from is read once the directory is ours."""
    with Interrupts() as interrupts:
        async with open_reader(setup) as archive:
            row = await find_session(archive, given)
            playing = await _playing_of(archive, row, script, await runner(setup))
        async with _opened(setup, playing.runtimes, rules) as (sdk, _):
            session = await sdk.session(row.session_id, plays=playing.plays)
            after = await sdk.service.head(session.id)
            ending = await work(sdk, session, lambda: begin(session), setting, interrupts, after=after)
            return await _close(ending, setting)


async def _playing_of(archive: SessionReader, row: SessionRow, script: str | None, who: Runner) -> Playing:
    """Return what a stored session is opened with. One with a script in its settings needs no other."""
    if who != "nobody" and row.runtime == "scripted":
        if script is not None:
            raise InvalidRequest(
                "A session that another process runs has its script since it was made: leave out --script."
            )
        return Playing({})
    if script is None and row.runtime == "scripted":
        created = (await archive.event(row.session_id, 1)).payload
        if isinstance(created, SessionCreated) and created.settings.get("runtime_config", {}).get("script"):
            return Playing({})
    return scripted(row.runtime, script)


def _read_prompt(prompt: str) -> str:
    try:
        text = sys.stdin.read() if prompt == "-" else prompt
        text.encode()
    except UnicodeError:
        raise InvalidRequest("The prompt is not UTF-8 text.") from None
    if not text.strip():
        raise InvalidRequest("The prompt is empty: say what to do.")
    return text


async def _close(ending: Event, setting: Setting) -> int:
    """Show where to look next, and return the exit code."""
    if not setting.as_json:
        from codesdk.cli.view.next_steps import show_next

        await show_next(ending, setting.hint, short(ending.trace.session_id))
    return exit_of_ending(ending)
