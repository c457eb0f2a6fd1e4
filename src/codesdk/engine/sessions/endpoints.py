"""The URLs that a session gives its runtime for its model and its tools, each with its own token.

Each is made when the runtime first asks for it and stays open while the session is loaded. From then on the
token is a secret of the session, redacted like any other.
"""

import asyncio
import secrets

from codesdk.contract.capabilities import Capabilities, McpTransport
from codesdk.contract.entry import McpClient
from codesdk.contract.errors import TaskFailure
from codesdk.contract.models import InstructionSources
from codesdk.contract.ports import ToolCalls
from codesdk.engine.models.limits import Standing, find_near, is_asked
from codesdk.engine.models.requests import SessionTap
from codesdk.engine.models.spending import Spending
from codesdk.engine.sessions.scope import SessionScope

TOKEN_CHARS = 24
"""A part of a URL that has at least this many characters is a token."""

SERVED: tuple[McpTransport, ...] = ("http",)
"""The MCP transports that are served here."""


def tool_transport(capabilities: Capabilities) -> McpTransport | None:
    """Return a runtime's first MCP transport that is served here, or None if it takes no tools over MCP."""
    if capabilities.tool_execution_model != "external_mcp":
        return None
    return next((transport for transport in capabilities.mcp_transports if transport in SERVED), None)


class SessionEndpoints:
    """Gives one session's runtime its way to the model and to the tools."""

    def __init__(self, scope: SessionScope, spending: Spending, tool_calls: ToolCalls) -> None:
        self.tap = SessionTap(scope, spending)
        self._scope = scope
        self._spending = spending
        self._tool_calls = tool_calls
        self._tool_url: str | None = None
        self._model_url: str | None = None
        self._opening = asyncio.Lock()

    def near_budget(self) -> Standing | None:
        """Return a budget that is nearly used up and that nobody was asked to raise yet."""
        state = self._scope.state
        standing = find_near(state, self._spending.standing(state.principal))
        return None if standing is None or is_asked(state, standing.level) else standing

    @property
    def open(self) -> bool:
        """Whether a runtime may still be using one of the URLs."""
        return self._model_url is not None or self._tool_url is not None

    async def model_url(self, sources: InstructionSources) -> str:
        """Return the URL that the runtime uses in place of the provider's."""
        door, scope = self._scope.ports.models, self._scope
        if door is None:
            raise TaskFailure(
                "This runtime needs the model gateway, and there is none here.", code="RUNTIME_UNAVAILABLE"
            )
        async with self._opening:
            if self._model_url is None:
                await self._spending.load(scope.state.principal)
                token = secrets.token_urlsafe(24)
                # Learned before anyone gets it, so that no event can hold it.
                scope.learn([token])
                self._model_url = await door.open(
                    scope.state.session_id,
                    token,
                    self.tap,
                    scope.settings.gateway,
                    scope.state.config.workspace,
                    sources,
                )
        return self._model_url

    async def tool_url(self, client: McpClient) -> str:
        """Return the URL at which the session's tools are offered over MCP."""
        host = self._scope.ports.mcp
        if host is None:
            raise TaskFailure(
                "This runtime gets its tools over MCP, and there is no MCP host here.",
                code="RUNTIME_UNAVAILABLE",
            )
        async with self._opening:
            if self._tool_url is None:
                url = await host.admit(self._scope.state.session_id, self._tool_calls, client)
                self._scope.learn([part for part in url.split("/") if len(part) >= TOKEN_CHARS])
                self._tool_url = url
        return self._tool_url

    async def close(self) -> None:
        """Revoke the URLs."""
        if self._tool_url is not None and self._scope.ports.mcp is not None:
            url, self._tool_url = self._tool_url, None
            await self._scope.ports.mcp.dismiss(url)
        if self._model_url is not None and self._scope.ports.models is not None:
            self._model_url = None
            await self._scope.ports.models.close(self._scope.state.session_id)
