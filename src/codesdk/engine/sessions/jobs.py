"""Jobs of extensions, as people change them: called off, or run again. Who runs them is told, and looks again."""

from collections.abc import Callable

from codesdk.contract.actions import Caller
from codesdk.contract.jobs import JobRow
from codesdk.contract.ports import EventLog
from codesdk.engine.log.archive import unknown_job

Change = Callable[[JobRow, str], JobRow]


async def change_job(
    log: EventLog, job_id: str, caller: Caller, change: Change, now: Callable[[], str]
) -> JobRow:
    """Change one of the caller's jobs. Another principal's is not found. Raise what `change` raises."""
    while True:
        row = await log.job(job_id)
        if row is None or row.principal != caller.principal:
            raise unknown_job(job_id)
        changed = change(row, now())
        if await log.replace_job(row, changed):
            return changed
        # Its state has changed since it was read: it was begun, or has ended.
