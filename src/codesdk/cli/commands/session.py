"""`codesdk set`, `fork`, `move`, `compact`, `close`, `delete` and `undo`: what can be done to a session as a whole."""

import sys
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.commands.answer import deliver
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument, whole
from codesdk.cli.target.lookup import find, find_changed_call, find_session, short
from codesdk.cli.target.place import open_reader, open_sdk
from codesdk.cli.view.out import write_json, write_line
from codesdk.cli.view.safe import one_line
from codesdk.contract.actions import (
    ChangeSettings,
    CloseSession,
    DeleteSession,
    ForkSession,
    MoveSession,
    UndoChanges,
)
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.settings import CompactStrategy, SettingsChange
from codesdk.contract.tools import UndoReport

SessionAction = ForkSession | ChangeSettings | MoveSession | CloseSession
"""Actions whose result is the session's row."""


@click.command()
@session_argument()
@click.option("--seq", type=whole(0), metavar="N", help="At this event. [default: now]")
@click.option("--title", metavar="TEXT", help="What the new session is called.")
@json_option("Print the new session as JSON.")
@click.pass_obj
def fork(setup: Setup, session: str, seq: int | None, title: str | None, as_json: bool) -> int:
    """Create a session that starts from this one's transcript."""
    action = ForkSession(session_id=session, seq=seq, title=title)
    return run_async(_change(setup, action, "Forked as {row.session_id}.", as_json))


@click.command("set")
@session_argument()
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@json_option("Print the session as JSON.")
@click.pass_obj
def set_(setup: Setup, session: str, settings: tuple[str, ...], as_json: bool) -> int:
    """Change settings of a session: title, model, permission_mode, budgets, timeouts, context, values.

    A VALUE is read as JSON if possible, else as text: title="New name", stop_grace_s=2,
    budgets='{"session": {"requests": 100}}', values='{"ticket": "A-1"}'. They apply from the next decision
    on.
    """
    fields = dict(_named(each) for each in settings)
    action = ChangeSettings(session_id=session, **SettingsChange.of(fields).given())
    return run_async(_change(setup, action, f"Changed: {', '.join(fields)}.", as_json))


@click.command()
@session_argument()
@click.argument("runtime")
@click.option("--model", metavar="MODEL", help="The model of the new runtime. [default: its own]")
@json_option("Print the session as JSON.")
@click.pass_obj
def move(setup: Setup, session: str, runtime: str, model: str | None, as_json: bool) -> int:
    """Continue on another RUNTIME, from the transcript."""
    action = MoveSession(session_id=session, runtime=runtime, model=model)
    return run_async(_change(setup, action, "The next task runs on {row.runtime}.", as_json))


@click.command()
@session_argument()
@click.option(
    "--strategy",
    type=click.Choice(["window", "summary"]),
    default="window",
    show_default=True,
    help="window: leave out the oldest turns. summary: have the session's runtime sum them up first.",
)
@click.option(
    "--keep-tokens",
    type=whole(0),
    metavar="N",
    help="Tokens of the newest turns that stay as they are. [default: half of what there is]",
)
@json_option("Print the session as JSON.")
@click.pass_obj
def compact(
    setup: Setup, session: str, strategy: CompactStrategy, keep_tokens: int | None, as_json: bool
) -> int:
    """Give the runtime less of the conversation from the next task on. The transcript keeps everything.

    Use it when a task fails with CONTEXT_TOO_LARGE.
    """
    return run_async(_compact(setup, session, strategy, keep_tokens, as_json))


@click.command()
@session_argument()
@click.option("--reason", metavar="TEXT", default="closed from the terminal", help="Why; it is stored.")
@json_option("Print the session as JSON.")
@click.pass_obj
def close(setup: Setup, session: str, reason: str, as_json: bool) -> int:
    """Close a session: its task is stopped, its log is kept."""
    action = CloseSession(session_id=session, reason=reason)
    return run_async(_change(setup, action, "Closed. Its log can still be read and forked.", as_json))


@click.command()
@session_argument()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(setup: Setup, session: str, yes: bool) -> int:
    """Delete a session and everything stored for it. This cannot be undone."""
    return run_async(_delete(setup, session, yes))


@click.command()
@session_argument()
@click.argument("call", required=False)
@json_option("Print what was undone and what was not as JSON.")
@click.pass_obj
def undo(setup: Setup, session: str, call: str | None, as_json: bool) -> int:
    """Undo what tools did to files: one CALL, or all calls of the session, the newest first.

    A file that was changed since is left alone, and reported. No task may be running in the session.
    """
    return run_async(_undo(setup, session, call, as_json))


async def _change(setup: Setup, action: SessionAction, words: str, as_json: bool) -> int:
    """Carry out an action on the session that it names, and say so. `words` may have a place for the row."""
    session_id = (await find(setup, action.session_id)).session_id
    row = (await deliver(setup, msgspec.structs.replace(action, session_id=session_id))).result
    if as_json:
        write_json(row)
    else:
        write_line(words.format(row=row))
    return 0


async def _compact(
    setup: Setup, given: str, strategy: CompactStrategy, keep_tokens: int | None, as_json: bool
) -> int:
    session_id = (await find(setup, given)).session_id
    async with open_sdk(
        setup, runs=True
    ) as sdk:  # a summary takes its time, and this process may have to run the task
        session = await sdk.session(session_id)
        row = await session.compact(strategy, keep_tokens=keep_tokens)
    if as_json:
        write_json(row)
    else:
        write_line("Compacted. The next task begins with less of the conversation.")
    return 0


def _named(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise InvalidRequest(f"{given!r} names no value. Write a setting as NAME=VALUE, such as title=Demo.")
    try:  # JSON first, so that 2 is a number; what is not JSON is text that needs no quotes
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


async def _delete(setup: Setup, given: str, yes: bool) -> int:
    row = await find(setup, given)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidRequest(
                "There is no terminal to confirm the deletion at. Use --yes to delete it without a question."
            )
        click.confirm(
            f"Delete session {short(row.session_id)} ({row.title or 'untitled'}) for good?", abort=True
        )
    await deliver(setup, DeleteSession(session_id=row.session_id))
    write_line("Deleted.")
    return 0


async def _undo(setup: Setup, given: str, given_call: str | None, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = (await find_session(archive, given)).session_id
        call = await find_changed_call(archive, session, given_call) if given_call else None
    report = (await deliver(setup, UndoChanges(session_id=session, tool_call_id=call))).result
    if as_json:
        write_json(report)
    else:
        _show_undone(report)
    return FAILED if report.refused else OK


def _show_undone(report: UndoReport) -> None:
    for file in report.restored:
        write_line(f"{'removed ' if file.removed else 'restored'}  {one_line(file.path)}")
    for refusal in report.refused:
        write_line(f"not undone: {refusal.tool_call_id}: {one_line(refusal.reason)}", err=True)
