"""Which request is being carried out right now, so that the events it writes can say so.

`SessionActions` says it for each action; the journal asks. Only the asyncio task that carries an action out acts
for its request: what it starts (a task's run, a server) outlives it and serves others.
"""

import asyncio
import contextlib
from collections.abc import Generator
from contextvars import ContextVar

from codesdk.contract.sender import Sender

_ACTING: ContextVar[tuple["asyncio.Task[object] | None", Sender | None]] = ContextVar(
    "codesdk_acting", default=(None, None)
)


@contextlib.contextmanager
def acting_for(sender: Sender | None) -> Generator[None]:
    """Write the events of this block, in this asyncio task, for a request; for none if it is None."""
    before = _ACTING.set((asyncio.current_task(), sender))
    try:
        yield
    finally:
        _ACTING.reset(before)


def current_sender() -> Sender | None:
    """Return the request that the running asyncio task carries out, or None."""
    task, sender = _ACTING.get()
    return sender if sender is not None and task is asyncio.current_task() else None
