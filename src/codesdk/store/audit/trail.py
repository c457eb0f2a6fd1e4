"""`Audit` keeps one hash-chained record of what happened, written by its own thread.

A durable `Subscriber` of the engine: it takes events page by page and records each once, whatever crashes
when. What is not an event (HTTP requests, a log that could not be written) is noted through a bounded queue,
so that nobody waits for the disk. If the queue is full, lost notes are counted and the count is recorded; if
the disk fails, entries are kept and retried, and `trouble` says why.
"""

import asyncio
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import Event
from codesdk.redaction import Redactor
from codesdk.store.age import age_time
from codesdk.store.audit.chain import AuditEntry, AuditRecord, Category, Segment, Who, segments, storage_entry
from codesdk.store.audit.chain_file import SEGMENT_BYTES, ChainFile
from codesdk.store.audit.entries import (
    RELEVANT,
    entry_of,
    failure_entry,
    is_durable,
    request_entry,
    shorten,
)
from codesdk.store.audit.reading import find_recorded, read_audit
from codesdk.store.durable import oldest_over

MAX_QUEUED = 20_000
_BATCH = 500
# A thread that computes holds the interpreter's lock for 5 ms at a time, which whoever asks something meanwhile would
# feel. So it rests after each few records; a batch is made permanent as a whole all the same.
_PIECE = 20
_PAUSE_S = 0.0002
_SYNC_S = 1.0
_RETRY_S = 1.0
_MAX_PAGE = 1_000

_log = logging.getLogger("codesdk.audit")
T = TypeVar("T")


class _Do(msgspec.Struct, frozen=True):
    """Work for the thread, once everything before it is written. `run=None` ends the thread."""

    run: Callable[[ChainFile], Any] | None
    done: "Future[Any]"


class Audit:
    """The audit of one data directory, opened by its one writer."""

    name = "audit"
    types = RELEVANT
    gather_s = 1.0
    """Nobody waits for a record: whoever reads the audit has it catch up first, and what a crash left comes again. Each
    time, disk and interpreter are busy for a moment that others feel, so there are few times; within one it rests."""

    def __init__(self, root: Path, redactor: Redactor, max_queued: int, segment_bytes: int) -> None:
        self.root = root
        self.trouble: str | None = None
        """Why records cannot be written at the moment, for health reports."""
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        """Waits until the audit was given every stored event, so that `read` can include them."""
        self._page: Container[object] | None = None
        self._redactor = redactor
        self._max_queued = max_queued
        self._chain = ChainFile(root, segment_bytes)
        self._queue: queue.SimpleQueue[AuditEntry | Event | _Do] = queue.SimpleQueue()
        self._lost: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._kept: deque[AuditEntry] = deque()
        self._failing_since = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="codesdk-audit", daemon=True)
        self._thread.start()

    @classmethod
    async def open(
        cls,
        root: Path,
        redactor: Redactor | None = None,
        *,
        max_queued: int = MAX_QUEUED,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "Audit":
        """Open the audit in a directory, creating it if needed. Only the directory's writer may call it."""
        try:
            return await asyncio.to_thread(cls, root, redactor or Redactor(), max_queued, segment_bytes)
        except OSError as error:
            raise StorageFailure(
                f"The audit in {root} cannot be written: {error.strerror}. Look at the disk and its permissions."
            ) from error

    # --- input -----------------------------------------------------------------------------------

    async def take(self, events: Sequence[Event]) -> None:
        """Record events; they are on disk when this returns.

        Skip those of the previous page and, after a start, those that already have a record.
        """
        page = {(event.trace.session_id, event.seq, event.time) for event in events}
        if self._page is None:
            self._page = await asyncio.to_thread(find_recorded, self.root, page)
        for event in events:
            if (event.trace.session_id, event.seq, event.time) not in self._page:
                self._queue.put(event)
        self._page = page
        await self.flush()

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Do nothing: events come from the store, to `take`."""

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Note that a session could not be stored."""
        self.note(failure_entry(principal, session_id, error))

    def request(
        self,
        *,
        method: str,
        route: str,
        status: int,
        principal: str = "",
        client_id: str | None = None,
        request_id: str | None = None,
        session_id: str | None = None,
        code: str | None = None,
    ) -> None:
        """Note an answered HTTP request. `route` is its template; an unknown caller has no principal."""
        who = Who(principal=principal, client_id=shorten(client_id), request_id=shorten(request_id))
        self.note(request_entry(who, method, route, status, session_id, code))

    def note(self, entry: AuditEntry) -> None:
        """Queue an entry. Never waits, never raises; may be called from any thread."""
        if self._queue.qsize() < self._max_queued:
            self._queue.put(entry)
        else:
            with self._guard:
                self._lost[entry.action] += 1

    # --- requests --------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until everything taken so far is on disk. Raise `StorageFailure` if that fails."""
        try:
            await self.do(ChainFile.sync)
        except OSError as error:
            raise StorageFailure(
                f"The audit cannot be written: {error.strerror}. Look at the disk and its permissions."
            ) from error
        if self.trouble is not None:
            raise StorageFailure(self.trouble)

    async def do(self, run: Callable[[ChainFile], T]) -> T:
        """Run something on the chain in the audit's thread, and return its result."""
        if self._closed:
            raise StorageFailure("The audit is closed. Open the data directory again.")
        done: Future[T] = Future()
        # Not to be cancelled any more: what was asked for is done even if nobody waits for it.
        done.set_running_or_notify_cancel()
        self._queue.put(_Do(run, done))
        return await asyncio.wrap_future(done)

    async def read(
        self,
        *,
        principal: str | None = None,
        session_id: str | None = None,
        category: Category | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[AuditRecord]:
        """Return records after a number, in order, just noted ones included. Without a principal, all."""
        if self.catch_up is not None:
            with suppress(StorageFailure):  # what is already recorded can still be read
                await self.catch_up()
        await self.do(lambda _: None)
        found = read_audit(
            self.root, principal=principal, session_id=session_id, category=category, after=after
        )
        return await asyncio.to_thread(lambda: list(islice(found, min(max(limit, 0), _MAX_PAGE))))

    async def trim(
        self, *, max_age_s: float | None, max_bytes: int | None, reason: str, dry_run: bool = False
    ) -> list[str]:
        """Remove the oldest segments over an age or a size, never the newest. Return their names."""

        def run(chain: ChainFile) -> list[str]:
            oldest = _over(segments(self.root), max_age_s, max_bytes)
            if oldest and not dry_run:
                chain.forget(oldest, reason)
            return [segment.path.name for segment in oldest]

        return await self.do(run)

    async def close(self) -> None:
        """Write what is left and close the files. Raise `StorageFailure` if that fails."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(_Do(None, Future()))
        await asyncio.to_thread(self._thread.join)
        left = len(self._kept)
        if left:
            raise StorageFailure(f"{left} audit records could not be written. {self.trouble}")

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            items, order = self._take()
            self._keep(items)
            self._write(sync=not items)
            if order is None:
                continue
            if order.run is None:
                self._write(sync=True)
                self._chain.close()
                return
            try:
                order.done.set_result(order.run(self._chain))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                order.done.set_exception(error)

    def _take(self) -> tuple[list[AuditEntry | Event], _Do | None]:
        """Return what waits, up to the next `_Do`. Return nothing when it is time to sync or to retry."""
        items: list[AuditEntry | Event] = []
        pause = _RETRY_S if self._kept else _SYNC_S if self._chain.dirty else None
        try:
            item = self._queue.get(timeout=pause)
            while not isinstance(item, _Do):
                items.append(item)
                if len(items) == _BATCH:
                    return items, None
                item = self._queue.get_nowait()
        except queue.Empty:
            return items, None
        return items, item

    def _keep(self, items: Sequence[AuditEntry | Event]) -> None:
        """Turn items into entries, and keep those until they are written."""
        for number, item in enumerate(items):
            if number and number % _PIECE == 0:
                time.sleep(_PAUSE_S)
            entry = self._entry(item)
            if entry is None:
                continue
            # An event is never lost: `take` waits until it is written.
            if isinstance(item, Event) or len(self._kept) < self._max_queued:
                self._kept.append(entry)
            else:
                with self._guard:
                    self._lost[entry.action] += 1
        with self._guard:
            lost, self._lost = self._lost, Counter()
        if lost:
            words = f"{lost.total()} records could not be kept: there were more than the disk could take"
            self._kept.append(storage_entry("audit.gap", "lost", words, lost=dict(lost)))

    def _entry(self, item: AuditEntry | Event) -> AuditEntry | None:
        try:
            entry = item if isinstance(item, AuditEntry) else entry_of(item)
            if entry is None:
                return None
            if not self._redactor.suspects(msgspec.json.encode(entry).decode()):
                return entry  # nearly always, and then the walk over every text was for nothing
            plain = msgspec.to_builtins(entry)
            clean = self._redactor.value(plain)
            return entry if clean is plain else msgspec.convert(clean, type=AuditEntry)
        except Exception as error:  # noqa: BLE001 - one bad entry must not end the audit; that is recorded
            name = item.type if isinstance(item, Event) else item.action
            return storage_entry(
                "audit.entry", "failed", f"{name} could not be recorded: {type(error).__name__}"
            )

    def _write(self, *, sync: bool) -> None:
        try:
            while self._kept:
                piece = list(islice(self._kept, _PIECE))
                sync = sync or any(is_durable(entry) for entry in piece)
                self._chain.append(piece)
                for _ in piece:
                    self._kept.popleft()
                if self._kept:
                    time.sleep(_PAUSE_S)
            if sync:
                self._chain.sync()
        except OSError as error:
            self._refused(error)
            return
        if self.trouble is not None:
            words, self.trouble = self.trouble, None
            lasted = round(time.monotonic() - self._failing_since)
            self._kept.append(storage_entry("audit.write", "recovered", words, after_s=lasted))
            self._write(sync=True)

    def _refused(self, error: OSError) -> None:
        if self.trouble is None:
            self._failing_since = time.monotonic()
            self.trouble = (
                f"The audit cannot be written: {error.strerror}. Look at the disk and its permissions."
            )
            _log.error("%s Records are kept and tried again.", self.trouble)


def _over(found: Sequence[Segment], max_age_s: float | None, max_bytes: int | None) -> list[Segment]:
    """Return the oldest segments that are over the age or the size limit, never the newest."""
    before = None if max_age_s is None else age_time() - max_age_s
    chosen = {path for path, _ in oldest_over((segment.path for segment in found), before, max_bytes)}
    # Only from the first one on: a chain may lose its beginning, not its middle.
    return list(takewhile(lambda segment: segment.path in chosen, found[:-1]))
