"""`codesdk mcp`: an MCP server on stdin and stdout, for a session's tools or for those on a directory."""

import signal
from pathlib import Path

import click

from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import PermissionMode
from codesdk.contract.workspace import Workspace
from codesdk.policy import ModePolicy
from codesdk.sandbox import identify
from codesdk.tools import PROGRESS_S, DirectoryTools, builtin_registry


@click.command()
@click.option(
    "--mcp-url",
    "url",
    metavar="URL",
    envvar="CODESDK_MCP_URL",
    help="The MCP address of the session to serve. [env: CODESDK_MCP_URL]",
)
@click.option(
    "--workspace", metavar="DIR", help="Serve the built-in tools on a directory, without a session."
)
@click.option(
    "--permission-mode",
    type=click.Choice(["auto", "yolo"]),
    default="auto",
    show_default=True,
    help="With --workspace: auto only reads, yolo also changes files.",
)
def mcp(url: str | None, workspace: str | None, permission_mode: PermissionMode) -> int:
    """Serve tools over MCP on stdin and stdout, for a program that starts its MCP servers itself.

    With --mcp-url, calls are passed on to a session of a running CodeSDK, which decides on them, asks about them
    and records them. Prefer CODESDK_MCP_URL: others can read a command line.

    With --workspace, any MCP client can use the built-in tools on a directory. Nobody is asked and nothing is
    recorded, so a call that would need an approval is refused.

    It ends when stdin does.
    """
    if workspace is not None and url is not None:
        raise click.UsageError("Choose one of --mcp-url (or CODESDK_MCP_URL) and --workspace.")
    if workspace is None and url is None:
        raise click.UsageError("Say what to serve: --mcp-url (or CODESDK_MCP_URL) or --workspace.")
    # The thread that waits for stdin would delay an orderly exit, and nothing here needs one.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from codesdk.tools import bridge_stdio, serve_stdio  # they load `mcp`, which takes a second

    if url is not None:
        run_async(bridge_stdio(url, PROGRESS_S))
    else:
        run_async(serve_stdio(_directory(workspace or ".", permission_mode), "", PROGRESS_S))
    return OK


def _directory(workspace: str, mode: PermissionMode) -> DirectoryTools:
    path = Path(workspace)
    if not path.is_dir():
        raise InvalidRequest(f"The workspace {workspace} is not a directory.")
    return DirectoryTools(builtin_registry(), ModePolicy(), identify(Workspace(str(path.resolve()))), mode)
