"""A source of tools → an MCP server that lists and calls them, whatever carries its messages.

A call may wait for a person. Meanwhile the client is told that it goes on, if it asked for progress, and when the
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
"""Where the scope of an HTTP request has the future that is done when the client hangs up."""
_log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
Report = Callable[[float], Awaitable[None]]


class ToolSource(Protocol[T]):
    """Where the tools of one session are. `T` is what a call of one gives back."""

    async def offer(self) -> list[types.Tool]:
        """Return the tools as MCP describes them. A `CodeSDKError` becomes an error of the protocol."""
        ...

    def call(self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]) -> "asyncio.Future[T]":
        """Begin a call of a tool by the name it was offered under. Cancelling the future takes the call back.

        `marks` are the texts that the client sent along in `_meta`, among them the id that the model gave the call.
        """
        ...

    def shown(self, name: str, outcome: T) -> types.CallToolResult:
        """Return what a call gave back as MCP has it."""
        ...


class ToolServer(Generic[T]):
    """An MCP server for a source. `mcp` is the server itself, to be run over some transport."""

    def __init__(self, source: ToolSource[T], progress_s: float) -> None:
        self._source = source
        self._progress_s = progress_s
        self._calls: set[asyncio.Future[T]] = set()
        self.mcp: Server[Any] = Server(
            SERVER, version=version("codesdk"), on_list_tools=self._list, on_call_tool=self._call
        )

    async def close(self) -> None:
        """Take back the calls that are left; return when those that run here have ended. Clients read that they were cancelled."""
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
        """Wait for a call that goes on by itself: `mcp` cancels this again and again, a tool is to be cancelled once."""
        given = self._source.call(params.name, params.arguments or {}, _marks(params.meta))
        self._calls.add(given)
        given.add_done_callback(self._calls.discard)
        gone = context.request.scope.get(GONE) if context.request is not None else None
        try:
            await _attend(given, gone, context.session.report_progress, self._progress_s)
        finally:
            over = given.done()
            given.cancel()  # no effect on one that is done
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
    """Return when the call is over or the client is gone; report the seconds from time to time until then."""
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
    """Return an error of the protocol, for the client."""
    from mcp.shared.exceptions import MCPError

    return MCPError(code=types.INVALID_REQUEST, message=message)


def _marks(meta: "types.RequestParamsMeta | None") -> dict[str, str]:
    texts = {key: value for key, value in (meta or {}).items() if isinstance(value, str) and value}
    texts.pop("progressToken", None)  # belongs to this connection, and must not be passed on over another one
    return texts
