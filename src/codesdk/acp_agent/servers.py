"""The MCP servers that an editor passes on → servers that a session is equipped with, as owned tools."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from codesdk.contract.errors import InvalidRequest
from codesdk.tools import HttpServer, McpServer, StdioServer

GivenServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def servers_of(given: Sequence[GivenServer] | None) -> dict[str, Any]:
    """Return servers by name, as an action carries them. Raise `InvalidRequest` for transports that we do not speak.

    Their tools are `dangerous`, as those of all servers that nobody vouches for, so they are asked about.
    """
    found: dict[str, McpServer] = {}
    for server in given or ():
        # Editors name servers as people do; in the name of a tool it must be one word.
        name = _NO_NAME.sub("-", server.name).strip("-")
        if not name or name in found:
            raise InvalidRequest(f"The MCP server {server.name[:40]!r} needs a name of its own.")
        found[name] = _server(server)
    return {name: msgspec.to_builtins(server) for name, server in found.items()}


def _server(given: GivenServer) -> McpServer:
    match given:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in given.env}
            return StdioServer(command=given.command, args=tuple(given.args), env=env)
        case HttpMcpServer():
            return HttpServer(url=given.url, headers={header.name: header.value for header in given.headers})
        case _:
            raise InvalidRequest(
                f"The MCP server {given.name[:40]!r} is reached over {given.type}. Give it as a command or over http."
            )
