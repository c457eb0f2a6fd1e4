"""Requests from the loop → transactions in one thread → results, back on the loop.

The thread takes everything that waits, commits it once, and reports the whole batch in one call. If the batch
fails, each request gets its own transaction, so that one that cannot be stored does not fail the others; only a
session's creation and its first events stay together. (A savepoint would not do: SQLite may roll back the whole
transaction when the disk is full.)
"""

import contextlib
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.figures import FRAMES, Spread
from codesdk.contract.ports import Synchronous
from codesdk.store import refusals
from codesdk.store.sqlite.checkpoint import Merger, merge
from codesdk.store.sqlite.connection import explain
from codesdk.store.sqlite.presence import Presence
from codesdk.store.sqlite.requests import (
    Append,
    Call,
    Close,
    Delete,
    Outcome,
    Request,
    Vacuum,
    units,
)
from codesdk.store.sqlite.tables import Tables
from codesdk.store.sqlite.vacuum import free_bytes, give_back

_BATCH_FRAMES = 2_000
_CLOSING_BUSY_MS = 200
_PURGED_BYTES = 1024 * 1024  # about how much one purge step changes
_PLAIN = (Append, Call)


class WriterStats(msgspec.Struct):
    """What the writer did so far."""

    frames_written: int = 0
    batches: int = 0
    batch_frames: Spread = msgspec.field(default_factory=lambda: Spread(FRAMES))
    """How many frames were committed at once."""
    commit_seconds: Spread = msgspec.field(default_factory=Spread)
    """How long it took to write and commit them."""

    def note(self, frames: int, seconds: float) -> None:
        """Count a committed transaction."""
        self.frames_written += frames
        if frames:
            self.batch_frames.add(frames)
            self.commit_seconds.add(seconds)


class Writer:
    """The one thread that writes. `report` is called in it, once for each batch."""

    def __init__(
        self,
        db: sqlite3.Connection,
        path: Path,
        report: Callable[[list[Outcome]], None],
        synchronous: Synchronous,
        stats: WriterStats,
    ) -> None:
        self._db = db
        self._path = path
        self._report = report
        self._synchronous: Synchronous = synchronous
        self._stats = stats
        self._level = ""
        self._tables = Tables(db)
        self._merger = Merger(db, path)
        self._presence = Presence(path)
        self._inbox: queue.SimpleQueue[list[Request]] = queue.SimpleQueue()
        self._waiting: deque[Request] = deque()
        self._graves: deque[tuple[int, Delete | None]] = deque((key, None) for key in self._tables.graves())
        self._vacuums: deque[Vacuum] = deque()
        self._failed: dict[tuple[str, int], tuple[int, CodeSDKError]] = {}
        self._thread = threading.Thread(target=self._run, name="codesdk-writer", daemon=True)
        self._thread.start()

    def put(self, requests: list[Request]) -> None:
        """Queue requests. Never blocks."""
        self._inbox.put(requests)

    def join(self) -> None:
        """Wait until the thread has ended, after a `Close`."""
        self._thread.join()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            closing = batch.pop() if batch and isinstance(batch[-1], Close) else None
            outcomes = self._process(batch) if batch else []
            if closing is not None:
                outcomes.append(Outcome(closing, error=self._finish()))
                outcomes += [Outcome(buried, None) for _, buried in self._graves if buried is not None]
                outcomes += [Outcome(asked, 0) for asked in self._vacuums]
            # Deletions before vacuums: they are what makes pages free.
            elif self._graves:
                outcomes += self._purge()
            elif self._vacuums:
                outcomes += self._give_back()
            if outcomes:
                self._report(outcomes)
            if closing is not None:
                return
            if batch:
                self._tidy()

    def _next_batch(self) -> list[Request]:
        """Take what waits, up to a number of frames. Block only if there is nothing else to do."""
        batch: list[Request] = []
        frames = 0
        unborn: set[str] = set()
        """Sessions that are created in this batch, and whose first events are not in it yet."""
        block = not self._waiting and not self._graves and not self._vacuums
        while frames < _BATCH_FRAMES or unborn:
            if not self._waiting:
                # Looked at first: that nothing is there is the usual case, and an exception takes longer.
                if not block and self._inbox.empty():
                    break
                self._waiting.extend(self._inbox.get())
                block = False
            request = self._waiting.popleft()
            batch.append(request)
            if isinstance(request, Append):  # first: it is nearly always one
                frames += len(request.frames)
                if unborn:
                    unborn.discard(request.session_id)
                continue
            frames += 1
            if isinstance(request, Close):
                break
            if isinstance(request, Call) and request.creates is not None:
                unborn.add(request.creates)
        return batch

    def _process(self, batch: list[Request]) -> list[Outcome]:
        self._stats.batches += 1
        try:
            return self._commit(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on and the caller is told
            self._undo()
            if len(batch) == 1:
                return [self._failure(batch[0], explain(error, self._path))]
        outcomes: list[Outcome] = []
        for unit in units(batch):
            try:
                outcomes += self._commit(unit)
            except Exception as error:  # noqa: BLE001 - as above
                self._undo()
                outcomes += [self._failure(request, explain(error, self._path)) for request in unit]
        return outcomes

    def _commit(self, batch: list[Request]) -> list[Outcome]:
        """Do all requests in one transaction. Raise, with nothing done, if the database refuses one."""
        durable = any(not isinstance(request, _PLAIN) or request.durable for request in batch)
        if durable:
            self._check_files()
        self._set_level("FULL" if durable else "NORMAL")
        outcomes: list[Outcome] = []
        failed: dict[tuple[str, int], CodeSDKError] = {}
        frames = 0
        started = time.perf_counter()
        self._db.execute("BEGIN IMMEDIATE")
        for request in batch:
            if not isinstance(request, Append):
                frames += self._tables.flush()
            try:
                outcomes.append(Outcome(request, self._apply(request, failed)))
            except CodeSDKError as error:  # refused before anything of it was written
                outcomes.append(Outcome(request, error=error))
                if isinstance(request, Append):
                    failed.setdefault(request.writer, error)
        frames += self._tables.flush()
        self._db.execute("COMMIT")
        self._stats.note(frames, time.perf_counter() - started)
        return self._settle(outcomes)

    def _tidy(self) -> None:
        """Do what comes with commits, when those who wait for one have been told: merging may take a while."""
        with contextlib.suppress(
            Exception
        ):  # out of memory, say: the thread goes on, and the next batch tidies up
            self._merger.note(self._tables.take_size())
            self._tables.trim()

    def _check_files(self) -> None:
        """Raise if a file of the database is not there any more; first save what only a nameless one holds."""
        try:
            self._presence.check()
        except StorageFailure:
            self._merger.wait()
            merge(self._db)
            raise

    def _apply(self, request: Request, failed: dict[tuple[str, int], CodeSDKError]) -> Any:
        if isinstance(request, Append):
            if failed or self._failed:
                self._check_behind(request, failed)
            self._tables.append(
                request.session_id, request.epoch, request.first_seq, request.frames, request.changes
            )
            return None
        if isinstance(request, Delete):
            return self._tables.bury(request.session_id)
        if isinstance(request, Vacuum):
            return None
        assert isinstance(request, Call)
        return request.run(self._tables)

    def _check_behind(self, request: Append, failed: dict[tuple[str, int], CodeSDKError]) -> None:
        """Refuse an append that was queued before its writer could know of a failure."""
        if request.writer in failed:
            raise refusals.behind(request.session_id, failed[request.writer])
        earlier = self._failed.get(request.writer)
        if earlier is not None and request.round <= earlier[0]:
            raise refusals.behind(request.session_id, earlier[1])

    def _settle(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Note the failures of a committed batch, and hold back what is not finished yet."""
        settled: list[Outcome] = []
        for outcome in outcomes:
            request = outcome.request
            if isinstance(request, Delete) and outcome.error is None:
                self._graves.append((outcome.value, request))
            elif isinstance(request, Vacuum) and outcome.error is None:
                self._vacuums.append(request)
            elif outcome.error is not None:
                settled.append(self._failure(request, outcome.error))
            else:
                settled.append(outcome)
        return settled

    def _failure(self, request: Request, error: CodeSDKError) -> Outcome:
        if isinstance(request, Append):
            earlier = self._failed.get(request.writer)
            if earlier is None or earlier[0] < request.round:
                self._failed[request.writer] = (request.round, error)
        return Outcome(request, error=error)

    def _purge(self) -> list[Outcome]:
        """Remove some events of the session that was deleted first. Report it when the last is gone."""
        key, buried = self._graves[0]
        error = None
        try:
            self._set_level("NORMAL")
            self._db.execute("BEGIN IMMEDIATE")
            done = self._tables.purge(key)
            self._db.execute("COMMIT")
            self._merger.note(_PURGED_BYTES)
        except Exception as failure:  # noqa: BLE001 - the grave stays in its table, for the next start
            self._undo()
            done, error = True, explain(failure, self._path)
        if not done:
            return []
        self._graves.popleft()
        return [Outcome(buried, error=error)] if buried is not None else []

    def _give_back(self) -> list[Outcome]:
        """Return some free pages. Report when there are no more."""
        asked = self._vacuums[0]
        error = None
        try:
            self._set_level("NORMAL")
            self._merger.wait()
            done = give_back(self._db, rewrite=asked.rewrite)
        except Exception as failure:  # noqa: BLE001 - the caller is told; what is stored is not affected
            self._undo()
            done, error = True, explain(failure, self._path)
        if not done:
            return []
        self._vacuums.popleft()
        return [Outcome(asked, 0 if error else free_bytes(self._db), error)]

    def _set_level(self, level: str) -> None:
        """Choose whether commits are flushed to disk. Not possible inside a transaction."""
        if self._synchronous != "auto":
            level = self._synchronous.upper()
        if level != self._level:
            self._db.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def _undo(self) -> None:
        self._tables.forget()
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the next transaction fails the same way and reports it

    def _finish(self) -> CodeSDKError | None:
        """Move the write-ahead log into the database and close it."""
        self._merger.wait()
        try:
            self._db.execute(f"PRAGMA busy_timeout = {_CLOSING_BUSY_MS}")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            return explain(error, self._path)
        finally:
            self._db.close()
        return None
