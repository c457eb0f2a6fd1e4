"""`codesdk artifacts`: list, read and clean up what sessions stored beside their events."""

import sys
from pathlib import Path

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import all_artifacts, find_artifact, find_session, short
from codesdk.cli.target.place import open_reader, reading
from codesdk.cli.view.out import write_bytes, write_json, write_line, write_text
from codesdk.cli.view.safe import is_text, printable
from codesdk.contract.errors import InvalidRequest


@click.command()
@session_argument(required=False)
@click.argument("artifact", required=False)
@click.option("-o", "--output", metavar="FILE", help="Write the bytes to a file instead of stdout.")
@click.option("--gc", is_flag=True, help="Remove stored bytes that no session needs any more.")
@json_option("Print the list as JSON, one artifact per line.")
@click.pass_obj
def artifacts(
    setup: Setup, session: str | None, artifact: str | None, output: str | None, gc: bool, as_json: bool
) -> int:
    """List a session's artifacts; with ARTIFACT, write its bytes to stdout.

    Like a session, an artifact may be named by the beginning or the end of its id.
    """
    if gc:
        if session is not None:
            raise click.UsageError("--gc takes no session: it is for the whole data directory.")
        if setup.url is not None:
            raise InvalidRequest(
                "--gc works only on a data directory of this machine: leave out the daemon's address."
            )
        return run_async(_collect(setup, as_json))
    if session is None:
        raise click.UsageError("Name a session, or use --gc.")
    if artifact is None:
        if output is not None:
            raise click.UsageError("-o needs an artifact: name the one to write.")
        return run_async(_list(setup, session, as_json))
    return run_async(_read(setup, session, artifact, output))


async def _list(setup: Setup, given: str, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = await find_session(archive, given)
        rows = [row async for row in all_artifacts(archive, session.session_id)]
    if as_json:
        for row in rows:
            write_json(row)
        return OK
    from rich.text import Text

    from codesdk.cli.view.screen import Screen
    from codesdk.cli.view.tables import artifact_table

    async with Screen() as screen:
        if not rows:
            screen.console.print("This session has no artifacts.")
            return OK
        screen.console.print(artifact_table(rows))
        name = f"{short(session.session_id)} {short(rows[0].ref.artifact_id)}"
        screen.console.print(Text(f"\n  codesdk{setup.shown} artifacts {name}", "dim"))
    return OK


async def _read(setup: Setup, given: str, artifact: str, output: str | None) -> int:
    async with open_reader(setup) as archive:
        session = await find_session(archive, given)
        row = await find_artifact(archive, session.session_id, artifact)
        _, data = await archive.read_artifact(row.ref.artifact_id)
    if output is not None and output != "-":
        try:
            Path(output).write_bytes(data)  # noqa: ASYNC240 - nothing else runs on this loop
        except OSError as error:
            raise InvalidRequest(f"Cannot write {output}: {error.strerror}.") from error
    elif not sys.stdout.isatty():
        write_bytes(data)
    elif is_text(data):
        write_text(sys.stdout, printable(data.decode()))
    else:
        raise InvalidRequest("The artifact is not text, so it is not shown on a terminal. Use -o FILE.")
    return OK


async def _collect(setup: Setup, as_json: bool) -> int:
    from codesdk.sdk import CodeSDK

    async with reading(setup.data_dir):
        pass  # fail if there is no directory: opening it below would create one
    async with CodeSDK.open(setup.data_dir, share=False, goes_on=False) as sdk:
        removed = await sdk.engine.collect_garbage()
    if as_json:
        write_json({"removed": removed})
    else:
        write_line(f"Removed {removed} stored {'file' if removed == 1 else 'files'} that nothing needs.")
    return OK
