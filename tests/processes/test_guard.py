"""A guard ends a process group with whoever started it, and only then. (`tests/channel` kills who started it.)"""

import signal
import subprocess
import sys

import pytest

from codesdk.processes import start_guard

GUARDED = """
import asyncio, os, sys
from codesdk.processes import start_guard
async def main():
    guard = await start_guard()
    guard.watch(int(sys.argv[1]))
    if sys.argv[2] == "release":
        await guard.release()
    os._exit(0)
asyncio.run(main())
"""


@pytest.mark.parametrize(("ending", "code"), [("release", -signal.SIGTERM), ("end", -signal.SIGKILL)])
def test_a_group_is_killed_unless_its_guard_was_released_first(ending: str, code: int):
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as guarded:
        subprocess.run([sys.executable, "-c", GUARDED, str(guarded.pid), ending], check=True)
        if ending == "release":
            guarded.terminate()
        assert guarded.wait(60) == code


@pytest.mark.anyio
async def test_a_guard_can_be_released_twice_and_before_it_watches():
    guard = await start_guard()
    await guard.release()
    await guard.release()
