"""Whoever waits for something to happen → woken when it does.

In place of an `asyncio.Event` where each session would have one: that holds a queue of 700 bytes even while nobody
waits.
"""

import asyncio


class Waiters:
    """Those who wait for the next time. Nobody is told of earlier ones, so look before you wait."""

    __slots__ = ("_woken",)

    def __init__(self) -> None:
        self._woken: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until `wake` is called."""
        if self._woken is None:
            self._woken = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._woken)  # one who gives up must not take the others with him

    def wake(self) -> None:
        """Wake all who wait now."""
        woken, self._woken = self._woken, None
        if woken is not None:
            woken.set_result(None)
