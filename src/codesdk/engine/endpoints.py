"""The addresses that a session gives its runtime, each with a token of its own, open while the session is loaded.

Made when a runtime first asks for one. A token is a secret of the session from then on.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping

from codesdk.contract.errors import TaskFailure
from codesdk.engine.budgets import Standing, find_near, is_asked
from codesdk.engine.purses import Purses
from codesdk.engine.scope import Ports, SessionScope
from codesdk.engine.tap import Halt, SessionTap


class SessionEndpoints:
    """The way from one session's runtime to a model."""

    def __init__(
        self,
        ports: Ports,
        scope: Callable[[], SessionScope],
        purses: Purses,
        halt: Halt,
        learn: Callable[[str], None],
    ) -> None:
        self.tap = SessionTap(scope, purses, halt)
        self._ports = ports
        self._scope = scope
        self._purses = purses
        self._learn = learn
        self._model_url: str | None = None
        self._opening = asyncio.Lock()

    def near_budget(self) -> Standing | None:
        """Return a budget that is nearly used up, and that nobody has been asked to raise."""
        state = self._scope().state
        standing = find_near(state, self._purses.standing(state.principal))
        return None if standing is None or is_asked(state, standing.level) else standing

    @property
    def open(self) -> bool:
        """Whether a runtime may still be using an address."""
        return self._model_url is not None

    async def model_url(self, folders: Mapping[str, str]) -> str:
        """Return the address that the runtime talks to in place of a provider."""
        door, scope = self._ports.models, self._scope()
        if door is None:
            raise TaskFailure(
                "This runtime needs the model gateway, and there is none here.", code="RUNTIME_UNAVAILABLE"
            )
        async with self._opening:
            if self._model_url is None:
                await self._purses.load(scope.state.principal)
                token = secrets.token_urlsafe(24)
                self._learn(token)
                self._model_url = await door.open(
                    scope.state.session_id,
                    token,
                    self.tap,
                    scope.settings.gateway,
                    scope.state.config.workspace,
                    folders,
                )
        return self._model_url

    async def close(self) -> None:
        """Take the addresses back."""
        if self._model_url is not None and self._ports.models is not None:
            self._model_url = None
            await self._ports.models.close(self._scope().state.session_id)
