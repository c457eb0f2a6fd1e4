"""What the loop asks of the writer's thread, and what it is told back.

A session's creation and its first append are two requests, but one unit: stored together, or not at all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.records import Changes
from codesdk.store.sqlite.tables import Tables

Token = Any
"""Returned to the caller with the result, such as a future."""


class Append(msgspec.Struct, frozen=True):
    """Frames for a session. `round` counts the failures that the caller knew of when it queued them."""

    token: Token
    session_id: str
    epoch: int
    first_seq: int
    frames: Sequence[bytes]
    durable: bool
    changes: Changes | None
    round: int

    @property
    def writer(self) -> tuple[str, int]:
        """Identifies the writer: what the same writer queued after a failure fails, too."""
        return (self.session_id, self.epoch)


class Call(msgspec.Struct, frozen=True):
    """Any other change of the tables."""

    token: Token
    run: Callable[[Tables], Any]
    durable: bool
    creates: str | None = None
    """The session that it creates."""


class Delete(msgspec.Struct, frozen=True):
    """A session to remove: hidden at once, its events removed step by step between other requests."""

    token: Token
    session_id: str


class Vacuum(msgspec.Struct, frozen=True):
    """Return free pages step by step between other requests. `rewrite` an older file in one go."""

    token: Token
    rewrite: bool


class Close(msgspec.Struct, frozen=True):
    """The end: nothing may follow."""

    token: Token


Request = Append | Call | Delete | Vacuum | Close


class Outcome(msgspec.Struct, frozen=True):
    """The result or the error of a request."""

    request: Request
    value: Any = None
    error: CodeSDKError | None = None


def units(batch: list[Request]) -> list[list[Request]]:
    """Return the requests one by one, but a session's creation with its first append: no row without events."""
    found: list[list[Request]] = []
    births: dict[str, list[Request]] = {}
    for request in batch:
        birth = births.pop(request.session_id, None) if isinstance(request, Append) else None
        if birth is not None:
            birth.append(request)
            continue
        found.append([request])
        if isinstance(request, Call) and request.creates is not None:
            births[request.creates] = found[-1]
    return found
