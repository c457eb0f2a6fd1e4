"""`codesdk mcp`: an MCP server on stdin and stdout, for a session's tools or for those on a directory."""

import signal
from importlib import import_module
from pathlib import Path

import click

from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import PermissionMode
from codesdk.policy import ModePolicy
from codesdk.tools import PROGRESS_S, DirectoryTools, builtin_registry


@click.command()
@click.option(
    "--url",
    metavar="URL",
    envvar="CODESDK_MCP_URL",
    help="Serve what is behind a session's MCP address. [env: CODESDK_MCP_URL]",
)
@click.option(
    "--workspace", metavar="DIR", help="Serve the built-in tools on a directory, without a session."
)
@click.option(
    "--permission-mode",
    type=click.Choice(["auto", "yolo"]),
    default="auto",
    show_default=True,
    help="With --workspace: auto only reads, yolo changes files, too.",
)
def mcp(url: str | None, workspace: str | None, permission_mode: PermissionMode) -> int:
    """Be an MCP server on stdin and stdout, for a program that starts its servers itself.

    With --url, or better with CODESDK_MCP_URL, since others can read a command line, it passes calls on to a
    session of a running CodeSDK: they are judged, asked about and recorded there.

    With --workspace it serves the built-in tools on a directory to any MCP client. Nobody is asked and nothing is
    recorded, so what would need an approval is refused.

    It ends when stdin does.
    """
    if workspace is not None and url is not None:
        raise click.UsageError("Choose one of --url (or CODESDK_MCP_URL) and --workspace.")
    if workspace is None and url is None:
        raise click.UsageError("Say what to serve: --url (or CODESDK_MCP_URL) or --workspace.")
    # A thread waits for stdin and would hold up an orderly end; nothing here needs one.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    served = import_module("codesdk.tools.mcp.stdio")
    if url is not None:
        run_async(served.bridge(url, PROGRESS_S))
    else:
        run_async(served.serve(_directory(workspace or ".", permission_mode), "", PROGRESS_S))
    return OK


def _directory(workspace: str, mode: PermissionMode) -> DirectoryTools:
    path = Path(workspace)
    if not path.is_dir():
        raise InvalidRequest(f"{workspace}: this is no directory")
    return DirectoryTools(builtin_registry(), ModePolicy(), str(path.resolve()), mode)
