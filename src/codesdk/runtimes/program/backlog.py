"""What a program has not read of our answers yet: bounded, so that one that only asks cannot fill our memory.

Answers are written without a wait, because whoever gives them must not be held up. The reader of the program's output
waits here before it takes the next question.
"""

import asyncio

MAX_BACKLOG_BYTES = 1024 * 1024
"""How much a program may leave unread before nothing more is taken from it."""
UNREAD_S = 30.0
"""A program that then reads nothing for so long hangs."""


class Unread(Exception):
    """A program asks, and does not read what it is answered. The message says so, as the rest of a sentence."""


def is_behind(writer: asyncio.StreamWriter) -> bool:
    """Return whether more waits to be read than a program may leave unread."""
    return writer.transport.get_write_buffer_size() > MAX_BACKLOG_BYTES


async def catch_up(writer: asyncio.StreamWriter) -> None:
    """Wait until the program has read what it was answered. Raise `Unread` if it does not."""
    try:
        async with asyncio.timeout(UNREAD_S):
            await writer.drain()
    except TimeoutError:
        raise Unread(f"asks without end and has read no answer for {UNREAD_S:g} s") from None
    except (OSError, RuntimeError):
        pass  # it is gone, and its output says so
