import asyncio
from asyncio.subprocess import PIPE
from collections.abc import Callable

import pytest
import uvloop

from codesdk.processes import exit_of
from codesdk.sending import send, write

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


async def ended_writer() -> asyncio.StreamWriter:
    """Return the stdin of a program that has ended, closed by the loop as it is in the middle of other work."""
    process = await asyncio.create_subprocess_exec("false", stdin=PIPE)
    await exit_of(process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdin.transport.is_closing()
    await asyncio.sleep(0)  # uvloop closes the handle in the next turn
    return process.stdin


@pytest.mark.parametrize("new_loop", LOOPS)
def test_sending_to_who_is_gone_is_a_broken_connection_on_every_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
):
    async def attempt() -> None:
        writer = await ended_writer()
        with pytest.raises(ConnectionError):
            await send(writer, b"hello\n")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(attempt())


def test_writing_without_a_wait_fails_the_same_way():
    async def attempt() -> None:
        writer = await ended_writer()
        with pytest.raises(ConnectionError):
            write(writer, b"hello\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attempt())
