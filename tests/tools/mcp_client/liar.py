"""An MCP server over HTTP, in this process, that tells its client whatever a test wants: no library keeps it honest."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

TOOL: dict[str, Any] = {"name": "ask", "description": "Ask.", "inputSchema": {"type": "object"}}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "liar", "version": "1"},
}
Lie = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request of the client, and the connection to answer it on."""

    def __init__(self, head: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.head = head
        self.body = body
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def begin(self, status: str, **headers: str) -> None:
        """Send the head of an answer whose body ends with the connection."""
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([f"HTTP/1.1 {status}", "connection: close", *lines, "", ""]).encode())

    async def answer(self, message: Any, **headers: str) -> None:
        """Answer with JSON."""
        await self.begin("200 OK", content_type="application/json", **headers)
        await self.send(json.dumps(message).encode())

    async def result(self, result: Any) -> None:
        """Answer with the result of this request."""
        await self.answer({"jsonrpc": "2.0", "id": self.body.get("id"), "result": result})

    async def event(self, message: Any) -> None:
        """Send an event of a stream that was begun."""
        await self.send(b"data: " + json.dumps(message).encode() + b"\n\n")


class Liar:
    """Answers like a good server, but for the methods that it lies about. `heads` are those of all requests, `replies`
    what the client said to requests of ours."""

    def __init__(self, **lies: Lie) -> None:
        self.tools = [TOOL]
        self.heads: list[str] = []
        self.methods: list[str] = []
        self.replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.url = ""
        self._lies = lies

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)  # fmt: skip
            body = json.loads(await reader.readexactly(size)) if size else {}
            self.heads.append(head)
            self.methods.append(body.get("method", ""))
            if body and "method" not in body:
                self.replies.put_nowait(body)
            await self._reply(Exchange(head, body, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has had enough
        finally:
            writer.close()

    async def _reply(self, exchange: Exchange) -> None:
        method = exchange.body.get("method", "")
        lie = self._lies.get(method.replace("/", "_"))
        if lie is not None:
            await lie(exchange)
        elif method == "initialize":
            await exchange.result(HELLO)
        elif method == "tools/list":
            await exchange.result({"tools": self.tools})
        elif "id" in exchange.body and "method" in exchange.body:
            error = {"code": -32601, "message": "Method not found"}
            await exchange.answer({"jsonrpc": "2.0", "id": exchange.body["id"], "error": error})
        else:
            await exchange.begin("202 Accepted" if method or "id" in exchange.body else "405 No")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self.url
        finally:
            server.close()
