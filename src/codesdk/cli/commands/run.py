"""`codesdk run` and `codesdk resume`: a prompt → a task, shown while it runs."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import exit_of_ending
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.loop import run_async
from codesdk.cli.options import (
    Real,
    json_option,
    session_argument,
    whole,
)
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.resolved import Resolved
from codesdk.cli.settings.table import OPENING
from codesdk.cli.settings.use import opening
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import Runner, open_reader, open_sdk, runner
from codesdk.cli.target.rules import own_rules, refuse_rules, typed_options
from codesdk.cli.target.runtimes import RuntimesHere
from codesdk.cli.target.schema_file import read_schema
from codesdk.cli.view.out import write_json
from codesdk.cli.view.working import Playing, Setting, choose_answering, scripted, work
from codesdk.contract.actions import SCOPES
from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.events import Event, SessionCreated
from codesdk.contract.records import SessionRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.service import SessionReader
from codesdk.contract.settings import Budget, Budgets, SessionSettings
from codesdk.handles import Handles, Session, Task
from codesdk.script import dump
from codesdk.sdk import CodeSDK

_JSON_HELP = "Print one stored event a line and nothing else; errors go to stderr as JSON."
_INTERACTIVE_HELP = "Without a terminal, wait for answers from `codesdk approve` instead of denying."
_OF_NEW = frozenset(
    {"runtime", "workspace", "mode", "native_tools", "implicit_sources", "model", "title", "record"}
    | {"max_requests", "max_tokens", "max_cost", "isolation", "namespace", "on_interrupt"}
)
"""The options of a session that `run` creates."""


_denied_option = click.option(
    "--fail-on-denied",
    is_flag=True,
    help="Exit with 6 if the task completed but some of its calls were denied, by a rule or by a person.",
)


@click.command()
@click.argument("prompt")
@click.option("--runtime", metavar="NAME", help="What runs the task. [default: minicode]")
@click.option("--script", metavar="FILE", help="A script to play in place of a model.")
@click.option("--workspace", metavar="DIR", help="The directory to work in. [default: .]")
@click.option(
    "--permission-mode",
    "mode",
    type=click.Choice(["ask", "auto", "yolo"]),
    help="ask before every tool, auto: before all but reading, yolo: never. [default: ask]",
)
@flags(OPENING)
@click.option(
    "--native-tool",
    "native_tools",
    multiple=True,
    metavar="NAME",
    help="Let the runtime use this tool of its own, which cannot be confined. Can be given several times.",
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
@click.option(
    "--isolation",
    type=click.Choice(["namespaced", "ephemeral", "shared"]),
    help="Where the runtime's own state lives, where the operator allows a choice. [default: namespaced]",
)
@click.option(
    "--namespace", metavar="NAME", help="The credential namespace whose logins it uses. [default: your own]"
)
@click.option(
    "--on-interrupt",
    type=click.Choice(["wait", "resume"]),
    help="resume: what a crash or a restart interrupts goes on by itself, in a daemon or an application. [default: wait]",
)
@click.option("--max-requests", type=whole(1), metavar="N", help="Model requests that it may make.")
@click.option("--max-tokens", type=whole(1), metavar="N", help="Tokens that it may use.")
@click.option("--max-cost", type=Real(0, 1e9, min_open=True), metavar="USD", help="What it may cost.")
@click.option("--session", metavar="SESSION", help="Continue this session instead of starting a new one.")
@click.option("--interactive", is_flag=True, help=_INTERACTIVE_HELP)
@click.option(
    "--policy-stdio",
    is_flag=True,
    help="Request decisions on stdout and take them from stdin, as `codesdk wrap` gives them.",
)
@_denied_option
@click.option(
    "--output-schema",
    "schema_file",
    metavar="FILE",
    help="A JSON Schema of an object that the result must fit. It is printed on stdout, all else on stderr.",
)
@json_option(_JSON_HELP)
@click.pass_obj
def run(
    setup: Setup,
    prompt: str,
    session: str | None,
    script: str | None,
    interactive: bool,
    policy_stdio: bool,
    fail_on_denied: bool,
    schema_file: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a task: PROMPT is what to do, or - to read it from stdin.

    A tool call that needs an answer is asked about at the terminal. Without a terminal it is denied at once,
    or, with --interactive, waits for `codesdk approve` from elsewhere. Ctrl-C stops the task.
    """
    if policy_stdio:
        from codesdk.cli.view.policy_stdio import check_stdio

        check_stdio(prompt, as_json=as_json, has_schema=schema_file is not None)
    text = _read_prompt(prompt)
    schema = None if schema_file is None else read_schema(schema_file)
    answering = "others" if policy_stdio else choose_answering(as_json, interactive)
    setting = Setting(
        as_json=as_json,
        answering=answering,
        hint=setup.shown,
        fail_on_denied=fail_on_denied,
        prints_data=schema is not None and not as_json,
        policy_stdio=policy_stdio,
    )

    async def begin(found: Session) -> Task:
        return await found.start(text, output_schema=schema)

    if session is not None:
        if typed := typed_options(_OF_NEW):
            raise InvalidRequest(
                f"{typed[0]} is for a new session; {session} has its own. Leave out one of the two."
            )
        return run_async(_go_on(setup, session, script, own_rules(), setting, begin))
    if options["record"] and script is not None:
        raise InvalidRequest(
            "--record keeps a model's answers, and with --script no model is asked. Leave out one of the two."
        )
    new = _new_session(options)
    if setup.url is None and not Path(new["workspace"]).is_dir():
        raise InvalidRequest(f"The workspace {new['workspace']} is not a directory.")
    return run_async(_run_new(setup, begin, new, scripted(new["runtime"], script), own_rules(), setting))


@click.command()
@session_argument()
@click.argument("prompt", required=False)
@click.option("--script", metavar="FILE", help="A script to play in place of a model.")
@flags(OPENING)
@click.option("--interactive", is_flag=True, help=_INTERACTIVE_HELP)
@_denied_option
@json_option(_JSON_HELP)
@click.pass_obj
def resume(
    setup: Setup,
    session: str,
    prompt: str | None,
    script: str | None,
    interactive: bool,
    fail_on_denied: bool,
    as_json: bool,
    **_: Any,
) -> int:
    """Continue a session whose task was interrupted.

    Calls that were approved meanwhile run first. PROMPT adds a message; - reads it from stdin.
    """
    text = None if prompt is None else _read_prompt(prompt)
    setting = Setting(
        as_json, choose_answering(as_json, interactive), setup.shown, fail_on_denied=fail_on_denied
    )
    rules = own_rules()
    return run_async(_go_on(setup, session, script, rules, setting, lambda found: found.resume(text)))


def _new_session(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `create_session`."""
    budget = Budget(
        requests=options["max_requests"], tokens=options["max_tokens"], cost_usd=options["max_cost"]
    )
    return {
        "runtime": options["runtime"],
        "workspace": options["workspace"] or ".",
        "permission_mode": options["mode"] or "ask",
        "title": options["title"],
        "model": options["model"],
        "budgets": None if budget == Budget() else Budgets(session=budget),
        "isolation": options["isolation"],
        "credential_namespace": options["namespace"],
        "native_tools": list(options["native_tools"]) or "off",
        "settings": SessionSettings(
            gateway="record" if options["record"] else "passthrough",
            implicit_sources=options["implicit_sources"] or "off",
            on_interrupt=options["on_interrupt"] or "wait",
        ),
    }


async def _run_new(
    setup: Setup,
    begin: Callable[[Session], Awaitable[Task]],
    new: dict[str, Any],
    playing: Playing,
    rules: Resolved,
    setting: Setting,
) -> int:
    with Interrupts() as interrupts:
        async with _opened(setup, playing.runtimes, rules) as (sdk, is_here):
            if playing.script is not None and not is_here:
                # Another process has no runtime that plays it, so the session brings the script along.
                config = {"script": dump(playing.script)}
                new["settings"] = msgspec.structs.replace(new["settings"], runtime_config=config)
            setting = await _permitted(sdk, setting, waits=False)
            mode = "non_interactive" if setting.answering == "nobody" else "interactive"
            session = await sdk.create_session(**new, interaction_mode=mode, plays=playing.plays)
            ending = await work(sdk, session, lambda: begin(session), setting, interrupts, after=0)
            return await _close(session, ending, setting)


@asynccontextmanager
async def _opened(
    setup: Setup, runtimes: Mapping[str, Runtime], rules: Resolved
) -> AsyncGenerator[tuple[Handles, bool]]:
    """Yield the sessions to work on, and whether they run here: only this process can have rules of its own."""
    who = await runner(setup)
    if who != "nobody":
        refuse_rules(who)
        async with open_sdk(setup) as sdk:
            yield sdk, False
        return
    async with CodeSDK.open(
        setup.data_dir,
        runtimes=runtimes,
        allow_yolo=rules["allow_yolo"],
        **(opening(rules) | RuntimesHere.of_command().opening()),
        share=False,
        goes_on=False,
    ) as sdk:
        yield sdk, True


async def _permitted(sdk: Handles, setting: Setting, *, waits: bool) -> Setting:
    """Return who answers, as the caller's scopes allow it, or raise `Forbidden` before anything is started.

    `waits` says that questions of the session wait for an answer even if nobody is here to give it.
    """
    from codesdk.client import CodeSDKClient

    scopes = (await sdk.whoami()).scopes if isinstance(sdk, CodeSDKClient) else SCOPES
    if "run" not in scopes:
        raise Forbidden("This token is read-only. Running a task needs the scope run.")
    if "approve" in scopes:
        return setting
    if setting.policy_stdio:
        from codesdk.cli.view.policy_stdio import check_scopes

        check_scopes(scopes)
    if setting.answering == "nobody" and waits:
        raise Forbidden(
            "This token may not answer questions, and those of this session wait for an answer. Use --interactive to"
            " wait for somebody who may, or a token with the scope approve."
        )
    # A person here could only look on, so the questions are left to those who may answer.
    return setting._replace(answering="others") if setting.answering == "terminal" else setting


def _is_interactive(created: Event) -> bool:
    return isinstance(created.payload, SessionCreated) and created.payload.interaction_mode == "interactive"


async def _go_on(
    setup: Setup,
    given: str,
    script: str | None,
    rules: Resolved,
    setting: Setting,
    begin: Callable[[Session], Awaitable[Task]],
) -> int:
    """Begin a task in a stored session. The seq to show from is read once the directory is ours."""
    with Interrupts() as interrupts:
        async with open_reader(setup) as archive:
            row = await find_session(archive, given)
            playing = await _playing_of(archive, row, script, await runner(setup))
        async with _opened(setup, playing.runtimes, rules) as (sdk, _):
            created = await sdk.service.event(row.session_id, 1)
            setting = await _permitted(sdk, setting, waits=_is_interactive(created))
            session = await sdk.session(row.session_id, plays=playing.plays)
            after = await sdk.service.head(session.id)
            ending = await work(sdk, session, lambda: begin(session), setting, interrupts, after=after)
            return await _close(session, ending, setting)


async def _playing_of(archive: SessionReader, row: SessionRow, script: str | None, who: Runner) -> Playing:
    """Return what a stored session is opened with. One with a script in its settings needs no other."""
    if who != "nobody" and row.runtime == "scripted":
        if script is not None:
            raise InvalidRequest(
                "A session that another process runs got its script when it was created: leave out --script."
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


async def _close(session: Session, ending: Event, setting: Setting) -> int:
    """Show where to look next, print the result that was asked for, and return the exit code."""
    if not setting.is_quiet:
        await _show_next(ending, f"codesdk{setting.hint}", setting.prints_data)
    if setting.prints_data and ending.type == "task.completed":
        result = await session.task(ending.trace.task_id or "").result()
        await asyncio.to_thread(write_json, result.data)
    return exit_of_ending(ending, fail_on_denied=setting.fail_on_denied)


async def _show_next(ending: Event, command: str, err: bool) -> None:
    """Print the session's id and the commands that fit how the task ended."""
    from rich.text import Text

    from codesdk.cli.view.pieces import step_lines
    from codesdk.cli.view.screen import Screen

    name = short(ending.trace.session_id)
    steps = [
        (f"{command} transcript {name}", "the messages"),
        (f"{command} events {name}", "everything that happened"),
    ]
    if ending.type == "task.completed":
        steps.append((f"{command} verify {name}", "check the log"))
    else:
        steps.append((f"{command} run --session {name} …", "continue from here"))
    async with Screen(err=err) as screen:
        screen.console.print(Text(f"  session {ending.trace.session_id}", "dim"))
        for line in step_lines(steps, screen.console.width):
            screen.console.print(line, soft_wrap=True)
