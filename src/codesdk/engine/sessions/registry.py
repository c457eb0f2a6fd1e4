"""The sessions in memory: stored ones are loaded when an action first needs them, new ones when created.

To acquire a session is to become its owner and to close what a crash left open in it; reading does neither.
A session whose log could not be written is dropped, and idle ones are unloaded, least recently used first;
both are loaded again when needed.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from codesdk.contract.actions import Equipment
from codesdk.contract.errors import CodeSDKError, Conflict, NotFound, StorageFailure
from codesdk.contract.events import SessionCreated
from codesdk.contract.ports import FIRST_EPOCH
from codesdk.contract.records import Changes, KeyRow, SessionRow
from codesdk.contract.runtime import Runtime, ToolReply
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.engine.calls.carried import close_interrupted
from codesdk.engine.log.choke_point import ChokePoint
from codesdk.engine.log.feed import Feeds, unknown_session
from codesdk.engine.log.fold import session_row
from codesdk.engine.log.loading import load_state
from codesdk.engine.log.observers import Observers
from codesdk.engine.log.recorder import Recorder
from codesdk.engine.log.state import SessionState
from codesdk.engine.models.limits import Spending
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.creation import first_row
from codesdk.engine.sessions.queue import Slots
from codesdk.engine.sessions.scope import Ports, SessionScope
from codesdk.engine.sessions.sealing import Held, hold, seal
from codesdk.engine.sessions.secrets import SessionSecrets, made_ready
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.tasks import lifecycle

KEEP_LOADED = 4096
RETRY_S = 5.0
"""How long to wait before recovery of a session whose log could not be written is tried again."""


class SessionRegistry:
    """Holds every `LiveSession` of an engine, and gives them to nobody outside of it."""

    def __init__(
        self,
        ports: Ports,
        runtime: Callable[[str], Runtime],
        owner: str,
        secrets: SessionSecrets,
        observers: Observers,
        permits: Permits,
    ) -> None:
        self.feeds = Feeds(ports.log, ports.strain, alone=ports.alone)
        self.slots = Slots(ports.limits)
        self.ports = ports
        self.find_runtime = runtime
        self._owner = owner
        self.secrets = secrets
        self._observers = observers
        self._permits = permits
        self._spending = Spending(ports.log, ports.limits.principal_budget)
        self._live: OrderedDict[str, LiveSession] = OrderedDict()
        self._loading: dict[str, asyncio.Task[LiveSession]] = {}
        self._unstored: set[str] = set()
        self._recovering: set[asyncio.Task[None]] = set()
        self.tool_calls = SessionCalls(self._require)
        self.on_loaded: Callable[[LiveSession], None] = lambda live: None
        """Called for each stored session that was loaded, after what a crash left open in it is closed."""

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._live

    @property
    def sessions(self) -> Collection[LiveSession]:
        """The sessions that have work to do, and some that were used recently."""
        return self._live.values()

    def get(self, session_id: str) -> LiveSession | None:
        """Return a session if it is in memory."""
        return self._live.get(session_id)

    async def acquire(self, session_id: str, principal: str | None = None) -> LiveSession:
        """Return a session to act on, taking ownership if needed. Raise `NotFound` if there is none.

        Whoever has read whose it is says so: then its row is not read again.
        """
        live = self._live.get(session_id)
        if live is not None:
            self._live.move_to_end(session_id)
            return live
        # Concurrent callers share one load, and one that is cancelled does not cancel it for the others.
        loading = self._loading.get(session_id)
        if loading is None:
            loading = asyncio.create_task(self._load(session_id, principal))
            self._loading[session_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
        return await asyncio.shield(loading)

    async def create(
        self,
        session_id: str,
        payload: SessionCreated,
        principal: str,
        equipment: Equipment,
        changes: Changes,
        key: KeyRow | None,
    ) -> SessionRow:
        """Register a session and write its first event, with the rows that come with it. Return its row."""
        # The first session of a process loads what tools need. Else whoever starts the first task would wait for that.
        self.ports.tools.specs()
        # Sealed first: whoever is told of the session can rely on it, and a seal without a session is swept.
        await seal(self.ports.equipment, session_id, equipment)
        state = SessionState(session_id=session_id, principal=principal)
        recorder = await self._recorder(state, FIRST_EPOCH, equipment)
        payload = recorder.choke_point.clean_first(payload)  # the row is stored before the event
        row = first_row(session_id, principal, payload, self.ports.stamper.now())
        # Not awaited yet: the registration and the first event then travel in one commit.
        registering = asyncio.ensure_future(self.ports.log.create(row, self._owner))
        recorder.journal.changes = changes
        lifecycle.create(recorder.journal, payload)
        self._adopt(recorder, Held(equipment, [], given=False))
        row = session_row(state)
        if key is not None:
            recorder.add_key(key, row)
        await registering
        await recorder.settle()
        return row

    async def take_back(self, session_id: str) -> None:
        """Remove a session whose first event could not be written. If that fails, the next start does it."""
        self.forget(session_id)
        with contextlib.suppress(CodeSDKError):
            if await self.ports.log.head(session_id) == 0:
                await self.ports.log.delete(session_id)
                await self.ports.equipment.forget(session_id)

    async def recover_all(self) -> None:
        """Close what a crash left open in the sessions that this owner held, and in no others."""
        for session_id in await self.ports.log.interrupted(self._owner):
            await self._recover(session_id)

    async def _recover(self, session_id: str) -> None:
        """Close what a crash left open in a session. Skip a damaged one; loading it reports the damage."""
        if await self.ports.log.head(session_id) == 0:
            await self.ports.log.delete(session_id)  # registered, but nobody was told of it
            return
        try:
            await self._load(session_id)
        except StorageFailure as error:
            # Damage concerns this session alone; any other storage failure is passed on.
            if error.details is None or "unreadable" not in error.details:
                raise

    def learn_keys(self) -> None:
        """Keep provider keys that were stored since out of every session, and of whatever is stored beside them."""
        if self.ports.keys is None:
            return
        new = self.secrets.learn(self.ports.keys.secrets())
        if new:
            for live in self._live.values():
                live.scope.learn(new)

    def forget(self, session_id: str) -> None:
        """Drop a session from memory."""
        live = self._live.pop(session_id, None)
        if live is not None:
            live.recorder.feed.has_writer = False  # its readers now learn from the store what is committed

    def was_unstored(self, session_id: str) -> bool:
        """Return whether this engine failed to write the session's log and has not recovered it yet."""
        return session_id in self._unstored

    def forget_all(self) -> None:
        """Drop all sessions from memory."""
        for recovering in self._recovering:
            recovering.cancel()
        self._live.clear()

    async def _load(self, session_id: str, principal: str | None = None) -> LiveSession:
        principal = principal or await self._principal_of(session_id)
        # Ownership first: the log then refuses the previous owner's writes, so what is read next stays true.
        epoch = await self.ports.log.take(session_id, self._owner)
        state = await load_state(self.ports.log, session_id, principal)
        # Its secrets are known before anything of it is written or shown again.
        held = await hold(self.ports.equipment, session_id, state.config.sealed)
        live = self._adopt(await self._recorder(state, epoch, held.equipment), held)
        # Before anyone acts on it: no task is running now, whatever the log says.
        unstored = session_id in self._unstored
        await close_interrupted(live.scope, "STORAGE_FAILED" if unstored else "INTERRUPTED")
        self._unstored.discard(session_id)
        self.on_loaded(live)
        return live

    async def _principal_of(self, session_id: str) -> str:
        try:
            row = await self.ports.log.session(session_id)
        except StorageFailure as error:
            raise StorageFailure(error.message, details={"unreadable": session_id}) from error
        if row is None:
            raise unknown_session(session_id)
        return row.principal

    async def _recorder(self, state: SessionState, epoch: int, equipment: Equipment) -> Recorder:
        ports, own = self.ports, self.secrets.own
        ready = await made_ready(self.secrets.plus(tuple(equipment.secrets)))
        # Made again if a provider's key was learned meanwhile; what was compiled is shared as long as `ready` is there.
        redactor = self.secrets.plus(tuple(equipment.secrets)) if self.secrets.own is not own else ready
        return Recorder(
            ports.log,
            state,
            epoch,
            ports.stamper,
            self.feeds.of_writer(state.session_id, state.seq),
            choke_point=ChokePoint(redactor, ports.strain),
            max_backlog=ports.limits.max_backlog_frames,
            observers=self._observers,
            strain=ports.strain,
        )

    def _adopt(self, recorder: Recorder, held: Held) -> LiveSession:
        """Build the live session for a recorder that has its first event."""
        state = recorder.state
        scope = SessionScope(
            ports=self.ports,
            recorder=recorder,
            settings=msgspec.convert(state.config.settings, type=SessionSettings),
            workspace=Workspace(state.config.workspace),
            permits=self._permits,
        )
        live = LiveSession(scope, self.slots, self.find_runtime, self._spending, self.tool_calls, held)
        recorder.on_broken = lambda error: self._drop(live, error)
        if held.equipment.secrets:
            self.secrets.keep(state.session_id, state.principal, tuple(held.equipment.secrets))
        self._live[state.session_id] = live
        if len(self._live) > KEEP_LOADED:
            self._unload()
        return live

    def _unload(self) -> None:
        """Unload the least recently used sessions that are idle and that nobody follows."""
        for session_id, live in list(self._live.items())[: len(self._live) - KEEP_LOADED]:
            if live.idle and not live.resources.connected and not live.recorder.feed.readers:
                self.forget(session_id)

    def _drop(self, live: LiveSession, error: CodeSDKError) -> None:
        """Drop a session whose log could not be written; it is loaded again when needed."""
        live.queue.abort(error)
        self.forget(live.session_id)
        self.feeds.drop(live.session_id)
        if isinstance(error, StorageFailure):
            self._unstored.add(live.session_id)
            self._recover_later(live.session_id)

    def _recover_later(self, session_id: str) -> None:
        """Recover a session in the background once its log can be written, so that nobody waits for ever."""
        task = asyncio.create_task(self._recover_when_possible(session_id))
        self._recovering.add(task)
        task.add_done_callback(self._recovering.discard)

    async def _recover_when_possible(self, session_id: str) -> None:
        while session_id in self._unstored:
            await asyncio.sleep(RETRY_S)
            try:
                await self.acquire(session_id)
            except NotFound:  # not even its first event could be written
                self._unstored.discard(session_id)
            except CodeSDKError:
                pass  # later, then

    def _require(self, session_id: str) -> LiveSession:
        live = self._live.get(session_id)
        if live is None:
            raise unknown_session(session_id)
        return live


class SessionCalls:
    """Implements `ToolCalls` for calls over MCP. Whoever has it can call tools of running tasks, and nothing else."""

    def __init__(self, require: Callable[[str], LiveSession]) -> None:
        self._require = require

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        """Return the tools that a session offers."""
        return self._require(session_id).scope.offered()

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        """Decide a call of the running task, and run it if it may run."""
        try:
            live = self._require(session_id)
            run = live.queue.run
            if run is None or live.state.task is None:
                raise Conflict(f"Session {session_id} has no running task, so no tool can be called.")
            return run.calls.request(name, arguments, runtime_tool_call_id)
        except CodeSDKError as error:
            refused: asyncio.Future[ToolReply] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
