"""The asyncio tasks that work on the calls of one task: begun, waited for, and cancelled when it ends without them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class Workers:
    """Works in the background. A fault of ours in a worker goes to `on_fault`."""

    def __init__(self, on_fault: Callable[[BaseException], None]) -> None:
        self._on_fault = on_fault
        self._working: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._working)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin to work on something."""
        worker = asyncio.create_task(work)
        self._working.add(worker)
        worker.add_done_callback(self._done)
        return worker

    async def wait(self, timeout_s: float) -> None:
        """Wait until all are done, at most so long."""
        if self._working:
            await asyncio.wait(self._working, timeout=timeout_s)

    async def cancel(self, others: Iterable[asyncio.Task[Any]], timeout_s: float) -> None:
        """Cancel all that are left, and `others`; wait for them, at most so long."""
        left = [*self._working, *others]
        for worker in left:
            worker.cancel()
        if left:
            await asyncio.wait(left, timeout=timeout_s)

    def _done(self, worker: asyncio.Task[Any]) -> None:
        self._working.discard(worker)
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            self._on_fault(error)
