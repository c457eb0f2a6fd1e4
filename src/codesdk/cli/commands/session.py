"""`codesdk set`, `fork`, `move`, `close` and `delete`: what can be done to a session as a whole."""

import sys
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.commands.answer import deliver
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import open_reader
from codesdk.cli.view.out import write_json
from codesdk.contract.actions import ChangeSettings, CloseSession, DeleteSession, ForkSession, MoveSession
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.records import SessionRow
from codesdk.contract.settings import SettingsChange


@click.command()
@session_argument()
@click.option("--seq", type=int, metavar="N", help="At this event. [default: now]")
@click.option("--title", metavar="TEXT", help="What the new session is called.")
@json_option("Print the new session as JSON.")
@click.pass_obj
def fork(setup: Setup, session: str, seq: int | None, title: str | None, as_json: bool) -> int:
    """Create a session that starts from this one's transcript."""
    return run_async(_fork(setup, session, seq, title, as_json))


@click.command("set")
@session_argument()
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@json_option("Print the session as JSON.")
@click.pass_obj
def set_(setup: Setup, session: str, settings: tuple[str, ...], as_json: bool) -> int:
    """Change settings of a session: title, model, permission_mode, budgets, timeouts, values.

    A VALUE is read as JSON if possible, else as text: title="New name", stop_grace_s=2,
    budgets='{"session": {"requests": 100}}', values='{"ticket": "A-1"}'. They apply from the next decision
    on.
    """
    return run_async(_set(setup, session, dict(_named(each) for each in settings), as_json))


@click.command()
@session_argument()
@click.argument("runtime")
@click.option("--model", metavar="MODEL", help="The model of the new runtime. [default: its own]")
@json_option("Print the session as JSON.")
@click.pass_obj
def move(setup: Setup, session: str, runtime: str, model: str | None, as_json: bool) -> int:
    """Continue on another RUNTIME, from the transcript."""
    return run_async(_move(setup, session, runtime, model, as_json))


@click.command()
@session_argument()
@click.option("--reason", metavar="TEXT", default="closed from the terminal", help="Why; it is stored.")
@json_option("Print the session as JSON.")
@click.pass_obj
def close(setup: Setup, session: str, reason: str, as_json: bool) -> int:
    """End a session: its task is stopped, its log stays."""
    return run_async(_close(setup, session, reason, as_json))


@click.command()
@session_argument()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(setup: Setup, session: str, yes: bool) -> int:
    """Delete a session and everything stored for it. This cannot be undone."""
    return run_async(_delete(setup, session, yes))


async def _fork(setup: Setup, given: str, seq: int | None, title: str | None, as_json: bool) -> int:
    action = ForkSession(session_id=(await _found(setup, given)).session_id, seq=seq, title=title)
    row = (await deliver(setup, action)).result
    return _say(f"Forked as {row.session_id}.", row, as_json)


async def _set(setup: Setup, given: str, fields: dict[str, Any], as_json: bool) -> int:
    change = SettingsChange.of(fields)
    session_id = (await _found(setup, given)).session_id
    row = (await deliver(setup, ChangeSettings(session_id=session_id, **change.given()))).result
    return _say(f"Changed: {', '.join(fields)}.", row, as_json)


def _named(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise InvalidRequest(f"{given!r} is not NAME=VALUE.")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


async def _move(setup: Setup, given: str, runtime: str, model: str | None, as_json: bool) -> int:
    action = MoveSession(session_id=(await _found(setup, given)).session_id, runtime=runtime, model=model)
    row = (await deliver(setup, action)).result
    return _say(f"The next task runs on {row.runtime}.", row, as_json)


async def _close(setup: Setup, given: str, reason: str, as_json: bool) -> int:
    action = CloseSession(session_id=(await _found(setup, given)).session_id, reason=reason)
    row = (await deliver(setup, action)).result
    return _say("Closed. Its log can still be read and forked.", row, as_json)


async def _delete(setup: Setup, given: str, yes: bool) -> int:
    row = await _found(setup, given)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidRequest("Nobody can be asked here whether to delete it. Say --yes.")
        click.confirm(
            f"Delete session {short(row.session_id)} ({row.title or 'untitled'}) for good?", abort=True
        )
    await deliver(setup, DeleteSession(session_id=row.session_id))
    click.echo("Deleted.")
    return 0


async def _found(setup: Setup, given: str) -> SessionRow:
    async with open_reader(setup) as archive:
        return await find_session(archive, given)


def _say(words: str, row: SessionRow, as_json: bool) -> int:
    if as_json:
        write_json(msgspec.to_builtins(row))
    else:
        click.echo(words)
    return 0
