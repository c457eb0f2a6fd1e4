"""The MCP host: a loopback server that offers each session's tools at an address with the session's token.

`/m/TOKEN/mcp`, or `/mcp` with the token as a bearer, for runtimes that put addresses on their command line.
Starts with the first `admit`, in the engine's process. Whether a call may run is decided by the engine, not
here.
"""

import asyncio
import hashlib
import secrets
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.ports import ToolCalls
from codesdk.doors import load

if TYPE_CHECKING:
    from codesdk.serving import Message, Receive, Send, Serving
    from codesdk.tools.mcp.endpoint import Endpoint
    from codesdk.tools.mcp.session_tools import Heard

MAX_BODY_BYTES = 16 * 1024 * 1024
PROGRESS_S = 5.0
PREFIX, SUFFIX = "/m/", "/mcp"


class McpHost:
    """Sessions by token, and the server in front of them. Close it, or use it as an async context manager."""

    def __init__(
        self, *, port: int = 0, progress_s: float = PROGRESS_S, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._wanted_port = self._port = port
        self._progress_s = progress_s
        self._max_body_bytes = max_body_bytes
        self._endpoints: dict[bytes, Endpoint] = {}
        self._starting = asyncio.Lock()
        self._serving: Serving | None = None
        self.refused = 0

    async def __aenter__(self) -> "McpHost":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The server's address, without a token. Valid after the first `admit`."""
        return f"http://127.0.0.1:{self._port}"

    async def admit(
        self,
        session_id: str,
        calls: ToolCalls,
        client: McpClient = ANY_CLIENT,
        *,
        heard: "Heard | None" = None,
    ) -> str:
        """Serve a session. Return the URL to give its runtime as an MCP server. `heard` is told of each call's marks."""
        await self._start()
        make: type[Endpoint] = await _load("codesdk.tools.mcp.endpoint:Endpoint")
        endpoint = make(
            session_id,
            calls,
            client,
            progress_s=self._progress_s,
            max_body_bytes=self._max_body_bytes,
            heard=heard,
        )
        await endpoint.start()
        token = secrets.token_urlsafe(24)
        self._endpoints[_key(token)] = endpoint
        return f"{self.url}{PREFIX}{token}{SUFFIX}"

    async def dismiss(self, url: str) -> None:
        """Revoke a session's token. Its streams end and its calls are cancelled."""
        endpoint = self._endpoints.pop(_key(bearer(url)), None)
        if endpoint is not None:
            await endpoint.close()

    async def close(self) -> None:
        """Dismiss everyone and stop the server."""
        endpoints = list(self._endpoints.values())
        self._endpoints.clear()
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))
        if self._serving is not None:
            await self._serving.end()
            self._serving = None

    async def _start(self) -> None:
        async with self._starting:  # two sessions may be admitted at once
            if self._serving is not None:
                return
            listen = await _load("codesdk.serving:listen")
            serve: type[Serving] = await _load("codesdk.serving:Serving")
            listener: socket.socket = listen(("127.0.0.1", self._wanted_port))
            self._port = listener.getsockname()[1]
            self._serving = serve(self._handle, listener)

    async def _handle(self, scope: "Message", receive: "Receive", send: "Send") -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not self._is_local(headers):
            self.refused += 1  # a page in a browser can reach loopback, and DNS can name it
            await refuse(send, 403, "Only programs on this machine may use this address, and no web page.")
            return
        endpoint = self._endpoints.get(_key(_token(str(scope["path"]), headers)))
        if endpoint is None:
            self.refused += 1
            message = (
                "There is no session behind this address: its token is missing, wrong or no longer valid."
            )
            await refuse(send, 401, message)
            return
        await endpoint(scope, receive, send)

    def _is_local(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether the request is for this server and not from another site's page (DNS rebinding)."""
        names = [f"{name}:{self._port}".encode() for name in ("127.0.0.1", "localhost")]
        origin = headers.get(b"origin")
        return headers.get(b"host") in names and (origin is None or origin.removeprefix(b"http://") in names)


def bearer(url: str) -> str:
    """Return the token in an address from `admit`, for runtimes that send it in a header instead."""
    return url.removesuffix(SUFFIX).rpartition("/")[2]


async def _load(place: str) -> Any:
    """Return what `module:name` names and needs `mcp` or the HTTP server, without blocking the loop."""
    return await asyncio.to_thread(load, place)


async def refuse(send: "Send", status: int, message: str) -> None:
    """Answer a request that is not taken."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}
    body = msgspec.json.encode(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _token(path: str, headers: dict[bytes, bytes]) -> str:
    if path.startswith(PREFIX) and path.endswith(SUFFIX):
        return path[len(PREFIX) : -len(SUFFIX)]
    scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return given if path == SUFFIX and scheme.lower() == "bearer" else ""


def _key(token: str) -> bytes:
    """Return a token's digest. Looking up digests leaks nothing about tokens through timing."""
    return hashlib.sha256(token.encode()).digest()
