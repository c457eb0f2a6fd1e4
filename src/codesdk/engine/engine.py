"""`Engine`: all sessions of one log. `execute` is the only way to change one; the rest reads and cleans up.

The package's front. `sessions.registry` holds the sessions in memory; `sessions.actions` carries out actions.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import CoroutineType
from typing import Any, TypeVar

import msgspec

from codesdk.contract.actions import LOCAL, Action, Caller
from codesdk.contract.api import LoginState, RuntimeAuth
from codesdk.contract.canonical import content_hash
from codesdk.contract.capabilities import Isolation, IsolationLevel
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.jobs import JobRow
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import ToolCalls
from codesdk.contract.records import KeyRow
from codesdk.contract.runtime import Runtime, RuntimeEnv
from codesdk.contract.sender import Sender
from codesdk.contract.service import Published
from codesdk.contract.validation import checked
from codesdk.engine.log.archive import Archive
from codesdk.engine.log.feed import Feed, follow
from codesdk.engine.log.observers import Observers
from codesdk.engine.log.subscription import Subscription
from codesdk.engine.logins import Logins, readiness
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.actions import JobChange, SessionActions
from codesdk.engine.sessions.going_on import GoingOn
from codesdk.engine.sessions.registry import SessionRegistry
from codesdk.engine.sessions.scope import Ports, store_artifact
from codesdk.engine.sessions.sealing import sweep, unseal
from codesdk.engine.sessions.secrets import SessionSecrets
from codesdk.engine.tasks import lifecycle
from codesdk.redaction import Redactor

GARBAGE_GRACE_S = 3600.0
READY_S = 10.0
"""How long a runtime may take to say whether it is ready, when all of them are asked."""

R = TypeVar("R")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the sessions in memory."""

    sessions: int
    queued_tasks: int
    waiting_approvals: int


class Engine:
    """All sessions of one log. `owner` must be the same name after a restart, or nothing is recovered.

    `runtime` finds a runtime by its name, `runtimes` are the names of those that there are. With `goes_on`, interrupted tasks of sessions that say so (`on_interrupt`) go on by themselves here.
    """

    def __init__(
        self,
        ports: Ports,
        runtime: Callable[[str], Runtime],
        *,
        runtimes: Callable[[], Iterable[str]] = tuple,
        owner: str,
        secrets: Iterable[str] = (),
        permits: Permits | None = None,
        launch: Mapping[str, Any] | None = None,
        goes_on: bool = True,
    ) -> None:
        checked(ports.limits)
        self.ports = ports
        self.archive = Archive(ports.log, ports.blobs)
        self._secrets = SessionSecrets(secrets)
        self._subscriptions = [Subscription(ports.log, subscriber) for subscriber in ports.subscribers]
        observers = Observers([*ports.observers, *self._subscriptions], ports.strain)
        self.permits = permits or Permits()
        self.launch: Mapping[str, Any] = {
            "limits": ports.limits,
            "permits": self.permits,
            **(launch or {}),
        }
        """What it was started with, as a support bundle shows it."""
        self._registry = SessionRegistry(ports, runtime, owner, self._secrets, observers, self.permits)
        self._runtimes = runtimes
        self._actions = SessionActions(
            self._registry, self.permits, self.settle_subscribers, self.ready_runtimes
        )
        self._going_on = GoingOn(self._registry, self._actions.execute_alone)
        if goes_on:
            self._registry.on_loaded = self._actions.on_answered = self._going_on.consider
        self.keys = self._actions.keys
        self.logins = Logins()
        self.slots = self._registry.slots
        self.tool_calls: ToolCalls = self._registry.tool_calls

    async def open(self) -> None:
        """Close what a crash left open in this owner's sessions, then start the subscriptions."""
        await self._registry.recover_all()
        if self.ports.alone:  # else a session that another engine is just creating would lose its equipment
            await sweep(self.ports.equipment, self.ports.log)
        self._actions.open_sessions = await self.ports.log.count_sessions("open")
        for subscription in self._subscriptions:
            subscription.start()

    async def drain(self, grace_s: float) -> None:
        """Refuse new work, and wait up to `grace_s` for running tasks to end by themselves."""
        self._actions.closing = True
        for session in self._registry.sessions:
            session.queue.start_no_more()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.slots.emptied()

    async def close(self, reason: str = "CodeSDK is shutting down") -> None:
        """Stop every running task, wait until all is stored and delivered, and release all resources."""
        self._actions.closing = True
        await self._going_on.close()
        await self.logins.close()
        live = list(self._registry.sessions)
        await asyncio.gather(*(session.end_work(lifecycle.ENGINE, reason) for session in live))
        for session in live:
            # Readers must get the last events before their streams end.
            if session.recorder.broken is None:
                await session.recorder.settle()
            session.recorder.feed.close()
            await session.resources.release()
        self._registry.feeds.close()
        self._registry.forget_all()
        await asyncio.gather(*(subscription.close() for subscription in self._subscriptions))

    def watch_jobs(self, told: Callable[[JobChange, Caller, JobRow], None]) -> None:
        """Tell whoever runs the jobs of extensions what people change about them."""
        self._actions.on_job = told

    async def settle_subscribers(self) -> None:
        """Wait until every subscriber has taken what was committed. Raise `StorageFailure` if one fails."""
        for subscription in self._subscriptions:
            await subscription.settle()

    def execute(
        self, action: Action[R], caller: Caller, key: str | None = None
    ) -> "CoroutineType[Any, Any, R]":
        """Carry out an action. The same action again under the same key returns the first result."""
        return self._actions.execute(action, caller, key)  # passed on, so that no coroutine waits for another

    async def feed(self, session_id: str, *, principal: str = LOCAL) -> Feed:
        """Return the feed of a session's committed events. Reading does not make this engine the owner."""
        live = self._registry.get(session_id)
        if live is not None and live.state.principal == principal:
            return live.recorder.feed
        await self.archive.as_principal(principal).session(session_id)
        # This engine runs it and could not write its log. Its readers wait for an end that only recovery can write, and
        # need not wait until that is tried again by itself.
        if self._registry.was_unstored(session_id):
            return (await self._registry.acquire(session_id)).recorder.feed
        return await self._registry.feeds.of_reader(session_id)

    async def follow(
        self, session_id: str, after_seq: int = 0, *, principal: str = LOCAL
    ) -> AsyncGenerator[list[Published]]:
        """Yield batches of a session's events after a seq, stored ones first, then live ones."""
        async with contextlib.aclosing(
            follow(await self.feed(session_id, principal=principal), after_seq)
        ) as batches:
            async for batch in batches:
                yield batch

    async def put_artifact(
        self,
        data: bytes,
        content_type: str,
        name: str | None = None,
        *,
        principal: str = LOCAL,
        key: str | None = None,
    ) -> ArtifactRef:
        """Store bytes that a message can attach. The same key again returns the first artifact."""

        async def put(row: KeyRow | None) -> ArtifactRef:
            stored = await store_artifact(
                self.ports,
                self._redactor_for(principal),
                scope=principal,
                principal=principal,
                data=data,
                content_type=content_type,
                name=name,
            )
            if row is not None:
                row = msgspec.structs.replace(row, answer=msgspec.to_builtins(stored.ref))
            await self.ports.log.add_artifact(stored, row)
            return stored.ref

        body = None if key is None else [content_hash(data), content_type, name]
        answer = await self.keys.once(principal, "put_artifact", key, body, put)
        return msgspec.convert(answer, type=ArtifactRef) if isinstance(answer, dict) else answer

    async def collect_garbage(self, older_than_s: float = GARBAGE_GRACE_S) -> int:
        """Remove stored bytes that no artifact refers to any more. Return how many blobs were removed."""
        # A crash between deleting a session and its undo content leaves the content behind.
        for session_id in await self.ports.undo.sessions():
            if await self.ports.log.session(session_id) is None:
                await self.ports.undo.drop(session_id)
        return await self.ports.blobs.sweep(self.ports.log.referenced, older_than_s)

    def clean(self, value: Any, principal: str | None = None, secrets: Iterable[str] = ()) -> Any:
        """Return a value without the engine's secrets, those of a principal's sessions, and `secrets`."""
        redactor = self._secrets.own if principal is None else self._redactor_for(principal)
        secrets = tuple(secrets)
        return (Redactor((*redactor.secrets, *secrets)) if secrets else redactor).value(value)

    def _redactor_for(self, principal: str) -> Redactor:
        return self._secrets.of_principal(principal, self._registry)

    async def redactor_of(self, session_id: str) -> Redactor:
        """Return the redactor for a session's secrets, including those learned while it ran."""
        live = self._registry.get(session_id)
        if live is not None:
            return live.recorder.choke_point.redactor  # the last check, so not the one that the edges use
        return self._secrets.plus(tuple((await unseal(self.ports.equipment, session_id)).secrets))

    def learn_keys(self) -> None:
        """Keep provider keys that were stored since out of everything that is stored or shown."""
        self._registry.learn_keys()

    def env_of(self, runtime: Runtime, principal: str, namespace: str | None = None) -> RuntimeEnv:
        """Return the environment of a runtime for a principal, outside of any session."""
        gateway, payer = self.ports.models, self.permits.payer(principal)
        level: IsolationLevel = "namespaced" if self.ports.state_dir else "ephemeral"
        return RuntimeEnv(
            cwd="/",
            env={},
            credential_namespace=namespace or principal,
            isolation=Isolation(level=level, mode="subprocess"),
            state_dir=self.ports.state_dir,
            payer=payer,
            models={} if gateway is None else gateway.access(payer, "passthrough"),
            login=self.permits.logins.get(runtime.name),
            allow_untested=self.permits.allow_untested,
        )

    async def runtime_auth(self, name: str, principal: str = LOCAL) -> RuntimeAuth:
        """Return whether a principal's task on a runtime could begin."""
        runtime = self._registry.find_runtime(name)
        return await readiness(runtime, self.env_of(runtime, principal))

    async def ready_runtimes(self, principal: str = LOCAL) -> list[str]:
        """Return the runtimes on which a principal's task could begin, of those that the operator permits."""
        names = [name for name in self._runtimes() if name in (self.permits.runtimes or (name,))]
        ready = await asyncio.gather(*(self._is_ready(name, principal) for name in names))
        return [name for name, is_ready in zip(names, ready, strict=True) if is_ready]

    async def _is_ready(self, name: str, principal: str) -> bool:
        try:
            async with asyncio.timeout(READY_S):
                return (await self.runtime_auth(name, principal)).ready
        except (CodeSDKError, TimeoutError):
            return False

    async def begin_login(
        self, name: str, principal: str = LOCAL, namespace: str | None = None
    ) -> LoginState:
        """Start a login of a runtime's own, in the principal's namespace or another one that it may use."""
        runtime = self._registry.find_runtime(name)
        self.permits.check_namespace(namespace, principal)
        return await self.logins.begin(runtime, self.env_of(runtime, principal, namespace), principal)

    def is_running(self, session_id: str) -> bool:
        """Return whether a task of a session runs here."""
        live = self._registry.get(session_id)
        return live is not None and live.queue.busy

    def in_use(self, session_id: str) -> bool:
        """Return whether a session has work to do, or somebody follows its events."""
        live = self._registry.get(session_id)
        return (live is not None and not live.idle) or self._registry.feeds.readers(session_id) > 0

    @property
    def open_sessions(self) -> int:
        """How many sessions are not closed."""
        return self._actions.open_sessions

    @property
    def loaded(self) -> Loaded:
        """What is known of the sessions in memory: all that have work to do, and some that were used recently."""
        states = [live.state for live in self._registry.sessions]
        return Loaded(
            sessions=len(states),
            queued_tasks=sum(len(state.queue) for state in states),
            waiting_approvals=sum(state.waiting_approvals for state in states),
        )


class EngineService(Archive):
    """An engine as one caller sees it: reads as its principal, acts as it. Implements `SessionService`."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(engine.ports.log, engine.ports.blobs, caller.principal)
        self._engine = engine
        self._caller = caller

    def traced(self, sender: Sender) -> "EngineService":
        """Return the same sessions for requests that say this of themselves."""
        return EngineService(self._engine, self._caller.named(sender))

    def execute(self, action: Action[R], *, key: str | None = None) -> "CoroutineType[Any, Any, R]":
        """Carry out an action, once per idempotency key, and return its result."""
        return self._engine.execute(action, self._caller, key)

    async def runtime_auth(self, name: str) -> RuntimeAuth:
        """Return whether a task on a runtime could begin."""
        return await self._engine.runtime_auth(name, self._caller.principal)

    def follow(self, session_id: str, after_seq: int = 0) -> AsyncGenerator[list[Published]]:
        """Yield batches of events after a seq, stored ones first, then live ones, without gap or repeat."""
        return self._engine.follow(session_id, after_seq, principal=self._caller.principal)

    async def put_artifact(
        self, data: bytes, content_type: str, name: str | None = None, *, key: str | None = None
    ) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self._engine.put_artifact(
            data, content_type, name, principal=self._caller.principal, key=key
        )
