"""The tools of other MCP servers added to the tools already there: a `ToolRunner` on top of a `ToolRunner`.

`async with AttachedTools(servers, base) as tools`. A server's tool is named `mcp.SERVER.tool`, is dangerous
unless the operator says otherwise, and passes the same policy, log and input checks as every other tool.
"""

import asyncio
import importlib
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.ports import PreparedCall, ToolRun, ToolRunner
from codesdk.contract.tools import SandboxSummary, Subjects, ToolSpec
from codesdk.tools.mcp_client.servers import McpServer, StdioServer, check_servers, host_of
from codesdk.tools.names import by_wire_name, owned_name
from codesdk.tools.registry import Tool, ToolContext, ToolError, ToolRegistry

if TYPE_CHECKING:
    from codesdk.tools.mcp_client.connection import Connection

MAX_DESCRIPTION = 4_000
_log = logging.getLogger(__name__)


class AttachedTools:
    """Start and close it on the same loop, or use it as an async context manager."""

    def __init__(self, servers: Mapping[str, McpServer], base: ToolRunner) -> None:
        check_servers(servers)
        self._servers = dict(servers)
        self._base = base
        self._connections: list[Connection] = []
        self._attached = ToolRegistry()
        self._names: frozenset[str] = frozenset()
        # What people approve is the tool as it was first offered, so a changed one is not taken.
        self._first: dict[str, ToolSpec] = {}
        self.left_out: list[str] = []
        """The tools that are not offered, and why, in sentences."""

    async def __aenter__(self) -> "AttachedTools":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to every server. Raise `CodeSDKError`, naming the server, if one cannot be reached."""
        if not self._servers:
            return
        found = await asyncio.to_thread(importlib.import_module, "codesdk.tools.mcp_client.connection")
        self._connections = [
            found.Connection(name, server, self._collect) for name, server in self._servers.items()
        ]
        try:
            await self._open()
            self._collect()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every connection and end the programs behind them."""
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def _open(self) -> None:
        # All at once: a program may take seconds to start.
        opening = (each.open() for each in self._connections)
        opened = await asyncio.gather(*opening, return_exceptions=True)
        problems = [
            f"The MCP server {name} cannot be used: {error}"
            for name, error in zip(self._servers, opened, strict=True)
            if isinstance(error, BaseException)
        ]
        if problems:
            raise CodeSDKError(" ".join(problems), code="TOOL_FAILED", retryable=True)

    def specs(self) -> Sequence[ToolSpec]:
        return [*self._base.specs(), *self._attached.specs()]

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        return (self._attached if name in self._names else self._base).prepare(name, arguments)

    async def close_session(self, session_id: str) -> None:
        await self._base.close_session(session_id)

    def _collect(self) -> None:
        """Rebuild the tools from what the servers offer now. A tool with an invalid schema is left out."""
        taken = set(by_wire_name(spec.name for spec in self._base.specs()))
        registry, left_out = ToolRegistry(), list[str]()
        for connection in self._connections:
            for offered in connection.tools:
                name = owned_name(connection.name, offered.name, taken)
                try:
                    registry.add(self._tool(connection, name, offered))
                except ValueError as error:
                    left_out.append(f"A tool of the MCP server {connection.name} is left out: {error}.")
                    # Why is in the session's log, where secrets are taken out: the words are the server's.
                    _log.warning("A tool of the MCP server %s is left out.", connection.name)
        self._attached, self.left_out = registry, left_out
        self._names = frozenset(spec.name for spec in registry.specs())

    def _tool(self, connection: "Connection", name: str, offered: Any) -> Tool:
        """Return a server's tool as one of ours. Raise `ValueError` if it is not the one that was attached."""
        spec = _spec(connection, name, offered)
        if self._first.setdefault(name, spec) != spec:
            raise ValueError(f"{name} has changed since it was attached; attach the server again to use it")

        async def call(arguments: Any, context: ToolContext) -> ToolRun:
            if name not in self._names:  # it was, when the call was judged
                raise ToolError(
                    f"The MCP server {connection.name} no longer offers {name} as it was approved."
                )
            return await connection.call(offered.name, arguments, context.output, context.call.ask)

        server, host = connection.server, host_of(connection.server)
        return Tool(
            spec=spec,
            function=call,
            execution_env="codesdk_host" if isinstance(server, StdioServer) else "unknown",
            sandbox=SandboxSummary(network=True, timeout_ms=int(server.timeout_s * 1000)),
            subjects=lambda _: Subjects(hosts=[host] if host else []),
        )


def _spec(connection: "Connection", name: str, offered: Any) -> ToolSpec:
    server = connection.server
    description = offered.description or f"The tool {offered.name} of the MCP server {connection.name}."
    return ToolSpec(
        name=name,
        description=description[:MAX_DESCRIPTION],
        input_schema=offered.input_schema,
        tool_class=server.tool_classes.get(offered.name, server.tool_class),
    )
