"""`EngineService`: an engine as one caller sees it. Implements `SessionService` in this process."""

from collections.abc import AsyncGenerator
from typing import TypeVar

from codesdk.contract.actions import Action, Caller
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.service import Published
from codesdk.engine.engine import Engine
from codesdk.engine.log.archive import Archive

R = TypeVar("R")


class EngineService(Archive):
    """Reads as the caller's principal, and acts as the caller."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(engine.ports.log, engine.ports.blobs, caller.principal)
        self._engine = engine
        self._caller = caller

    async def execute(self, action: Action[R], *, key: str | None = None) -> R:
        """Carry out an action, once per idempotency key, and return its result."""
        return await self._engine.execute(action, self._caller, key)

    def follow(self, session_id: str, after_seq: int = 0) -> AsyncGenerator[list[Published]]:
        """Yield batches of events after a seq, stored ones first, then live ones, without gap or repeat."""
        return self._engine.follow(session_id, after_seq, principal=self._caller.principal)

    async def put_artifact(
        self, data: bytes, content_type: str, name: str | None = None, *, key: str | None = None
    ) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self._engine.put_artifact(
            data, content_type, name, principal=self._caller.principal, key=key
        )
