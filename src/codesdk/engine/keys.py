"""Idempotency keys: the same request under the same key is carried out once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from codesdk.contract.canonical import hash_json
from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.ports import EventLog
from codesdk.contract.records import KeyRow


class Keys:
    """Keys per (principal, route, key). `act` commits the row it is given with its effect."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._busy: dict[tuple[str, str, str], asyncio.Future[str]] = {}

    async def once(
        self,
        principal: str,
        route: str,
        key: str | None,
        body: Any,
        act: Callable[[KeyRow | None], Awaitable[str]],
    ) -> str:
        """Return the first answer under this key, or act. Another body under it is a `Conflict`."""
        if key is None:
            return await act(None)
        slot = (principal, route, key)
        while slot in self._busy:
            await asyncio.wait([self._busy[slot]])
        try:
            key.encode()
            digest = hash_json(body)
        except ValueError as error:
            raise InvalidRequest(f"The request or its idempotency key cannot be stored: {error}.") from None
        row = KeyRow(principal=principal, route=route, key=key, body_hash=digest, answer=None)
        doing = asyncio.ensure_future(self._answer(row, act))
        self._busy[slot] = doing
        doing.add_done_callback(lambda _: self._busy.pop(slot, None))
        return await asyncio.shield(doing)  # a caller may go away; what it asked for is done all the same

    async def _answer(self, row: KeyRow, act: Callable[[KeyRow | None], Awaitable[str]]) -> str:
        found = await self._log.key(row.principal, row.route, row.key)
        if found is None:
            return await act(row)
        if found.body_hash != row.body_hash:
            raise Conflict(f"The idempotency key {row.key!r} was used for another request.")
        return str(found.answer)
