"""`codesdk undo`: the files that a session's tools changed, put back as they were."""

import click

from codesdk.cli.app import Setup
from codesdk.cli.commands.answer import deliver
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_changed_call, find_session
from codesdk.cli.target.place import Place, open_place
from codesdk.cli.view.out import write_json
from codesdk.cli.view.safe import one_line
from codesdk.contract.codec import decode
from codesdk.contract.events import FilesUndone
from codesdk.contract.tools import UndoReport
from codesdk.local import Command


@click.command()
@session_argument()
@click.argument("call", required=False)
@json_option("Print what was undone and what was not as JSON.")
@click.pass_obj
def undo(setup: Setup, session: str, call: str | None, as_json: bool) -> int:
    """Take back what tools did to files: one CALL, or all of the session, the newest first.

    A file that was changed since is left alone, and named. No task may run in the session.
    """
    return run_async(_undo(setup, session, call, as_json))


async def _undo(setup: Setup, given: str, given_call: str | None, as_json: bool) -> int:
    async with open_place(setup) as archive:
        session = (await find_session(archive, given)).session_id
        call = await find_changed_call(archive, session, given_call) if given_call else None
        before = await archive.head(session)
    await deliver(setup, Command(op="undo", session_id=session, tool_call_id=call))
    async with open_place(setup) as archive:
        report = await _report(archive, session, before)
    if as_json:
        write_json(report)
    else:
        _show(report)
    return FAILED if report.refused else OK


async def _report(archive: Place, session: str, after: int) -> UndoReport:
    """Return what the log says was undone: whoever did it wrote it there."""
    found = [decode(frame.data).payload async for frame in archive.frames(session, after_seq=after)]
    undone = [one for one in found if isinstance(one, FilesUndone)][-1]
    return UndoReport(restored=undone.restored, refused=undone.refused)


def _show(report: UndoReport) -> None:
    for file in report.restored:
        click.echo(f"{'removed ' if file.removed else 'restored'}  {one_line(file.path)}")
    for refusal in report.refused:
        click.echo(f"not undone: {refusal.tool_call_id}: {one_line(refusal.reason)}", err=True)
