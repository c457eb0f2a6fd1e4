"""Delivers committed events to a durable subscriber: at least once, in commit order, from a stored cursor.

A subscription pages from the store in its own task and holds no more than a few pages, so however slow the
subscriber is, no session waits for it. Commits only wake it, and it takes those of a moment together.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence

from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import Event
from codesdk.contract.ports import EventLog, Subscriber
from codesdk.contract.records import StoredFrame
from codesdk.foreign import call

PAGE_FRAMES = 100
RETRY_S = 1.0
CLOSE_S = 10.0

_log = logging.getLogger("codesdk.subscribers")


class Subscription:
    """Feeds one subscriber from one log. An `Observer`, so that it knows when there is something to read.

    A subscriber without a cursor begins at the start of the log, or with what is committed from now on. With `ahead`
    it is given so many pages at once: one that it takes long for does not hold up what comes after. Then the order is
    its own affair, and more than one page may come again.
    """

    def __init__(
        self, log: EventLog, subscriber: Subscriber, *, from_start: bool = True, ahead: int = 1
    ) -> None:
        self._log = log
        self._subscriber = subscriber
        self._from_start = from_start
        self._ahead = ahead
        self._cursor: int | None = None
        self._read = 0
        """Up to where it has read. The pages between the cursor and this are under way."""
        self._pages: deque[tuple[int, asyncio.Task[None]]] = deque()
        self._reached: deque[tuple[int, int]] = deque()
        """Which requests of `settle` are answered when the cursor has come to where."""
        self._woken = asyncio.Event()
        self._hurried = asyncio.Event()
        self._asked = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failing = False
        self._begun = False
        self._task: asyncio.Task[None] | None = None

    @property
    def cursor(self) -> int | None:
        """Up to where it has delivered; None if it does not know yet where to begin."""
        return self._cursor

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Wake up if there is something to take."""
        if self._woken.is_set():
            return
        types = self._subscriber.types
        for event in events:
            if event.type in types:
                self._woken.set()
                return

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Do nothing: events that were not stored are not delivered."""

    async def place(self) -> None:
        """Fix where it begins, so that "from now on" is this moment and not when its task first runs."""
        self._cursor = self._read = await self._first_cursor()

    def start(self) -> None:
        """Deliver what was committed since the cursor, and from now on."""
        self._task = asyncio.create_task(self._run())

    async def settle(self) -> None:
        """Wait until everything committed before this call is taken. Raise `StorageFailure` if it is not."""
        if self._task is None:
            return
        self._asked += 1
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._asked, taken))
        self._woken.set()
        self._hurried.set()
        await taken

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Deliver what is left, for at most `timeout_s`. The rest is delivered after the next start."""
        task = self._task
        if task is None:
            return
        with contextlib.suppress(TimeoutError, StorageFailure):
            async with asyncio.timeout(timeout_s):
                await self.settle()
        self._task = None
        tasks = [task, *(page for _, page in self._pages)]
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)
        self._answer(self._asked, StorageFailure(f"The subscriber {self._subscriber.name} is closed."))

    async def _run(self) -> None:
        while True:
            # Read before catching up: a request that comes meanwhile needs another round.
            asked = self._asked
            self._woken.clear()
            self._hurried.clear()
            try:
                await self._catch_up()
            except Exception as error:  # noqa: BLE001 - whatever a subscriber raises, its page comes again
                await self._start_over()
                self._answer(asked, self._refused(error))
                await asyncio.sleep(RETRY_S)
                continue
            self._reached.append((asked, self._read))
            while self._reached and self._cursor is not None and self._reached[0][1] <= self._cursor:
                self._failing = False
                self._answer(self._reached.popleft()[0])
            await self._woken.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._subscriber.gather_s):
                    await self._hurried.wait()

    async def _catch_up(self) -> None:
        """Deliver page by page. The cursor is stored after each, so a crash repeats a page but skips none."""
        if self._cursor is None:
            await self.place()
        end = None if self._begun else await self._log.last_cursor()
        await self._finish_pages()
        while frames := await self._log.read_all(self._read, PAGE_FRAMES, deltas=False):
            types = self._subscriber.types
            events = [event for frame in frames if (event := _read(frame)) and event.type in types]
            self._read = frames[-1].cursor
            if self._ahead == 1:
                if events:
                    await call(self._subscriber.take, events)
                await self._keep(self._read)
            else:
                page = asyncio.create_task(call(self._subscriber.take, events))
                page.add_done_callback(lambda _: self._woken.set())
                self._pages.append((self._read, page))
                await self._finish_pages()
            if len(frames) < PAGE_FRAMES:
                break
        if end is not None:
            await self._skip_to(end)

    async def _skip_to(self, end: int) -> None:
        """Pass over what is not for the subscriber at the end of the log, so that the next start need not."""
        self._begun = True
        self._read = max(self._read, end)
        if not self._pages and self._cursor != self._read:
            await self._keep(self._read)

    async def _finish_pages(self) -> None:
        """Move the cursor over pages that were taken. If there is no room for another, wait for the oldest."""
        while self._pages and (self._pages[0][1].done() or len(self._pages) >= self._ahead):
            cursor, page = self._pages[0]
            await page
            await self._keep(cursor)
            self._pages.popleft()

    async def _keep(self, cursor: int) -> None:
        await self._log.keep_cursor(self._subscriber.name, cursor)
        self._cursor = cursor

    async def _start_over(self) -> None:
        """Go back to the cursor once the pages that are under way have ended, one way or another."""
        await asyncio.gather(*(page for _, page in self._pages), return_exceptions=True)
        self._pages.clear()
        self._reached.clear()
        self._read = self._cursor or 0

    async def _first_cursor(self) -> int:
        """Return where to begin: where it was, or for somebody new at the start of the log or at its end."""
        log, name = self._log, self._subscriber.name
        kept = await log.cursor_of(name)
        if kept is None and self._from_start:
            return 0
        if kept is None:
            kept = await log.last_cursor()
            # Stored at once: after a crash, what is committed from now on must not count as before its time.
            await log.keep_cursor(name, kept)
        return kept

    def _refused(self, error: Exception) -> StorageFailure:
        name = self._subscriber.name
        if not self._failing:
            self._failing = True
            _log.error(
                "the subscriber %s does not take events (%s); they stay stored and are retried", name, error
            )
        return StorageFailure(f"The subscriber {name} does not take events: {error}. They are tried again.")

    def _answer(self, asked: int, error: StorageFailure | None = None) -> None:
        """Wake the callers of `settle` up to this request."""
        while self._waiting and self._waiting[0][0] <= asked:
            _, taken = self._waiting.popleft()
            if taken.done():
                continue
            if error is None:
                taken.set_result(None)
            else:
                taken.set_exception(error)


def _read(frame: StoredFrame) -> Event | None:
    """Return the event of a frame, if it can be read; `codesdk verify` names those that cannot."""
    if frame.damage is not None:
        return None
    try:
        return decode(frame.data)
    except ValueError:
        return None
