"""`codesdk tokens`: who may use the daemon of a data directory, as whom, and for what."""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK
from codesdk.cli.options import json_option
from codesdk.cli.view.gist import local_time
from codesdk.cli.view.out import write_json, write_line, write_text
from codesdk.cli.view.safe import one_line
from codesdk.contract.actions import SCOPES
from codesdk.contract.api import TokenScope
from codesdk.contract.errors import InvalidRequest
from codesdk.local import Token, TokenFile

_SPAN = re.compile(r"([1-9][0-9]{0,5})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


@click.group(invoke_without_command=True)
@json_option("Print one token per line as JSON, without the token itself.")
@click.pass_context
def tokens(ctx: click.Context, as_json: bool) -> int:
    """List the tokens of a data directory; add or revoke them.

    Without any token, a daemon on 127.0.0.1 accepts requests from everybody on this machine. As soon as there
    is one, every request needs a token. A running daemon notices a change at once.
    """
    if ctx.invoked_subcommand is None:
        _list(ctx.find_object(Setup), as_json)
    return OK


@tokens.command()
@click.argument("principal")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(SCOPES),
    help="read: read-only. run: read and run tasks. approve: read and answer questions. admin: everything, and manage"
    " the daemon."
    " Repeatable.",
)
@click.option(
    "--expires", metavar="SPAN", help="How long it works, such as 30d, 12h or 45m. [default: forever]"
)
@click.option("--label", metavar="TEXT", help="What it is for.")
@json_option("Print the token as JSON.")
@click.pass_obj
def add(
    setup: Setup,
    principal: str,
    scopes: tuple[TokenScope, ...],
    expires: str | None,
    label: str | None,
    as_json: bool,
) -> int:
    """Make a token for PRINCIPAL, whose sessions nobody else can see. It is shown only this once."""
    until = None if expires is None else datetime.now(UTC) + _span(expires)
    secret, token = TokenFile(Path(setup.data_dir)).add(
        principal, list(scopes), label=label, expires_at=until
    )
    if as_json:
        write_json({"token": secret, **_row(token)})
        return OK
    write_text(sys.stdout, secret + "\n")  # alone on stdout, so that a script can take it
    write_text(
        sys.stderr,
        f"{token.token_id}: save it now, it is not shown again. Clients read it from CODESDK_TOKEN.\n",
    )
    return OK


@tokens.command()
@click.argument("token_id")
@json_option("Print what was revoked as JSON.")
@click.pass_obj
def revoke(setup: Setup, token_id: str, as_json: bool) -> int:
    """Revoke the token TOKEN_ID. Requests with it are refused, and its streams end."""
    token = TokenFile(Path(setup.data_dir)).revoke(token_id)
    if as_json:
        write_json(_row(token))
    else:
        write_line(f"{token.token_id} of {token.principal} is revoked.")
    return OK


def _list(setup: Setup | None, as_json: bool) -> None:
    assert setup is not None, "the group has made it"
    found = TokenFile(Path(setup.data_dir)).all()
    if as_json:
        for token in found:
            write_json(_row(token))
        return
    if not found:
        write_line(f"No tokens. codesdk{setup.shown} tokens add PRINCIPAL --scope read makes one.")
        return
    now = datetime.now(UTC)
    for token in found:
        ends = "" if token.expires_at is None else f", until {local_time(token.expires_at):%Y-%m-%d %H:%M}"
        if not token.valid(now):
            ends = ", expired"
        label = f"  {one_line(token.label)}" if token.label else ""
        write_line(f"{token.token_id}  {token.principal}  {' '.join(token.scopes)}{ends}{label}")


def _row(token: Token) -> dict[str, Any]:
    """Return what may be shown of a token."""
    row: dict[str, Any] = msgspec.to_builtins(token)
    del row["hash"]
    return row


def _span(given: str) -> timedelta:
    found = _SPAN.fullmatch(given)
    if found is None:
        raise InvalidRequest(f"{given[:40]!r} is not a span of time. Give one such as 30d, 12h or 45m.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
