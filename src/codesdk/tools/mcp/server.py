"""A source of tools → an MCP server that lists and calls them, whatever carries its messages.

A call may wait for a person. Meanwhile the client is told that it goes on, if it asked for progress, and when the
client cancels the call or hangs up, the call is cancelled. Needs `mcp`: loaded at first use.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Protocol

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from codesdk.contract.errors import CodeSDKError
from codesdk.tools.names import SERVER

GONE = "codesdk.gone"
"""Where the scope of an HTTP request has the event that is set when the client hangs up."""
_log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
Report = Callable[[float], Awaitable[None]]


class ToolSource(Protocol):
    """Where the tools of one session are."""

    async def offer(self) -> list[types.Tool]:
        """Return the tools as MCP describes them. A `CodeSDKError` becomes an error of the protocol."""
        ...

    async def call(
        self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]
    ) -> types.CallToolResult:
        """Call a tool by the name it was offered under. Cancelling this cancels the tool.

        `marks` are the texts that the client sent along in `_meta`, among them the id that the model gave the call.
        """
        ...


class ToolServer:
    """An MCP server for a source. `mcp` is the server itself, to be run over some transport."""

    def __init__(self, source: ToolSource, progress_s: float) -> None:
        self._source = source
        self._progress_s = progress_s
        self._calls: set[asyncio.Task[types.CallToolResult]] = set()
        self.mcp: Server[Any] = Server(
            SERVER, version=version("codesdk"), on_list_tools=self._list, on_call_tool=self._call
        )

    async def close(self) -> None:
        """Cancel what still runs and return when it has ended. Its clients read that it was cancelled."""
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
        """Run the call in a task of its own: `mcp` cancels again and again, a tool is to be cancelled once."""
        given = self._source.call(params.name, params.arguments or {}, _marks(params.meta))
        work = asyncio.create_task(given)
        self._calls.add(work)
        work.add_done_callback(self._calls.discard)
        gone = context.request.scope.get(GONE) if context.request is not None else None
        try:
            await _attend(work, gone or asyncio.Event(), context.session.report_progress, self._progress_s)
        finally:
            work.cancel()
        if not work.done():
            raise refusal("The client hung up; the call was cancelled.")
        return _outcome(work, params.name)


async def _attend(
    work: "asyncio.Task[types.CallToolResult]", gone: asyncio.Event, report: Report, every_s: float
) -> None:
    """Return when the work is done or the client is gone; report the seconds from time to time until then."""
    leaving = asyncio.create_task(gone.wait())
    started = time.monotonic()
    try:
        while not work.done() and not leaving.done():
            await asyncio.wait((work, leaving), timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not leaving.done():
                await report(round(time.monotonic() - started, 3))
    finally:
        leaving.cancel()


def _outcome(work: "asyncio.Task[types.CallToolResult]", name: str) -> types.CallToolResult:
    if work.cancelled():
        return failed(f"The call of {name} was cancelled.")
    error = work.exception()
    if error is None:
        return work.result()
    if isinstance(error, CodeSDKError):
        return failed(error.message)
    _log.error("A call of %s over MCP failed", name, exc_info=error)
    return failed(f"The call of {name} failed unexpectedly ({type(error).__name__}).")


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
