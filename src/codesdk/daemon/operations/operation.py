"""An operation of the API: how it is reached, who may use it, what it takes and what it gives back.

The table of operations is the router, the OpenAPI document and the list that tests walk. A handler takes a
`Call` and returns a struct, nothing, or an ASGI response of its own.
"""

import dataclasses
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal, TypeVar, cast

import msgspec

from codesdk.contract.api import TokenScope
from codesdk.contract.canonical import content_hash
from codesdk.contract.errors import Forbidden
from codesdk.contract.records import KeyRow
from codesdk.contract.tools import Actor
from codesdk.daemon.auth import Caller, Guard
from codesdk.daemon.limits import RateLimit
from codesdk.daemon.problems import shutting_down, slow_down
from codesdk.daemon.settings import DaemonSettings
from codesdk.engine import LOCAL, LiveSession
from codesdk.observe import Metrics
from codesdk.sdk import CodeSDK

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Respond = Callable[[Message, Receive, Send], Awaitable[None]]
"""A response that writes itself."""

Answer = msgspec.Struct | Respond | None
T = TypeVar("T")


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation without parameters in the query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """One row of the table."""

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    scope: TokenScope | None
    """What the caller needs; None for what everybody may see."""
    summary: str
    run: "Callable[[Call], Awaitable[Answer]]"
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | Literal["bytes"] | None = None
    answer: Any = None
    """The type of the answer's body; None if it has none."""
    media_type: str = "application/json"
    status: int = 200
    exports: bool = False
    """Whether it gives out so much at once that the audit has it, though it changes nothing."""
    group: str = "sessions"


@dataclasses.dataclass(kw_only=True)
class Call:
    """A request that was let in and understood."""

    operation: Operation
    request_id: str
    sdk: CodeSDK
    """The engine as the caller sees it."""
    caller: Caller
    guard: Guard
    settings: DaemonSettings
    metrics: Metrics
    headers: dict[bytes, bytes]
    path: dict[str, str]
    query: Any
    body: Any
    key: str | None
    tasks: RateLimit
    draining: bool = False

    @property
    def by(self) -> Actor:
        """The caller as the log names it."""
        return Actor(kind="user", id=None if self.caller.principal == LOCAL else self.caller.principal)

    def demand(self, scope: TokenScope, what: str) -> None:
        """Refuse what needs one more scope."""
        if not self.caller.may(scope):
            raise Forbidden(f"{what} needs a token with the scope {scope}.")

    async def live(self) -> LiveSession:
        """Return the session that the path names."""
        return await self.sdk.engine.session(self.path["session_id"], principal=self.caller.principal)

    def refuse_late(self) -> None:
        """Refuse what begins something while the daemon ends."""
        if self.draining:
            raise shutting_down()

    def take_task(self, runtime: str) -> None:
        """Count a task of a runtime; refuse it if there were too many."""
        wait_s = self.tasks.take(f"{self.caller.principal}\0{runtime}")
        if wait_s:
            raise slow_down(wait_s, f"Too many tasks of the runtime {runtime}.")

    async def once(
        self, act: Callable[[KeyRow | None], Awaitable[str | None]], *, passing: bool = False
    ) -> str:
        """Act once per idempotency key. The answer under the key is what `act` returns, or put in the row itself."""

        async def acting(row: KeyRow | None) -> str:
            return await act(None if row is None else msgspec.structs.replace(row, answer="")) or ""

        if isinstance(self.body, bytes):
            given = [content_hash(self.body), self.headers.get(b"content-type", b"").decode("latin-1")]
        else:
            given = msgspec.to_builtins(self.body)
        body = [self.path, given, msgspec.to_builtins(self.query)]
        principal, name = self.caller.principal, self.operation.name
        return await self.sdk.engine.once(principal, name, self.key, body, acting, passing=passing)

    def wants(self, kind: type[T]) -> T:
        """Return the body, which is of this type."""
        return cast("T", self.body)
