"""One attached MCP server → its tools, and calls to them. Needs `mcp`: loaded at first use.

The connection lives in its own task. When the server ends, running calls fail with a clear error, and the
next call connects again.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

import mcp_types as types
import msgspec
from mcp.client.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from codesdk.contract.ports import AskUser, ToolRun, ToolSink, nobody
from codesdk.tools.mcp.transport import Tail, connect
from codesdk.tools.mcp_client.elicitation import DECLINED, elicit
from codesdk.tools.mcp_client.servers import McpServer, secrets_of
from codesdk.tools.registry import ToolError

CONNECT_S = 60.0
CLOSE_S = 10.0
RELIST_PAUSE_S = 1.0
MAX_TOOLS = 1_000
MAX_LIST_BYTES = 2 * 1024 * 1024
MAX_REPORTS = 1_000
MAX_ROUNDS = 8
"""How often a server may answer one call with questions in place of a result."""
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_MAX_WORDS = 500
_log = logging.getLogger(__name__)


class Unreachable(Exception):
    """The server could not be started or reached. The message says why, without its address."""


class Connection:
    """A named server. `tools` are those it offered last; `changed` is called when they change."""

    def __init__(self, name: str, server: McpServer, changed: Callable[[], None]) -> None:
        self.name = name
        self.server = server
        self.tools: list[types.Tool] = []
        self._changed = changed
        self._client: Client | None = None
        self._doubtful = False
        self._opening = asyncio.Lock()
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._news = asyncio.Event()
        self._asking: list[AskUser] = []
        """How to ask a person, for each running call, the latest last."""

    async def open(self) -> None:
        """Connect and list the tools, unless already connected. Raise `Unreachable`."""
        async with self._opening:
            if self._client is not None and not (self._doubtful and await self._is_dead(self._client)):
                return
            await self.close()
            self._stop.clear()
            tail, opened = Tail(), asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._own(tail, opened))
            try:
                # Shielded, because the owner task sets the future, also after the time is up.
                await asyncio.wait_for(asyncio.shield(opened), CONNECT_S)
            except TimeoutError:
                raise Unreachable(self._reason(f"it did not answer within {CONNECT_S:.0f} s", tail)) from None
            finally:
                if not opened.done() or opened.cancelled() or opened.exception() is not None:
                    self._owner.cancel()
                    await asyncio.wait([self._owner])

    async def close(self) -> None:
        """Close the connection and end the program behind it, if we started one."""
        self._stop.set()
        if self._owner is not None:
            await asyncio.wait([self._owner], timeout=CLOSE_S)
            self._owner.cancel()  # a server must not hold up the session by never letting go
            await asyncio.wait([self._owner])

    async def offer(self) -> list[types.Tool]:
        """List the tools again. Raise `Unreachable`."""
        await self.open()
        try:
            return [] if self._client is None else await _listed(self._client)
        except MCPError as error:
            self._doubtful = True
            raise Unreachable(f"{_short(error.message)}.") from None

    async def call(self, tool: str, arguments: Any, output: ToolSink, ask: AskUser = nobody) -> ToolRun:
        """Call a tool by the server's own name for it. What the server asks meanwhile goes to `ask`.

        Cancelling this tells the server. Raise `ToolError`.
        """

        reports = itertools.count(1)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if next(reports) <= MAX_REPORTS:  # each becomes an event, and a server can send millions
                output("progress", _progress(progress, total, message))

        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        self._asking.append(ask)
        try:
            result = await self.ask(params, report, ask)
        finally:
            self._asking.remove(ask)
        return ToolRun(result=_text(result), is_error=bool(result.is_error))

    async def ask(
        self,
        params: types.CallToolRequestParams,
        report: ProgressFnT | None = None,
        ask: AskUser = nobody,
    ) -> types.CallToolResult:
        """Call a tool and return the server's answer unchanged. Raise `ToolError`."""
        for _ in range(MAX_ROUNDS):
            result = await self._send(params, report)
            if isinstance(result, types.CallToolResult):
                return result
            # A server of the 2026 protocol asks by its answer, and is called again with what it asked for.
            answers = await self._answers(result, ask)
            params = params.model_copy(
                update={"input_responses": answers, "request_state": result.request_state}
            )
        raise ToolError(f"The MCP server {self.name} asked {MAX_ROUNDS} times in place of an answer.")

    async def _answers(
        self, result: types.InputRequiredResult, ask: AskUser
    ) -> dict[str, types.InputResponse]:
        answers: dict[str, types.InputResponse] = {}
        for key, request in (result.input_requests or {}).items():
            if not isinstance(request, types.ElicitRequest):
                raise ToolError(
                    f"The MCP server {self.name} asked for {request.method}, which is not offered."
                )
            answers[key] = await elicit(self.name, request.params, ask)
        if not answers:
            raise ToolError(f"The MCP server {self.name} did not say what it needs for this call.")
        return answers

    async def _elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a server of an earlier protocol, which does not say which call its question is about."""
        return await elicit(self.name, params, self._asking[-1]) if self._asking else DECLINED

    async def _send(
        self, params: types.CallToolRequestParams, report: ProgressFnT | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            await self.open()
        except Unreachable as error:
            raise ToolError(f"The MCP server {self.name} cannot be used: {error}") from None
        client = self._client
        if client is None:
            raise ToolError(f"The MCP server {self.name} ended just now. Try again.")
        try:
            return await client.session.send_request(
                types.CallToolRequest(params=params),
                _ANSWER,
                request_read_timeout_seconds=self.server.timeout_s,
                progress_callback=report,
            )
        except MCPError as error:
            raise ToolError(self._explain(error)) from None
        except ValidationError:
            raise ToolError(f"The MCP server {self.name} sent an answer that is not a tool result.") from None

    def _reason(self, what: str, tail: Tail) -> str:
        """Return why the server did not start, with the end of its stderr but without its secrets."""
        said = tail.text
        for secret in secrets_of({self.name: self.server}):
            said = said.replace(secret, "[secret]")
        return f"{what}. It wrote: {said}" if said else f"{what}."

    def _explain(self, error: MCPError) -> str:
        if error.code == types.REQUEST_TIMEOUT:
            return f"The MCP server {self.name} did not answer within {self.server.timeout_s:g} s; the call was cancelled."
        self._doubtful = True  # the next call first checks that the server is alive
        if error.code == types.CONNECTION_CLOSED:
            return (
                f"The MCP server {self.name} ended while it worked on this call. What it had done by then is not known."
                " It is started again with the next call."
            )
        return f"The MCP server {self.name} refused the call: {_short(error.message)}."

    async def _is_dead(self, client: Client) -> bool:
        """Return whether a server that failed no longer answers."""
        try:
            async with asyncio.timeout(CONNECT_S):
                await client.session.list_tools()
        except (MCPError, TimeoutError):
            return True
        self._doubtful = False
        return False

    async def _own(self, tail: Tail, opened: "asyncio.Future[None]") -> None:
        ended = asyncio.Event()
        info = types.Implementation(name="codesdk", version=version("codesdk"))
        try:
            way = connect(self.server, tail, ended)
            async with Client(
                way,
                client_info=info,
                message_handler=self._hear,
                elicitation_callback=self._elicit,
                cache=None,
            ) as client:
                self.tools = await _listed(client)
                self._client, self._doubtful = client, False
                opened.set_result(None)
                await self._tend(client, ended)
        except Exception as error:  # noqa: BLE001 - whatever a server does ends its connection only
            if not opened.done():
                opened.set_exception(Unreachable(self._reason(_words(error), tail)))
        finally:
            self._client = None

    async def _tend(self, client: Client, ended: asyncio.Event) -> None:
        """Return when the connection should end or has ended; list the tools again when they change."""
        events = {"stop": self._stop, "ended": ended, "news": self._news}
        waits = {name: asyncio.create_task(event.wait()) for name, event in events.items()}
        listening = asyncio.create_task(self._listen(client))
        try:
            while not (self._stop.is_set() or ended.is_set()):
                await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
                if self._news.is_set():
                    self._news.clear()
                    waits["news"] = asyncio.create_task(self._news.wait())
                    async with asyncio.timeout(CONNECT_S):
                        self.tools = await _listed(client)
                    self._changed()
                    # Not at once again: a server may report changes without an end.
                    ends = [waits["stop"], waits["ended"]]
                    await asyncio.wait(ends, timeout=RELIST_PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (*waits.values(), listening):
                wait.cancel()
            await asyncio.wait([listening])

    async def _listen(self, client: Client) -> None:
        """Subscribe to tool changes: a server of the 2026 protocol tells only its subscribers."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._news.set()
        except (MCPError, SubscriptionLost) as error:
            _log.info("The MCP server %s no longer reports changes to its tools: %s", self.name, error)

    async def _hear(self, message: Any) -> None:
        """Note tool changes announced by a server of an earlier protocol."""
        if isinstance(message, types.ToolListChangedNotification):
            self._news.set()


async def _listed(client: Client) -> list[types.Tool]:
    """Return a server's tools from all pages, up to a limit."""
    tools: list[types.Tool] = []
    cursor: str | None = None
    size = 0
    while len(tools) < MAX_TOOLS and size <= MAX_LIST_BYTES:
        page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            size += len(tool.model_dump_json())
            if size <= MAX_LIST_BYTES:
                tools.append(tool)
        cursor = page.next_cursor
        if not cursor or not page.tools:  # an empty page with a cursor could go on forever
            break
    return tools[:MAX_TOOLS]


def _text(result: types.CallToolResult) -> str:
    """Return a result as text for a model. Anything that is not text is named, not passed on."""
    if not result.content and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(_block(block) for block in result.content)


def _block(block: types.ContentBlock) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        return (
            resource.text
            if isinstance(resource, types.TextResourceContents)
            else f"({resource.uri}: not text)"
        )
    if isinstance(block, types.ResourceLink):
        return f"({block.name}: {block.uri})"
    return f"({block.mime_type}, {len(block.data) * 3 // 4:,} bytes: not text)"


def _progress(progress: float, total: float | None, message: str | None) -> str:
    share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{share}: {message}\n" if message else f"{share}\n"


def _short(text: str) -> str:
    return (text if len(text) <= _MAX_WORDS else text[: _MAX_WORDS - 1] + "…").rstrip(".")


def _words(error: BaseException) -> str:
    """Return what went wrong, without addresses: they may contain a secret."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, MCPError):
        return "it ended" if error.code == types.CONNECTION_CLOSED else _short(error.message)
    if isinstance(error, FileNotFoundError | PermissionError):
        return str(error.strerror or error)
    return f"connecting to it failed ({type(error).__name__})"
