"""`codesdk policy`: what a policy decides on a call, and what it would have decided on past ones."""

import shlex
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.target.lookup import all_sessions, find_session
from codesdk.cli.target.place import reading
from codesdk.cli.view.out import write_json, write_line
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Evaluation, PermissionMode, Subjects, ToolClass
from codesdk.engine import ReplayedDecision, replay_policy
from codesdk.policy import PRESETS, Looked, RulePolicy, all_opinions, choose_policy, decide, preset_of
from codesdk.sandbox import HostSandbox
from codesdk.tools import ToolRegistry, builtin_registry, exec_tool, fetch_tool


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A decision and how it came about."""

    question: PolicyQuestion
    looked: list[Looked]
    opinions: list[Evaluation]
    decision: Evaluation


@click.group()
def policy() -> None:
    """Try out rules before they are used."""


@policy.command("list")
@json_option("Print the presets as JSON.")
def list_presets(as_json: bool) -> int:
    """List the presets: policies that can be used by their names."""
    if as_json:
        write_json({"presets": [{"name": name, "summary": found.summary} for name, found in PRESETS.items()]})
        return OK
    width = max(map(len, PRESETS))
    for name, found in PRESETS.items():
        write_line(f"{name:<{width}}  {found.summary}")
    return OK


@policy.command()
@click.argument("name")
def show(name: str) -> int:
    """Print the rules of a preset, to be read or to begin a policy file with."""
    write_line(preset_of(name).text.strip())
    return OK


@policy.command()
@click.option("--tool", required=True, metavar="NAME", help="The tool that is called.")
@click.option("--input", "given", default="{}", metavar="JSON", help="The call's input. [default: {}]")
@click.option(
    "--policy",
    "given_policy",
    metavar="NAME|FILE",
    envvar="CODESDK_POLICY",
    help="The rules: a preset or a file.",
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "yolo"]),
    default="ask",
    help="The permission mode of the session. [default: ask]",
)
@click.option(
    "--class",
    "kind",
    type=click.Choice(["read_only", "write", "network", "dangerous"]),
    help="The class of a tool that is not built in. [default: dangerous]",
)
@click.option("--path", "paths", multiple=True, metavar="PATH", help="A path that it touches; repeatable.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A host that it talks to; repeatable.")
@click.option("--argv", metavar="COMMAND", help="The command that it runs, as typed in a shell.")
@json_option("Print the explanation as JSON.")
def check(
    tool: str,
    given: str,
    given_policy: str | None,
    mode: PermissionMode,
    kind: ToolClass | None,
    paths: tuple[str, ...],
    hosts: tuple[str, ...],
    argv: str | None,
    as_json: bool,
) -> int:
    """Explain what would be decided on a call: which rules are checked, and which one decides.

    What a built-in tool touches is read from its input; for other tools, give --path, --host and --argv.
    """
    told = Subjects(paths=list(paths), hosts=list(hosts), argv=_split(argv))
    rules = choose_policy(given_policy) if given_policy else RulePolicy([])
    question = run_async(_question(tool, _json(given), mode, kind, told))
    explained = _explain(rules, question)
    if as_json:
        write_json(explained)
        return OK
    return run_async(_show(explained))


@policy.command()
@click.option(
    "--policy",
    "given_policy",
    metavar="NAME|FILE",
    required=True,
    envvar="CODESDK_POLICY",
    help="The new rules: a preset or a file.",
)
@click.argument("sessions", nargs=-1, metavar="SESSION…")
@click.option("--all", "every", is_flag=True, help="Look at all sessions.")
@json_option("Print one result per session as JSON.")
@click.pass_obj
def replay(setup: Setup, given_policy: str, sessions: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Show which past calls a policy would have decided differently. Exits 1 if there are any.

    Nothing is changed. A result is unsure where the stored input is not the one that was decided on.
    """
    if every == bool(sessions):
        raise click.UsageError("Name sessions, or use --all.")
    return run_async(_replay(setup, choose_policy(given_policy), sessions, as_json))


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except ValueError as error:
        raise InvalidRequest(f"--input is not JSON: {error}.") from None


def _split(argv: str | None) -> list[str]:
    try:
        return shlex.split(argv or "")
    except ValueError as error:
        raise InvalidRequest(f"--argv cannot be split into words: {error}.") from None


async def _known_tools() -> ToolRegistry:
    """Return all built-in tools, even those that are off by default: they say what they touch, nothing more."""
    registry = builtin_registry()
    registry.add(fetch_tool())
    registry.add(await exec_tool(HostSandbox(), allow=[[]]))
    return registry


async def _question(
    tool: str, value: Any, mode: PermissionMode, kind: ToolClass | None, told: Subjects
) -> PolicyQuestion:
    registry = await _known_tools()
    spec = next((spec for spec in registry.specs() if spec.name == tool), None)
    if spec is not None and told == Subjects():
        prepared = registry.prepare(tool, value)
        if isinstance(prepared, str):
            raise InvalidRequest(f"--input does not fit the tool: {prepared}")
        told = prepared.subjects
    return PolicyQuestion(
        session_id="",
        name=tool,
        tool_class=kind or (spec.tool_class if spec else "dangerous"),
        input=value,
        permission_mode=mode,
        subjects=told,
    )


def _explain(rules: RulePolicy, question: PolicyQuestion) -> Explained:
    opinions = all_opinions(question, rules.evaluate(question))
    return Explained(
        question=question, looked=rules.look(question), opinions=opinions, decision=decide(opinions)
    )


async def _show(explained: Explained) -> int:
    from codesdk.cli.view.policy import explanation
    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        for line in explanation(explained.question, explained.looked, explained.opinions, explained.decision):
            screen.console.print(line, soft_wrap=True)
    return OK


async def _replay(setup: Setup, rules: RulePolicy, given: Sequence[str], as_json: bool) -> int:
    code = OK
    tools = await _known_tools()
    async with reading(setup.data_dir) as archive:
        ids = [(await find_session(archive, name)).session_id for name in given]
        for session_id in ids or [row.session_id async for row in all_sessions(archive)]:
            calls = await replay_policy(archive.log, archive.blobs, session_id, rules, tools)
            if any(call.differs for call in calls):
                code = FAILED
            await _tell(session_id, calls, as_json)
    return code


async def _tell(session_id: str, calls: list[ReplayedDecision], as_json: bool) -> None:
    notable = [call for call in calls if call.differs or call.unsure]
    if as_json:
        found = {"calls": len(calls), "differs": sum(call.differs for call in calls), "notable": notable}
        write_json({"session_id": session_id, **found})
        return
    from codesdk.cli.view.policy import second_opinions
    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        for line in second_opinions(session_id, calls, notable):
            screen.console.print(line, soft_wrap=True)
