"""Matches a call that a runtime announced in its stream with the same call requested over MCP or asked about.

A request or question waits a moment for its announcement, because only that says where in the model's message
the call belongs; without one it opens the attempt itself. They match by the runtime's id where both have it,
else by name and input, in order.
"""

import asyncio

from codesdk.contract.tools import ToolOrigin
from codesdk.engine.calls.inputs import Arrival, LiveCall

JOIN_S = 0.25
_Trace = tuple[ToolOrigin, str | None, str, str]
"""A call's origin, the runtime's id, its name and its input hash."""


class Matching:
    """The calls of one task that only one side has seen so far."""

    def __init__(self) -> None:
        self._announced: list[tuple[Arrival, LiveCall]] = []
        self._waiting: list[tuple[Arrival, asyncio.Future[LiveCall]]] = []
        self.alone: list[_Trace] = []
        """Requests and questions whose announcement did not come in time; what they brought is not kept."""

    def announce(self, arrival: Arrival, call: LiveCall) -> None:
        """Add a call from the stream whose attempt was just opened."""
        for wanted, met in self._waiting:
            if not met.done() and _match(wanted, arrival):
                met.set_result(call)
                return
        self._announced.append((arrival, call))

    def is_late(self, arrival: Arrival) -> bool:
        """Return whether the call was opened before its announcement, which came late. Ask once per call."""
        item, name, digest = arrival.item, arrival.name, arrival.input.digest
        for known in self.alone:
            origin, runtime_id, *rest = known
            same = rest == [name, digest] if runtime_id is None else runtime_id == item.runtime_tool_call_id
            if same and origin == arrival.origin:
                self.alone.remove(known)
                return True
        return False

    async def meet(self, arrival: Arrival) -> LiveCall | None:
        """Return the announced call that matches, waiting a moment for it; None if none was announced."""
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
        if waiter[1].done():
            return waiter[1].result()
        runtime_id = arrival.item.runtime_tool_call_id
        self.alone.append((arrival.origin, runtime_id, arrival.name, arrival.input.digest))
        return None

    def take_unmet(self, runtime_id: str | None = None) -> list[LiveCall]:
        """Return and forget the announced calls that were never made, or only the one with this id."""
        unmet = [
            entry
            for entry in self._announced
            if runtime_id is None or entry[0].item.runtime_tool_call_id == runtime_id
        ]
        self._announced = [entry for entry in self._announced if entry not in unmet]
        return [call for _, call in unmet]


def _match(wanted: Arrival, announced: Arrival) -> bool:
    if wanted.origin != announced.origin:
        return False
    ids = (wanted.item.runtime_tool_call_id, announced.item.runtime_tool_call_id)
    same_input = wanted.input.digest == announced.input.digest
    if None in ids:
        return same_input and wanted.name == announced.name
    # A question about another input matches, too: the announced call will not run.
    return ids[0] == ids[1] and (same_input or wanted.origin == "native")
