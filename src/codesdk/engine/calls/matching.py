"""Where a call that a runtime announced in its stream meets the same call coming through the gate.

Whichever comes first opens the attempt; the gate waits a moment for the announcement, because only
that says where in the model's message the call belongs. They are matched by the runtime's id where
the gate is told it, else by name and input, in order. Used by `calls`.
"""

import asyncio

import msgspec

from codesdk.engine.log.state import CallState

JOIN_S = 0.25


class Announced(msgspec.Struct):
    """A call seen in the stream whose attempt is open, waiting to come through the gate."""

    call: CallState
    runtime_id: str | None
    name: str
    digest: str


class _Waiter(msgspec.Struct):
    """A call that came through the gate and waits for its announcement."""

    runtime_id: str | None
    name: str
    digest: str
    met: asyncio.Future[CallState]


class Meetings:
    """The calls of one task that one side has seen and the other has not."""

    def __init__(self) -> None:
        self._announced: list[Announced] = []
        self._waiting: list[_Waiter] = []
        self._alone: list[tuple[str | None, str, str]] = []

    def announce(self, entry: Announced) -> None:
        """Take a call from the stream whose attempt was just opened."""
        for waiter in self._waiting:
            if not waiter.met.done() and _match(waiter.runtime_id, waiter.name, waiter.digest, entry):
                waiter.met.set_result(entry.call)
                return
        self._announced.append(entry)

    def is_late(self, runtime_id: str | None, name: str, digest: str) -> bool:
        """Tell whether the gate opened this call already, because its announcement took too long. Asked once for each."""
        for known in self._alone:
            same_id = runtime_id is not None and known[0] == runtime_id
            if same_id or (known[0] is None and known[1:] == (name, digest)):
                self._alone.remove(known)
                return True
        return False

    async def meet(self, runtime_id: str | None, name: str, digest: str) -> CallState | None:
        """Return the attempt that was opened for a call from the gate, waiting a moment for it; None if there is none."""
        entry = next((e for e in self._announced if _match(runtime_id, name, digest, e)), None)
        if entry is not None:
            self._announced.remove(entry)
            return entry.call
        waiter = _Waiter(runtime_id, name, digest, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await asyncio.wait([waiter.met], timeout=JOIN_S)
        finally:
            self._waiting.remove(waiter)
        if waiter.met.done():
            return waiter.met.result()
        self._alone.append((runtime_id, name, digest))
        return None

    def take_unmet(self, runtime_id: str | None = None) -> list[CallState]:
        """Return the announced calls that never came through the gate, or the one with an id, and forget them."""
        unmet = [e for e in self._announced if runtime_id is None or e.runtime_id == runtime_id]
        self._announced = [e for e in self._announced if e not in unmet]
        return [entry.call for entry in unmet]


def _match(runtime_id: str | None, name: str, digest: str, entry: Announced) -> bool:
    if runtime_id is not None and entry.runtime_id is not None:
        return runtime_id == entry.runtime_id and digest == entry.digest
    return (name, digest) == (entry.name, entry.digest)
