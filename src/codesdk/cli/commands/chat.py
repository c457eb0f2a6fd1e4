"""`codesdk chat`: a terminal for any runtime. Only what the prompt needs is imported here; the rest is loaded behind it."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from codesdk.cli.app import Setup
from codesdk.cli.options import json_option
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.resolved import Resolved
from codesdk.cli.settings.table import OPENING
from codesdk.cli.target.rules import own_rules
from codesdk.contract.errors import InvalidRequest

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation, New
    from codesdk.cli.chat.start import Chat


class Wish(NamedTuple):
    """What the command line asks for."""

    runtime: str | None
    model: str | None
    mode: Any
    script: str | None
    workspace: str
    session: str | None
    continues: bool


@click.command()
@click.option("--runtime", metavar="NAME", help="What runs the tasks of a new session. [default: minicode]")
@click.option("--model", metavar="NAME", help="The model, where the runtime has a choice.")
@click.option(
    "--permission-mode",
    "mode",
    type=click.Choice(["ask", "auto", "yolo"]),
    default="ask",
    show_default=True,
    help="ask before every tool, auto: before all but reading, yolo: never.",
)
@click.option("--workspace", metavar="DIR", default=".", show_default=True, help="The directory to work in.")
@click.option("--script", metavar="FILE", help="A script to play in place of a model, in new sessions.")
@click.option("--continue", "continues", is_flag=True, help="Continue the last session of this workspace.")
@click.option("--session", metavar="SESSION", help="Continue this session.")
@click.option(
    "-p",
    "--print",
    "prompt",
    metavar="PROMPT",
    help="Print one answer and exit; - reads the prompt from stdin.",
)
@json_option("With -p: print the answer as one JSON object.")
@click.option(
    "--output-schema",
    "schema_file",
    metavar="FILE",
    help="With -p: the JSON Schema that the answer must fit; prints that answer as JSON.",
)
@click.option(
    "--policy-stdio",
    is_flag=True,
    help="With -p: request decisions on stdout and take them from stdin, as `codesdk wrap` gives them.",
)
@flags(OPENING)
@click.pass_obj
def chat(
    setup: Setup,
    runtime: str | None,
    model: str | None,
    mode: Any,
    workspace: str,
    script: str | None,
    continues: bool,
    session: str | None,
    prompt: str | None,
    as_json: bool,
    schema_file: str | None,
    policy_stdio: bool,
    **_: Any,
) -> int:
    """Talk to any runtime at the terminal.

    Begins a new session with the first message, unless --continue or --session names one. What others do in the same
    session is shown, too. /help lists commands and keys; docs/chat.md shows all of it.
    """
    from codesdk.cli.loop import run_async

    if continues and session is not None:
        raise InvalidRequest("Give --continue or --session, not both.")
    if setup.url is None and not Path(workspace).is_dir():
        raise InvalidRequest(f"The workspace {workspace} is not a directory.")
    wish = Wish(runtime, model, mode, script, os.path.abspath(workspace), session, continues)  # noqa: PTH100 - as the engine does
    rules = own_rules()
    if prompt is not None and policy_stdio:
        from codesdk.cli.view.policy_stdio import check_stdio

        check_stdio(prompt, as_json=as_json, has_schema=schema_file is not None)
        return run_async(_decided_elsewhere(setup, wish, rules, prompt))
    if prompt is not None:
        return run_async(_print(setup, wish, rules, prompt, as_json, schema_file))
    for flag, given in (
        ("--json", as_json),
        ("--output-schema", schema_file is not None),
        ("--policy-stdio", policy_stdio),
    ):
        if given:
            raise InvalidRequest(f"{flag} is for one answer: give the message with -p.")
    from codesdk.cli.chat.start import has_terminal

    if not has_terminal():
        raise InvalidRequest(
            "A chat needs a terminal for its input and its output. For one answer without one: codesdk chat -p PROMPT."
        )
    run_async(_talk(setup, wish, rules))
    return 0


async def _talk(setup: Setup, wish: Wish, rules: Resolved) -> None:
    from codesdk.cli.chat.history import history_file
    from codesdk.cli.chat.marks import MARK
    from codesdk.cli.chat.start import Chat, Plan
    from codesdk.cli.view.out import write_line

    @asynccontextmanager
    async def connect(host: "Chat") -> AsyncGenerator["Conversation"]:
        from codesdk.cli.chat.connect import chosen, converse, load_in_thread, open_sessions

        await load_in_thread()
        new = _new(wish)
        async with open_sessions(setup, rules) as opened:
            session_id = await chosen(opened.sdk, wish.workspace, wish.session, wish.continues)
            yield await converse(opened, host, new, session_id)

    chatting = Chat(Plan(Path(wish.workspace), history_file(), connect))
    await chatting.run()
    if (session := chatting.session_id) is not None:
        from codesdk.cli.target.lookup import short

        write_line(f"{MARK} to continue: codesdk chat{setup.shown} --session {short(session)}")


async def _print(
    setup: Setup, wish: Wish, rules: Resolved, prompt: str, as_json: bool, schema_file: str | None
) -> int:
    from codesdk.cli.chat.connect import chosen, open_sessions
    from codesdk.cli.chat.once import answer_once
    from codesdk.cli.interrupts import Interrupts
    from codesdk.cli.target.schema_file import read_schema

    text = _read(prompt)
    schema = None if schema_file is None else read_schema(schema_file)
    with Interrupts() as interrupts:
        async with open_sessions(setup, rules) as opened:
            session_id = await chosen(opened.sdk, wish.workspace, wish.session, wish.continues)
            return await answer_once(
                opened, _new(wish), session_id, text, interrupts, as_json=as_json, schema=schema
            )


async def _decided_elsewhere(setup: Setup, wish: Wish, rules: Resolved, prompt: str) -> int:
    from codesdk.cli.chat.connect import chosen, open_sessions
    from codesdk.cli.chat.once import answer_decided
    from codesdk.cli.interrupts import Interrupts
    from codesdk.cli.target.place import connected, served
    from codesdk.cli.view.policy_stdio import check_scopes

    text = _read(prompt)
    if served(setup):
        async with connected(setup) as client:
            check_scopes((await client.whoami()).scopes)
    with Interrupts() as interrupts:
        async with open_sessions(setup, rules) as opened:
            session_id = await chosen(opened.sdk, wish.workspace, wish.session, wish.continues)
            return await answer_decided(opened, _new(wish), session_id, text, interrupts)


def _new(wish: Wish) -> "New":
    """Return what a new session is made with. A script is read and checked now."""
    import msgspec

    from codesdk.cli.chat.conversation import New
    from codesdk.runtimes import resolve
    from codesdk.script import dump, load_script

    name = wish.runtime
    if name is not None and ":" not in name:
        name = resolve(name)
    new = New(workspace=wish.workspace, runtime=name, model=wish.model, mode=wish.mode)
    if wish.script is None:
        return new
    script = load_script(wish.script)
    if name == "scripted":
        settings = msgspec.structs.replace(new.settings, runtime_config={"script": dump(script)})
        return msgspec.structs.replace(new, settings=settings)
    return msgspec.structs.replace(new, script=script)


def _read(prompt: str) -> str:
    try:
        text = sys.stdin.read() if prompt == "-" else prompt
        text.encode()
    except UnicodeError:
        raise InvalidRequest("The prompt is not UTF-8 text.") from None
    if not text.strip():
        raise InvalidRequest("The prompt is empty: say what to do.")
    return text
