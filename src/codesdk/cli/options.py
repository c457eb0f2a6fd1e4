"""Options and arguments that several commands share, and completion of session ids in the shell."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from codesdk.contract.bounds import MOST
from codesdk.contract.errors import CodeSDKError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DEFAULT_DATA_DIR = ".codesdk"
DATA_DIR_HELP = f"Where sessions are stored. [env: CODESDK_DATA_DIR; default: {DEFAULT_DATA_DIR}]"
F = TypeVar("F", bound=Callable[..., Any])


class Real(click.FloatRange):
    """A number between two bounds. Not nan, which is neither less nor greater than any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or report what is wrong with it."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


def whole(least: int, most: int = MOST) -> click.IntRange:
    """Return the type of an option that is a whole number."""
    return click.IntRange(least, most)


def json_option(help_text: str) -> Callable[[F], F]:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def session_argument(*, required: bool = True) -> Callable[[F], F]:
    """Add the argument SESSION, completed from the stored sessions."""
    return click.argument("session", required=required, shell_complete=_complete)


def allows_untested() -> bool:
    """Return whether the environment allows untested programs, read as `--allow-untested` reads it."""
    allowed: bool = click.BOOL(os.environ.get("CODESDK_ALLOW_UNTESTED") or "0")
    return allowed


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    try:
        return [item for item in _stored(ctx) if item.value.startswith(incomplete)]
    except (CodeSDKError, OSError):
        return []  # an error text would land in the line that the person is typing


def _stored(ctx: click.Context) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    from codesdk.cli.app import Setup
    from codesdk.cli.loop import run_async
    from codesdk.cli.target.lookup import LAST
    from codesdk.cli.target.place import open_reader
    from codesdk.cli.view.safe import one_line

    setup = ctx.find_object(Setup)
    assert setup is not None, "the group's options make it"
    if setup.url is None and not Path(setup.data_dir).is_dir():
        return []

    async def read() -> list[CompletionItem]:
        async with open_reader(setup) as archive:
            rows = await archive.sessions(limit=50)
        return [CompletionItem(row.session_id, help=one_line(row.title or row.runtime, 60)) for row in rows]

    return [CompletionItem(LAST, help="the newest session"), *run_async(read())]
