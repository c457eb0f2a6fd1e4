"""Options and arguments that several commands share, and completion of session ids in the shell."""

import math
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from codesdk.contract.bounds import MOST
from codesdk.contract.errors import CodeSDKError

if TYPE_CHECKING:
    from codesdk.sandbox import SandboxKind

DEFAULT_DATA_DIR = ".codesdk"
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


def data_dir_option(command: F) -> F:
    """Add `--data-dir`."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        envvar="CODESDK_DATA_DIR",
        help=f"Where sessions are stored. [env: CODESDK_DATA_DIR; default: {DEFAULT_DATA_DIR}]",
    )(command)


def json_option(help_text: str) -> Callable[[F], F]:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def session_argument(*, required: bool = True) -> Callable[[F], F]:
    """Add the argument SESSION, completed from the stored sessions."""
    return click.argument("session", required=required, shell_complete=_complete)


def policy_options(command: F) -> F:
    """Add `--policy`, `--allow-yolo` and `--allow-untested`: the operator's rules."""
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
    allow_untested = click.option(
        "--allow-untested",
        is_flag=True,
        envvar="CODESDK_ALLOW_UNTESTED",
        help="Allow programs of versions that were neither tested nor certified. [env: CODESDK_ALLOW_UNTESTED]",
    )
    return policy(allow_yolo(allow_untested(command)))


def allows_untested() -> bool:
    """Return whether the environment allows untested programs, read as `--allow-untested` reads it."""
    allowed: bool = click.BOOL(os.environ.get("CODESDK_ALLOW_UNTESTED") or "0")
    return allowed


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


def operator_options(policy: str | None, commands: Sequence[str], sandbox: "SandboxKind") -> dict[str, Any]:
    """Return what `policy_options` and `command_options` ask for, as arguments to open an engine with."""
    from codesdk.policy import load_policy
    from codesdk.tools import ExecOptions

    allow = [shlex.split(words) for words in commands]
    return {
        "policy": None if policy is None else load_policy(policy),
        "run": ExecOptions(allow=allow, sandbox=sandbox) if allow else None,
    }


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        return [item for item in _stored(ctx) if item.value.startswith(incomplete)]
    except (CodeSDKError, OSError):
        return []  # an error text would land in the line that the person is typing


def _stored(ctx: click.Context) -> list[CompletionItem]:
    from codesdk.cli.app import Setup
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
