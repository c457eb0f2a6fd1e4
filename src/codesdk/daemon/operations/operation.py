"""An operation of the API: how it is reached, who may use it, what it takes and what it returns.

The table of operations is the router, the OpenAPI document and the list that tests walk. A handler takes a
`Call` and returns a struct, nothing, or an ASGI response of its own.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_type_hints

import msgspec

from codesdk.contract.actions import Action, TokenScope
from codesdk.contract.errors import Forbidden
from codesdk.daemon.auth import Admitted, Guard
from codesdk.daemon.limits import RateLimit
from codesdk.daemon.problems import shutting_down
from codesdk.daemon.settings import DaemonSettings
from codesdk.observe import Metrics
from codesdk.sdk import CodeSDK
from codesdk.serving import Respond

Answer = msgspec.Struct | Respond | None


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation without parameters in the query."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    scope: TokenScope | None
    """The scope that the caller needs; None if everybody may call it."""
    run: "Callable[[Call], Awaitable[Answer]]"
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | Literal["bytes"] | None = None
    answer: Any = None
    """The type of the answer's body; None if it has none."""
    media_type: str = "application/json"
    status: int = 200
    exports: bool = False
    """Whether it returns so much at once that the audit records it, although it changes nothing."""
    group: str = "sessions"
    action: type[Action[Any]] | None = None
    """What it executes, if it changes a session."""

    @property
    def summary(self) -> str:
        """What the OpenAPI document says of it: the first line of its action's or its handler's docstring."""
        return ((self.action or self.run).__doc__ or "").partition("\n")[0].rstrip(".")


class Call(msgspec.Struct, kw_only=True):
    """A request that was let in and understood."""

    operation: Operation
    request_id: str
    sdk: CodeSDK
    """The sessions as the caller may use them."""
    caller: Admitted
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

    def demand(self, scope: TokenScope, what: str) -> None:
        """Raise `Forbidden` unless the caller also has this scope."""
        if not self.caller.may(scope):
            raise Forbidden(f"{what} needs a token with the scope {scope}.")

    def refuse_late(self) -> None:
        """Refuse new work while the daemon shuts down."""
        if self.draining:
            raise shutting_down()


def get(
    path: str,
    run: Callable[[Call], Awaitable[Answer]],
    *,
    scope: TokenScope | None = "read",
    query: type[msgspec.Struct] = NoQuery,
    answer: Any = None,
    media_type: str = "application/json",
    exports: bool = False,
    group: str = "sessions",
) -> Operation:
    """Return a row that only reads, named after its handler: `list_tasks` is `listTasks`.

    `answer` is for a handler that writes its own response; of any other, its return type is the answer's.
    """
    first, *others = run.__name__.split("_")
    return Operation(
        name=first + "".join(map(str.title, others)),
        method="GET",
        path=path,
        scope=scope,
        run=run,
        query=query,
        answer=answer or get_type_hints(run)["return"],
        media_type=media_type,
        exports=exports,
        group=group,
    )
