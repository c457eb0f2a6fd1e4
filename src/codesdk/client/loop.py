"""`Loop`: an event loop in its own thread, on which plain code waits for coroutines and streams."""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")
CLEANUP_S = 5.0
BATCH_ITEMS = 500
MAX_BATCHES = 4
"""How many batches may wait for a reader before the stream is paused."""


class Loop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon thread: a client that nobody closed must not keep the program from ending.
        self._thread = threading.Thread(target=self._loop.run_forever, name="codesdk-client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns. If interrupted, cancel the coroutine and wait for its end."""
        over = threading.Event()

        async def doing() -> T:
            try:
                return await work
            finally:
                over.set()

        future = asyncio.run_coroutine_threadsafe(doing(), self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C reaches the waiting thread only; the work itself goes on in the other until it is told.
            if future.cancel():
                over.wait(CLEANUP_S)
            raise

    def each(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """Yield the items of a stream as they come. Those that arrive together cross the threads together."""
        stream = _Stream(items)
        pumping = asyncio.run_coroutine_threadsafe(stream.pump(), self._loop)
        try:
            while (batch := stream.ready.get()) is not None:
                self._loop.call_soon_threadsafe(stream.taken)
                yield from batch
            pumping.result()
        finally:
            pumping.cancel()
            stream.over.wait(CLEANUP_S)

    def close(self) -> None:
        """End the thread."""
        self.wait(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Stream:
    """A stream on its way from the loop's thread to the reader's."""

    def __init__(self, items: AsyncGenerator[T]) -> None:
        self.ready: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self.over = threading.Event()
        self._items = items
        self._batch: list[Any] = []
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()

    async def pump(self) -> None:
        """Read the stream to its end, in batches of what arrives at once."""
        loop = asyncio.get_running_loop()
        try:
            async with aclosing(self._items) as items:
                async for item in items:
                    if not self._batch:
                        loop.call_soon(self._flush)  # runs when no more items are ready
                    self._batch.append(item)
                    if len(self._batch) >= BATCH_ITEMS:
                        self._flush()
                    if not self._room.is_set():
                        await self._room.wait()
        finally:
            self._flush()
            self.ready.put(None)
            self.over.set()

    def taken(self) -> None:
        """Make room for another batch."""
        self._waiting -= 1
        self._room.set()

    def _flush(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, []
            self._waiting += 1
            if self._waiting >= MAX_BATCHES:
                self._room.clear()
            self.ready.put(batch)
