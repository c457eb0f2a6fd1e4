"""Where an editor's sessions are, whose they are, and what a new one is given.

An engine of this process, a daemon, or a data directory that several processes share: there, whoever works
through a holder that is gone takes its place.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, Protocol, TypeVar, cast

import msgspec

from codesdk.client import CodeSDKClient
from codesdk.contract.actions import Action, Caller, new_key
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.sender import Sender
from codesdk.contract.service import Published, SessionService
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import PermissionMode
from codesdk.engine import Editors
from codesdk.local import HolderGone
from codesdk.sdk import CodeSDK

R = TypeVar("R")

EDITOR_SETTINGS = SessionSettings(approval_timeout_s=86_400.0, on_interrupt="resume")
"""Of sessions that editors make: a question has a day's time, and one that is open when the editor ends is kept."""
MODES: tuple[PermissionMode, ...] = ("ask", "auto")
_NAME_CHARS = 32


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What an editor can choose from, and what its new sessions are given."""

    runtimes: tuple[str, ...] = ()
    """The first one is that of a new session; sessions can be moved to the others. Empty: the engine's default."""
    models: tuple[str, ...] = ()
    """The first one is that of a new session. Empty: the runtime's own choice."""
    mode: PermissionMode = "ask"
    settings: SessionSettings = EDITOR_SETTINGS
    script: dict[str, Any] | None = None
    """Played by the model gateway in place of a provider."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """An editor's connection, as the log names it."""

    name: str
    connection: str
    """Tells two windows of one editor apart."""

    @classmethod
    def of(cls, given: str | None, connection: str) -> "Client":
        """Return the client for the name that an editor says it has."""
        kept = "".join(char for char in given or "" if char.isprintable())[:_NAME_CHARS].strip()
        return cls(name=kept or "editor", connection=connection)

    @property
    def client_id(self) -> str:
        """What events carry."""
        return f"{self.name}-{self.connection}"

    def caller(self, base: Caller) -> Caller:
        """Return a caller that acts for this client. Whom a token names stays named, before what it says itself."""
        return base.called(self.client_id, self.name)


class Place(Protocol):
    """Where sessions are."""

    @property
    def modes(self) -> Sequence[PermissionMode]:
        """The permission modes that are known to be permitted."""
        ...

    def service(self, client: Client) -> SessionService:
        """Return the sessions, as one client uses them."""
        ...

    @property
    def editors(self) -> Editors | None:
        """Where the editors of tasks are known; None if the tools there cannot ask one, or have other files."""
        ...


def _permitted(sdk: CodeSDK) -> Sequence[PermissionMode]:
    """Return the modes that an engine permits. What another process permits is not known: it refuses by itself."""
    return (*MODES, "yolo") if sdk.is_holder and sdk.engine.permits.allow_yolo else MODES


class EnginePlace:
    """The engine of this process, for whoever its `caller` is. `before` is called with each action, and may refuse it."""

    editors: Editors | None = None  # who connects to a daemon may be on another machine

    def __init__(
        self,
        sdk: CodeSDK,
        caller: Caller,
        before: Callable[[Action[Any]], Awaitable[None]] | None = None,
    ) -> None:
        self._sdk = sdk
        self._caller = caller
        self._before = before

    @property
    def modes(self) -> Sequence[PermissionMode]:
        """The permission modes that the operator permits."""
        return _permitted(self._sdk)

    def service(self, client: Client) -> SessionService:
        """Return the sessions, as one client uses them."""
        service = self._sdk.as_caller(client.caller(self._caller)).service
        return service if self._before is None else cast("SessionService", _Watched(service, self._before))


class _Watched:
    """A `SessionService` whose actions are looked at first."""

    def __init__(self, service: SessionService, before: Callable[[Action[Any]], Awaitable[None]]) -> None:
        self._service = service
        self._before = before

    async def execute(self, action: Action[R], *, key: str | None = None) -> R:
        await self._before(action)
        return await self._service.execute(action, key=key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


class HttpPlace:
    """A daemon, at its address."""

    modes: Sequence[PermissionMode] = MODES
    editors: Editors | None = None

    def __init__(self, client: CodeSDKClient) -> None:
        self._client = client

    def service(self, client: Client) -> SessionService:
        """Return the sessions, as one client uses them. The daemon names it, after the token."""
        return self._client.service.traced(Sender(client_id=client.client_id))


class SharedPlace:
    """A data directory: through the process that holds it, or as its holder. Use as an async context manager.

    If the holder goes away and no other comes, this process becomes it, and nobody who works here notices.
    """

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[CodeSDK]]) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()
        self._changing = asyncio.Lock()
        self._sdk: CodeSDK | None = None

    async def __aenter__(self) -> "SharedPlace":
        self._sdk = await self._stack.enter_async_context(self._opening())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def sdk(self) -> CodeSDK:
        """The directory as it is open now."""
        assert self._sdk is not None, "it is entered before it is used"
        return self._sdk

    @property
    def modes(self) -> Sequence[PermissionMode]:
        """The permission modes that are known to be permitted."""
        return _permitted(self.sdk)

    @property
    def editors(self) -> Editors | None:
        """Those of this process, if it holds the directory: its editor has started it, and has the same files."""
        return self.sdk.engine.ports.editors if self.sdk.is_holder else None

    def service(self, client: Client) -> SessionService:
        """Return the sessions, as one client uses them, whoever holds the directory."""
        return cast("SessionService", _Succeeding(self, client.caller(Caller())))

    async def succeed(self, gone: CodeSDK) -> None:
        """Open the directory again, as its holder or through the next one."""
        async with self._changing:
            if self._sdk is gone:  # else somebody was faster
                # What was open stays so until the end: others may be reading from it.
                self._sdk = await self._stack.enter_async_context(self._opening())


class _Reading:
    """Passes what only reads to the sessions as they are open now."""

    def __init__(self, place: SharedPlace, caller: Caller) -> None:
        self._place = place
        self._caller = caller

    @property
    def _now(self) -> SessionService:
        return self._place.sdk.as_caller(self._caller).service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)


class _Succeeding(_Reading):
    """A `SessionService` that goes on after its holder is gone. The key makes an action that is sent again the same one."""

    def traced(self, sender: Sender) -> SessionService:
        return cast("SessionService", _Succeeding(self._place, self._caller.named(sender)))

    async def execute(self, action: Action[R], *, key: str | None = None) -> R:
        key = key or new_key()
        while True:
            sdk = self._place.sdk
            try:
                return await sdk.as_caller(self._caller).service.execute(action, key=key)
            except HolderGone:
                await self._place.succeed(sdk)

    async def put_artifact(
        self, data: bytes, content_type: str, name: str | None = None, *, key: str | None = None
    ) -> ArtifactRef:
        key = key or new_key()
        while True:
            sdk = self._place.sdk
            try:
                return await sdk.as_caller(self._caller).service.put_artifact(
                    data, content_type, name, key=key
                )
            except HolderGone:
                await self._place.succeed(sdk)

    async def follow(self, session_id: str, after_seq: int = 0) -> AsyncGenerator[list[Published]]:
        while True:
            sdk = self._place.sdk
            service = sdk.as_caller(self._caller).service
            try:
                async with aclosing(service.follow(session_id, after_seq)) as batches:
                    async for batch in batches:
                        after_seq = batch[-1].seq
                        yield batch
                return
            except HolderGone:
                await self._place.succeed(sdk)
