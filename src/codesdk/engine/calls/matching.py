"""Matches a call that a runtime announced in its stream with the same call requested over MCP or asked about.

A request or question waits a moment for its announcement, because only that says where in the model's message
the call belongs; without one it opens the attempt itself, and the announcement is recorded when it comes: a busy
agent may tell of a call long after it was made. They match by the runtime's id where both have it, else by name
and input, in order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain

from codesdk.contract.tools import ToolIdentity
from codesdk.engine.calls.inputs import Arrival, LiveCall

JOIN_S = 0.25


_Key = tuple[str, ...]
"""What a call is known by: its origin, and the runtime's id, or else its name and its input's hash."""


class Matching:
    """The calls of one task that only one side has seen so far."""

    def __init__(self) -> None:
        self._announced: dict[LiveCall, Arrival] = {}
        # The same by the runtime's id, so that finding one of thousands does not look at all.
        self._by_id: dict[str | None, dict[LiveCall, None]] = {}
        self._waiting: list[tuple[Arrival, asyncio.Future[LiveCall]]] = []
        self.early: dict[_Key, list[asyncio.Future[ToolIdentity | None]]] = {}
        """The attempts of requests and questions that did not wait any longer; None for one whose opening failed."""

    def announce(self, arrival: Arrival, call: LiveCall) -> None:
        """Add a call from the stream whose attempt was just opened."""
        for wanted, met in self._waiting:
            if not met.done() and _match(wanted, arrival):
                met.set_result(call)
                return
        self._announced[call] = arrival
        self._by_id.setdefault(arrival.item.runtime_tool_call_id, {})[call] = None

    async def take_early(self, arrival: Arrival) -> ToolIdentity | None:
        """Return the attempt that was opened before this, its announcement; None if there is none."""
        keys = (_key(arrival, arrival.item.runtime_tool_call_id), _key(arrival, None))
        key = next((key for key in keys if key in self.early), None)
        if key is None:
            return None
        opened = self.early[key][0]
        self._forget_early(key, opened)
        return await opened

    async def meet(self, arrival: Arrival) -> LiveCall | None:
        """Return the announced call that matches, waiting a moment for it; None if none was announced so far."""
        runtime_id = arrival.item.runtime_tool_call_id
        alike = (
            self._announced if runtime_id is None else chain(self._with_id(runtime_id), self._with_id(None))
        )
        for call in alike:
            if _match(arrival, self._announced[call]):
                self._forget(call)
                return call
        waiter = (arrival, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await asyncio.wait([waiter[1]], timeout=JOIN_S)
        finally:
            self._waiting.remove(waiter)
        return waiter[1].result() if waiter[1].done() else None

    async def open_early(
        self, arrival: Arrival, opening: Callable[[Arrival], Awaitable[LiveCall]]
    ) -> LiveCall:
        """Open a call without its announcement, which may come even while that lasts."""
        opened: asyncio.Future[ToolIdentity | None] = asyncio.get_running_loop().create_future()
        key = _key(arrival, arrival.item.runtime_tool_call_id)
        self.early.setdefault(key, []).append(opened)
        try:
            call = await opening(arrival)
            opened.set_result(call.state.identity)
        finally:
            if not opened.done():
                opened.set_result(None)
                self._forget_early(key, opened)
        return call

    def take_unmet(self, runtime_id: str | None = None) -> list[LiveCall]:
        """Return and forget the announced calls that were never made, or only those with this id."""
        unmet = list(self._announced if runtime_id is None else self._with_id(runtime_id))
        for call in unmet:
            self._forget(call)
        return unmet

    def _with_id(self, runtime_id: str | None) -> Iterable[LiveCall]:
        return self._by_id.get(runtime_id, ())

    def _forget(self, call: LiveCall) -> None:
        runtime_id = self._announced.pop(call).item.runtime_tool_call_id
        del self._by_id[runtime_id][call]
        if not self._by_id[runtime_id]:
            del self._by_id[runtime_id]

    def _forget_early(self, key: _Key, opened: "asyncio.Future[ToolIdentity | None]") -> None:
        known = self.early.get(key, [])
        if opened in known:  # else it was announced meanwhile
            known.remove(opened)
        if not known:
            self.early.pop(key, None)


def _key(arrival: Arrival, runtime_id: str | None) -> _Key:
    if runtime_id is not None:
        return arrival.origin, runtime_id
    return arrival.origin, arrival.name, arrival.input.digest


def _match(wanted: Arrival, announced: Arrival) -> bool:
    if wanted.origin != announced.origin:
        return False
    ids = (wanted.item.runtime_tool_call_id, announced.item.runtime_tool_call_id)
    same_input = wanted.input.digest == announced.input.digest
    if None in ids:
        return same_input and wanted.name == announced.name
    # A question about another input matches, too: the announced call will not run.
    return ids[0] == ids[1] and (same_input or wanted.origin == "native")
