"""How a program ended → the error of its task, and what programs say, short enough to read."""

import asyncio
import contextlib

from codesdk.contract.errors import TaskFailure
from codesdk.processes import Child

_LONGEST = 1_000


def shorten(message: str) -> str:
    """Return a message short enough to read: providers put whole documents there."""
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"


async def crash_of(
    child: Child, name: str, runtime: str, wait_s: float, hangs: str | None = None
) -> TaskFailure:
    """Return the error of a program that ended, with the end of its stderr. Waits a moment for its last words.

    `hangs` is why it was ended, if it was.
    """
    if hangs is not None:
        return TaskFailure(
            f"{name} {hangs}, so it was ended. Start the task again.",
            code="RUNTIME_PROTOCOL",
            retryable=True,
            runtime=runtime,
        )
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await child.wait()
    code, tail = child.exit_code, shorten(child.stderr_tail())
    how = f" with code {code}" if code is not None else ""
    words = f" It wrote: {tail}" if tail else ""
    return TaskFailure(
        f"{name} ended in the middle of its work{how}. Start the task again.{words}",
        code="RUNTIME_CRASHED",
        retryable=True,
        runtime=runtime,
        details={"exit_code": code, "stderr": tail},
    )
