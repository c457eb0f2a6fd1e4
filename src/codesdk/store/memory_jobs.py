"""`MemoryJobs`: jobs in a dict, the part of `MemoryLog` that implements `JobStore`."""

from collections import Counter
from collections.abc import Collection

from codesdk.contract.jobs import FINAL, KEEP_FINISHED, MAX_WAITING, JobRow, JobState
from codesdk.store import refusals
from codesdk.store.rows import pack, unpack


class MemoryJobs:
    """A `JobStore` that lives as long as the object."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[JobRow, bytes]] = {}

    async def add_job(self, row: JobRow, payload: bytes, *, room: int = MAX_WAITING) -> JobRow:
        """Store a job, or return the one that has its identity already."""
        same = [one for one, _ in self._jobs.values() if _identity(one) == _identity(row)]
        if same:
            return same[0]
        busy = sum(
            one.principal == row.principal and one.state not in FINAL for one, _ in self._jobs.values()
        )
        if busy >= room:
            raise refusals.too_many_jobs(room)
        self._jobs[row.job_id] = (_stored(row), payload)
        return row

    async def job(self, job_id: str) -> JobRow | None:
        """Return a job's row."""
        found = self._jobs.get(job_id)
        return None if found is None else found[0]

    async def job_payload(self, job_id: str) -> bytes | None:
        """Return what a job's handler is given."""
        found = self._jobs.get(job_id)
        return None if found is None else found[1]

    async def jobs(
        self,
        *,
        principal: str | None,
        state: JobState | None,
        job_type: str | None,
        session_id: str | None,
        after: str | None,
        limit: int,
    ) -> list[JobRow]:
        """Return jobs, newest first, older than the id `after`."""
        rows = [
            row
            for row, _ in self._jobs.values()
            if principal in (None, row.principal)
            and state in (None, row.state)
            and job_type in (None, row.type)
            and session_id in (None, row.source_session_id)
            and (after is None or row.job_id < after)
        ]
        return sorted(rows, key=lambda row: row.job_id, reverse=True)[: max(limit, 0)]

    async def due_jobs(
        self, types: Collection[str], now: str, latest: str, *, besides: Collection[str], limit: int
    ) -> list[JobRow]:
        """Return queued jobs of these types that are due, the earliest first."""
        due = [row for row in self._queued(types) if row.run_at <= now or row.run_at > latest]
        due = [row for row in due if row.job_id not in besides]
        return sorted(due, key=lambda row: (row.run_at, row.job_id))[: max(limit, 0)]

    async def next_job_at(self, types: Collection[str], now: str) -> str | None:
        """Return when the next queued job of these types is due, of those that are not yet."""
        return min((row.run_at for row in self._queued(types) if row.run_at > now), default=None)

    async def replace_job(self, old: JobRow, new: JobRow, *, keep: int = KEEP_FINISHED) -> bool:
        """Store a job's new row if its stored one is `old`."""
        found = self._jobs.get(old.job_id)
        if found is None or found[0] != old:
            return False
        self._jobs[old.job_id] = (_stored(new), found[1])
        if new.state in FINAL:
            done = [
                row for row, _ in self._jobs.values() if row.principal == new.principal and row.state in FINAL
            ]
            done.sort(key=lambda row: (row.ended_at or "", row.job_id), reverse=True)
            for row in done[keep:]:
                del self._jobs[row.job_id]
        return True

    async def count_jobs(self) -> dict[JobState, int]:
        """Return how many jobs there are in each state that any is in."""
        return dict(Counter(row.state for row, _ in self._jobs.values()))

    def _queued(self, types: Collection[str]) -> list[JobRow]:
        return [row for row, _ in self._jobs.values() if row.state == "queued" and row.type in types]

    def _drop_jobs(self, session_id: str) -> None:
        """Remove a session's jobs with it."""
        kept = self._jobs.items()
        self._jobs = {name: job for name, job in kept if job[0].source_session_id != session_id}


def _identity(row: JobRow) -> tuple[str, str, str, str]:
    return (row.principal, row.project_id, row.type, row.identity)


def _stored(row: JobRow) -> JobRow:
    """Return a row as a store on disk would give it back; refuse what that could not hold."""
    return unpack(JobRow, pack(row))
