"""`Engine`: the door. Sessions by id, made, found, forked, listed and ended.

Built by `sdk` (and later the daemon) on the ports; owns every `LiveSession`. A
session is loaded when it is first needed and let go when many others are.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import msgspec

from codesdk.contract.errors import Busy, CodeSDKError, Conflict, Forbidden, InvalidRequest, StorageFailure
from codesdk.contract.events import SessionCreated
from codesdk.contract.ids import is_task_id
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.ports import FIRST_EPOCH
from codesdk.contract.records import Changes, KeyRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import OnBusy, SessionConfig
from codesdk.contract.tools import PermissionMode
from codesdk.engine import lifecycle
from codesdk.engine.archive import Archive, unknown_session
from codesdk.engine.beginnings import first_event, first_row, forked_event
from codesdk.engine.gate import Gate
from codesdk.engine.journal import LOCAL
from codesdk.engine.keys import Keys
from codesdk.engine.legible import MAX_DEPTH, check_size, is_deep
from codesdk.engine.purses import Purses
from codesdk.engine.recovery import (
    close_interrupted,
    load_state,
    transcript_at,
)
from codesdk.engine.scope import Ports, store_artifact
from codesdk.engine.session import LiveSession
from codesdk.engine.slots import Slots
from codesdk.engine.state import SessionState
from codesdk.store.redaction import Redactor

KEEP_LOADED = 4096
GARBAGE_GRACE_S = 3600.0


class Engine:
    """All sessions of one log. One engine per log may be open at a time."""

    def __init__(
        self,
        ports: Ports,
        runtime: Callable[[str], Runtime],
        *,
        owner: str,
        secrets: Iterable[str] = (),
        allow_yolo: bool = False,
    ) -> None:
        self.ports = ports
        self.archive = Archive(ports.log, ports.blobs)
        self.slots = Slots(ports.limits)
        self.gate = Gate(self._loaded)
        self._find_runtime = runtime
        self._owner = owner
        self._allow_yolo = allow_yolo
        self._secrets = tuple(secrets)
        self._redactor = Redactor(self._secrets)
        self._live: OrderedDict[str, LiveSession] = OrderedDict()
        self._loading: dict[str, asyncio.Task[LiveSession]] = {}
        self._keys = Keys(ports.log)
        self._purses = Purses(ports.log, ports.limits.principal_budget)
        self._session_secrets: dict[str, tuple[str, ...]] = {}
        self._principal_redactors: dict[str, Redactor] = {}
        self._unstored: set[str] = set()
        self._open_sessions = 0
        self._closing = False

    async def open(self) -> None:
        """Close what a crash left open, and be ready."""
        for session_id in await self.ports.log.interrupted():
            await self._recover(session_id)
        self._open_sessions = await self.ports.log.count_sessions("open")

    async def drain(self, grace_s: float) -> None:
        """Take no more work, and give what runs the time to end by itself."""
        self._closing = True
        for session in self._live.values():
            session.start_no_more()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.slots.emptied()

    async def close(self, reason: str = "CodeSDK is shutting down") -> None:
        """Stop every running task, wait until all is stored, and let go of everything."""
        self._closing = True
        live = list(self._live.values())
        await asyncio.gather(*(session.halt(lifecycle.ENGINE, reason) for session in live))
        for session in live:
            if session.recorder.broken is None:
                await session.recorder.settle()
            session.recorder.feed.close()
            await session.release()
        self._live.clear()

    async def create_session(
        self,
        config: SessionConfig,
        *,
        principal: str = LOCAL,
        secrets: Iterable[str] = (),
        key: str | None = None,
        equipment: Any = None,
    ) -> LiveSession:
        """Create a session. With a key, the same request again returns the first session.

        `equipment` is what else the request says and what is not stored: under the same key, it must be the same.
        """
        self._check_mode(config.permission_mode)
        data = check_size(config, "The settings of a session", self.ports.limits.max_message_bytes)
        if is_deep(data):
            raise InvalidRequest(
                f"The settings of a session may be nested {MAX_DEPTH} levels deep, not more."
            )
        body, secrets = msgspec.to_builtins([config, equipment]), tuple(secrets)
        session_id = await self._keys.once(
            principal, "sessions", key, body, lambda row: self._create(config, principal, secrets, row)
        )
        return await self.session(session_id, principal=principal, secrets=secrets)

    async def fork(
        self,
        session_id: str,
        seq: int | None = None,
        *,
        principal: str = LOCAL,
        title: str | None = None,
        key: KeyRow | None = None,
    ) -> LiveSession:
        """Create a session that starts from another's transcript as it was at a seq (now, if not given)."""
        check_size(title, "The title", self.ports.limits.max_message_bytes)
        source = await self.session(session_id, principal=principal)
        self._check_mode(source.state.config.permission_mode)
        await source.recorder.settle()
        at = source.state.seq if seq is None else seq
        if not 1 <= at <= source.state.seq:
            raise InvalidRequest(
                f"Session {session_id} has events 1 to {source.state.seq}; it cannot fork at {at}."
            )
        rows = await transcript_at(self.ports.log, source.state, self.ports.stamper, at)
        secrets = self._session_secrets.get(session_id, ())
        new_id = self.ports.stamper.mint("ses")
        payload, changes = await forked_event(
            self.ports, self._redactor, source.state, rows, at, new_id, title
        )
        if key is not None:
            changes.keys.append(msgspec.structs.replace(key, answer=new_id))
        await self._write_new(new_id, payload, principal, secrets, changes)
        return await self.session(new_id, principal=principal)

    async def session(
        self, session_id: str, *, principal: str = LOCAL, secrets: Iterable[str] | None = None
    ) -> LiveSession:
        """Return a session by id, loading it if need be. Another principal's is not found.

        Secrets are added to those it has; a task that runs already goes on without the new ones.
        """
        live = self._live.get(session_id)
        if live is None:
            loading = self._loading.get(session_id)
            if loading is None:
                loading = asyncio.create_task(self._load(session_id))
                self._loading[session_id] = loading
                loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
            live = await asyncio.shield(loading)
        else:
            self._live.move_to_end(session_id)
        if live.state.principal != principal:
            raise unknown_session(session_id)
        if secrets is not None:
            self._add_secrets(live, secrets)
        return live

    def _add_secrets(self, live: LiveSession, secrets: Iterable[str]) -> None:
        known = self._session_secrets.get(live.session_id, ())
        added = tuple(secret for secret in secrets if secret not in known)
        if added:
            live.use_redactor(Redactor((*live.scope.redactor.secrets, *added)))
            self._session_secrets[live.session_id] = (*known, *added)
            self._principal_redactors.pop(live.state.principal, None)

    async def start(
        self,
        session: LiveSession,
        messages: list[Message],
        *,
        on_busy: OnBusy = "queue",
        task_id: str | None = None,
        key: str | None = None,
    ) -> str:
        """Start a task in a session, as its `start` does, once per idempotency key."""
        self._refuse_if_closing()
        self._check_mode(session.state.config.permission_mode)
        body = [session.session_id, msgspec.to_builtins(messages), on_busy, task_id]

        async def begin(row: KeyRow | None) -> str:
            if task_id is not None:
                await self._check_task_id(task_id, session.state.principal)
                if session.scope.redactor.text(task_id) != task_id:
                    raise InvalidRequest("The task id holds a secret, and ids are shown. Choose another.")
            new_id = task_id or self.ports.stamper.mint("task")
            if row is not None:
                row = msgspec.structs.replace(row, answer=new_id)
            return await session.start(messages, on_busy=on_busy, task_id=new_id, key=row)

        return await self._keys.once(session.state.principal, "tasks", key, body, begin)

    async def resume(
        self, session: LiveSession, messages: list[Message] | None = None, key: KeyRow | None = None
    ) -> str:
        """Go on in an interrupted session. Return the id of the new task."""
        self._refuse_if_closing()
        self._check_mode(session.state.config.permission_mode)
        return await session.resume(messages or [], self.ports.stamper.mint("task"), key)

    async def once(
        self,
        principal: str,
        route: str,
        key: str | None,
        body: Any,
        act: Callable[[KeyRow | None], Awaitable[str]],
        *,
        passing: bool = False,
    ) -> str:
        """Act once per idempotency key, and return the answer of that one time. `act` commits the row with its effect.

        What is `passing` is not stored, and neither is its key.
        """
        return await self._keys.once(principal, route, key, body, act, passing=passing)

    def clean(self, value: Any, principal: str | None = None, secrets: Iterable[str] = ()) -> Any:
        """Return a value without the secrets that are known here, those of a principal's sessions, and these."""
        redactor = self._redactor if principal is None else self._redactor_of(principal)
        secrets = tuple(secrets)
        return (Redactor((*redactor.secrets, *secrets)) if secrets else redactor).value(value)

    def _redactor_of(self, principal: str) -> Redactor:
        """Return what takes out the secrets of all sessions of a principal that are in memory."""
        found = self._principal_redactors.get(principal)
        if found is None:
            live = [(self._live.get(name), kept) for name, kept in self._session_secrets.items()]
            theirs = {word for one, kept in live if one and one.state.principal == principal for word in kept}
            found = Redactor((*self._secrets, *sorted(theirs))) if theirs else self._redactor
            self._principal_redactors[principal] = found
        return found

    def in_use(self, session_id: str) -> bool:
        """Tell whether something runs in a session, or somebody follows its events."""
        live = self._live.get(session_id)
        return live is not None and (not live.idle or live.recorder.feed.readers > 0)

    async def delete(self, session_id: str, *, principal: str = LOCAL) -> None:
        """Remove a session and everything stored of it. It must not be running."""
        live = await self.session(session_id, principal=principal)
        if not live.idle:
            raise Conflict(f"Session {session_id} is running. Close it first.")
        if not live.state.closed:
            self._open_sessions -= 1
        live.recorder.feed.close()
        self._live.pop(session_id, None)
        self._session_secrets.pop(session_id, None)
        await self.ports.log.delete(session_id)
        await self.ports.undo.drop(session_id)
        await live.release()

    async def close_session(
        self, session_id: str, reason: str, *, principal: str = LOCAL, key: KeyRow | None = None
    ) -> None:
        """Close a session for good; its log stays."""
        live = await self.session(session_id, principal=principal)
        if await live.close(reason, key):
            self._open_sessions -= 1

    async def put_artifact(
        self,
        data: bytes,
        content_type: str,
        name: str | None = None,
        *,
        principal: str = LOCAL,
        key: KeyRow | None = None,
    ) -> ArtifactRef:
        """Store bytes that a message can then attach."""
        row = await store_artifact(
            self.ports,
            self._redactor_of(principal),
            scope=principal,
            principal=principal,
            data=data,
            content_type=content_type,
            name=name,
        )
        if key is not None:
            key = msgspec.structs.replace(key, answer=row.ref.artifact_id)
        await self.ports.log.add_artifact(row, key)
        return row.ref

    async def collect_garbage(self, older_than_s: float = GARBAGE_GRACE_S) -> int:
        """Remove stored bytes that no artifact names any more. Return how many went."""
        for session_id in await self.ports.undo.sessions():
            if await self.ports.log.session(session_id) is None:
                await self.ports.undo.drop(session_id)
        return await self.ports.blobs.sweep(self.ports.log.referenced, older_than_s)

    async def _create(
        self, config: SessionConfig, principal: str, secrets: tuple[str, ...], key: KeyRow | None
    ) -> str:
        payload = first_event(config, self._find_runtime(config.runtime), principal)
        session_id = self.ports.stamper.mint("ses")
        changes = Changes(keys=[msgspec.structs.replace(key, answer=session_id)] if key else [])
        return await self._write_new(session_id, payload, principal, secrets, changes)

    async def _write_new(
        self,
        session_id: str,
        payload: SessionCreated,
        principal: str,
        secrets: tuple[str, ...],
        changes: Changes,
    ) -> str:
        self._refuse_if_closing()
        if self._open_sessions >= self.ports.limits.max_sessions:
            raise Busy(
                f"There are {self._open_sessions} open sessions, which is the limit. Close some.",
                code="OVERLOADED",
            )
        redactor = Redactor((*self._secrets, *secrets)) if secrets else self._redactor
        plain = msgspec.to_builtins(payload)
        clean = redactor.value(plain)
        if clean is not plain:
            payload = msgspec.convert(clean, type=SessionCreated)
        self._open_sessions += 1
        try:
            row = first_row(session_id, principal, payload, self.ports.stamper.now())
            # Not awaited yet: the registration and the first event then travel in one commit.
            registering = asyncio.ensure_future(self.ports.log.create(row, self._owner))
            state = SessionState(session_id=session_id, principal=principal)
            live = self._adopt(state, FIRST_EPOCH, secrets)
            live.recorder.journal.changes = changes
            lifecycle.create(live.recorder.journal, payload)
            await registering
            await live.recorder.settle()
        except CodeSDKError:
            self._open_sessions -= 1
            self._live.pop(session_id, None)
            with contextlib.suppress(CodeSDKError):  # else the next start removes it
                if await self.ports.log.head(session_id) == 0:
                    await self.ports.log.delete(session_id)
            raise
        return session_id

    async def _recover(self, session_id: str) -> None:
        """Close what a crash left open in a session. One that is damaged is left as it is, for who asks for it."""
        if await self.ports.log.head(session_id) == 0:
            await self.ports.log.delete(session_id)  # registered, but nobody was told of it
            return
        try:
            await self._load(session_id)
        except StorageFailure as error:
            if error.details is None or "unreadable" not in error.details:
                raise

    async def _load(self, session_id: str) -> LiveSession:
        try:
            row = await self.ports.log.session(session_id)
        except StorageFailure as error:
            raise StorageFailure(error.message, details={"unreadable": session_id}) from error
        if row is None:
            raise unknown_session(session_id)
        epoch = await self.ports.log.take(session_id, self._owner)
        state = await load_state(self.ports.log, session_id, row.principal)
        live = self._adopt(state, epoch, self._session_secrets.get(session_id, ()))
        await close_interrupted(live.scope, unstored=session_id in self._unstored)
        self._unstored.discard(session_id)
        return live

    def _adopt(self, state: SessionState, epoch: int, secrets: tuple[str, ...]) -> LiveSession:
        redactor = Redactor((*self._secrets, *secrets)) if secrets else self._redactor
        live = LiveSession(
            self.ports,
            self.slots,
            self._find_runtime,
            state,
            epoch,
            redactor,
            self._drop,
            self._purses,
            self.gate,
        )
        if secrets:
            self._session_secrets[state.session_id] = secrets
            self._principal_redactors.pop(state.principal, None)
        self._live[state.session_id] = live
        if len(self._live) > KEEP_LOADED:
            self._let_go()
        return live

    def redactor_of(self, session_id: str) -> Redactor:
        """Return what takes a session's secrets out of texts, with those that were learned while it ran."""
        live = self._live.get(session_id)
        if live is not None:
            return live.scope.redactor
        return Redactor((*self._secrets, *self._session_secrets.get(session_id, ())))

    @property
    def open_sessions(self) -> int:
        """How many sessions are not closed."""
        return self._open_sessions

    @property
    def loaded(self) -> Collection[LiveSession]:
        """The sessions in memory: all that have something to do, and some that were used lately."""
        return self._live.values()

    def _loaded(self, session_id: str) -> LiveSession:
        live = self._live.get(session_id)
        if live is None:
            raise unknown_session(session_id)
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
        self._live.pop(session_id, None)
        if isinstance(error, StorageFailure):
            self._unstored.add(session_id)

    async def _check_task_id(self, task_id: str, principal: str) -> None:
        if not is_task_id(task_id):
            raise InvalidRequest("A task id is `task_` and 1 to 64 letters, digits, `-` or `_`.")
        if await self.ports.log.task(task_id, principal) is not None:
            raise Conflict(f"There is already a task {task_id}.")

    def _check_mode(self, mode: PermissionMode) -> None:
        if mode == "yolo" and not self._allow_yolo:
            raise Forbidden(
                "The permission mode yolo runs every tool without asking and is not enabled here. Use auto, or"
                " have the operator enable it: CodeSDK.open(allow_yolo=True), or --allow-yolo."
            )

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise Busy("CodeSDK is shutting down.", code="OVERLOADED")
