"""Idempotency keys: the same request under the same key is carried out once, even across a restart."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from codesdk.contract.canonical import content_hash, hash_json
from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.ports import EventLog
from codesdk.contract.records import KeyRow
from codesdk.contract.validation import is_long

KEEP_PASSING = 10_000

Slot = tuple[str, str, str]


class Keys:
    """Keys per (principal, route, key); only hashes are kept. `act` commits its row with its effect."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._busy: dict[Slot, asyncio.Future[Any]] = {}
        self._passing: OrderedDict[Slot, KeyRow] = OrderedDict()

    async def once(
        self,
        principal: str,
        route: str,
        key: str | None,
        body: Any,
        act: Callable[[KeyRow | None], Awaitable[Any]],
        *,
        passing: bool = False,
    ) -> Any:
        """Return the answer stored under this key, or act. Raise `Conflict` for another body under it.

        With `passing`, the key is only remembered in memory: its effect does not outlive the process either.
        """
        if key is None:
            return await act(None)
        try:
            hashed = await asyncio.to_thread(hash_json, body) if is_long(body) else hash_json(body)
            row = KeyRow(
                principal=principal,
                route=route,
                key=content_hash(key.encode()),
                body_hash=hashed,
                answer=None,
            )
        # Half of a surrogate pair, or a value that is not JSON, has no hash.
        except ValueError as error:
            raise InvalidRequest(f"The request or its idempotency key cannot be stored: {error}.") from None
        slot = (principal, route, row.key)
        # The same key at the same time waits here, then finds the stored answer. A loop: another waiter
        # may have been faster.
        while slot in self._busy:
            await asyncio.wait([self._busy[slot]])
        doing = asyncio.ensure_future(self._answer(row, act, passing))
        self._busy[slot] = doing
        doing.add_done_callback(lambda _: self._busy.pop(slot, None))
        return await asyncio.shield(doing)  # if the caller disconnects, the request is still carried out

    async def _answer(
        self, row: KeyRow, act: Callable[[KeyRow | None], Awaitable[Any]], passing: bool
    ) -> Any:
        slot = (row.principal, row.route, row.key)
        found = self._passing.get(slot) if passing else await self._log.key(*slot)
        if found is None:
            answer = await act(None if passing else row)
            if passing:
                self._remember(slot, msgspec.structs.replace(row, answer=answer))
            return answer
        if found.body_hash != row.body_hash:
            raise Conflict("This idempotency key was used for another request. Use a new one.")
        return found.answer

    def _remember(self, slot: Slot, row: KeyRow) -> None:
        self._passing[slot] = row
        if len(self._passing) > KEEP_PASSING:
            self._passing.popitem(last=False)
