"""Code that is not CodeSDK's: adapters, tools, policies, observers, equippers. Whatever it raises becomes an error.

asyncio passes `SystemExit` and `KeyboardInterrupt` on through the loop once they leave a task, which would end the
process for every session. So they are caught where foreign code is called, inside the task that calls it. A real
Ctrl-C does not come this way: `asyncio.Runner` cancels the main task instead of raising.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ForeignCrash(RuntimeError):
    """Foreign code raised what is meant to end a process, a generator or a task."""


class Contained:
    """`with Contained():` around foreign code. Whatever leaves it is an `Exception` or a requested cancellation."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            return
        if isinstance(error, asyncio.CancelledError):
            if _is_cancelled():
                return
            raise ForeignCrash("it was cancelled from inside") from error
        raise ForeignCrash(name_of(error)) from error


async def call(method: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """Call a foreign method, contained, so that even what it raises before its first await is raised here."""
    with Contained():
        return await method(*args, **options)


def name_of(error: BaseException) -> str:
    """Return an error as one line of text."""
    if isinstance(error, ForeignCrash):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _is_cancelled() -> bool:
    """Return whether somebody asked for the cancellation of the current task."""
    try:
        here = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return False
    return here is not None and here.cancelling() > 0
