"""One session's MCP server over streamable HTTP: requests with one token in, answers and event streams out.

The library's session manager lives in its own task, from `start` to `close`. Needs `mcp`: loaded at first
use.
"""

import asyncio

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from codesdk.contract.entry import McpClient
from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.contract.ports import ToolCalls
from codesdk.serving import Gone, Message, Receive, Send, read_body
from codesdk.tools.mcp.host import refuse
from codesdk.tools.mcp.server import GONE, ToolServer
from codesdk.tools.mcp.session_tools import Heard, SessionTools

MAX_CLIENTS = 4_096
IDLE_S = 4 * 3600.0
"""How long a client may be silent before it must initialize again. One with an open stream is not silent."""


class Endpoint:
    """An ASGI application for one session. Start and close it on the same loop."""

    def __init__(
        self,
        session_id: str,
        calls: ToolCalls,
        client: McpClient,
        *,
        progress_s: float,
        max_body_bytes: int,
        heard: Heard | None = None,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._server = ToolServer(SessionTools(calls, session_id, client, heard), progress_s)
        self._sessions = StreamableHTTPSessionManager(
            self._server.mcp,
            session_idle_timeout=IDLE_S,
            max_sessions=MAX_CLIENTS,
        )
        self._stop = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start serving."""
        ready = asyncio.Event()
        self._owner = asyncio.create_task(self._own(ready))
        await ready.wait()

    async def close(self) -> None:
        """Cancel every call and end every stream; return when that is done."""
        await self._server.close()
        self._stop.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])
        await self._server.close()  # calls that arrived in the meantime

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, self._max_body_bytes)
        except Gone:
            return
        if body is None or has_too_many_values(body):
            most = f"{self._max_body_bytes:,} bytes and {MOST_VALUES:,} JSON values"
            await refuse(send, 413, f"The request is too large; at most {most} are accepted.")
            return
        unread: Message | None = {"type": "http.request", "body": body, "more_body": False}
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def listen() -> Message:
            nonlocal unread
            if unread is not None:
                message, unread = unread, None
                return message
            message = await receive()
            if message["type"] == "http.disconnect" and not gone.done():
                gone.set_result(None)
            return message

        await self._sessions.handle_request({**scope, GONE: gone}, listen, send)

    async def _own(self, ready: asyncio.Event) -> None:
        async with self._sessions.run():
            ready.set()
            await self._stop.wait()
