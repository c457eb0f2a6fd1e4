"""What goes over the pipes between CodeSDK and the process of an extension: four bytes of length, then a message as JSON.

The process says `Ready`, is sent `Load`, and answers `Registered` or `Raised`. From then on each `Call` is answered by
`Returned` or `Raised`; meanwhile the handler may ask (`Asked`, which gets an `Answer`) and log.
"""

import asyncio
from typing import Annotated, Any, Literal

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.extensions.outcomes import AgentRuntimeEvent
from codesdk.extensions.registry import MAX_ATTEMPTS, MAX_BACKOFF_MS, MAX_JOB_TIMEOUT_MS

MAX_BYTES = 4 * 1024 * 1024
"""How long a message of an extension's process may be. What a handler returns is at most a quarter of it."""
LOADING = 0
"""In place of the number of a call: what was raised while the extension was loaded."""
_LENGTH = 4

Tool = Literal["enqueue_job", "get_session_settings"]


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Import these files, as they were hashed, and let them register. Log lines below `level` are of no interest."""

    name: str
    file: str
    root: str
    files: dict[str, bytes]
    level: int


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Call the handler that was registered at this place."""

    id: int
    place: int
    event: AgentRuntimeEvent


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What came of a tool's question. `ended`: the handler that asked has ended."""

    id: int
    value: Any = None
    error: ErrorInfo | None = None
    ended: bool = False


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process runs. Nothing of the extension was looked at yet."""


class Handler(msgspec.Struct, frozen=True):
    """A handler, known by its place. With attempts, it is one of jobs."""

    event_type: str
    priority: int
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_JOB_TIMEOUT_MS)]
    attempts: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPTS)]
    backoff_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_BACKOFF_MS)]


class Registered(msgspec.Struct, frozen=True, tag="registered"):
    """The handlers of the extension, in the order of their registration."""

    handlers: list[Handler]


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """What a handler returned."""

    id: int
    value: Any


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """What a handler, or loading, failed of. `refused`: our own words about what cannot be registered."""

    id: int
    message: str
    kind: Literal["error", "timeout", "refused"]


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """A tool of a running call wants something."""

    id: int
    call: int
    tool: Tool
    argument: Any


class Logged(msgspec.Struct, frozen=True, tag="logged"):
    """A line for the log, in the name of the extension."""

    level: int
    message: str


ToExtension = Load | Call | Answer
FromExtension = Ready | Registered | Returned | Raised | Asked | Logged

read_order = msgspec.json.Decoder(ToExtension).decode
read_report = msgspec.json.Decoder(FromExtension).decode
"""Raises `ValueError` or `RecursionError` for what is no message."""
_encode = msgspec.json.Encoder().encode


def pack(message: ToExtension | FromExtension) -> bytes:
    """Return a message as it is written."""
    data = _encode(message)
    return len(data).to_bytes(_LENGTH, "big") + data


async def read_frame(reader: asyncio.StreamReader, max_bytes: int | None = None) -> bytes | None:
    """Return the next message, or None at the end. Raise `ValueError` for one that is too long."""
    try:
        size = int.from_bytes(await reader.readexactly(_LENGTH), "big")
        if max_bytes is not None and size > max_bytes:
            raise ValueError(f"a message of {size:,} bytes")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
