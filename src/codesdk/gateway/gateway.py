"""The gateway as the SDK holds it: nothing until the first runtime asks for a model, then `sessions.SessionGateway`.

Server and client libraries take a while to import, so that happens then, in a thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from codesdk.contract.models import InstructionSources, ModelTap
from codesdk.contract.settings import GatewayMode
from codesdk.gateway.providers import Provider
from codesdk.gateway.wires.exchange import Wire

if TYPE_CHECKING:
    from codesdk.gateway.sessions import SessionGateway, Source


class GatewayService:
    """Implements `ModelEndpoints`. `providers` are where requests are passed on to, with the keys that are put in."""

    def __init__(self, providers: Mapping[Wire, Provider] | None = None) -> None:
        self._providers = providers
        self._sources: dict[str, Any] = {}
        self._gateway: SessionGateway | None = None
        self._opening = asyncio.Lock()

    def choose(self, session_id: str, source: "Source") -> None:
        """Say what a scripted or replayed session plays."""
        self._sources[session_id] = source
        if self._gateway is not None:
            self._gateway.choose(session_id, source)

    def problems(self, session_id: str) -> Sequence[str]:
        """Return what did not fit between a session's requests and what it plays."""
        return () if self._gateway is None else self._gateway.problems(session_id)

    async def open(
        self,
        session_id: str,
        token: str,
        tap: ModelTap,
        mode: GatewayMode,
        workspace: str,
        sources: InstructionSources,
    ) -> str:
        """Let a session in under a token. Return the base URL that its runtime is pointed at."""
        gateway = await self._use()
        return await gateway.open(session_id, token, tap, mode, workspace, sources)

    async def close(self, session_id: str) -> None:
        """Take a session's URL back."""
        if self._gateway is not None:
            await self._gateway.close(session_id)

    async def aclose(self) -> None:
        """Stop everything."""
        if self._gateway is not None:
            await self._gateway.aclose()

    async def _use(self) -> "SessionGateway":
        async with self._opening:
            if self._gateway is None:
                module = await asyncio.to_thread(import_module, "codesdk.gateway.sessions")
                gateway: SessionGateway = module.SessionGateway(self._providers)
                for session_id, source in self._sources.items():
                    gateway.choose(session_id, source)
                self._gateway = gateway
            return self._gateway
