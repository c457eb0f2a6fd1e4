"""Jobs of a test's extensions: what is stored of them, as it changes."""

import asyncio
from collections.abc import Callable

from codesdk import CodeSDK
from codesdk.contract.jobs import FINAL, JobRow


class Watched:
    """Each row that the runner of an SDK stores, in order."""

    def __init__(self, sdk: CodeSDK) -> None:
        self.rows: list[JobRow] = []
        self._changed = asyncio.Event()
        sdk.extensions.jobs.on_changed = self._note

    def _note(self, row: JobRow) -> None:
        self.rows.append(row)
        self._changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not done():
            self._changed.clear()
            await self._changed.wait()

    async def ended(self, count: int = 1) -> list[JobRow]:
        """Wait until so many jobs have ended, and return them in the order of their ids."""
        await self.until(lambda: len(self._final()) >= count)
        return self._final()

    async def reached(self, state: str, count: int = 1) -> list[JobRow]:
        """Wait until so many rows with a state were stored, and return them."""
        await self.until(lambda: sum(row.state == state for row in self.rows) >= count)
        return [row for row in self.rows if row.state == state]

    async def drained(self, sdk: CodeSDK) -> list[JobRow]:
        """Wait until no stored job is left to be run, and return all."""
        while True:
            known = len(self.rows)  # before looking: what changes meanwhile is a reason to look again
            rows = await sdk.jobs(limit=1_000)
            if all(row.state in FINAL for row in rows):
                return rows
            await self.until(lambda known=known: len(self.rows) > known)

    def _final(self) -> list[JobRow]:
        last = {row.job_id: row for row in self.rows}
        return sorted((row for row in last.values() if row.state in FINAL), key=lambda row: row.job_id)


def queues(job: str, body: str = "    note(event)", *, options: str = "", on: str = "turn.completed") -> str:
    """Return an extension that queues a job for each event, and runs it."""
    return f"""
import asyncio
async def handle(event, tools):
    return await tools.enqueue_job({job})
async def run(event, tools):
{body}
def register(registry):
    registry.on("{on}", handle)
    registry.job("mail", run, {options})
"""
