"""Options and arguments that several commands share, and completion of session ids in the shell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from codesdk.contract.errors import CodeSDKError

F = TypeVar("F", bound=Callable[..., Any])


def json_option(help_text: str) -> Callable[[F], F]:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def session_argument(*, required: bool = True) -> Callable[[F], F]:
    """Add the argument SESSION, completed from the stored sessions."""
    return click.argument("session", required=required, shell_complete=_complete)


def policy_options(command: F) -> F:
    """Add `--policy` and `--allow-yolo`: the operator's rules."""
    allow_yolo = click.option(
        "--allow-yolo",
        is_flag=True,
        envvar="CODESDK_ALLOW_YOLO",
        help="Allow the permission mode yolo. [env: CODESDK_ALLOW_YOLO]",
    )
    policy = click.option(
        "--policy",
        metavar="FILE",
        envvar="CODESDK_POLICY",
        help="Rules that are checked before the permission mode. [env: CODESDK_POLICY]",
    )
    return policy(allow_yolo(command))


def command_options(command: F) -> F:
    """Add the options that allow running programs."""
    allow = click.option(
        "--allow-command",
        "commands",
        multiple=True,
        metavar="WORDS",
        help='Offer workspace.exec for commands that begin like this, such as "git diff". Repeatable.',
    )
    where = click.option(
        "--sandbox",
        type=click.Choice(["bubblewrap", "oci", "host"]),
        default="bubblewrap",
        help="Where such commands run; host is no sandbox. [default: bubblewrap]",
    )
    return allow(where(command))


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        return [item for item in _stored(ctx) if item.value.startswith(incomplete)]
    except (CodeSDKError, OSError):
        return []  # an error text would land in the line that the person is typing


def _stored(ctx: click.Context) -> list[CompletionItem]:
    from codesdk.cli.app import DEFAULT_DATA_DIR, Setup
    from codesdk.cli.loop import run_async
    from codesdk.cli.target.lookup import LAST
    from codesdk.cli.target.place import open_reader
    from codesdk.cli.view.safe import one_line

    given = ctx.find_root().params
    setup = Setup(given.get("data_dir") or DEFAULT_DATA_DIR, True, "", given.get("url"), given.get("token"))
    if setup.url is None and not Path(setup.data_dir).is_dir():
        return []

    async def read() -> list[CompletionItem]:
        async with open_reader(setup) as archive:
            rows = await archive.sessions(limit=50)
        return [CompletionItem(row.session_id, help=one_line(row.title or row.runtime, 60)) for row in rows]

    return [CompletionItem(LAST, help="the newest session"), *run_async(read())]
