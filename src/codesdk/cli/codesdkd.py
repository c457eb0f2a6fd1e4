"""The entry point of `codesdkd`: options → a daemon that runs until it is told to stop."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codesdk import __version__
from codesdk.cli.exits import BAD_INPUT, INTERRUPTED, report_failure
from codesdk.cli.options import (
    DEFAULT_DATA_DIR,
    Real,
    command_options,
    data_dir_option,
    operator_options,
    policy_options,
    whole,
)
from codesdk.contract.errors import CodeSDKError

if TYPE_CHECKING:
    from codesdk.contract.ports import Observer
    from codesdk.contract.retention import Retention
    from codesdk.local import KeyFile

PARENT_POLL_S = 1.0
_STARTED_BY = os.getppid()
"""Read as early as possible: whoever starts a daemon may exit before it serves."""


def _number(
    name: str, default: float, metavar: str, help_text: str, least: float = 0, most: float = 1e6
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind, words = Real(least, most), f"{help_text} [default: {default:g}]"
    return click.option(name, default=float(default), type=kind, metavar=metavar, help=words)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@data_dir_option
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen. [default: 127.0.0.1]")
@click.option("--port", default=0, type=click.IntRange(0, 65535), metavar="N", help="[default: any free one]")
@click.option(
    "--runtimes", metavar="NAMES", help="Runtimes that sessions may use, separated by commas. [default: all]"
)
@click.option(
    "--workspace-root",
    "roots",
    multiple=True,
    metavar="DIR",
    help="Workspaces must be inside this directory. Repeatable. [default: anywhere]",
)
@click.option(
    "--allow-script-files",
    "script_files",
    is_flag=True,
    help="Sessions on the scripted runtime may name a script in their workspace.",
)
@click.option(
    "--share-keys",
    is_flag=True,
    help="The provider keys in this environment also pay for principals that have none of their own.",
)
@click.option(
    "--logins",
    metavar="RUNTIMES",
    envvar="CODESDK_LOGINS",
    help="Runtimes whose own account logins are switched on, such as codex=through. [env: CODESDK_LOGINS; default: none]",
)
@click.option(
    "--allow-isolation",
    "isolation",
    multiple=True,
    type=click.Choice(["ephemeral", "shared"]),
    help="Sessions may choose this level of isolation in place of namespaced. Repeatable.",
)
@click.option(
    "--allow-namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Sessions may use this credential namespace, and the logins in it; * for any. Repeatable.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which clients reach the daemon, such as a proxy's. Repeatable.",
)
@click.option(
    "--require-token", is_flag=True, help="Require a token even if none was made with `codesdk tokens`."
)
@_number("--grace", 10, "SECONDS", "How long tasks may keep running after SIGTERM.")
@_number("--requests-per-second", 500, "N", "How many requests a principal may make; 0 for no limit.")
@click.option(
    "--request-burst",
    default=2000,
    type=whole(1),
    metavar="N",
    help="How many requests may come at once before that limit applies. [default: 2000]",
)
@_number("--tasks-per-minute", 0, "N", "How many tasks of one runtime a principal may start; 0 for no limit.")
@click.option(
    "--max-connections",
    default=10_000,
    type=whole(1),
    metavar="N",
    help="How many connections may be open, if the limit of open files allows it. [default: 10000]",
)
@click.option(
    "--max-connections-per-peer",
    type=whole(1),
    metavar="N",
    help="How many of them one address may have; raise it behind a proxy. [default: half of all]",
)
@_number("--heartbeat", 15, "SECONDS", "How often an idle event stream shows that it is alive.", 0.05, 86_400)
@click.option(
    "--exit-with-parent",
    is_flag=False,
    flag_value=0,
    type=whole(0),
    metavar="[PID]",
    help="Exit when the process that started the daemon ends. With its PID, even if it has ended already.",
)
@click.option(
    "--keep-days",
    type=Real(0, 36_500, min_open=True),
    metavar="N",
    help="Remove older sessions and audit records. [default: keep all]",
)
@click.option(
    "--keep-bytes",
    type=whole(1),
    metavar="N",
    help="Remove the oldest sessions when all of them take more. [default: keep all]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="How much to log to stderr. [default: info]",
)
@click.option(
    "--log-format", type=click.Choice(["json", "text"]), default="json", help="How to log. [default: json]"
)
@click.option(
    "--traces",
    metavar="URL",
    help="Send spans to an OpenTelemetry collector, such as http://127.0.0.1:4318/v1/traces.",
)
@policy_options
@command_options
@click.version_option(__version__, prog_name="codesdkd", message="%(prog)s %(version)s")
def codesdkd(data_dir: str | None, exit_with_parent: int | None, **options: Any) -> None:
    """Serve the sessions of a data directory over HTTP.

    The first line on stdout is JSON with the address: {"url": "http://127.0.0.1:PORT"}. SIGTERM shuts it down
    gracefully. docs/daemon-api.md describes the API; GET /openapi.json does so for programs.
    """
    import uvloop

    from codesdk.daemon import DaemonSettings, serve
    from codesdk.engine import Permits
    from codesdk.observe import Traces
    from codesdk.runtimes import read_logins, resolve

    names = [name.strip() for name in (options["runtimes"] or "").split(",") if name.strip()]
    settings = DaemonSettings(
        host=options["host"],
        port=options["port"],
        grace_s=options["grace"],
        permits=Permits(
            runtimes=tuple(resolve(name) for name in names),
            workspace_roots=options["roots"],
            allow_yolo=options["allow_yolo"],
            allow_untested=options["allow_untested"],
            script_files=options["script_files"],
            share_keys=options["share_keys"],
            logins=read_logins(options["logins"] or ""),
            isolation=("namespaced", *options["isolation"]),
            namespaces=options["namespaces"],
        ),
        allow_hosts=options["hosts"],
        require_token=options["require_token"],
        retention=_retention(options),
        requests_per_s=options["requests_per_second"] or None,
        request_burst=options["request_burst"],
        tasks_per_minute=options["tasks_per_minute"] or None,
        max_connections=options["max_connections"],
        max_connections_per_peer=options["max_connections_per_peer"],
        heartbeat_s=options["heartbeat"],
    )

    opening = operator_options(options["policy"], options["commands"], options["sandbox"])
    observers = _observers(options, Path(data_dir or DEFAULT_DATA_DIR))

    async def main() -> None:
        watching = None if exit_with_parent is None else asyncio.create_task(_watch_parent(exit_with_parent))
        try:
            await serve(Path(data_dir or DEFAULT_DATA_DIR), settings, opening, observers)
        finally:
            if watching is not None:
                watching.cancel()

    try:
        uvloop.run(main())
    finally:  # sending the last spans blocks, so it waits for the end of the loop
        for observer in observers:
            if isinstance(observer, Traces):
                observer.close()


def _retention(options: dict[str, Any]) -> "Retention | None":
    """Return what is kept; None for everything."""
    days, size = options["keep_days"], options["keep_bytes"]
    if days is None and size is None:
        return None
    from codesdk.contract.retention import Retention

    return Retention(max_age_days=days, undo_max_age_days=days, audit_max_age_days=days, max_total_bytes=size)


def _observers(options: dict[str, Any], data_dir: Path) -> "list[Observer]":
    """Return the observers of all events: the log on stderr, and spans if they are wanted."""
    from codesdk.gateway import providers_from
    from codesdk.local import KeyFile
    from codesdk.observe import LogObserver, Traces, configure_logging

    own = [provider.key for provider in providers_from().values() if provider.key]
    stored = KeyFile(data_dir)
    # What the gateway adds to requests must never appear in the log, nor what is stored later.
    configure_logging(options["log_level"], options["log_format"], secrets=lambda: [*own, *_known(stored)])
    traces = [Traces.to_collector(options["traces"], "codesdkd")] if options["traces"] else []
    return [LogObserver(), *traces]


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
