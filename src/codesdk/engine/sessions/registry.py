"""The sessions in memory: stored ones loaded when they are first needed, new ones from their first event on.

Owned by `Engine`. A session whose log could not be written is dropped, and those that were used longest ago
are let go while they have nothing to do; either is loaded anew when it is needed.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection

from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import SessionCreated
from codesdk.contract.ports import FIRST_EPOCH
from codesdk.contract.records import Changes
from codesdk.contract.runtime import Runtime
from codesdk.engine.calls.mcp_calls import Gate
from codesdk.engine.log.archive import unknown_session
from codesdk.engine.log.observers import Observers
from codesdk.engine.log.state import SessionState
from codesdk.engine.models.spending import Purses
from codesdk.engine.sessions.creation import first_row
from codesdk.engine.sessions.recovery import close_interrupted, load_state
from codesdk.engine.sessions.scope import Ports
from codesdk.engine.sessions.secrets import Redactors
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.sessions.slots import Slots
from codesdk.engine.tasks import lifecycle

KEEP_LOADED = 4096


class Roster:
    """Every `LiveSession` of an engine, and the door through which their runtimes call tools."""

    def __init__(
        self,
        ports: Ports,
        runtime: Callable[[str], Runtime],
        owner: str,
        slots: Slots,
        redactors: Redactors,
        observers: Observers,
    ) -> None:
        self.gate = Gate(self._require)
        self._ports = ports
        self._find_runtime = runtime
        self._owner = owner
        self._slots = slots
        self._redactors = redactors
        self._observers = observers
        self._purses = Purses(ports.log, ports.limits.principal_budget)
        self._live: OrderedDict[str, LiveSession] = OrderedDict()
        self._loading: dict[str, asyncio.Task[LiveSession]] = {}
        self._unstored: set[str] = set()

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._live

    @property
    def sessions(self) -> Collection[LiveSession]:
        """Those that have something to do, and some that were used lately."""
        return self._live.values()

    def get(self, session_id: str) -> LiveSession | None:
        """Return a session if it is in memory."""
        return self._live.get(session_id)

    async def find(self, session_id: str) -> LiveSession:
        """Return a session, loading it if need be. Raise `NotFound` if there is none."""
        live = self._live.get(session_id)
        if live is not None:
            self._live.move_to_end(session_id)
            return live
        loading = self._loading.get(session_id)
        if loading is None:
            loading = asyncio.create_task(self._load(session_id))
            self._loading[session_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
        return await asyncio.shield(loading)

    async def create(
        self,
        session_id: str,
        payload: SessionCreated,
        principal: str,
        secrets: tuple[str, ...],
        changes: Changes,
    ) -> None:
        """Register a session and write its first event, with the rows that come with it."""
        state = SessionState(session_id=session_id, principal=principal)
        live = self._adopt(state, FIRST_EPOCH, secrets)
        payload = live.recorder.choke_point.clean(payload)  # the row is stored before the event
        row = first_row(session_id, principal, payload, self._ports.stamper.now())
        # Not awaited yet: the registration and the first event then travel in one commit.
        registering = asyncio.ensure_future(self._ports.log.create(row, self._owner))
        live.recorder.journal.changes = changes
        lifecycle.create(live.recorder.journal, payload)
        await registering
        await live.recorder.settle()

    async def take_back(self, session_id: str) -> None:
        """Remove a session whose first event could not be written. If that fails, too, the next start does it."""
        self.forget(session_id)
        with contextlib.suppress(CodeSDKError):
            if await self._ports.log.head(session_id) == 0:
                await self._ports.log.delete(session_id)

    async def recover(self, session_id: str) -> None:
        """Close what a crash left open in a session. One that is damaged is left as it is, for who asks for it."""
        if await self._ports.log.head(session_id) == 0:
            await self._ports.log.delete(session_id)  # registered, but nobody was told of it
            return
        try:
            await self._load(session_id)
        except StorageFailure as error:
            if error.details is None or "unreadable" not in error.details:
                raise

    def forget(self, session_id: str) -> None:
        """Have a session in memory no longer."""
        self._live.pop(session_id, None)

    def forget_all(self) -> None:
        """Have no session in memory any longer."""
        self._live.clear()

    async def _load(self, session_id: str) -> LiveSession:
        try:
            row = await self._ports.log.session(session_id)
        except StorageFailure as error:
            raise StorageFailure(error.message, details={"unreadable": session_id}) from error
        if row is None:
            raise unknown_session(session_id)
        epoch = await self._ports.log.take(session_id, self._owner)
        state = await load_state(self._ports.log, session_id, row.principal)
        live = self._adopt(state, epoch, self._redactors.secrets(session_id))
        await close_interrupted(live.scope, unstored=session_id in self._unstored)
        self._unstored.discard(session_id)
        return live

    def _adopt(self, state: SessionState, epoch: int, secrets: tuple[str, ...]) -> LiveSession:
        live = LiveSession(
            self._ports,
            self._slots,
            self._find_runtime,
            state,
            epoch,
            self._redactors.plus(secrets),
            self._drop,
            self._purses,
            self.gate,
            self._observers,
        )
        if secrets:
            self._redactors.keep(state.session_id, state.principal, secrets)
        self._live[state.session_id] = live
        if len(self._live) > KEEP_LOADED:
            self._let_go()
        return live

    def _let_go(self) -> None:
        """Unload the sessions that were used longest ago, as long as they are idle."""
        for session_id, live in list(self._live.items())[: len(self._live) - KEEP_LOADED]:
            if (
                live.idle
                and not live.connected
                and not live.recorder.feed.readers
                and live.state.created is not None
            ):
                del self._live[session_id]

    def _drop(self, session_id: str, error: CodeSDKError) -> None:
        """Forget a session whose log could not be written; it is loaded anew when needed."""
        self.forget(session_id)
        if isinstance(error, StorageFailure):
            self._unstored.add(session_id)

    def _require(self, session_id: str) -> LiveSession:
        live = self._live.get(session_id)
        if live is None:
            raise unknown_session(session_id)
        return live
