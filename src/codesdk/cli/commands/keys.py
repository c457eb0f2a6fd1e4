"""`codesdk keys`: the provider keys of principals. Stored for the gateway to use, never shown."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.target.place import connected
from codesdk.cli.view.gist import local_time
from codesdk.cli.view.out import write_json, write_line
from codesdk.contract.access import PROVIDERS, ProviderName
from codesdk.contract.actions import LOCAL
from codesdk.contract.errors import InvalidRequest
from codesdk.local import KeyFile

if TYPE_CHECKING:
    from codesdk.contract.api import KeyInfo

_principal_option = click.option(
    "--principal",
    metavar="NAME",
    help="Whose key it is. [default: your own; without a daemon's address: local]",
)
_provider = click.argument("provider", type=click.Choice(PROVIDERS))


@click.group(invoke_without_command=True)
@json_option("Print one key per line as JSON, without the key itself.")
@click.pass_context
def keys(ctx: click.Context, as_json: bool) -> int:
    """List the stored provider keys; add or remove them.

    A key pays for the sessions of its principal, before any key in the environment. It is stored in the data
    directory for its owner only, and nothing ever shows it.
    """
    if ctx.invoked_subcommand is None:
        return _list(ctx.find_object(Setup), None, as_json)
    return OK


@keys.command("list")
@_principal_option
@json_option("Print one key per line as JSON, without the key itself.")
@click.pass_obj
def list_keys(setup: Setup, principal: str | None, as_json: bool) -> int:
    """List whose keys for which providers are stored."""
    return _list(setup, principal, as_json)


@keys.command()
@_provider
@_principal_option
@click.pass_obj
def add(setup: Setup, provider: ProviderName, principal: str | None) -> int:
    """Store a key for PROVIDER, in place of the one before.

    The key is asked for at the terminal without showing it, or read from stdin. It is never an argument: those can
    be seen by everybody on this machine.
    """
    key = _read_key(provider)
    if setup.url is None:
        stored = KeyFile(Path(setup.data_dir)).add(principal or LOCAL, provider, key)
    else:
        stored = run_async(_add_there(setup, provider, key, principal))
    write_line(f"The {provider} key of {stored.principal} is stored.")
    return OK


@keys.command()
@_provider
@_principal_option
@click.pass_obj
def remove(setup: Setup, provider: ProviderName, principal: str | None) -> int:
    """Remove the key for PROVIDER. No later request uses it."""
    if setup.url is None:
        KeyFile(Path(setup.data_dir)).remove(principal or LOCAL, provider)
    else:
        run_async(_remove_there(setup, provider, principal))
    write_line(f"The {provider} key of {principal or (LOCAL if setup.url is None else 'yours')} is removed.")
    return OK


def _read_key(provider: str) -> str:
    if sys.stdin.isatty():
        given: str = click.prompt(f"{provider} key", hide_input=True, err=True)
        return given
    try:
        given = sys.stdin.read(16_384)
    except UnicodeError:
        raise InvalidRequest("The key on stdin is not text.") from None
    if not given.strip():
        raise InvalidRequest(f"There is no key on stdin. Pipe it in: codesdk keys add {provider} < FILE")
    return given


def _list(setup: Setup | None, principal: str | None, as_json: bool) -> int:
    assert setup is not None, "the group has made it"
    if setup.url is None:
        found = KeyFile(Path(setup.data_dir)).stored(principal)
    else:
        found = run_async(_list_there(setup, principal))
    if as_json:
        for info in found:
            write_json(info)
        return OK
    if not found:
        write_line(f"No keys are stored. codesdk{setup.shown} keys add {'|'.join(PROVIDERS)} stores one.")
    for info in found:
        write_line(f"{info.provider}  {info.principal}  since {local_time(info.created_at):%Y-%m-%d %H:%M}")
    return OK


async def _add_there(setup: Setup, provider: ProviderName, key: str, principal: str | None) -> "KeyInfo":
    async with connected(setup) as client:
        return await client.add_key(provider, key, principal=principal)


async def _remove_there(setup: Setup, provider: ProviderName, principal: str | None) -> None:
    async with connected(setup) as client:
        await client.remove_key(provider, principal=principal)


async def _list_there(setup: Setup, principal: str | None) -> "list[KeyInfo]":
    async with connected(setup) as client:
        return await client.keys(principal)
