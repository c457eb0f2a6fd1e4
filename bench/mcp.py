"""A tool call over the MCP host against the same call made at the gate: what the protocol and the socket add.

The client is a bare HTTP connection that stays open, so that no client's library is measured, in the process of the host.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.measure import cost, in_rounds, scratch, timed_ms
from bench.table import Report
from codesdk.contract.ports import ToolInvocation
from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.tools import builtin_registry
from codesdk.tools.mcp.host import McpHost
from codesdk.tools.mcp.memory import in_memory

_AT_ONCE = 16
_INPUT = {"path": "hello.txt"}


class OpenCalls:
    """Runs the built-in tools at once: no policy, no log."""

    def __init__(self, workspace: Path) -> None:
        self._tools = builtin_registry()
        self._workspace = Workspace(str(workspace.resolve()))

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        return self._tools.specs()

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        return asyncio.ensure_future(self._run(session_id, name, arguments))

    async def _run(self, session_id: str, name: str, arguments: Any) -> ToolReply:
        call = ToolInvocation(
            session_id=session_id,
            task_id=None,
            tool_call_id="call_1",
            attempt=1,
            name=name,
            input=arguments,
            workspace=self._workspace,
        )
        run = await self._tools.run(call, lambda stream, text: None)
        return ToolReply(result=run.result, is_error=run.is_error)


class _Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str) -> None:
        self._reader, self._writer = reader, writer
        parts = urlsplit(url)
        self._head = (
            f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
            "accept: application/json, text/event-stream\r\n"
        )

    @classmethod
    async def connect(cls, url: str) -> "_Client":
        parts = urlsplit(url)
        client = cls(*await asyncio.open_connection(parts.hostname, parts.port), url)
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        head, _ = await client._post({"id": 0, "method": "initialize", "params": hello})
        session = next(line for line in head.split("\r\n") if line.lower().startswith("mcp-session-id"))
        client._head += f"{session}\r\n"
        await client._post({"method": "notifications/initialized"})
        return client

    async def call(self) -> None:
        params = {"name": "workspace_read", "arguments": _INPUT}
        _, body = await self._post({"id": 1, "method": "tools/call", "params": params})
        assert b"Hello" in body, body

    async def _post(self, message: dict[str, Any]) -> tuple[str, bytes]:
        data = msgspec.json.encode({"jsonrpc": "2.0"} | message)
        self._writer.write(f"{self._head}content-length: {len(data)}\r\n\r\n".encode() + data)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        if "transfer-encoding: chunked" not in head:
            return head, b""  # the answer to a notification
        return head, await self._reader.readuntil(b"\r\n0\r\n\r\n")

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def run(report: Report, quick: bool) -> None:
    calls = 60 if quick else 1_000
    with scratch() as path:
        (path / "hello.txt").write_text("Hello, world\n")
        tools = OpenCalls(path)
        async with McpHost() as host:
            report.progress("the library's import")
            started = time.perf_counter()
            url = await host.admit("ses_bench", tools)
            first = (time.perf_counter() - started) * 1000
            report.line(
                "first session let in", first, "ms", note="imports the library, in a thread, once per process"
            )
            report.line(
                "another session let in", await timed_ms(lambda: host.admit("ses_other", tools)), "ms"
            )
            await _compare(report, tools, url, calls)
            await _at_once(report, url, calls)


async def _compare(report: Report, tools: OpenCalls, url: str, calls: int) -> None:
    """Measure the three ways in turn, so that a bad moment of the machine hits all."""
    client = await _Client.connect(url)
    async with in_memory("ses_bench", tools) as memory:
        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "gate": lambda: tools.call("ses_bench", "workspace.read", _INPUT),
            "memory": lambda: memory.session.call_tool("workspace_read", _INPUT),
            "http": client.call,
        }
        report.progress(f"{calls:,} calls each, one after the other")
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(calls):
            for way, call in ways.items():
                times[way].append(await timed_ms(call))
    await client.close()
    at_gate = in_rounds(times["gate"], 0.5)
    report.line("workspace.read at the gate, p50", at_gate, "ms")
    for way, name in (("memory", "in memory"), ("http", "over HTTP")):
        against = ("at the gate", at_gate)
        report.line(f"{name}, p50", in_rounds(times[way], 0.5), "ms", against=against)
        report.line(f"{name}, p99", in_rounds(times[way], 0.99), "ms")


async def _at_once(report: Report, url: str, calls: int) -> None:
    clients = await asyncio.gather(*(_Client.connect(url) for _ in range(_AT_ONCE)))
    each = max(1, calls // _AT_ONCE)

    async def busy(client: _Client) -> None:
        for _ in range(each):
            await client.call()

    report.progress(f"{_AT_ONCE} clients at once")
    with cost() as spent:
        await asyncio.gather(*(busy(client) for client in clients))
    done = each * _AT_ONCE
    note = f"{spent.cpu_s / done * 1000:.2f} ms of processor time each, the client's part included"
    report.line(f"over HTTP, {_AT_ONCE} clients at once", done / spent.wall_s, "/s", note=note)
    for client in clients:
        await client.close()
