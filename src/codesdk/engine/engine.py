"""`Engine`: the door. Sessions by id, made, found, forked, listed and ended.

Built by `sdk` on the ports. The sessions in memory are those of its `roster`, what must not be told is kept by
`redactors`. Decided here: whose a session is, whether there is room for another, what is done once per key.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import msgspec

from codesdk.contract.errors import Busy, CodeSDKError, Conflict, Forbidden, InvalidRequest
from codesdk.contract.events import SessionCreated
from codesdk.contract.ids import is_task_id
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import Changes, KeyRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import OnBusy, SessionConfig
from codesdk.contract.tools import PermissionMode
from codesdk.engine.log.archive import Archive, unknown_session
from codesdk.engine.log.journal import LOCAL
from codesdk.engine.log.observers import Observers
from codesdk.engine.log.subscription import Subscription
from codesdk.engine.sessions.creation import first_event, forked_event
from codesdk.engine.sessions.keys import Keys
from codesdk.engine.sessions.registry import Roster
from codesdk.engine.sessions.scope import Ports, store_artifact
from codesdk.engine.sessions.secrets import Redactors
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.sessions.slots import Slots
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.validation import MAX_DEPTH, check_size, is_deep
from codesdk.redaction import Redactor

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
        self._redactors = Redactors(secrets)
        self._subscriptions = [Subscription(ports.log, subscriber) for subscriber in ports.subscribers]
        observers = Observers([*ports.observers, *self._subscriptions], ports.strain)
        self._roster = Roster(ports, runtime, owner, self.slots, self._redactors, observers)
        self.gate = self._roster.gate
        self._find_runtime = runtime
        self._allow_yolo = allow_yolo
        self._keys = Keys(ports.log)
        self._open_sessions = 0
        self._closing = False

    async def open(self) -> None:
        """Close what a crash left open, and be ready."""
        for session_id in await self.ports.log.interrupted():
            await self._roster.recover(session_id)
        self._open_sessions = await self.ports.log.count_sessions("open")
        for subscription in self._subscriptions:
            subscription.start()

    async def drain(self, grace_s: float) -> None:
        """Take no more work, and give what runs the time to end by itself."""
        self._closing = True
        for session in self._roster.sessions:
            session.start_no_more()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.slots.emptied()

    async def close(self, reason: str = "CodeSDK is shutting down") -> None:
        """Stop every running task, wait until all is stored and subscribers have it, and let go of everything."""
        self._closing = True
        live = list(self._roster.sessions)
        await asyncio.gather(*(session.halt(lifecycle.ENGINE, reason) for session in live))
        for session in live:
            if session.recorder.broken is None:
                await session.recorder.settle()
            session.recorder.feed.close()
            await session.release()
        self._roster.forget_all()
        await asyncio.gather(*(subscription.close() for subscription in self._subscriptions))

    async def settle_subscribers(self) -> None:
        """Return when every subscriber has taken all that was committed before. `StorageFailure` if one does not."""
        for subscription in self._subscriptions:
            await subscription.settle()

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
        new_id, payload, changes = await forked_event(
            self.ports, self._redactors.own, source.state, seq, title
        )
        secrets = self._redactors.secrets(session_id)
        if key is not None:
            changes.keys.append(msgspec.structs.replace(key, answer=new_id))
        await self._begin(new_id, payload, principal, secrets, changes)
        return await self.session(new_id, principal=principal)

    async def session(
        self, session_id: str, *, principal: str = LOCAL, secrets: Iterable[str] | None = None
    ) -> LiveSession:
        """Return a session by id, loading it if need be. Another principal's is not found.

        Secrets are added to those it has; a task that runs already goes on without the new ones.
        """
        live = await self._roster.find(session_id)
        if live.state.principal != principal:
            raise unknown_session(session_id)
        if secrets is not None:
            self._add_secrets(live, secrets)
        return live

    def _add_secrets(self, live: LiveSession, secrets: Iterable[str]) -> None:
        known = self._redactors.secrets(live.session_id)
        added = tuple(secret for secret in secrets if secret not in known)
        if added:
            live.use_redactor(Redactor((*live.scope.redactor.secrets, *added)))
            self._redactors.keep(live.session_id, live.state.principal, (*known, *added))

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
        redactor = self._redactors.own if principal is None else self._redactor_for(principal)
        secrets = tuple(secrets)
        return (Redactor((*redactor.secrets, *secrets)) if secrets else redactor).value(value)

    def _redactor_for(self, principal: str) -> Redactor:
        return self._redactors.of_principal(principal, self._roster)

    def in_use(self, session_id: str) -> bool:
        """Tell whether something runs in a session, or somebody follows its events."""
        live = self._roster.get(session_id)
        return live is not None and (not live.idle or live.recorder.feed.readers > 0)

    async def delete(self, session_id: str, *, principal: str = LOCAL) -> None:
        """Remove a session and everything stored of it. It must not be running, and subscribers must have its events."""
        live = await self.session(session_id, principal=principal)
        if not live.idle:
            raise Conflict(f"Session {session_id} is running. Close it first.")
        await self.settle_subscribers()
        if not live.idle:
            raise Conflict(f"Session {session_id} was started again. Close it first.")
        if not live.state.closed:
            self._open_sessions -= 1
        live.recorder.feed.close()
        self._roster.forget(session_id)
        self._redactors.forget(session_id)
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
            self._redactor_for(principal),
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
        return await self._begin(session_id, payload, principal, secrets, changes)

    async def _begin(
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
        self._open_sessions += 1
        try:
            await self._roster.create(session_id, payload, principal, secrets, changes)
        except CodeSDKError:
            self._open_sessions -= 1
            await self._roster.take_back(session_id)
            raise
        return session_id

    def redactor_of(self, session_id: str) -> Redactor:
        """Return what takes a session's secrets out of texts, with those that were learned while it ran."""
        live = self._roster.get(session_id)
        return live.scope.redactor if live is not None else self._redactors.of_session(session_id)

    @property
    def open_sessions(self) -> int:
        """How many sessions are not closed."""
        return self._open_sessions

    @property
    def loaded(self) -> Collection[LiveSession]:
        """The sessions in memory: all that have something to do, and some that were used lately."""
        return self._roster.sessions

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
