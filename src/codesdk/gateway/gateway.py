"""The gateway as the SDK holds it: empty until a runtime needs a model, then a `SessionGateway`.

Server and client libraries are slow to import, so that happens on first use, in a thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from codesdk.contract.models import InstructionSources, LoginKind, ModelAccess, ModelTap, Payer
from codesdk.contract.ownership import DEFAULT_RULES, WireRules
from codesdk.contract.settings import GatewayMode
from codesdk.contract.workspace import Workspace
from codesdk.gateway.providers import ORIGINS, Accounts
from codesdk.gateway.wires.exchange import Wire

if TYPE_CHECKING:
    from codesdk.gateway.sessions import SessionGateway, Source

_PLAYED = {
    "scripted": ModelAccess(kind="played", label="a script is played; no key is needed"),
    "replay": ModelAccess(kind="played", label="a recording is replayed; no key is needed"),
}


class GatewayService:
    """Implements `ModelEndpoints`. `accounts` say where requests are forwarded to, and with which keys."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self._accounts = accounts or Accounts()
        self._sources: dict[str, Any] = {}
        self._gateway: SessionGateway | None = None
        self._opening = asyncio.Lock()

    def choose(self, session_id: str, source: "Source") -> None:
        """Set what a session plays, from the beginning. Its settings must have the matching mode."""
        self._sources[session_id] = source
        if self._gateway is not None:
            self._gateway.restart(session_id)

    def plays(self, session_id: str) -> bool:
        """Return whether it was set what a session plays."""
        return session_id in self._sources

    def problems(self, session_id: str) -> Sequence[str]:
        """Return the mismatches between a session's requests and what it plays."""
        return () if self._gateway is None else self._gateway.problems(session_id)

    def access(self, payer: Payer, mode: GatewayMode) -> Mapping[Wire, ModelAccess]:
        """Return how a payer's requests of each format would be answered now."""
        if mode in ("passthrough", "record"):
            return self._accounts.access(payer)
        return dict.fromkeys(ORIGINS, _PLAYED[mode])

    async def open(
        self,
        session_id: str,
        token: str,
        tap: ModelTap,
        mode: GatewayMode,
        workspace: Workspace,
        sources: InstructionSources,
        payer: Payer,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        """Serve a session under a token. Return the base URL for its runtime."""
        gateway = await self._use()
        return gateway.open(session_id, token, tap, mode, workspace, sources, payer, login, rules)

    async def close(self, session_id: str) -> None:
        """Revoke a session's URL."""
        if self._gateway is not None:
            self._gateway.close(session_id)

    async def aclose(self) -> None:
        """Stop everything."""
        if self._gateway is not None:
            await self._gateway.aclose()

    async def _use(self) -> "SessionGateway":
        async with self._opening:  # sessions may open at once while the import runs
            if self._gateway is None:
                module = await asyncio.to_thread(import_module, "codesdk.gateway.sessions")
                gateway: SessionGateway = await module.start_gateway(self._accounts, self._sources)
                self._gateway = gateway
            return self._gateway
