"""A process whose extension queues jobs and runs them, killed at a moment that is told: see `test_job_kills`.

    jobs_worker.py HOME EXTENSIONS MOMENT NTH

MOMENT is one of `MOMENTS`, and NTH how often it comes before the process dies; `never` runs until somebody else ends it.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.extensions.rig import Extensions, extended, session_in

from codesdk.contract.jobs import JobRow
from codesdk.extensions import ExtensionOptions
from codesdk.extensions.dispatch import Dispatcher
from codesdk.store.sqlite.log import SqliteLog

MOMENTS = [
    "added unstored",
    "added stored",
    "begun unstored",
    "begun stored",
    "handler before",
    "handler after",
    "ended unstored",
    "ended stored",
    "waits unstored",
    "waits stored",
]
_NAMES = {"running": "begun", "completed": "ended", "failed": "ended", "queued": "waits"}


class Death:
    """Comes at a moment, the nth time."""

    def __init__(self, moment: str, nth: int) -> None:
        self.moment = moment
        self.left = nth

    def at(self, moment: str) -> None:
        """End as a process does that the kernel ends, if this is the moment."""
        if moment == self.moment:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)


def die_at(death: Death) -> None:
    """Let death look at each step of a job."""
    add, replace, call = SqliteLog.add_job, SqliteLog.replace_job, Dispatcher.call

    async def added(self: SqliteLog, row: JobRow, payload: bytes, **options: Any) -> JobRow:
        death.at("added unstored")
        stored = await add(self, row, payload, **options)
        death.at("added stored")
        return stored

    async def replaced(self: SqliteLog, old: JobRow, new: JobRow, **options: Any) -> bool:
        name = _NAMES[new.state]
        death.at(f"{name} unstored")
        kept = await replace(self, old, new, **options)
        death.at(f"{name} stored")
        return kept

    async def called(self: Dispatcher, place: Any, event: Any, origin: Any) -> object:
        if not place.registration.attempts:
            return await call(self, place, event, origin)
        death.at("handler before")
        try:
            return await call(self, place, event, origin)
        finally:
            death.at("handler after")

    SqliteLog.add_job, SqliteLog.replace_job, Dispatcher.call = added, replaced, called


async def main(home: Path, root: Path, death: Death) -> None:
    die_at(death)
    options = ExtensionOptions(roots=(str(root),))
    async with extended(Extensions(root), home, [[{"text": "Hello."}]], stored=True, options=options) as sdk:
        session = await session_in(sdk, home)
        await (await session.start("Go.")).result()
        await asyncio.Event().wait()  # until the end that was told


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), Death(sys.argv[3], int(sys.argv[4]))))
