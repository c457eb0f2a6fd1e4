"""`codesdk doctor`: this machine → a report on what works here, and exit code 1 if something is missing."""

import os
import platform
import sqlite3
from pathlib import Path

import click
import msgspec

from codesdk import __version__
from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.view.out import write_json
from codesdk.contract.errors import CodeSDKError, NotFound
from codesdk.sandbox import KINDS, SandboxCapabilities, look_at


@click.command()
@click.option("--image", metavar="NAME", help="Also check the container sandbox, with this image.")
@json_option("Print the report as JSON.")
@click.pass_obj
def doctor(setup: Setup, image: str | None, as_json: bool) -> int:
    """Check what this machine offers: versions, the data directory, and what each sandbox enforces.

    Exits 1 if the data directory cannot be used, or if no sandbox works.
    """
    return run_async(_doctor(setup, image, as_json))


async def _doctor(setup: Setup, image: str | None, as_json: bool) -> int:
    versions = {
        "codesdk": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
    }
    usable, state = await _data_dir(Path(setup.data_dir))
    given = {"image": image} if image else {}
    sandboxes = [await look_at(kind, given if kind == "oci" else None) for kind in KINDS]
    # The host is always available as a "sandbox", but keeps nothing away: it does not count.
    ok = usable and any(found.available and found.filesystem for found in sandboxes)
    if as_json:
        directory = {"path": setup.data_dir, "ok": usable, "state": state}
        report = {"ok": ok, "versions": versions, "data_dir": directory, "sandboxes": sandboxes}
        write_json(msgspec.to_builtins(report, order="deterministic"))
    else:
        await _print(versions, setup.data_dir, usable, state, sandboxes)
    return OK if ok else FAILED


async def _data_dir(path: Path) -> tuple[bool, str]:
    """Return whether the data directory can be used, and what is in it."""
    from codesdk.cli.target.lookup import all_sessions
    from codesdk.cli.target.place import reading
    from codesdk.local import equipment_in

    try:
        async with reading(str(path)) as archive:
            count = len([row async for row in all_sessions(archive)])
    except NotFound:
        return _to_be_made(path)
    except CodeSDKError as error:
        return False, error.message
    if not os.access(path, os.W_OK):
        return False, "it can be read but not written"
    if exposed := equipment_in(path).exposed():
        return False, f"sessions' secrets are not for their owner only: {'; '.join(exposed)}"
    return True, f"{count:,} {'session' if count == 1 else 'sessions'}"


def _to_be_made(path: Path) -> tuple[bool, str]:
    place = path if path.exists() else path.absolute().parent
    if os.access(place, os.W_OK):
        return True, "not there yet; the first task creates it"
    return False, f"not there, and it cannot be created: {place} is not writable"


async def _print(
    versions: dict[str, str], data_dir: str, usable: bool, state: str, found: list[SandboxCapabilities]
) -> None:
    from rich.text import Text

    from codesdk.cli.view.safe import one_line, printable
    from codesdk.cli.view.screen import Screen
    from codesdk.cli.view.tables import sandbox_table

    async with Screen() as screen:
        console = screen.console
        names = {"codesdk": "codesdk ", "python": "Python ", "sqlite": "SQLite ", "system": ""}
        console.print(Text(" · ".join(names[name] + value for name, value in versions.items())))
        mark = ("✓ ", "green") if usable else ("✗ ", "red")
        console.print(Text.assemble(mark, f"data directory {one_line(data_dir, 200)}: {printable(state)}"))
        console.print()
        console.print(sandbox_table(found))
        for each in found:
            for note in each.notes:
                console.print()
                console.print(Text.assemble((f"{each.backend}: ", "bold"), printable(note)))
