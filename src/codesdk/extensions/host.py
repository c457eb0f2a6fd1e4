"""`ExtensionHost`: the loaded extensions of one process, as a durable subscriber of the log.

Events come from the store, after they were committed and at their own pace, so no session waits for a handler. The
events of one session are dispatched in order, several sessions side by side: one that waits for a slow handler does
not hold up the others.
"""

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence

from codesdk.contract import events as ev
from codesdk.contract.api import ExtensionPage
from codesdk.contract.codec import decode
from codesdk.contract.errors import Conflict, InvalidRequest, StorageFailure
from codesdk.contract.events import Event
from codesdk.contract.ports import EventLog
from codesdk.extensions.app_server import AppServerSignals
from codesdk.extensions.dispatch import ActionExecutor, Dispatcher
from codesdk.extensions.jobs import JobQueue
from codesdk.extensions.loading import LOAD_S, ExtensionOptions, ExtensionSet, load_set
from codesdk.extensions.outcomes import AgentEventEmitResult, AgentRuntimeProfile
from codesdk.extensions.running import JobRunner
from codesdk.extensions.signals import APP_SERVER, SUGGEST, Signal, signals_of, wanted_types
from codesdk.extensions.sources import Pins

LANES = 16
"""How many sessions' events are dispatched side by side."""
PAGES_AHEAD = 20
"""How many pages of the log may be behind the event that takes longest: 2,000 events."""
SETTLE_S = 10.0
"""How long a reload waits for the old extensions to take what was committed before it."""
_PAGE = 200
_log = logging.getLogger("codesdk.extensions")

Emitted = Callable[[Signal, Sequence[AgentEventEmitResult]], None]
Suggested = Callable[[Signal, Sequence[AgentEventEmitResult]], Awaitable[None]]


class _Lane:
    """The events of one session, page after page. It lives as long as some of them are dispatched."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.failed = False
        """Whether some come again, so that those behind them must not be dispatched yet."""


class ExtensionHost:
    """Loads extensions, tells them of events, and replaces them. A `Subscriber`."""

    name = "extensions"
    gather_s = 0.0

    def __init__(
        self,
        options: ExtensionOptions,
        log: EventLog,
        pins: Pins,
        profiles: Sequence[AgentRuntimeProfile],
        executor: ActionExecutor,
        jobs: JobQueue,
        *,
        load_s: float = LOAD_S,
    ) -> None:
        self.settle: Callable[[], Awaitable[None]] | None = None
        """Waits until everything committed so far was dispatched: a reload then begins with what comes after."""
        self.backlog: Callable[[], Awaitable[int]] | None = None
        """Returns how many entries of the log, deltas included, are behind the one that is being dispatched."""
        self.on_emitted: Emitted | None = None
        """Told of each dispatch."""
        self.suggested: Suggested | None = None
        """Records what handlers answered to a request for suggestions."""
        self._options = options
        self._log = log
        self._pins = pins
        self._profiles = profiles
        self._load_s = load_s
        self._dispatcher = Dispatcher(executor, options.trust)
        self.figures = self._dispatcher.figures
        self.jobs = JobRunner(jobs, self._dispatcher.call, self.figures)
        """Runs what handlers have queued."""
        self._set = ExtensionSet(0, (), ())
        self._replaced: list[ExtensionSet] = []
        self._subscribed: frozenset[str] = frozenset()
        self._types: frozenset[str] = frozenset()
        self._side_by_side = asyncio.Semaphore(LANES)
        self._lanes: weakref.WeakValueDictionary[str, _Lane] = weakref.WeakValueDictionary()
        self._reloading = False
        self.app_server = AppServerSignals(log, self.hears, self._emit_live)
        """Messages of runtimes' app servers, which are not in the log."""

    @property
    def types(self) -> frozenset[str]:
        """The events that some handler needs."""
        return self._types

    def hears(self, event_type: str, runtime: str) -> bool:
        """Return whether some handler is called for an event of a type in a session of a runtime."""
        places = self._set.handlers.get(event_type, ())
        return any(not one.extension.runtimes or runtime in one.extension.runtimes for one in places)

    def inventory(self) -> ExtensionPage:
        """Return what was found, loaded or not."""
        return ExtensionPage(
            generation=self._set.generation,
            trust=self._options.trust,
            extensions=list(self._set.inventory),
        )

    async def load(self) -> ExtensionPage:
        """Load what there is for the first time. What cannot be loaded is listed with its reason."""
        self._swap(await self._build())
        for info in self._set.inventory:
            if info.status == "rejected":
                _log.warning("the extension in %s was not loaded: %s", info.root, info.reason)
        return self.inventory()

    async def reload(self) -> ExtensionPage:
        """Load all extensions again and put them in the place of the old ones, or leave those as they are.

        Raise `Conflict` while another reload is under way, and `InvalidRequest` if an extension that is loaded now
        would no longer be.
        """
        if self._reloading:
            raise Conflict("The extensions are already being reloaded. Wait until that is done.")
        self._reloading = True
        try:
            with self.jobs.paused():
                return await self._replace()
        finally:
            self._reloading = False

    async def _replace(self) -> ExtensionPage:
        fresh = await self._build()
        running = {info.root for info in self._set.inventory if info.status == "loaded"}
        lost = [one for one in fresh.inventory if one.status == "rejected" and one.root in running]
        if lost:
            fresh.release()
            await fresh.end()
            why = "; ".join(f"{one.root}: {one.reason}" for one in lost)
            raise InvalidRequest(f"The extensions stay as they were. {why}")
        await self._catch_up()
        self._swap(fresh)
        await self._end_replaced()
        return self.inventory()

    async def close(self) -> None:
        """End the extensions, those that a reload replaced as well. Nothing is dispatched to them any more."""
        self._swap(ExtensionSet(self._set.generation, (), ()))
        await self._end_replaced(even_used=True)

    async def take(self, events: Sequence[Event]) -> None:
        """Dispatch a page of events. Handlers cannot make this raise; a store that fails can, and the page comes again."""
        self.figures.in_hand += len(events)
        try:
            sessions: dict[str, list[Event]] = {}
            for event in events:
                sessions.setdefault(event.trace.session_id, []).append(event)
            async with asyncio.TaskGroup() as group:
                for session_id, own in sessions.items():
                    group.create_task(self._in_turn(session_id, own))
        finally:
            self.figures.in_hand -= len(events)

    async def _in_turn(self, session_id: str, events: Sequence[Event]) -> None:
        """Dispatch a session's events of one page after those of the pages before."""
        lane = self._lanes.setdefault(session_id, _Lane())
        async with lane.turn:
            if lane.failed:
                raise StorageFailure("Earlier events of the session come again, so these do, too.")
            try:
                await self._dispatch(events)
            except BaseException:
                lane.failed = True
                raise

    async def _dispatch(self, events: Sequence[Event]) -> None:
        async with self._side_by_side:
            for event in events:
                loaded = self._set.retain()
                try:
                    session = await self._log.session(event.trace.session_id)
                    for signal in await signals_of(event, session, self._subscribed, self._find_call):
                        await self._emit(loaded, signal)
                finally:
                    loaded.release()

    async def _emit(self, loaded: ExtensionSet, signal: Signal) -> None:
        results = await self._dispatcher.emit(loaded, signal)
        if self.on_emitted is not None:
            self.on_emitted(signal, results)
        if signal.event.type == SUGGEST and self.suggested is not None:
            await self.suggested(signal, results)

    async def _emit_live(self, signal: Signal) -> None:
        loaded = self._set.retain()
        try:
            await self._emit(loaded, signal)
        finally:
            loaded.release()

    async def _catch_up(self) -> None:
        """Give the old extensions what was committed so far, unless one of them takes too long."""
        if self.settle is not None:
            with contextlib.suppress(TimeoutError, StorageFailure):
                async with asyncio.timeout(SETTLE_S):
                    await self.settle()

    async def _end_replaced(self, *, even_used: bool = False) -> None:
        """Wait until replaced extensions are gone. Those that still handle an event are left to do so."""
        over = [old for old in self._replaced if even_used or not old.in_use]
        self._replaced = [old for old in self._replaced if old not in over]
        for old in over:
            await old.end()

    async def _build(self) -> ExtensionSet:
        return await load_set(
            self._options, self._pins, self._profiles, self._set.generation + 1, self._load_s
        )

    def _swap(self, fresh: ExtensionSet) -> None:
        old, self._set = self._set, fresh
        self._subscribed = frozenset(fresh.handlers)
        self._types = wanted_types(self._subscribed)
        self._replaced.append(old)
        self.jobs.use(fresh)
        self.app_server.subscribed = [name for name in fresh.handlers if name.startswith(APP_SERVER)]
        old.release()

    async def _find_call(self, session_id: str, seq: int, tool_call_id: str) -> ev.ToolCallRequested | None:
        """Look back in the log for a call: it was requested shortly before it was asked about."""
        while seq > 1:
            after = max(0, seq - 1 - _PAGE)
            for frame in reversed(await self._log.read(session_id, after, seq - 1 - after)):
                try:
                    payload = decode(frame.data).payload
                except ValueError:
                    continue  # `codesdk verify` names it
                if isinstance(payload, ev.ToolCallRequested) and payload.tool_call_id == tool_call_id:
                    return payload
            seq = after + 1
        return None
