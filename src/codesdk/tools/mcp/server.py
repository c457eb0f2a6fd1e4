"""A source of tools → an MCP server that lists and calls them, whatever carries its messages.

A call may wait for a person. Meanwhile the client gets progress reports, if it asked for them. When the
client cancels the call or hangs up, the call is cancelled. Needs `mcp`: loaded at first use.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Generic, Protocol, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from codesdk.contract.errors import CodeSDKError
from codesdk.tools.names import SERVER

GONE = "codesdk.gone"
"""The key in an HTTP request's scope of the future that is done when the client hangs up."""
_log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
Report = Callable[[float], Awaitable[None]]


class ToolSource(Protocol[T]):
    """The tools of one session. `T` is what a call returns."""

    async def offer(self) -> list[types.Tool]:
        """Return the tools as MCP describes them. A `CodeSDKError` becomes an error of the protocol."""
        ...

    def call(self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]) -> "asyncio.Future[T]":
        """Start a call of a tool by the name it was offered under. Cancelling the future cancels the call.

        `marks` are the texts the client sent in `_meta`, among them the model's id for the call.
        """
        ...

    def shown(self, name: str, outcome: T) -> types.CallToolResult:
        """Return a call's outcome as an MCP result."""
        ...


class ToolServer(Generic[T]):
    """An MCP server for a source. `mcp` is the library's server, to be run over a transport."""

    def __init__(self, source: ToolSource[T], progress_s: float) -> None:
        self._source = source
        self._progress_s = progress_s
        self._calls: set[asyncio.Future[T]] = set()
        self.mcp: Server[Any] = Server(
            SERVER, version=version("codesdk"), on_list_tools=self._list, on_call_tool=self._call
        )

    async def close(self) -> None:
        """Cancel the remaining calls and wait for them. Clients are told that they were cancelled."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        try:
            return types.ListToolsResult(tools=await self._source.offer())
        except CodeSDKError as error:
            raise refusal(error.message) from None

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Wait for a call that runs on its own: `mcp` may cancel this often, a tool only once."""
        given = self._source.call(params.name, params.arguments or {}, _marks(params.meta))
        self._calls.add(given)
        given.add_done_callback(self._calls.discard)
        gone = context.request.scope.get(GONE) if context.request is not None else None
        try:
            await _attend(given, gone, context.session.report_progress, self._progress_s)
        finally:
            over = given.done()
            given.cancel()  # no effect if it is done
        if not over:
            raise refusal("The client hung up; the call was cancelled.")
        return self._outcome(given, params.name)

    def _outcome(self, given: "asyncio.Future[T]", name: str) -> types.CallToolResult:
        if given.cancelled():
            return failed(f"The call of {name} was cancelled.")
        error = given.exception()
        if error is None:
            return self._source.shown(name, given.result())
        if isinstance(error, CodeSDKError):
            return failed(error.message)
        _log.error("A call of %s over MCP failed", name, exc_info=error)
        return failed(f"The call of {name} failed unexpectedly ({type(error).__name__}).")


async def _attend(
    given: "asyncio.Future[Any]", gone: "asyncio.Future[None] | None", report: Report, every_s: float
) -> None:
    """Return when the call is over or the client is gone; until then report the elapsed seconds."""
    ends: list[asyncio.Future[Any]] = [given] if gone is None else [given, gone]
    started = time.monotonic()
    while not any(end.done() for end in ends):
        await asyncio.wait(ends, timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
        if not any(end.done() for end in ends):
            await report(round(time.monotonic() - started, 3))


def failed(message: str) -> types.CallToolResult:
    """Return an error for the model to read."""
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def refusal(message: str) -> Exception:
    """Return a protocol error, for the client."""
    from mcp.shared.exceptions import MCPError

    return MCPError(code=types.INVALID_REQUEST, message=message)


def _marks(meta: "types.RequestParamsMeta | None") -> dict[str, str]:
    texts = {key: value for key, value in (meta or {}).items() if isinstance(value, str) and value}
    texts.pop("progressToken", None)  # valid on this connection only
    return texts
