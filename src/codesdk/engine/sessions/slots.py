"""Task slots: how many tasks may run at once, in all and per runtime, first come first served."""

import asyncio
from collections import Counter
from collections.abc import Callable

from codesdk.contract.settings import Limits


class Slots:
    """Counts running tasks and wakes the sessions that wait for a slot."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, tuple[str, Callable[[], None]]] = {}
        self._empty: list[asyncio.Future[None]] = []

    @property
    def running(self) -> int:
        """How many tasks run."""
        return self._running.total()

    def take(self, runtime: str) -> bool:
        """Take a slot. Return false if none is free."""
        full = self._running.total() >= self._limits.max_tasks
        if full or self._running[runtime] >= self._limits.max_tasks_per_runtime:
            return False
        self._running[runtime] += 1
        return True

    async def emptied(self) -> None:
        """Return when no task runs any more."""
        while self.running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._empty.append(waiter)
            await waiter

    def wait(self, session_id: str, runtime: str, wake: Callable[[], None]) -> None:
        """Call `wake` once a slot for the runtime may be free. A session that asks again keeps its place."""
        self._waiting[session_id] = (runtime, wake)

    def leave(self, session_id: str) -> None:
        """Stop waiting for a slot."""
        self._waiting.pop(session_id, None)

    def give_back(self, runtime: str) -> None:
        """Return a slot, and wake the waiting sessions in order until one has taken it."""
        self._running[runtime] -= 1
        self._tell_if_empty()
        for session_id, (wanted, wake) in list(self._waiting.items()):
            if self.running >= self._limits.max_tasks:
                return
            if self._running[wanted] < self._limits.max_tasks_per_runtime:
                self._waiting.pop(session_id, None)
                wake()

    def _tell_if_empty(self) -> None:
        if not self.running:
            waiting, self._empty = self._empty, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
