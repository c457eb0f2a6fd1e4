"""Tools → an MCP server on this process's stdin and stdout. Needs `mcp`: load it at first use.

Either passes everything on to a session's address, for runtimes that can only start programs, or serves the
tools on a directory. Ends when stdin does.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.stdio import stdio_server

from codesdk.contract.errors import NotFound
from codesdk.contract.ports import ToolCalls
from codesdk.tools.mcp.server import ToolServer, ToolSource, failed
from codesdk.tools.mcp.session_tools import SessionTools
from codesdk.tools.mcp_client.connection import Connection, Unreachable
from codesdk.tools.mcp_client.servers import HttpServer
from codesdk.tools.names import SERVER
from codesdk.tools.registry import ToolError

PATIENCE_S = 30 * 24 * 3600.0
"""How long a call may take: the person asked to approve it may be away."""


class RemoteTools:
    """The tools behind a session's address, as offered there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def offer(self) -> list[types.Tool]:
        """Return the tools the session offers now."""
        try:
            return await self._connection.offer()
        except Unreachable as error:
            raise _nobody(error) from None

    def call(
        self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]
    ) -> "asyncio.Future[types.CallToolResult]":
        """Pass a call on, with its marks: only the session's own server knows what they mean."""
        return asyncio.ensure_future(self._pass_on(name, arguments, marks))

    def shown(self, name: str, outcome: types.CallToolResult) -> types.CallToolResult:
        """Return the answer unchanged."""
        return outcome

    async def _pass_on(
        self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]
    ) -> types.CallToolResult:
        meta: Any = dict(marks) or None
        params = types.CallToolRequestParams(name=name, arguments=arguments, _meta=meta)
        try:
            return await self._connection.ask(params)
        except ToolError as error:
            return failed(str(error))


async def bridge_stdio(url: str, progress_s: float) -> None:
    """Serve the tools behind a session's address. Raise `NotFound` if it does not answer."""
    connection = Connection(SERVER, HttpServer(url=url, timeout_s=PATIENCE_S), lambda: None)
    try:
        await connection.open()
        await _serve(RemoteTools(connection), progress_s)
    except Unreachable as error:
        raise _nobody(error) from None
    finally:
        await connection.close()


async def serve_stdio(calls: ToolCalls, session_id: str, progress_s: float) -> None:
    """Serve the tools of a session, or of a stand-in such as `DirectoryTools`."""
    await _serve(SessionTools(calls, session_id), progress_s)


async def _serve(source: ToolSource[Any], progress_s: float) -> None:
    server = ToolServer(source, progress_s)
    async with stdio_server() as (reading, writing):
        # Returns when stdin ends; calls that still run are cancelled below.
        await server.mcp.run(reading, writing, server.mcp.create_initialization_options())
    await server.close()


def _nobody(error: Unreachable) -> NotFound:
    return NotFound(f"The session's MCP address does not answer: {error} Is its process still running?")
