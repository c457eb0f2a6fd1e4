"""`codesdk undo`: restore the files that a session's tools changed."""

import click

from codesdk.cli.app import Setup
from codesdk.cli.commands.answer import deliver
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_changed_call, find_session
from codesdk.cli.target.place import open_reader
from codesdk.cli.view.out import write_json
from codesdk.cli.view.safe import one_line
from codesdk.contract.actions import UndoChanges
from codesdk.contract.tools import UndoReport


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


async def _undo(setup: Setup, given: str, given_call: str | None, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = (await find_session(archive, given)).session_id
        call = await find_changed_call(archive, session, given_call) if given_call else None
    report = (await deliver(setup, UndoChanges(session_id=session, tool_call_id=call))).result
    if as_json:
        write_json(report)
    else:
        _show(report)
    return FAILED if report.refused else OK


def _show(report: UndoReport) -> None:
    for file in report.restored:
        click.echo(f"{'removed ' if file.removed else 'restored'}  {one_line(file.path)}")
    for refusal in report.refused:
        click.echo(f"not undone: {refusal.tool_call_id}: {one_line(refusal.reason)}", err=True)
