"""`codesdk acp`: CodeSDK as an agent for an editor that starts it, over stdin and stdout."""

import signal
from typing import TYPE_CHECKING, Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.resolved import Resolved
from codesdk.cli.settings.table import OPENING
from codesdk.cli.target.place import connected, open_shared, runner, served
from codesdk.cli.target.rules import own_rules, refuse_rules
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import PermissionMode

if TYPE_CHECKING:
    from codesdk.acp_agent import Offer


@click.command()
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    metavar="NAME",
    help="What runs the tasks. Given several times: the editor can move a session to the others."
    " [default: minicode]",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="The model. Given several times: the editor can choose the others.",
)
@click.option(
    "--permission-mode",
    "mode",
    type=click.Choice(["ask", "auto", "yolo"]),
    default="ask",
    show_default=True,
    help="The mode of new sessions; the editor can change it.",
)
@click.option("--script", metavar="FILE", help="A script to play in place of a model, in new sessions.")
@flags(OPENING)
@click.pass_obj
def acp(
    setup: Setup,
    runtimes: tuple[str, ...],
    models: tuple[str, ...],
    mode: PermissionMode,
    script: str | None,
    **_: Any,
) -> int:
    """Be the agent of an editor, over the Agent Client Protocol on stdin and stdout.

    An editor starts this by itself: docs/editors.md shows how to set it up in Zed, JetBrains IDEs and Neovim. Sessions
    are those of the data directory, or of a daemon, and others can work in them at the same time. It ends when
    stdin does.
    """
    # Whoever started us ends us; a person at the same terminal means the editor.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_async(_serve(setup, _offer(runtimes, models, mode, script), own_rules()))
    return OK


def _offer(
    runtimes: tuple[str, ...], models: tuple[str, ...], mode: PermissionMode, script: str | None
) -> "Offer":
    from codesdk.acp_agent import Offer
    from codesdk.runtimes import resolve

    names = tuple(resolve(name) for name in runtimes)
    offer = Offer(runtimes=names, models=models, mode=mode)
    if script is None:
        if names[:1] == ("scripted",):
            raise InvalidRequest("The scripted runtime plays a script: give it one with --script FILE.")
        return offer
    from codesdk.script import dump, load_script

    plays = dump(load_script(script))
    if names[:1] != ("scripted",):
        return msgspec.structs.replace(offer, script=plays)
    settings = msgspec.structs.replace(offer.settings, runtime_config={"script": plays})
    return msgspec.structs.replace(offer, settings=settings)


async def _serve(setup: Setup, offer: "Offer", rules: Resolved) -> None:
    from codesdk.acp_agent import HttpPlace, SharedPlace, serve_stdio

    if served(setup):
        refuse_rules("daemon")
        async with connected(setup) as client:
            await serve_stdio(HttpPlace(client), offer)
        return
    who = await runner(setup)
    if who != "nobody":
        refuse_rules(who)
    async with SharedPlace(lambda: open_shared(setup, rules)) as place:
        await serve_stdio(place, offer)
