"""The entry point of `codesdkd`: options → a daemon that runs until it is told to stop."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codesdk import __version__
from codesdk.cli.exits import BAD_INPUT, INTERRUPTED, report_failure
from codesdk.cli.settings.file import find
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.kinds import whole
from codesdk.cli.settings.resolved import Resolved, resolve
from codesdk.cli.settings.table import DAEMON
from codesdk.contract.errors import CodeSDKError

if TYPE_CHECKING:
    from codesdk.contract.ports import Observer
    from codesdk.daemon import Entrance
    from codesdk.local import KeyFile
    from codesdk.serving import Receive, Send

PARENT_POLL_S = 1.0
_STARTED_BY = os.getppid()
"""Read as early as possible: whoever starts a daemon may exit before it serves."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    metavar="FILE",
    help="The operator's settings. [default: codesdk.toml in the operator's configuration directory, if it is there]",
)
@click.option(
    "--check-config", is_flag=True, help="Show every setting and where it was set, and start nothing."
)
@flags(DAEMON)
@click.option(
    "--exit-with-parent",
    is_flag=False,
    flag_value=0,
    type=whole(0),
    metavar="[PID]",
    help="Exit when the process that started the daemon ends. With its PID, even if it has ended already.",
)
@click.version_option(__version__, prog_name="codesdkd", message="%(prog)s %(version)s")
@click.pass_context
def codesdkd(
    ctx: click.Context, config: str | None, check_config: bool, exit_with_parent: int | None, **_: Any
) -> None:
    """Serve the sessions of a data directory over HTTP.

    The first line on stdout is JSON with the address: {"url": "http://127.0.0.1:PORT"}. SIGTERM shuts it down
    gracefully. docs/daemon-api.md describes the API, GET /openapi.json does so for programs, and
    docs/configuration.md the settings: each can be a flag here or a key of the file.
    """
    from codesdk.cli.settings import use

    settings = resolve(DAEMON, ctx, find(config))
    # Everything that can be wrong with a setting shows here, before anything is opened.
    daemon, opening = use.daemon(settings), use.opening(settings) | {"limits": use.limits(settings)}
    if check_config:
        click.echo("\n".join(settings.lines()))
        return
    import uvloop

    from codesdk.daemon import serve

    observers, closers = _observers(settings)

    async def main() -> None:
        watching = None if exit_with_parent is None else asyncio.create_task(_watch_parent(exit_with_parent))
        try:
            await serve(Path(settings["data_dir"]), daemon, opening, observers, {"/acp": _serve_editor})
        finally:
            if watching is not None:
                watching.cancel()

    try:
        uvloop.run(main())
    finally:  # sending the last spans blocks, so it waits for the end of the loop
        for close in closers:
            close()


async def _serve_editor(entrance: "Entrance", receive: "Receive", send: "Send") -> None:
    """Serve an editor over a WebSocket. What it takes is loaded when the first one comes."""
    from codesdk.acp_agent import EnginePlace, serve_websocket

    place = EnginePlace(entrance.sdk, entrance.caller, entrance.before)
    await serve_websocket(place, entrance.query, receive, send)


def _observers(settings: Resolved) -> "tuple[list[Observer], list[Callable[[], None]]]":
    """Return the observers of all events, the log on stderr and spans if they are wanted, and what ends these."""
    from codesdk.gateway import providers_from
    from codesdk.local import KeyFile
    from codesdk.observe import LogObserver, configure_logging

    own = [provider.key for provider in providers_from().values() if provider.key]
    stored = KeyFile(Path(settings["data_dir"]))
    # What the gateway adds to requests must never appear in the log, nor what is stored later.
    configure_logging(settings["log_level"], settings["log_format"], secrets=lambda: [*own, *_known(stored)])
    if not settings["traces"]:
        return [LogObserver()], []
    from codesdk.observe import Traces

    traces = Traces.to_collector(settings["traces"], "codesdkd")
    return [LogObserver(), traces], [traces.close]


def _known(keys: "KeyFile") -> "Sequence[str]":
    """Return the stored keys. A log is written even if their file cannot be read."""
    try:
        return keys.secrets()
    except CodeSDKError:
        return ()


async def _watch_parent(named: int) -> None:
    """Send ourselves SIGTERM when the parent ends: the named one, or the one we were started by."""
    import signal

    parent = named or _STARTED_BY
    try:
        handle = os.pidfd_open(parent)
    except (AttributeError, OSError):
        while os.getppid() == parent:  # noqa: ASYNC110 - without a pidfd there is nothing to wait on
            await asyncio.sleep(PARENT_POLL_S)
    else:
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(handle, gone.set)
        if os.getppid() == parent:  # else it ended before we could watch it, and its id may be another's
            await gone.wait()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the daemon and exit with the code that `codesdk` would."""
    gc.disable()  # until it serves: what is made before that stays
    try:
        codesdkd.main(prog_name="codesdkd", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except (CodeSDKError, OSError) as error:
        sys.exit(report_failure(error, as_json=False))


if __name__ == "__main__":
    main()
