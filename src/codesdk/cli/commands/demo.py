"""`codesdk demo`: a session of minicode whose model is a script, in its own directory, then checked and replayed."""

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, exit_of_ending
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.target.lookup import short
from codesdk.cli.view.working import Setting, work
from codesdk.contract.access import Availability
from codesdk.contract.errors import CodeSDKError
from codesdk.engine import replay_session, verify_session
from codesdk.policy import parse_policy
from codesdk.runtimes import ScriptedRuntime
from codesdk.script import Script, parse_script
from codesdk.script.model import DelayStep, ReasoningStep, Step, TextStep
from codesdk.sdk import CodeSDK

PROMPT = "Fix the greeting in greet.py"
PROGRAM = 'def greet(name):\n    return f"Helo, {name}!"\n\n\nprint(greet("world"))\n'
SETTINGS = "# Nothing secret here, but the demo's rules keep this file closed.\nGREETING_COLOUR=blue\n"
RULES = """
[[rules]]
id = "env-stays-closed"
result = "deny"
path = "**/.env"
reason = "A rule of this workspace keeps .env closed. Do the work without it."
"""
WORD_S = 0.035
THOUGHT_S = 0.5


@click.command()
@click.option("--clean", is_flag=True, help="Remove everything at the end.")
@json_option("Print one stored event per line and nothing else.")
@click.pass_obj
def demo(setup: Setup, clean: bool, as_json: bool) -> int:
    """Run a short session that needs no key and no network.

    minicode, the agent that comes with CodeSDK, reads a file, is refused another, and edits the first; its model is a
    script. Then the stored log is checked and replayed. All of it happens in a new temporary directory, which is
    kept for you to look at.
    """
    # Not a `with`: what happened stays on disk for the person to look at, unless --clean is given.
    place = Path(tempfile.mkdtemp(prefix="codesdk-demo-"))
    try:
        workspace = place / "workspace"
        workspace.mkdir()
        (workspace / "greet.py").write_text(PROGRAM)
        (workspace / ".env").write_text(SETTINGS)
        data_dir = Path(setup.data_dir) if setup.given else place / "data"
        return run_async(_demo(workspace, data_dir, as_json, keep=not clean))
    finally:
        if clean:
            shutil.rmtree(place, ignore_errors=True)


async def _demo(workspace: Path, data_dir: Path, as_json: bool, *, keep: bool) -> int:
    script = _script(paced=not as_json and sys.stdout.isatty())
    setting = Setting(as_json, "nobody", f" --data-dir {shlex.quote(str(data_dir))}")
    with Interrupts() as interrupts:
        runtimes, policy = {"scripted": ScriptedRuntime(script)}, parse_policy(RULES, "demo")
        async with CodeSDK.open(data_dir, runtimes=runtimes, policy=policy, allow_yolo=True) as sdk:
            agent = (await sdk.runtime_auth("minicode")).available
            session = await sdk.create_session(
                runtime="minicode" if agent.ok else "scripted",
                plays=script if agent.ok else None,
                workspace=workspace,
                permission_mode="yolo",
                interaction_mode="non_interactive",
                title="Demo",
            )
            if not as_json:
                await _introduce(agent)
            ending = await work(sdk, session, lambda: session.start(PROMPT), setting, interrupts, after=0)
            checked = await _check(sdk, session.id)
    if not as_json:
        await _conclude(workspace, data_dir, short(session.id), checked, keep=keep)
    code = exit_of_ending(ending)
    return code or (0 if checked else FAILED)


async def _check(sdk: CodeSDK, session_id: str) -> int:
    """Verify and replay the session's own log. Return how many events it has."""
    log, blobs = sdk.archive.log, sdk.archive.blobs
    findings = await verify_session(log, blobs, session_id)
    events, differences = await replay_session(log, blobs, session_id)
    if findings or differences:
        first = [*findings, *differences][0]
        raise CodeSDKError(f"The demo's own log failed its check at seq {first.seq}: {first.message}.")
    return events


async def _introduce(agent: Availability) -> None:
    from rich.text import Text

    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        if not agent.ok:
            words = f"Without minicode, whose loop this would show, the script runs by itself: {agent.problem} {agent.to_do}"
            screen.console.print(Text(words, "dim"), soft_wrap=True)
        screen.console.print(Text.assemble(("> ", "bold green"), (PROMPT, "bold")))


async def _conclude(workspace: Path, data_dir: Path, name: str, events: int, *, keep: bool) -> None:
    from rich.text import Text

    from codesdk.cli.view.pieces import step_lines
    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        show = screen.console.print
        for words in (
            f"verified: all nine invariants hold over {events} events",
            "replayed: bit for bit the same",
        ):
            show(Text.assemble(("✓ ", "green"), words))
        if not keep:
            return
        show(Text.assemble(("\nLook around", "bold"), (f"  all of it stays in {workspace.parent}", "dim")))
        command = f"codesdk --data-dir {shlex.quote(str(data_dir))}"
        steps = [
            (f"{command} transcript {name}", "the conversation"),
            (f"{command} events {name} --type 'tool.*'", "each call, decided and done"),
            (f"{command} artifacts {name}", "inputs and diffs that were stored"),
            (f"{command} verify {name}", "check the log yourself"),
        ]
        for line in step_lines(steps, screen.console.width):
            show(line, soft_wrap=True)


def _script(*, paced: bool) -> Script:
    text = files("codesdk.cli").joinpath("demo.yaml").read_text("utf-8")
    script = parse_script(text, "demo.yaml")
    turns = tuple(
        msgspec.structs.replace(turn, steps=tuple(_spoken(turn.steps, paced=paced))) for turn in script.turns
    )
    return msgspec.structs.replace(script, turns=turns)


def _spoken(steps: Sequence[Step], *, paced: bool) -> Iterator[Step]:
    """Stream texts word by word, with pauses if somebody is watching."""
    for step in steps:
        if isinstance(step, TextStep | ReasoningStep):
            if paced:
                yield DelayStep(THOUGHT_S)
            for word in re.split(r"(?= )", "".join(step.chunks)):
                yield type(step)((word,))
                if paced:
                    yield DelayStep(WORD_S)
        else:
            yield step
