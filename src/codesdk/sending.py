"""Bytes → a pipe or a socket whose other side may be gone at any moment.

On a closed transport asyncio drops what is written and fails when it is waited for; uvloop raises `RuntimeError` at
once. Which of the two happens depends on a race with the loop, so both are one error here: `ConnectionError`.
"""

import asyncio


def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write without a wait. If the other side is gone, this may raise `ConnectionError` or drop the data."""
    try:
        writer.write(data)
    except RuntimeError as error:
        raise BrokenPipeError("The other side is gone.") from error


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, and wait while the other side leaves too much unread. Raise `ConnectionError` if it is gone."""
    try:
        writer.write(data)
        await writer.drain()
    except RuntimeError as error:
        raise BrokenPipeError("The other side is gone.") from error
