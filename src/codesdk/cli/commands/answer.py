"""`codesdk approve`, `deny`, `answer`, `steer`, `stop`, `grants` and `revoke`: answers, and what they allow.

They are sent to whichever process runs the session, or carried out here if there is none.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument, whole
from codesdk.cli.target.lookup import find, find_call, find_question, find_session, short, waiting
from codesdk.cli.target.place import open_reader, open_sdk
from codesdk.cli.view.out import write_json, write_line
from codesdk.client import CodeSDKClient
from codesdk.contract.actions import (
    Action,
    AnswerQuestion,
    ApproveCall,
    DenyCall,
    RevokeGrant,
    SteerTask,
    StopTask,
)
from codesdk.contract.records import ApprovalRow
from codesdk.contract.tools import Grant

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
_ATTEMPT_HELP = "Refuse the answer if the call is at another attempt."
_HASH_HELP = "Refuse the answer if the call has another input."

Reached = Literal["running", "stored"]
"""Whether a running process took the command, or the stored session itself was changed."""


def _guard_options(command: F) -> F:
    """Add the options that say which call is meant, so that an answer is refused if it has changed."""
    attempt = click.option("--attempt", type=whole(1), metavar="N", help=_ATTEMPT_HELP)
    return attempt(click.option("--input-hash", metavar="HASH", help=_HASH_HELP)(command))


@click.command()
@session_argument()
@click.argument("call", required=False)
@click.option("--session-wide", is_flag=True, help="Do not ask about this tool again in this session.")
@click.option("--reason", metavar="TEXT", help="Why; it is stored with the answer.")
@_guard_options
@json_option("Print the result as JSON.")
@click.pass_obj
def approve(
    setup: Setup,
    session: str,
    call: str | None,
    session_wide: bool,
    reason: str | None,
    as_json: bool,
    **meant: Any,
) -> int:
    """Approve a waiting tool call. Without CALL: list the calls that wait."""
    if call is None:
        return run_async(_list(setup, session, as_json))
    action = ApproveCall(
        session_id=session,
        tool_call_id=call,
        scope="session" if session_wide else "once",
        reason=reason,
        **meant,
    )
    return run_async(_answer(setup, action, as_json))


@click.command()
@session_argument()
@click.argument("call", required=False)
@click.option("--reason", metavar="TEXT", help="Why not; the model is told. Needed with CALL.")
@_guard_options
@json_option("Print the result as JSON.")
@click.pass_obj
def deny(
    setup: Setup,
    session: str,
    call: str | None,
    reason: str | None,
    as_json: bool,
    **meant: Any,
) -> int:
    """Deny a waiting tool call. Without CALL: list the calls that wait."""
    if call is None:
        return run_async(_list(setup, session, as_json))
    if not reason:
        raise click.UsageError("Give a --reason: the model is told why, and can do better.")
    action = DenyCall(session_id=session, tool_call_id=call, reason=reason, **meant)
    return run_async(_answer(setup, action, as_json))


@click.command()
@session_argument()
@click.argument("question", required=False)
@click.argument("text", required=False)
@json_option("Print the result as JSON.")
@click.pass_obj
def answer(setup: Setup, session: str, question: str | None, text: str | None, as_json: bool) -> int:
    """Answer a waiting QUESTION with TEXT; the first answer counts. Without QUESTION: list what waits.

    To decline a question, deny it.
    """
    if question is None:
        return run_async(_list(setup, session, as_json))
    if text is None:
        raise click.UsageError("Give the TEXT of the answer, or decline the question with `codesdk deny`.")
    action = AnswerQuestion(session_id=session, approval_id=question, text=text)
    return run_async(_answer_question(setup, action, as_json))


@click.command()
@session_argument()
@click.option("--task", metavar="TASK", help="This task, running or waiting. [default: the running one]")
@click.option("--reason", metavar="TEXT", help="Why; it is stored with the stop.")
@json_option("Print the result as JSON.")
@click.pass_obj
def stop(setup: Setup, session: str, task: str | None, reason: str | None, as_json: bool) -> int:
    """Stop the running task. Its terminal event follows at once, or after a grace period."""
    action = StopTask(session_id=session, task_id=task, reason=reason or "stopped from the terminal")
    return run_async(_tell(setup, action, "The task was told to stop.", as_json))


@click.command()
@session_argument()
@click.argument("text")
@json_option("Print the result as JSON.")
@click.pass_obj
def steer(setup: Setup, session: str, text: str, as_json: bool) -> int:
    """Add TEXT to the running task, as a message of the user."""
    action = SteerTask(session_id=session, message=text)
    return run_async(_tell(setup, action, "Message delivered.", as_json))


@click.command()
@session_argument()
@json_option("Print one grant per line as JSON.")
@click.pass_obj
def grants(setup: Setup, session: str, as_json: bool) -> int:
    """List the tools that are approved for a whole session, and who approved them."""
    return run_async(_list_grants(setup, session, as_json))


@click.command()
@session_argument()
@click.argument("tool")
@json_option("Print the result as JSON.")
@click.pass_obj
def revoke(setup: Setup, session: str, tool: str, as_json: bool) -> int:
    """Take back the approval of TOOL: its next call in this session is asked about again. What it did is not undone."""
    action = RevokeGrant(session_id=session, tool=tool)
    return run_async(_tell(setup, action, f"{tool} will be asked about again.", as_json))


async def _answer(setup: Setup, action: ApproveCall | DenyCall, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = (await find_session(archive, action.session_id)).session_id
        call = await find_call(archive, session, action.tool_call_id)
    done = await deliver(setup, msgspec.structs.replace(action, session_id=session, tool_call_id=call))
    words = "Approved." if isinstance(action, ApproveCall) else "Denied."
    if done.reached == "stored" and isinstance(action, ApproveCall):
        words += f" It runs with: codesdk{setup.shown} resume {short(session)}"
    if as_json:
        write_json({"ok": True, "session_id": session, "tool_call_id": call, "reached": done.reached})
    else:
        write_line(words)
    return 0


async def _answer_question(setup: Setup, action: AnswerQuestion, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = (await find_session(archive, action.session_id)).session_id
        named = await find_question(archive, session, action.approval_id)
    done = await deliver(setup, msgspec.structs.replace(action, session_id=session, approval_id=named))
    words = "Answered."
    if done.reached == "stored":
        words += f" It is told with: codesdk{setup.shown} resume {short(session)}"
    if as_json:
        write_json({"ok": True, "session_id": session, "approval_id": named, "reached": done.reached})
    else:
        write_line(words)
    return 0


async def _tell(setup: Setup, action: StopTask | SteerTask | RevokeGrant, words: str, as_json: bool) -> int:
    """Carry out an action in the session that it names, and say so."""
    session = (await find(setup, action.session_id)).session_id
    done = await deliver(setup, msgspec.structs.replace(action, session_id=session))
    if as_json:
        write_json({"ok": True, "session_id": session, "reached": done.reached})
    else:
        write_line(words)
    return 0


class Done(NamedTuple, Generic[R]):
    """The result of an action, and who carried it out."""

    result: R
    reached: Reached


async def deliver(setup: Setup, action: Action[R]) -> Done[R]:
    """Carry out an action in the process that runs the session, or here if there is none."""
    async with open_sdk(setup) as sdk:
        result = await sdk.service.execute(action)
        here = not isinstance(sdk, CodeSDKClient) and sdk.is_holder
        return Done(result, "stored" if here else "running")


async def _list(setup: Setup, given: str, as_json: bool) -> int:
    async with open_reader(setup) as archive:
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

    from codesdk.cli.view.gist import since
    from codesdk.cli.view.safe import one_line
    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        if not rows:
            screen.console.print("Nothing waits for an answer.")
            return
        for row in rows:
            screen.console.print(
                Text.assemble((row.tool_call_id or row.approval_id, "bold"), (f"  {since(row)}", "dim"))
            )
            screen.console.print(Text(f"  {one_line(row.summary)}"))
            for option in row.options:
                screen.console.print(Text(f"    {one_line(option)}", "dim"))
        row, name = rows[0], f"codesdk{setup.shown}"
        call = short(row.tool_call_id or row.approval_id)
        asked = row.question is not None
        given = (
            f"answer {short(session)} {short(row.approval_id)} …"
            if asked
            else f"approve {short(session)} {call}"
        )
        screen.console.print(Text(f"\n  {name} {given}", "dim"))
        screen.console.print(Text(f"  {name} deny {short(session)} {call} --reason …", "dim"))


async def _list_grants(setup: Setup, given: str, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = (await find_session(archive, given)).session_id
        found = await archive.grants(session)
    if as_json:
        for grant in found:
            write_json(grant)
    else:
        await _show_grants(setup, session, found)
    return 0


async def _show_grants(setup: Setup, session: str, found: list[Grant]) -> None:
    from rich.text import Text

    from codesdk.cli.view.gist import local_time, who
    from codesdk.cli.view.safe import one_line
    from codesdk.cli.view.screen import Screen

    async with Screen() as screen:
        if not found:
            screen.console.print("No tool is approved for the whole session.")
            return
        for grant in found:
            since = f"{local_time(grant.granted_at):%H:%M:%S}"
            line = Text.assemble((one_line(grant.tool), "bold"))
            line.append(f"  asked by {one_line(grant.rule)}, approved by {who(grant.by)} at {since}", "dim")
            screen.console.print(line)
            if grant.reason:
                screen.console.print(Text(f"  {one_line(grant.reason)}"))
        name = f"codesdk{setup.shown}"
        screen.console.print(Text(f"\n  {name} revoke {short(session)} {one_line(found[0].tool)}", "dim"))
