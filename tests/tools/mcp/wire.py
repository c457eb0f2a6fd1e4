"""A client of the MCP host that is only HTTP: what goes over the wire, byte by byte, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "wire", "version": "1"},
}


@dataclass
class Wire:
    """A connection that said hello."""

    url: str
    http: httpx2.AsyncClient
    headers: dict[str, str] = field(default_factory=lambda: dict(HEADERS))

    async def hello(self) -> httpx2.Response:
        answer = await self.http.post(self.url, json=request(0, "initialize", HELLO), headers=self.headers)
        if answer.status_code == 200:
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            await self.notify("notifications/initialized")
        return answer

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "method": method} | ({"params": params} if params else {})
        return await self.http.post(self.url, json=body, headers=self.headers)

    async def ask(self, number: int, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the whole answer: a result, or an error."""
        body = request(number, method, params or {})
        answer = await self.http.post(self.url, json=body, headers=self.headers)
        return messages(answer.text)[-1]

    def call(self, number: int, name: str, arguments: Any = None, **meta: Any) -> Any:
        """Return a stream of the call's answer, to be entered."""
        params = {"name": name, "arguments": arguments or {}} | ({"_meta": meta} if meta else {})
        body = request(number, "tools/call", params)
        return self.http.stream("POST", self.url, json=body, headers=self.headers)


def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def messages(text: str) -> list[Any]:
    """Return the messages of a stream of events, or the one of a plain answer."""
    if text.startswith("{"):
        return [msgspec.json.decode(text)]
    lines = (line.removeprefix("data: ") for line in text.split("\r\n") if line.startswith("data: "))
    return [msgspec.json.decode(line) for line in lines]


async def next_message(lines: AsyncIterator[str]) -> Any:
    """Return the next message of an open stream."""
    async for line in lines:
        if line.startswith("data: "):
            return msgspec.json.decode(line.removeprefix("data: "))
    raise AssertionError("the stream ended")


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[Wire]:
    """Connect and say hello."""
    async with httpx2.AsyncClient(timeout=60, verify=False) as http:
        found = Wire(url, http)
        assert (await found.hello()).status_code == 200
        yield found
