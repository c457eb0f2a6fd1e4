"""Rooms for messages of MCP: what clients send to our server, and what attached servers answer."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import anyio
from tests.fuzz.http_rooms import ask
from tests.fuzz.rooms import Room
from tests.tools.mcp.tool_calls import RecordingCalls
from tests.tools.mcp.wire import HEADERS, HELLO, request

from codesdk.contract.entry import ANY_CLIENT
from codesdk.tools.mcp.endpoint import Endpoint
from codesdk.tools.mcp.transport import _message, _Watched
from codesdk.tools.mcp_client import connection as attaching
from codesdk.tools.mcp_client.attached import AttachedTools
from codesdk.tools.mcp_client.servers import HttpServer
from codesdk.tools.registry import ToolRegistry


@asynccontextmanager
async def mcp_served() -> Room:
    """A session's MCP address: one client says hello, then sends the input."""
    endpoint = Endpoint("ses_1", RecordingCalls(), ANY_CLIENT, progress_s=60, max_body_bytes=1 << 20)
    await endpoint.start()
    headers = {**HEADERS, "host": "127.0.0.1"}
    hello = json.dumps(request(0, "initialize", HELLO)).encode()
    answer = await ask(endpoint, "POST", "/", headers, hello)
    headers["mcp-session-id"] = answer.headers[b"mcp-session-id"].decode()

    async def run(data: bytes) -> None:
        answer = await ask(endpoint, "POST", "/", headers, data)
        assert answer.status < 500, (answer.status, answer.body)

    try:
        yield run
    finally:
        await endpoint.close()


@asynccontextmanager
async def mcp_attached() -> Room:
    """A server that answers hello, the list of its tools and a call with the lines of the input."""
    server = HttpServer(url="http://127.0.0.1:9/", timeout_s=5)

    async def run(data: bytes) -> None:
        lines = data.split(b"\n")
        with patch.object(attaching, "connect", lambda _server, _tail, ended: _answering(lines, ended)):
            async with AttachedTools({"outside": server}, ToolRegistry()) as tools:
                for spec in tools.specs():
                    for arguments in _ARGUMENTS:
                        tools.prepare(spec.name, arguments)
                await tools._connections[0].call("echo", {"text": "a"}, lambda stream, text: None)

    yield run


_ARGUMENTS: tuple[Any, ...] = (
    {"text": "a", "n": 1},
    {"text": "a" * 40 + "!", "n": 10**400, "a" * 40 + "!": 1},
    [],
)
_ANSWERED = ("initialize", "tools/list", "tools/call")


@asynccontextmanager
async def _answering(lines: Sequence[bytes], ended: asyncio.Event) -> AsyncGenerator[Any]:
    sending, reading = anyio.create_memory_object_stream[Any](100)
    writing, asked = anyio.create_memory_object_stream[Any](100)

    async def serve() -> None:
        async with sending:
            async for message in asked:
                sent = message.message.model_dump(by_alias=True)
                if "id" in sent and not await _respond(sending, lines, sent):
                    return

    serving = asyncio.create_task(serve())
    try:
        async with reading, writing, asked:
            yield _Watched(reading, ended), writing
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def _respond(sending: Any, lines: Sequence[bytes], sent: Any) -> bool:
    """Send the line for a request. Return whether it is an answer; a client would wait for another in vain."""
    if sent["method"] not in _ANSWERED:
        error = {"code": -32601, "message": "no such method"}
        await sending.send(
            _message(json.dumps({"jsonrpc": "2.0", "id": sent["id"], "error": error}).encode())
        )
        return True
    number = _ANSWERED.index(sent["method"])
    line = lines[number].decode("utf-8", "replace") if number < len(lines) else ""
    try:
        answer = json.loads(line)
        line = json.dumps(answer | {"id": sent["id"]})
    except (ValueError, TypeError, RecursionError):
        answer = None
    parsed = _message(line.encode())
    await sending.send(parsed)
    if sent["method"] == "tools/call":
        for more in lines[number + 1 :]:
            await sending.send(_message(more))
    return answer is not None and not isinstance(parsed, Exception) and not hasattr(parsed.message, "method")
