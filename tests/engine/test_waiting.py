"""Those who wait are all woken, once; one who gives up takes nobody with him."""

import asyncio

from codesdk.engine.waiting import Waiters


async def test_all_who_wait_are_woken_and_nobody_later():
    waiters = Waiters()
    first, second = asyncio.create_task(waiters.wait()), asyncio.create_task(waiters.wait())
    await asyncio.sleep(0)
    waiters.wake()
    late = asyncio.create_task(waiters.wait())
    await asyncio.gather(first, second)
    await asyncio.sleep(0)
    assert not late.done()
    waiters.wake()
    await late


async def test_one_who_gives_up_leaves_the_others_waiting():
    waiters = Waiters()
    patient, impatient = asyncio.create_task(waiters.wait()), asyncio.create_task(waiters.wait())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    assert impatient.cancelled()
    assert not patient.done()
    waiters.wake()
    await patient


async def test_waking_nobody_is_nothing():
    Waiters().wake()
