"""`codesdk approve`, `deny`, `steer` and `stop`: told to the process that runs the session, wherever that is."""

import asyncio
from pathlib import Path
from typing import Literal

import click

from codesdk.cli.app import Setup
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_call, find_session, short, waiting
from codesdk.cli.target.place import connected, open_place
from codesdk.cli.view.out import write_json
from codesdk.contract.errors import Conflict
from codesdk.contract.records import ApprovalRow
from codesdk.contract.tools import Decision
from codesdk.local import Command, carry_out, send

TRIES = 20
PAUSE_S = 0.1
_ATTEMPT_HELP = "Refuse the answer if the call is at another attempt."
_HASH_HELP = "Refuse the answer if the call has another input."

Reached = Literal["running", "stored"]
"""Whether a running process took the command, or the stored session itself was changed."""


@click.command()
@session_argument()
@click.argument("call", required=False)
@click.option("--session-wide", is_flag=True, help="Do not ask about this tool again in this session.")
@click.option("--reason", metavar="TEXT", help="Why; it is stored with the answer.")
@click.option("--attempt", type=int, metavar="N", help=_ATTEMPT_HELP)
@click.option("--input-hash", metavar="HASH", help=_HASH_HELP)
@json_option("Print the result as JSON.")
@click.pass_obj
def approve(
    setup: Setup,
    session: str,
    call: str | None,
    session_wide: bool,
    reason: str | None,
    attempt: int | None,
    input_hash: str | None,
    as_json: bool,
) -> int:
    """Let a waiting tool call run. Without CALL: list the calls that wait."""
    if call is None:
        return run_async(_list(setup, session, as_json))
    command = Command(
        op="approve",
        session_id=session,
        tool_call_id=call,
        scope="session" if session_wide else "once",
        reason=reason,
        attempt=attempt,
        input_hash=input_hash,
    )
    return run_async(_answer(setup, command, "approve", as_json))


@click.command()
@session_argument()
@click.argument("call", required=False)
@click.option("--reason", metavar="TEXT", help="Why not; the model is told. Needed with CALL.")
@click.option("--attempt", type=int, metavar="N", help=_ATTEMPT_HELP)
@click.option("--input-hash", metavar="HASH", help=_HASH_HELP)
@json_option("Print the result as JSON.")
@click.pass_obj
def deny(
    setup: Setup,
    session: str,
    call: str | None,
    reason: str | None,
    attempt: int | None,
    input_hash: str | None,
    as_json: bool,
) -> int:
    """Refuse a waiting tool call. Without CALL: list the calls that wait."""
    if call is None:
        return run_async(_list(setup, session, as_json))
    if not reason:
        raise click.UsageError("Give a --reason: the model is told why, and can do better.")
    command = Command(
        op="deny",
        session_id=session,
        tool_call_id=call,
        reason=reason,
        attempt=attempt,
        input_hash=input_hash,
    )
    return run_async(_answer(setup, command, "deny", as_json))


@click.command()
@session_argument()
@click.option("--task", metavar="TASK", help="This task, running or waiting. [default: the running one]")
@click.option("--reason", metavar="TEXT", help="Why; it is stored with the stop.")
@json_option("Print the result as JSON.")
@click.pass_obj
def stop(setup: Setup, session: str, task: str | None, reason: str | None, as_json: bool) -> int:
    """Stop the running task. Its terminal event follows at once, or after a grace period."""
    command = Command(op="stop", session_id=session, task_id=task, reason=reason)
    return run_async(tell(setup, command, "The task is told to stop.", as_json))


@click.command()
@session_argument()
@click.argument("text")
@json_option("Print the result as JSON.")
@click.pass_obj
def steer(setup: Setup, session: str, text: str, as_json: bool) -> int:
    """Add TEXT to the running task, as a message of the user."""
    command = Command(op="steer", session_id=session, text=text)
    return run_async(tell(setup, command, "The task has got the message.", as_json))


async def _answer(setup: Setup, command: Command, decision: Decision, as_json: bool) -> int:
    async with open_place(setup) as archive:
        session = (await find_session(archive, command.session_id)).session_id
        call = await find_call(archive, session, command.tool_call_id or "")
    reached = await deliver(setup, _with(command, session, call))
    words = "Approved." if decision == "approve" else "Denied."
    if reached == "stored" and decision == "approve":
        words += f" It runs with: codesdk{setup.shown} resume {short(session)}"
    _say(words, session, call, reached, as_json)
    return 0


async def tell(setup: Setup, command: Command, words: str, as_json: bool) -> int:
    """Have a command carried out in the session that it names, and say so."""
    async with open_place(setup) as archive:
        session = (await find_session(archive, command.session_id)).session_id
    reached = await deliver(setup, _with(command, session, command.tool_call_id))
    _say(words, session, None, reached, as_json)
    return 0


async def deliver(setup: Setup, command: Command) -> Reached:
    """Hand a command to the process that owns the directory; if there is none, be the owner for a moment.

    A process that is about to open or close the directory holds it without listening, so try for a while.
    """
    if setup.url is not None:
        await _ask_daemon(setup, command)
        return "running"
    from codesdk.sdk import CodeSDK

    for left in reversed(range(TRIES)):
        if await send(Path(setup.data_dir), command):
            return "running"
        try:
            async with CodeSDK.open(setup.data_dir) as sdk:
                await carry_out(sdk.engine, command)
                return "stored"
        except Conflict as error:
            if not left or "pid" not in (error.details or {}):
                raise
        await asyncio.sleep(PAUSE_S)
    raise AssertionError("the last try returns or raises")


async def _ask_daemon(setup: Setup, command: Command) -> None:
    async with connected(setup) as client:
        session = await client.session(command.session_id)
        call, reason = command.tool_call_id or "", command.reason
        attempt, digest = command.attempt, command.input_hash
        if command.op == "approve":
            scope = command.scope
            await session.approve(call, reason=reason, scope=scope, attempt=attempt, input_hash=digest)
        elif command.op == "deny":
            await session.deny(call, reason or "", attempt=attempt, input_hash=digest)
        elif command.op == "stop":
            await session.stop(reason or "stopped from the terminal", task_id=command.task_id)
        elif command.op == "steer":
            await session.steer(command.text or "")
        elif command.op == "revoke":
            await session.revoke(command.tool or "")
        else:
            await session.undo(command.tool_call_id)


def _with(command: Command, session: str, call: str | None) -> Command:
    import msgspec

    return msgspec.structs.replace(command, session_id=session, tool_call_id=call)


def _say(words: str, session: str, call: str | None, reached: Reached, as_json: bool) -> None:
    if as_json:
        named = {"tool_call_id": call} if call else {}
        write_json({"ok": True, "session_id": session, **named, "reached": reached})
    else:
        click.echo(words)


async def _list(setup: Setup, given: str, as_json: bool) -> int:
    async with open_place(setup) as archive:
        session = (await find_session(archive, given)).session_id
        rows = await waiting(archive, session)
    if as_json:
        for row in rows:
            write_json(row)
        return 0
    await _show_waiting(setup, session, rows)
    return 0


async def _show_waiting(setup: Setup, session: str, rows: list[ApprovalRow]) -> None:
    from rich.text import Text

    from codesdk.cli.view.gist import local_time
    from codesdk.cli.view.safe import one_line
    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        if not rows:
            screen.console.print("No call waits for an answer.")
            return
        for row in rows:
            since = f"since {local_time(row.requested_at):%H:%M:%S}"
            kept = ", kept from an interrupted task" if row.state == "carried" else ""
            screen.console.print(
                Text.assemble((row.tool_call_id or row.approval_id, "bold"), (f"  {since}{kept}", "dim"))
            )
            screen.console.print(Text(f"  {one_line(row.summary)}"))
        call = short(rows[0].tool_call_id or rows[0].approval_id)
        name = f"codesdk{setup.shown}"
        screen.console.print(Text(f"\n  {name} approve {short(session)} {call}", "dim"))
        screen.console.print(Text(f"  {name} deny {short(session)} {call} --reason …", "dim"))
