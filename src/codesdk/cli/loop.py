"""A coroutine → its result, on uvloop if it is installed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from codesdk.cli.view.out import Interrupted

T = TypeVar("T")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end. Raise `Interrupted` if it was cut short."""
    try:
        with asyncio.Runner(loop_factory=_factory()) as runner:
            return runner.run(main)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise Interrupted from None


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
