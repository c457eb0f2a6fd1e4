"""Matches a call that a runtime announced in its stream with the same call requested over MCP or asked about.

A request or question waits a moment for its announcement, because only that says where in the model's message
the call belongs; without one it opens the attempt itself, and the announcement is recorded when it comes: a busy
agent may tell of a call long after it was made. They match by the runtime's id where both have it, else by name
and input, in order.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from codesdk.contract.tools import ToolIdentity, ToolOrigin
from codesdk.engine.calls.inputs import Arrival, LiveCall

JOIN_S = 0.25


class _Early(NamedTuple):
    """A request or question that did not wait any longer. Of what it brought, only what it is known by is kept."""

    origin: ToolOrigin
    runtime_id: str | None
    name: str
    digest: str
    opened: "asyncio.Future[ToolIdentity | None]"
    """The attempt; None if its opening failed."""


class Matching:
    """The calls of one task that only one side has seen so far."""

    def __init__(self) -> None:
        self._announced: list[tuple[Arrival, LiveCall]] = []
        self._waiting: list[tuple[Arrival, asyncio.Future[LiveCall]]] = []
        self.early: list[_Early] = []

    def announce(self, arrival: Arrival, call: LiveCall) -> None:
        """Add a call from the stream whose attempt was just opened."""
        for wanted, met in self._waiting:
            if not met.done() and _match(wanted, arrival):
                met.set_result(call)
                return
        self._announced.append((arrival, call))

    async def take_early(self, arrival: Arrival) -> ToolIdentity | None:
        """Return the attempt that was opened before this, its announcement; None if there is none."""
        name, digest = arrival.name, arrival.input.digest
        for known in self.early:
            by_id = known.runtime_id is not None
            same = (
                known.runtime_id == arrival.item.runtime_tool_call_id
                if by_id
                else (known.name, known.digest) == (name, digest)
            )
            if same and known.origin == arrival.origin:
                self.early.remove(known)
                return await known.opened
        return None

    async def meet(self, arrival: Arrival) -> LiveCall | None:
        """Return the announced call that matches, waiting a moment for it; None if none was announced so far."""
        for entry in self._announced:
            if _match(arrival, entry[0]):
                self._announced.remove(entry)
                return entry[1]
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
        runtime_id = arrival.item.runtime_tool_call_id
        self.early.append(_Early(arrival.origin, runtime_id, arrival.name, arrival.input.digest, opened))
        try:
            call = await opening(arrival)
            opened.set_result(call.state.identity)
        finally:
            if not opened.done():
                opened.set_result(None)
                self.early = [known for known in self.early if known.opened is not opened]
        return call

    def take_unmet(self, runtime_id: str | None = None) -> list[LiveCall]:
        """Return and forget the announced calls that were never made, or only the one with this id."""
        unmet: list[LiveCall] = []
        announced, self._announced = self._announced, []
        for entry in announced:
            if runtime_id is None or entry[0].item.runtime_tool_call_id == runtime_id:
                unmet.append(entry[1])
            else:
                self._announced.append(entry)
        return unmet


def _match(wanted: Arrival, announced: Arrival) -> bool:
    if wanted.origin != announced.origin:
        return False
    ids = (wanted.item.runtime_tool_call_id, announced.item.runtime_tool_call_id)
    same_input = wanted.input.digest == announced.input.digest
    if None in ids:
        return same_input and wanted.name == announced.name
    # A question about another input matches, too: the announced call will not run.
    return ids[0] == ids[1] and (same_input or wanted.origin == "native")
