"""`JobRunner`: stored jobs that are due → calls of their handlers, in the extensions' own workers.

At least once: a job that ran when the process ended is run again, and that attempt counts. One that fails is tried
again later, twice as late each time, as often as its registration says.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from codesdk.contract import jobs as job
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.jobs import JobRow
from codesdk.extensions.figures import Figures
from codesdk.extensions.jobs import JobQueue
from codesdk.extensions.loading import ExtensionSet, Place
from codesdk.extensions.outcomes import SHOWN_CHARS, AgentRuntimeEvent, is_action_request, words_of
from codesdk.extensions.registry import Registration
from codesdk.extensions.signals import Origin

AT_ONCE = 16
"""How many jobs run at once."""
EACH = 4
"""How many of them may be one extension's."""
RETRY_S = 1.0
"""How long to wait after the store has failed."""
_PAGE = 100
_NO_ACTION = "a job does not ask for actions; a handler of an event does"
_ENDED = "The process ended while it ran."
_log = logging.getLogger("codesdk.extensions")

Call = Callable[[Place, AgentRuntimeEvent, Origin], Awaitable[object]]
"""Calls a handler in its extension's worker, for at most its time. Raises what it raises."""


class _Running(NamedTuple):
    """A job that was begun."""

    task: asyncio.Task[None]
    extension: str


class JobRunner:
    """Runs the jobs of a queue with the handlers of the current extensions."""

    def __init__(self, queue: JobQueue, call: Call, figures: Figures) -> None:
        self.on_changed: Callable[[JobRow], None] | None = None
        """Told of each row that is stored here."""
        self._queue = queue
        self._store = queue.store
        self._stamper = queue.stamper
        self._call = call
        self._figures = figures
        self._loaded = ExtensionSet(0, (), ())
        self._running: dict[str, _Running] = {}
        self._paused = False
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def use(self, loaded: ExtensionSet) -> None:
        """Run jobs with these extensions from now on. What runs already ends with those that it began with."""
        self._loaded = loaded
        self._queue.types = frozenset(loaded.jobs)
        self._queue.woken.set()

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Begin no job inside of the block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._queue.woken.set()

    def changed(self, row: JobRow) -> None:
        """Look again at a job that somebody has changed: end it if it was canceled, or run it."""
        running = self._running.get(row.job_id)
        if row.state == "canceled" and running is not None:
            running.task.cancel()
        self._queue.woken.set()

    async def start(self) -> None:
        """Queue what ran when the process ended, then run what is due."""
        while rows := await self._store.jobs(
            principal=None, state="running", job_type=None, session_id=None, after=None, limit=_PAGE
        ):
            for row in rows:
                await self._store.replace_job(row, job.waiting(row, self._stamper.now(), _ENDED))
        self._task = asyncio.create_task(self._run())

    async def close(self, timeout_s: float) -> None:
        """Begin no more, and wait for what runs. What takes longer is interrupted, and begun again at the next start."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        tasks = [running.task for running in self._running.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        failing = False
        while True:
            self._queue.woken.clear()
            try:
                wait_s = await self._begin_due()
                failing = False
            except StorageFailure as error:
                if not failing:
                    _log.error("jobs cannot be read (%s); they stay stored and are tried again", error)
                failing, wait_s = True, RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._queue.woken.wait()

    async def _begin_due(self) -> float | None:
        """Begin what is due, as far as there is room. Return in how many seconds something else is due."""
        now = self._stamper.now()
        while types := self._types_with_room():
            rows = await self._store.due_jobs(
                types, now, _after(now, job.LONGEST_PAUSE_MS), besides=list(self._running), limit=EACH
            )
            if not rows:
                break
            for row in rows:
                if row.type in self._types_with_room():
                    self._begin(row)
        # Of the same moment: what becomes due between two looks at the clock would be seen by neither.
        later = await self._store.next_job_at(list(self._loaded.jobs), now)
        return None if later is None else _seconds_between(now, later)

    def _types_with_room(self) -> list[str]:
        if self._paused or len(self._running) >= AT_ONCE:
            return []
        busy = Counter(running.extension for running in self._running.values())
        return [
            kind for kind, place in self._loaded.jobs.items() if busy[place.extension.manifest.name] < EACH
        ]

    def _begin(self, row: JobRow) -> None:
        place, loaded = self._loaded.jobs[row.type], self._loaded.retain()

        async def work() -> None:
            try:
                await self._attempt(row, place)
            finally:
                loaded.release()
                del self._running[row.job_id]
                self._queue.woken.set()

        self._running[row.job_id] = _Running(asyncio.create_task(work()), place.extension.manifest.name)

    async def _attempt(self, row: JobRow, place: Place) -> None:
        if row.attempts >= place.registration.attempts:
            # None of them came to an end. It may be what ends the process, so that is enough.
            await self._keep(row, job.failed(row, self._stamper.now(), row.error or _ENDED))
            return
        ran = job.begun(row, self._stamper.now())
        if not await self._keep(row, ran):
            return  # canceled, or deleted with its session
        started = time.monotonic()
        try:
            payload = await self._store.job_payload(row.job_id)
            if payload is None:
                return
            returned = await self._call(place, _event(ran, payload), _origin(ran))
            if is_action_request(returned):
                raise ValueError(_NO_ACTION)
        except asyncio.CancelledError:
            # Canceled by a person, the stored row says so and stays; at a shutdown, it is begun again.
            await self._keep(ran, job.put_back(ran, self._stamper.now()))
            self._figures.attempted(row.type, "interrupted", time.monotonic() - started)
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the end of this attempt
            after = await self._failure(ran, place.registration, error)
        else:
            after = job.completed(ran, self._stamper.now())
        outcome = "retried" if after.state == "queued" else after.state
        self._figures.attempted(row.type, outcome, time.monotonic() - started)
        _report(after, outcome, time.monotonic() - started)
        await self._keep(ran, after)

    async def _failure(self, ran: JobRow, one: Registration, error: Exception) -> JobRow:
        """Return a job whose attempt failed: to be tried again, unless that was the last."""
        words = (
            words_of(error).encode(errors="replace").decode()
        )  # half of a surrogate pair could not be stored
        try:
            words = (await self._queue.redact(ran.source_session_id, words))[:SHOWN_CHARS]
        except CodeSDKError:
            words = type(error).__name__  # its text may hold a secret that is not known now
        now = self._stamper.now()
        if ran.attempts >= one.attempts:
            return job.failed(ran, now, words)
        return job.waiting(ran, _after(now, job.pause_ms(ran.attempts, one.backoff_ms)), words)

    async def _keep(self, old: JobRow, new: JobRow) -> bool:
        """Store a job's new row, as soon as the store takes it. Return whether it was still the old one."""
        while True:
            try:
                kept = await self._store.replace_job(old, new)
            except StorageFailure as error:
                if self._closing:
                    return False  # it still counts as running, and is begun again at the next start
                _log.error(
                    "the state of the job %s cannot be stored (%s); it is tried again", old.job_id, error
                )
                await asyncio.sleep(RETRY_S)
                continue
            if kept and self.on_changed is not None:
                self.on_changed(new)
            return kept


def _event(row: JobRow, payload: bytes) -> AgentRuntimeEvent:
    """Return what a job's handler is called with: like an event, under the job's type."""
    about = {
        "session": {"id": row.source_session_id, "project_id": row.project_id},
        "job": {
            "id": row.job_id,
            "identity": row.identity,
            "attempt": row.attempts,
            "extension": row.extension,
        },
        "data": msgspec.json.decode(payload),
    }
    return AgentRuntimeEvent(
        type=row.type, payload=about, emitted_at=row.created_at, correlation_id=row.job_id
    )


def _origin(row: JobRow) -> Origin:
    return Origin(
        principal=row.principal,
        session_id=row.source_session_id,
        task_id=None,
        project_id=row.project_id,
        seq=0,
        data={"job_id": row.job_id},
    )


def _after(moment: str, span_ms: int) -> str:
    later = datetime.fromisoformat(moment) + timedelta(milliseconds=span_ms)
    return later.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def _report(row: JobRow, outcome: str, took_s: float) -> None:
    """Write one line about an attempt."""
    fields = {
        "session_id": row.source_session_id,
        "job_id": row.job_id,
        "job_type": row.type,
        "attempt": row.attempts,
        "outcome": outcome,
        "error": row.error,
        "took_ms": round(took_s * 1000, 1),
    }
    level = logging.DEBUG if outcome == "completed" else logging.WARNING
    _log.log(level, "job %s of the type %s: %s", row.job_id, row.type, outcome, extra=fields)
