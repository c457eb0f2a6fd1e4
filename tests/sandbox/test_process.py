"""Reading pipes and watching limits, without a sandbox around."""

import asyncio
import os

import pytest

from codesdk.processes import readable
from codesdk.sandbox import process
from codesdk.sandbox.process import Overseer, Pipes, to_the_end


async def test_when_it_ends_no_timer_is_left_however_often_it_looked(monkeypatch):
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def remember(*args, **kwargs):
        timers.append(call_later(*args, **kwargs))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", remember)
    monkeypatch.setattr(process, "WATCH_S", 0)
    killed: list[str] = []
    looked = asyncio.Event()

    def used() -> float:
        if len(timers) > 5:
            looked.set()
        return 0.0

    overseer = Overseer(lambda: killed.append("killed"))
    overseer.after(3600)
    overseer.watch_cpu(used, 1)
    await looked.wait()
    overseer.end()
    assert [timer for timer in timers if not timer.cancelled() and timer.when() > loop.time()] == []
    assert (killed, overseer.hit) == ([], None)


async def test_the_first_limit_that_is_hit_is_the_one_that_is_told():
    killed: list[str] = []
    overseer = Overseer(lambda: killed.append("killed"))
    overseer.stop("output")
    overseer.stop("wall")
    assert (killed, overseer.hit) == (["killed"], "output")


async def test_both_pipes_are_read_up_to_a_number_of_bytes_and_the_end_of_stderr_is_kept():
    taken: list[tuple[str, bytes]] = []
    full: list[bool] = []
    pipes = Pipes(lambda stream, data: taken.append((stream, data)), 7, lambda: full.append(True))
    ends = [os.pipe(), os.pipe()]
    files = [os.fdopen(read, "rb") for read, _ in ends]
    for stream, file, (_, write), data in zip(
        ("stdout", "stderr"), files, ends, (b"12345", b"abcde"), strict=True
    ):
        os.write(write, data)
        os.close(write)
        pipes.attach(stream, file)
    pipes.drain()
    for file in files:
        file.close()
    assert taken == [("stdout", b"12345"), ("stderr", b"ab")]
    assert (pipes.taken, pipes.last_words, full) == (7, b"ab", [True])


async def test_drained_pipes_that_others_still_hold_are_not_waited_for():
    taken: list[bytes] = []
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file, os.fdopen(write, "wb", buffering=0) as held:
        pipes = Pipes(lambda stream, data: taken.append(data), 100, lambda: None)
        pipes.attach("stdout", file)
        held.write(b"so far")
        pipes.drain()
        held.write(b" too late")
    assert taken == [b"so far"]


async def test_cancelled_it_kills_and_still_waits_for_the_end():
    ended = asyncio.Event()
    order: list[str] = []

    async def ending() -> None:
        await ended.wait()
        order.append("ended")

    def kill() -> None:
        order.append("killed")
        asyncio.get_running_loop().call_soon(ended.set)

    waiting = asyncio.create_task(to_the_end(ending(), kill))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert order == ["killed", "ended"]


async def test_a_descriptor_is_waited_for_until_it_can_be_read():
    read, write = os.pipe()
    waiting = asyncio.create_task(readable(read))
    await asyncio.sleep(0)
    assert not waiting.done()
    os.write(write, b".")
    await waiting
    os.close(read)
    os.close(write)
