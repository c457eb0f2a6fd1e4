"""Commits the events of one session to the log, then shows them in the feed. The single writer of a session.

An event is encoded and folded when it is written, committed in a batch with its neighbours, and shown only
then. When a commit fails, everything after it fails too and the recorder is broken for good: the session must
be loaded again.
"""

import asyncio
from collections.abc import Callable

import msgspec

from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.figures import Strain
from codesdk.contract.ports import EventLog, Stamper
from codesdk.contract.records import ArtifactRow, Changes, KeyRow
from codesdk.contract.service import Published
from codesdk.engine.log.choke_point import ChokePoint
from codesdk.engine.log.feed import Feed
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.observers import Observers
from codesdk.engine.log.state import SessionState, encode_state

SNAPSHOT_BYTES = 256 * 1024
DURABLE_TYPES = TERMINAL_TYPES | {
    "session.created",
    "session.settings_changed",
    "session.compacted",
    "transcript.supplemented",
    "suggest_request.requested",
    "suggest_request.answered",
    "task.queued",
    "task.started",
    "approval.answered",
    "tool.call.approved",
    "tool.call.denied",
    "tool.call.started",
    "tool.call.completed",
    "grant.revoked",
    "files.undone",
}
"""Decisions and ends: committed so that they survive a power failure."""


class Recorder:
    """Writes one session's events through a journal into the log."""

    def __init__(
        self,
        log: EventLog,
        state: SessionState,
        epoch: int,
        stamper: Stamper,
        feed: Feed,
        *,
        choke_point: ChokePoint,
        max_backlog: int,
        observers: Observers | None = None,
        strain: Strain | None = None,
    ) -> None:
        self.journal = Journal(state, stamper, self._take, choke_point)
        self.choke_point = choke_point
        self._strain = strain or Strain()
        self.feed = feed
        self.on_broken: Callable[[CodeSDKError], None] = lambda error: None
        """Told once, when the log could not be written."""
        self.broken: CodeSDKError | None = None
        self._log = log
        self._epoch = epoch
        self._loop = asyncio.get_running_loop()
        self._max_backlog = max_backlog
        self._observers = observers or Observers()
        self._items: list[Published] = []
        self._durable = False
        self._scheduled = False
        self._flying: list[Published] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._unsaved_bytes = 0
        self._snapshot_bytes = 0

    @property
    def state(self) -> SessionState:
        """The session's state, all written events folded in."""
        return self.journal.state

    @property
    def backlog(self) -> int:
        """How many events are written but not committed."""
        return len(self._items) + len(self._flying)

    def add_artifact(self, row: ArtifactRow) -> None:
        """Commit an artifact's row with the next events."""
        self.journal.changes.artifacts.append(row)

    def add_key(self, key: KeyRow, answer: object) -> None:
        """Commit an idempotency key and its answer with the next events."""
        self.journal.changes.keys.append(self._answered(key, answer))

    def _answered(self, key: KeyRow, answer: object) -> KeyRow:
        clean = self.choke_point.clean(msgspec.to_builtins(answer))
        return msgspec.structs.replace(key, answer=clean)

    async def commit(self, key: KeyRow | None, answer: object) -> None:
        """Wait until what was written is stored, together with an idempotency key and its answer if given.

        Call it without an await after the writes, so that key and effect are stored in one batch.
        """
        if key is not None and self._items:
            self.add_key(key, answer)
        elif key is not None and self.broken is None:
            session_id, changes = self.state.session_id, Changes(keys=[self._answered(key, answer)])
            await self._log.append(
                session_id, self._epoch, self.state.seq + 1, [], durable=False, changes=changes
            )
        await self.settle()

    def abandon(self, error: BaseException) -> None:
        """Store nothing more, if something waits to be: who wrote it failed half-way, for want of memory, say.

        The events would be there without what belongs to them, such as the key of the request that is made again.
        """
        if self._items and self.broken is None:
            self._break(error)

    async def settle(self) -> None:
        """Wait until everything written so far is committed. Raise if that fails."""
        if self.broken is not None:
            raise self.broken
        if not self.backlog:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self.state.seq, waiter))
        await waiter

    async def ready(self) -> None:
        """Wait while the backlog is over its limit. For runtime drafts only: decisions must not wait."""
        while self.backlog >= self._max_backlog:
            self._strain.recorder_waits += 1
            await self.settle()

    def _take(self, event: Event, frame: bytes) -> None:
        if self.broken is not None:
            raise self.broken
        self._unsaved_bytes += len(frame)
        self._items.append(Published(event.seq, frame, event))
        if event.type in DURABLE_TYPES:
            self._durable = True
        # One batch at a time, in order. Flushing on the next turn of the loop lets neighbours share a commit.
        if not self._scheduled and not self._flying:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self._items or self.broken is not None:
            return
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - out of memory, say: those who wait must be told
            self._break(error)

    def _send(self) -> None:
        items, self._items = self._items, []
        durable, self._durable = self._durable, False
        changes = self.journal.changes
        # Taken with the batch: it then covers exactly the events up to the end of it.
        changes.snapshot = self._snapshot(changes.session is not None)
        future = asyncio.ensure_future(
            self._log.append(
                self.state.session_id,
                self._epoch,
                items[0].seq,
                [item.frame for item in items],
                durable=durable,
                changes=self.journal.take_changes(),
            )
        )
        self._flying = items
        future.add_done_callback(self._landed)

    def _snapshot(self, row_changed: bool) -> bytes | None:
        """Return a snapshot when the session's row changes or enough was written since the last.

        Its own size counts, so that all snapshots together stay in proportion to the log.
        """
        if not row_changed and self._unsaved_bytes < max(SNAPSHOT_BYTES, 2 * self._snapshot_bytes):
            return None
        data = encode_state(self.state)
        self._unsaved_bytes = 0
        self._snapshot_bytes = len(data)
        return data

    def _landed(self, future: asyncio.Future[None]) -> None:
        items, self._flying = self._flying, []
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self.broken is not None:
            return  # abandoned meanwhile: who reads on finds them in the log
        if error is not None:
            self._break(error)
            return
        # Only now: what is shown is stored.
        self.feed.publish(items)
        if self._observers:
            self._observers.committed(self.state.principal, [item.event for item in items])
        if self._waiters:
            self._wake(self.feed.committed)
        if self._items:
            self._flush()

    def _wake(self, committed: int) -> None:
        """Wake whoever waits for what is committed now."""
        waiters = self._waiters
        woken = next((place for place, (seq, _) in enumerate(waiters) if seq > committed), len(waiters))
        for _, waiter in waiters[:woken]:
            if not waiter.done():
                waiter.set_result(None)
        del waiters[:woken]

    def _break(self, error: BaseException) -> None:
        if isinstance(error, CodeSDKError):
            broken = error
        else:
            broken = StorageFailure(f"The event log could not be written ({type(error).__name__}: {error}).")
        self.broken = broken
        self._observers.failed(self.state.principal, self.state.session_id, broken)
        self._items = []  # they build on events that are not stored
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(broken)
        self.feed.close(broken)
        self.on_broken(broken)
