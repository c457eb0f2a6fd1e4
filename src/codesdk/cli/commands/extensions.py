"""`codesdk extensions`: which there are, whether one would load, which are trusted; and a new one to start from."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.settings.file import find
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.resolved import resolve
from codesdk.cli.settings.table import DAEMON, EXTENSIONS
from codesdk.cli.settings.use import extensions as chosen
from codesdk.cli.target.place import connected, served
from codesdk.cli.target.rules import typed_options
from codesdk.cli.view.out import write_json, write_line
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import InvalidRequest
from codesdk.extending import profiles
from codesdk.extensions import (
    ExtensionOptions,
    Pins,
    load_set,
    read_manifest,
    take_snapshot,
    write_example,
)

if TYPE_CHECKING:
    from codesdk.contract.api import ExtensionInfo, ExtensionPage

_dir = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group()
def extensions() -> None:
    """Extensions: directories of Python that are told of events and ask for actions (docs/extensions.md)."""


@extensions.command("list")
@flags(EXTENSIONS)
@json_option("Print one extension per line as JSON.")
@click.pass_obj
def list_(setup: Setup, as_json: bool, **_: Any) -> int:
    """List the extensions of a daemon, or those that the options and the operator's file name here.

    Here, each is loaded to see whether it can be, which runs its code.
    """
    if served(setup):
        if typed := typed_options([setting.parameter for setting in EXTENSIONS]):
            raise InvalidRequest(f"A daemon has its own extensions. {typed[0]} would have no effect here.")
        found = run_async(_there(setup))
        return _show(found.extensions, as_json)
    options = chosen(resolve(DAEMON, click.get_current_context(), find(None)))
    if options is None:
        write_line("No extensions are switched on. Name some with --extension DIR.")
        return OK
    return _show(_load(options, Pins(Path(setup.data_dir))), as_json)


@extensions.command()
@_dir
@json_option("Print what was found as JSON.")
def check(directory: Path, as_json: bool) -> int:
    """Check whether the extension in DIR can be loaded, which runs its code. Exits 1 if it cannot."""
    found = _load(ExtensionOptions(roots=(str(directory),)), Pins(None))
    _show(found, as_json)
    return OK if found and all(one.status == "loaded" for one in found) else FAILED


@extensions.command()
@_dir
@click.pass_obj
def trust(setup: Setup, directory: Path) -> int:
    """Trust the project extension in DIR as it is now: it is loaded until one of its files changes.

    Read it first: its code runs with all rights of the process that loads it.
    """
    snapshot = take_snapshot(directory)
    manifest = read_manifest(snapshot)
    Pins(Path(setup.data_dir)).add(directory, snapshot.hash)
    write_line(f"{manifest.name} {manifest.version} is trusted as it is now: {snapshot.hash}")
    write_line(
        f"It has {len(snapshot.files)} files. If one changes, it is not loaded until you trust it again."
    )
    return OK


@extensions.command()
@json_option("Print one extension per line as JSON.")
@click.pass_obj
def reload(setup: Setup, as_json: bool) -> int:
    """Load a daemon's extensions again. If one that runs could no longer be loaded, all stay as they are."""
    if not served(setup):
        raise InvalidRequest(
            "No daemon runs here. Extensions are loaded when one starts; name it with --url."
        )
    return _show(run_async(_reload_there(setup)).extensions, as_json)


@extensions.command()
@click.argument("name")
def new(name: str) -> int:
    """Write an extension that works into a new directory NAME, with a test of its own."""
    made = write_example(Path(name))
    write_line(
        f"{made} has extension.toml, events.py and test_events.py. Check it: codesdk extensions check {made}"
    )
    return OK


def _load(options: ExtensionOptions, pins: Pins) -> "list[ExtensionInfo]":
    async def load() -> "list[ExtensionInfo]":
        loaded = await load_set(options, pins, profiles(), 1)
        await loaded.end()
        return list(loaded.inventory)

    return run_async(load())


async def _there(setup: Setup) -> "ExtensionPage":
    async with connected(setup) as client:
        return await client.extensions()


async def _reload_there(setup: Setup) -> "ExtensionPage":
    async with connected(setup) as client:
        return await client.reload_extensions()


def _show(found: "list[ExtensionInfo]", as_json: bool) -> int:
    for info in found:
        if as_json:
            write_json(info)
            continue
        name = f"{info.name} {info.version}" if info.name else "?"
        write_line(f"{info.status:8}  {one_line(name)}  {one_line(info.root)}")
        for words in [info.reason, *info.warnings]:
            if words is not None:
                write_line(f"          {one_line(words)}")
    if not found and not as_json:
        write_line("There are no extensions there.")
    return OK
