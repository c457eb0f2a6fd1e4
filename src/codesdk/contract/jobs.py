"""Jobs: work that an extension queues and that is done later, at least once, also over a crash. Rows and their changes.

Pure, but for the port: each function returns the row that comes after. Whoever stores it names the row that it came
from (`JobStore.replace_job`), so of two that change a job at the same time one is told to look again.
"""

from collections.abc import Collection
from typing import Any, Literal, Protocol

import msgspec

from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.tools import Record

JobState = Literal["queued", "running", "completed", "failed", "canceled"]
FINAL: frozenset[JobState] = frozenset({"completed", "failed", "canceled"})
MAX_PAYLOAD_BYTES = 64 * 1024
MAX_WAITING = 10_000
"""How many jobs of one principal may be queued or running."""
KEEP_FINISHED = 1_000
"""How many finished jobs of one principal are kept, the newest. Older ones are removed, and their identities with them."""
LONGEST_PAUSE_MS = 300_000
"""The longest pause between two attempts."""


class JobRow(Record, frozen=True, kw_only=True):
    """A job as lists show it."""

    job_id: str
    type: str
    state: JobState
    identity: str
    """What makes it the same job as another of its type in its principal's project."""
    principal: str
    project_id: str
    source_session_id: str
    """The session of the event that it was queued for. It is deleted with it."""
    extension: str
    """Who queued it."""
    created_at: str
    run_at: str
    """When it is due, if it is queued."""
    attempts: int = 0
    """How often it was begun."""
    error: str | None = None
    """What went wrong last."""
    started_at: str | None = None
    ended_at: str | None = None


class JobDetail(JobRow, frozen=True, kw_only=True):
    """A job with what its handler is given."""

    payload: dict[str, Any]

    @classmethod
    def of(cls, row: JobRow, payload: bytes) -> "JobDetail":
        """Return a row with its payload."""
        return cls(**msgspec.structs.asdict(row), payload=msgspec.json.decode(payload))


def too_large(size: int) -> InvalidRequest:
    """Return the error for a job whose payload has so many bytes."""
    return InvalidRequest(f"The payload of a job has at most {MAX_PAYLOAD_BYTES:,} bytes, not {size:,}.")


def begun(row: JobRow, now: str) -> JobRow:
    """Return a queued job as one that runs, its attempt counted."""
    return msgspec.structs.replace(row, state="running", attempts=row.attempts + 1, started_at=now)


def completed(row: JobRow, now: str) -> JobRow:
    """Return a job whose handler has returned."""
    return msgspec.structs.replace(row, state="completed", ended_at=now, error=None)


def failed(row: JobRow, now: str, error: str) -> JobRow:
    """Return a job that is not tried again."""
    return msgspec.structs.replace(row, state="failed", ended_at=now, error=error)


def waiting(row: JobRow, run_at: str, error: str | None = None) -> JobRow:
    """Return a job that is begun again at a time."""
    return msgspec.structs.replace(row, state="queued", run_at=run_at, error=error or row.error)


def put_back(row: JobRow, now: str) -> JobRow:
    """Return a job that was interrupted on purpose: that attempt does not count."""
    return msgspec.structs.replace(row, state="queued", run_at=now, attempts=row.attempts - 1)


def canceled(row: JobRow, now: str) -> JobRow:
    """Return a job that somebody calls off. Raise `Conflict` if it has ended."""
    if row.state in FINAL:
        raise Conflict(f"The job {row.job_id} is {row.state} already.")
    return msgspec.structs.replace(row, state="canceled", ended_at=now)


def retried(row: JobRow, now: str) -> JobRow:
    """Return a job that somebody wants run now, with all its attempts. Raise `Conflict` if it runs or is completed."""
    if row.state in ("running", "completed"):
        raise Conflict(
            f"The job {row.job_id} is {row.state}; only one that waits, failed or was canceled can be retried."
        )
    return msgspec.structs.replace(row, state="queued", run_at=now, attempts=0, ended_at=None)


def pause_ms(attempts: int, first_ms: int) -> int:
    """Return how long to wait after so many attempts: twice as long each time, up to a limit."""
    return min(LONGEST_PAUSE_MS, first_ms * 2 ** min(attempts - 1, 30))


class JobStore(Protocol):
    """Keeps jobs beside the log of their sessions. A job is deleted with its session.

    `principal` and `state` filter where they are given; None means any.
    """

    async def add_job(self, row: JobRow, payload: bytes, *, room: int = MAX_WAITING) -> JobRow:
        """Store a job, durably, and return it; or return the one that has its identity already.

        An identity is one principal's, in a project, for a type. `NotFound` if its session is gone, `Busy` if `room`
        jobs of its principal are queued or running.
        """
        ...

    async def job(self, job_id: str) -> JobRow | None: ...

    async def job_payload(self, job_id: str) -> bytes | None: ...

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
        ...

    async def due_jobs(
        self, types: Collection[str], now: str, latest: str, *, besides: Collection[str], limit: int
    ) -> list[JobRow]:
        """Return queued jobs of these types that are due at `now`, the earliest first, without those in `besides`.

        One that is due after `latest` is due, too: the clock was set back since it was queued.
        """
        ...

    async def next_job_at(self, types: Collection[str], now: str) -> str | None:
        """Return when the next queued job of these types is due, of those that are not yet."""
        ...

    async def replace_job(self, old: JobRow, new: JobRow, *, keep: int = KEEP_FINISHED) -> bool:
        """Store a job's new row if its stored one is `old`. Return whether it was.

        Once it is finished, the oldest finished jobs of its principal are removed beyond `keep`.
        """
        ...

    async def count_jobs(self) -> dict[JobState, int]:
        """Return how many jobs of all principals there are in each state that any is in."""
        ...
