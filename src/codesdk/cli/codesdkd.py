"""The entry point of `codesdkd`: options → a daemon that runs until it is told to stop."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codesdk import __version__
from codesdk.cli.app import DEFAULT_DATA_DIR
from codesdk.cli.exits import report
from codesdk.cli.options import command_options, policy_options
from codesdk.contract.errors import CodeSDKError, ErrorInfo

if TYPE_CHECKING:
    from codesdk.contract.ports import Observer
    from codesdk.contract.retention import Retention

PARENT_POLL_S = 1.0
_STARTED_BY = os.getppid()
"""Read as early as possible: whoever starts a daemon may exit before it serves."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--data-dir",
    metavar="DIR",
    envvar="CODESDK_DATA_DIR",
    default=DEFAULT_DATA_DIR,
    help=f"Where sessions are stored. [env: CODESDK_DATA_DIR; default: {DEFAULT_DATA_DIR}]",
)
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
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which clients reach the daemon, such as a proxy's. Repeatable.",
)
@click.option(
    "--require-token", is_flag=True, help="Require a token even if none was made with `codesdk tokens`."
)
@click.option(
    "--grace",
    default=10.0,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long tasks may keep running after SIGTERM. [default: 10]",
)
@click.option(
    "--requests-per-second",
    default=500.0,
    type=click.FloatRange(0),
    metavar="N",
    help="How many requests a principal may make; 0 for no limit. [default: 500]",
)
@click.option(
    "--request-burst",
    default=2000,
    type=click.IntRange(1),
    metavar="N",
    help="How many requests may come at once before that limit applies. [default: 2000]",
)
@click.option(
    "--tasks-per-minute",
    default=0.0,
    type=click.FloatRange(0),
    metavar="N",
    help="How many tasks of one runtime a principal may start; 0 for no limit. [default: 0]",
)
@click.option(
    "--heartbeat",
    default=15.0,
    type=click.FloatRange(0.05),
    metavar="SECONDS",
    help="How often an idle event stream shows that it is alive. [default: 15]",
)
@click.option(
    "--exit-with-parent",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[PID]",
    help="Exit when the process that started the daemon ends. With its PID, even if it has ended already.",
)
@click.option(
    "--keep-days",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Remove older sessions and audit records. [default: keep all]",
)
@click.option(
    "--keep-bytes",
    type=click.IntRange(1),
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
def codesdkd(data_dir: str, exit_with_parent: int | None, **options: Any) -> None:
    """Serve the sessions of a data directory over HTTP.

    The first line on stdout is JSON with the address: {"url": "http://127.0.0.1:PORT"}. SIGTERM shuts it down
    gracefully. docs/daemon-api.md describes the API; GET /openapi.json does so for programs.
    """
    import uvloop

    from codesdk.daemon import DaemonSettings, serve
    from codesdk.engine import Permits
    from codesdk.observe import Traces
    from codesdk.runtimes import resolve

    names = [name.strip() for name in (options["runtimes"] or "").split(",") if name.strip()]
    settings = DaemonSettings(
        host=options["host"],
        port=options["port"],
        grace_s=options["grace"],
        permits=Permits(
            runtimes=tuple(resolve(name) for name in names),
            workspace_roots=options["roots"],
            allow_yolo=options["allow_yolo"],
        ),
        allow_hosts=options["hosts"],
        require_token=options["require_token"],
        retention=_retention(options),
        requests_per_s=options["requests_per_second"] or None,
        request_burst=options["request_burst"],
        tasks_per_minute=options["tasks_per_minute"] or None,
        heartbeat_s=options["heartbeat"],
    )

    observers = _observers(options)

    async def main() -> None:
        watching = None if exit_with_parent is None else asyncio.create_task(_watch_parent(exit_with_parent))
        try:
            await serve(Path(data_dir), settings, _opening(options), observers)
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


def _observers(options: dict[str, Any]) -> "list[Observer]":
    """Return the observers of all events: the log on stderr, and spans if they are wanted."""
    from codesdk.gateway import providers_from
    from codesdk.observe import LogObserver, Traces, configure_logging

    # What the gateway adds to requests must never appear in the log.
    keys = [provider.key for provider in providers_from().values() if provider.key]
    configure_logging(options["log_level"], options["log_format"], secrets=keys)
    traces = [Traces.to_collector(options["traces"], "codesdkd")] if options["traces"] else []
    return [LogObserver(), *traces]


def _opening(options: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's options."""
    opening: dict[str, Any] = {}
    if options["policy"]:
        from codesdk.policy import load_policy

        opening["policy"] = load_policy(Path(options["policy"]))
    if options["commands"]:
        from codesdk.tools import ExecOptions

        allow = [shlex.split(words) for words in options["commands"]]
        opening["run"] = ExecOptions(allow=allow, sandbox=options["sandbox"])
    return opening


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
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except CodeSDKError as error:
        sys.exit(report(error.info(), as_json=False))
    except OSError as error:
        words = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}."
        sys.exit(report(ErrorInfo(code="STORAGE_FAILED", message=words, retryable=False), as_json=False))


if __name__ == "__main__":
    main()
