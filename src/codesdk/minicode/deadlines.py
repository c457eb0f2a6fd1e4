"""Foreign code under a deadline: its result, its error, or the end of patience.

A task that ignores its cancellation is left behind after a moment, so that nobody waits for it for ever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from codesdk import foreign

GRACE_S = 5.0
T = TypeVar("T")
_log = logging.getLogger(__name__)
_left_behind: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly


class OutOfTime(Exception):
    """The time was up. Not a `TimeoutError`, which the work may raise by itself."""


async def within(timeout_s: float, work: Callable[[], Awaitable[T]], what: str) -> T:
    """Return what foreign work gives. Raise `OutOfTime` when its time is up, or whatever it raises.

    If this is cancelled, so is the work, and its end is awaited.
    """
    task = asyncio.ensure_future(foreign.call(work))
    try:
        await asyncio.wait([task], timeout=timeout_s)
    except asyncio.CancelledError:
        await _end(task, what)
        raise
    if not task.done():
        await _end(task, what)
        raise OutOfTime
    return task.result()


async def _end(task: "asyncio.Task[Any]", what: str) -> None:
    """Cancel a task and wait a moment for it."""
    task.cancel()
    try:
        await asyncio.wait([task], timeout=GRACE_S)
    finally:
        if task.done():
            _retrieve(task)
        else:
            _log.warning("%s does not end although it was cancelled; it is left behind", what)
            _left_behind.add(task)
            task.add_done_callback(_retrieve)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Look at how a task ended, or asyncio would complain that nobody did."""
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()
