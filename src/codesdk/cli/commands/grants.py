"""`codesdk grants` and `codesdk revoke`: what was approved for a whole session, and taking it back."""

import click

from codesdk.cli.app import Setup
from codesdk.cli.commands.answer import tell
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import open_reader
from codesdk.cli.view.out import write_json
from codesdk.contract.actions import RevokeGrant
from codesdk.contract.tools import Grant


@click.command()
@session_argument()
@json_option("Print one grant per line as JSON.")
@click.pass_obj
def grants(setup: Setup, session: str, as_json: bool) -> int:
    """List the tools that are approved for a whole session, and who approved them."""
    return run_async(_list(setup, session, as_json))


@click.command()
@session_argument()
@click.argument("tool")
@json_option("Print the result as JSON.")
@click.pass_obj
def revoke(setup: Setup, session: str, tool: str, as_json: bool) -> int:
    """Take back the approval of TOOL: it is asked about again in this session. What it did is not undone."""
    action = RevokeGrant(session_id=session, tool=tool)
    return run_async(tell(setup, action, f"{tool} will be asked about again.", as_json))


async def _list(setup: Setup, given: str, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = (await find_session(archive, given)).session_id
        found = await archive.grants(session)
    if as_json:
        for grant in found:
            write_json(grant)
    else:
        await _show(setup, session, found)
    return 0


async def _show(setup: Setup, session: str, found: list[Grant]) -> None:
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
