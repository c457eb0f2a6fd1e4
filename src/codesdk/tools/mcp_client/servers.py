"""The MCP servers an application attaches to a session: how to reach them, and the class of their tools."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from codesdk.contract.bounds import Timeout, check_bounds
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import ToolClass

CALL_TIMEOUT_S = 300.0
MIN_SECRET_CHARS = 8


class _Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What all servers have. `tool_classes`, by the server's own tool names, overrides `tool_class`.

    A server's own description of its tools is no reason to trust them, so it does not set their class.
    """

    tool_class: ToolClass = "dangerous"
    tool_classes: dict[str, ToolClass] = {}
    timeout_s: Timeout = CALL_TIMEOUT_S

    def __repr__(self) -> str:
        """Leave out addresses, headers and environments: they hold secrets."""
        return f"{type(self).__name__}(…)"


class StdioServer(_Server, frozen=True, kw_only=True, tag="stdio"):
    """A program that speaks MCP over stdin and stdout. It runs on this machine, outside any sandbox.

    Its environment is `env` and a plain PATH, nothing else.
    """

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None


class HttpServer(_Server, frozen=True, kw_only=True, tag="http"):
    """A server at an address, over streamable HTTP. `headers` go with every request."""

    url: str
    headers: dict[str, str] = {}


McpServer = StdioServer | HttpServer


def check_servers(servers: Mapping[str, McpServer]) -> None:
    """Raise `InvalidRequest`, naming the server, if one is not valid."""
    for name, server in servers.items():
        if not name or not name.isascii() or not name.replace("_", "").replace("-", "").isalnum():
            raise InvalidRequest(f"{name!r} is not a name for an MCP server: use letters, digits, - and _.")
        try:
            check_bounds(server)
        except InvalidRequest as error:
            raise InvalidRequest(f"The MCP server {name}: {error.message}") from None
        if isinstance(server, HttpServer) and not _is_address(server.url):
            raise InvalidRequest(f"The MCP server {name} needs a url with http:// or https:// and a host.")
        # It is started through `env`, which would take a command with = in it for a variable.
        if isinstance(server, StdioServer) and (not server.command or "=" in server.command):
            raise InvalidRequest(f"The MCP server {name} needs a command, without = in it.")


def secrets_of(servers: Mapping[str, McpServer]) -> list[str]:
    """Return what must not be stored or shown: the values of headers and environments.

    The part after `Bearer` is a secret of its own. Values too short to be secrets, such as `1` or `true`,
    are left out.
    """
    found: list[str] = []
    for server in servers.values():
        for value in (server.headers if isinstance(server, HttpServer) else server.env).values():
            # `Bearer TOKEN`: the token may be written without its scheme elsewhere.
            found += [value, value.partition(" ")[2]]
    return [value for value in found if len(value) >= MIN_SECRET_CHARS]


def host_of(server: McpServer) -> str | None:
    """Return the host that calls of the server's tools talk to, if known."""
    return urlsplit(server.url).hostname if isinstance(server, HttpServer) else None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
