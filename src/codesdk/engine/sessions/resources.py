"""What a session holds outside the engine: its runtime, the URLs it gave it, its attached MCP servers.

Each is opened when first needed, and all are released within the grace period of a stop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import ToolCalls, ToolRunner
from codesdk.contract.runtime import Runtime
from codesdk.engine.models.spending import Spending
from codesdk.engine.sessions.endpoints import SessionEndpoints
from codesdk.engine.sessions.scope import SessionScope


class Resources:
    """Opens and releases what one session holds outside the engine."""

    def __init__(
        self,
        scope: SessionScope,
        find_runtime: Callable[[str], Runtime],
        spending: Spending,
        tool_calls: ToolCalls,
    ) -> None:
        self._scope = scope
        self._find_runtime = find_runtime
        self._spending = spending
        self._tool_calls = tool_calls
        self._endpoints: SessionEndpoints | None = None
        self._runtime: Runtime | None = None
        self._detach: Callable[[], Awaitable[None]] | None = None

    @property
    def connected(self) -> bool:
        """Whether a runtime may be using a URL of this session, even between tasks."""
        return self._detach is not None or (self._endpoints is not None and self._endpoints.open)

    @property
    def runtime(self) -> Runtime:
        """The runtime that the session's tasks run on."""
        if self._runtime is None:
            self._runtime = self._find_runtime(self._scope.state.runtime_name)
        return self._runtime

    @property
    def endpoints(self) -> SessionEndpoints:
        """The URLs that the session gives its runtime. Lazy: most sessions in memory never need any."""
        if self._endpoints is None:
            self._endpoints = SessionEndpoints(self._scope, self._spending, self._tool_calls)
        return self._endpoints

    def capabilities(self) -> Capabilities:
        """Return what the runtime can do."""
        return self.runtime.capabilities()

    def use(self, runtime: Runtime) -> None:
        """Run on another runtime from now on. The caller has already released the previous one."""
        self._runtime = runtime

    async def attach(self, tools: ToolRunner, close: Callable[[], Awaitable[None]]) -> None:
        """Offer these tools from the next task on, replacing earlier ones. `close` ends their servers."""
        detach, self._detach = self._detach, close
        self._scope.attached = tools
        if detach is not None:
            await detach()

    async def detach(self) -> None:
        """Close the servers of the attached tools."""
        if self._detach is not None:
            detach, self._detach = self._detach, None
            await detach()

    def require_attached(self) -> None:
        """Raise `InvalidRequest` if the session uses MCP servers that are not attached."""
        scope = self._scope
        missing = scope.settings.mcp_servers if scope.attached is None else []
        if missing:
            raise InvalidRequest(
                f"The session uses the MCP servers {', '.join(missing)}, and how to reach them is not stored."
                " Open it with mcp_servers again."
            )

    async def release_runtime(self) -> None:
        """Have the runtime close its session within the grace period of a stop, and revoke its URLs."""
        try:
            await self._close_runtime()
        finally:
            if self._endpoints is not None:
                await self._endpoints.close()

    async def _close_runtime(self) -> None:
        if self._runtime is not None:
            scope = self._scope
            closing = asyncio.create_task(_let_go(self._runtime, scope.state.session_id))
            await asyncio.wait([closing], timeout=scope.settings.stop_grace_s)
            # Not awaited: a runtime that ignores its cancellation must not hold up the session.
            closing.cancel()
            if scope.ports.clean is not None:
                await asyncio.to_thread(scope.ports.clean, scope.state.session_id, scope.redactor)


async def _let_go(runtime: Runtime, session_id: str) -> None:
    """Close what a runtime keeps of a session. Its errors are dropped: other sessions must be closed, too."""
    with contextlib.suppress(Exception):
        await runtime.close_session(session_id)
