"""A session's tools → an MCP client in the same process, without a socket.

Needs `mcp`: loaded at first use.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.client.client import Client

from codesdk.contract.ports import ToolCalls
from codesdk.tools.mcp.host import PROGRESS_S
from codesdk.tools.mcp.server import ToolServer
from codesdk.tools.mcp.session_tools import SessionTools


@asynccontextmanager
async def in_memory(
    session_id: str, calls: ToolCalls, *, progress_s: float = PROGRESS_S
) -> AsyncGenerator[Client]:
    """Yield a connected client. On exit, its remaining calls are cancelled and awaited.

    Enter and exit in the same task.
    """
    server = ToolServer(SessionTools(calls, session_id), progress_s)
    try:
        async with Client(server.mcp, cache=None) as client:
            yield client
    finally:
        await server.close()
