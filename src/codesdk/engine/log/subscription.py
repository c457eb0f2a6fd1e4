"""`Subscription`: committed events → a durable subscriber, at least once and in commit order, from the cursor that is stored.

It pages from the store in a task of its own and keeps no more than a page, so however slow the subscriber is, no
session waits for it. The engine's observers only wake it.
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

PAGE_FRAMES = 200
RETRY_S = 1.0
CLOSE_S = 10.0

_log = logging.getLogger("codesdk.subscribers")


class Subscription:
    """Feeds one subscriber of one log. An `Observer`, so that it knows when there is something to read."""

    def __init__(self, log: EventLog, subscriber: Subscriber) -> None:
        self._log = log
        self._subscriber = subscriber
        self._types = frozenset(subscriber.types)
        self._woken = asyncio.Event()
        self._asked = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Wake up if there is something to take."""
        if not self._woken.is_set() and any(event.type in self._types for event in events):
            self._woken.set()

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Do nothing: what was not stored is not handed over."""

    def start(self) -> None:
        """Hand over what was committed since the cursor, and from now on."""
        self._task = asyncio.create_task(self._run())

    async def settle(self) -> None:
        """Return when all that was committed before this call is taken. `StorageFailure` if it was tried in vain."""
        if self._task is None:
            return
        self._asked += 1
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._asked, taken))
        self._woken.set()
        await taken

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Hand over what is left, for so long. What is then still left comes at the next start."""
        task = self._task
        if task is None:
            return
        with contextlib.suppress(TimeoutError, StorageFailure):
            async with asyncio.timeout(timeout_s):
                await self.settle()
        self._task = None
        task.cancel()
        await asyncio.wait([task])
        self._answer(self._asked, StorageFailure(f"The subscriber {self._subscriber.name} is closed."))

    async def _run(self) -> None:
        while True:
            asked = self._asked
            self._woken.clear()
            try:
                await self._catch_up()
            except Exception as error:  # noqa: BLE001 - whatever a subscriber raises, its page comes again
                self._answer(asked, self._refused(error))
                await asyncio.sleep(RETRY_S)
                continue
            self._failing = False
            self._answer(asked)
            await self._woken.wait()

    async def _catch_up(self) -> None:
        """Hand over page by page. The cursor follows what is taken, so a crash in between repeats a page, never skips one."""
        log, name = self._log, self._subscriber.name
        cursor = await log.cursor_of(name)
        while frames := await log.read_all(cursor, PAGE_FRAMES, deltas=False):
            events = [event for frame in frames if (event := _read(frame)) and event.type in self._types]
            if events:
                await self._subscriber.take(events)
            cursor = frames[-1].cursor
            await log.keep_cursor(name, cursor)

    def _refused(self, error: Exception) -> StorageFailure:
        name = self._subscriber.name
        if not self._failing:
            self._failing = True
            _log.error(
                "the subscriber %s does not take events (%s); they are kept and tried again", name, error
            )
        return StorageFailure(f"The subscriber {name} does not take events: {error}. They are tried again.")

    def _answer(self, asked: int, error: StorageFailure | None = None) -> None:
        """Let those go on who waited for what was asked for by then."""
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
