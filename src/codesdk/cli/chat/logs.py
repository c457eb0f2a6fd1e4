"""Warnings that a library logs → remarks in the chat: written to the terminal beside it, they would tear the picture."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator


class _Remarks(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Show it. Logs come from any thread, and from a loop that may be over."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._say, f"{record.name}: {record.getMessage()}")


@contextlib.contextmanager
def remarks(say: Callable[[str], None]) -> Generator[None]:
    """Show warnings while the block runs."""
    handler, root = _Remarks(say), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
