"""`codesdk suggest`: the extensions of whoever runs a session → what they say should be asked for next."""

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find
from codesdk.cli.target.place import open_sdk
from codesdk.cli.view.gist import outcome_gist
from codesdk.cli.view.out import write_json, write_line
from codesdk.cli.view.safe import one_line


@click.command()
@session_argument()
@click.argument("text", required=False)
@json_option("Print each result as a line of JSON.")
@click.pass_obj
def suggest(setup: Setup, session: str, text: str | None, as_json: bool) -> int:
    """Ask the extensions what to ask a session for next. TEXT is what it should be about.

    The process that runs sessions here must have an extension that makes suggestions, such as a daemon that was
    started with --extension.
    """
    return run_async(_suggest(setup, session, text, as_json))


async def _suggest(setup: Setup, given: str, text: str | None, as_json: bool) -> int:
    session_id = (await find(setup, given)).session_id
    async with open_sdk(setup) as sdk:
        results = await (await sdk.session(session_id)).suggest(text)
    for one in results:
        if as_json:
            write_json(one)
        else:
            write_line(f"{one.module_name}: {one_line(outcome_gist(one), 2_000)}")
    # A script that asks has to know whether there is anything to read.
    return OK if any(one.kind != "handler_error" for one in results) else FAILED
