"""Reads the input of an arriving call: decoded, redacted and hashed, once. Pure.

Every call passes through `take`, whatever its origin, and everything behind it uses the result: `LiveCall` is the
call from there on. The tool validates the input later, in `evaluation`.
"""

import asyncio
from typing import Any

import msgspec

from codesdk.contract.canonical import CanonicalError, hash_json
from codesdk.contract.capabilities import ToolExecutionModel
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.ports import PreparedCall, ToolRun
from codesdk.contract.runtime import ToolAnnouncement, ToolReply
from codesdk.contract.tools import Subjects, ToolOrigin, Verdict
from codesdk.contract.validation import is_long
from codesdk.engine.log.state import CallState
from codesdk.engine.tasks.validation import MAX_DEPTH, MAX_ID_CHARS, is_deep
from codesdk.redaction import Redactor

MAX_NAME_CHARS = 256
MAX_INDEX = 2**31

Resolution = ToolReply | str | None
"""The outcome of a call: its result, why it did not run, or None for a native one that may run now."""


class CallInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call's input: as it arrived, and as it is stored."""

    value: Any
    """As it arrived, secrets included. Only the policy and the tool may see it."""
    stored: Any
    data: bytes
    """`stored` as JSON."""
    digest: str
    redacted: bool


class Arrival(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call that reached us: announced in the stream, requested over MCP, or asked about before it runs."""

    item: ToolAnnouncement
    origin: ToolOrigin
    name: str
    input: CallInput


class LiveCall(msgspec.Struct, kw_only=True, eq=False):
    """An attempt from its opening to its end. `state` says where it stands; the rest is needed to go on."""

    state: CallState
    origin: ToolOrigin
    input: CallInput
    subjects: Subjects | None = None
    """What a native call would touch, according to its runtime."""
    opinion: Verdict | None = None
    """What the runtime's own policy says of it."""
    counts_as: str | None = None
    """The declared native tool that it is one of, if its own name is not declared."""
    prepared: PreparedCall | None = None
    """The tool with its validated input, set when the call is judged. Native calls have none, unless they ask a person."""
    judged: "asyncio.Future[None]"
    """Done when only a person's answer is missing. An answer that comes earlier waits for it."""
    worker: "asyncio.Task[Any] | None" = None
    """Works on the call, from decision to reply."""
    tool: "asyncio.Task[ToolRun] | None" = None
    """Runs the tool, apart from the worker so that it alone can be cancelled."""
    left_because: str | None = None
    """Why nobody waits for the outcome any more."""


class UnusableCall(Exception):
    """A call that cannot even be recorded. The message says why."""


def default_origin(model: ToolExecutionModel) -> ToolOrigin:
    """Return the origin of an announcement that names none, from how its runtime runs tools."""
    if model == "external_mcp":
        return "mcp"
    return "native" if model == "runtime_internal" else "stream"


async def take_in(redactor: Redactor, item: ToolAnnouncement, origin: ToolOrigin, most: int) -> Arrival:
    """Take a call in, in a thread if that takes long. Raise `UnusableCall` if it cannot be recorded."""
    if is_long(item.input):
        return await asyncio.to_thread(take, redactor, item, origin, most)
    return take(redactor, item, origin, most)


def take(redactor: Redactor, item: ToolAnnouncement, origin: ToolOrigin, most: int) -> Arrival:
    """Take a call in, whose input may have `most` bytes. Raise `UnusableCall` if it cannot be recorded."""
    if not _is_sound(item):
        raise UnusableCall("a tool call without a usable name or id.")
    try:
        given = take_input(redactor, item.input, most)
    except (CanonicalError, CodeSDKError, RecursionError) as error:
        raise UnusableCall(f"the input of a tool call is not usable ({error}).") from None
    return Arrival(item=item, origin=origin, name=redactor.text(item.name), input=given)


def take_input(redactor: Redactor, value: Any, most: int) -> CallInput:
    """Return an input as it can be stored and hashed. Raise `CanonicalError` if it cannot."""
    # Encoded first: all else takes a step for each value in it, and this tells at little cost how many there may be.
    data = _encode(value)
    if len(data) > most:
        raise CanonicalError(
            f"it has {len(data):,} bytes, more than the {most:,} of limits.max_event_bytes; make it several calls"
        )
    if len(data) > MAX_DEPTH and is_deep(data):
        raise CanonicalError(f"it is nested deeper than {MAX_DEPTH} levels")
    redacted = redactor.value(value)
    digest = hash_json(redacted)
    if redacted is not value:
        data = _encode(redacted)
    stored = msgspec.json.decode(data)
    if stored != redacted:  # a set or a tuple: what is stored is what counts
        digest = hash_json(stored)
    return CallInput(value=value, stored=stored, data=data, digest=digest, redacted=redacted is not value)


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise CanonicalError(f"it is not JSON: {error}") from None


def _is_sound(item: ToolAnnouncement) -> bool:
    """Check what the types promise: an adapter may pass on unchecked output of another program."""
    name: Any = item.name
    index: Any = item.index
    texts: list[Any] = [t for t in (name, item.runtime_tool_call_id, item.message_id) if t is not None]
    try:
        return (
            isinstance(name, str)
            and 0 < len(name) <= MAX_NAME_CHARS
            and all(isinstance(text, str) and len(text) <= MAX_ID_CHARS for text in texts)
            and bool(msgspec.json.encode(texts))  # half of a surrogate pair cannot be encoded
            # A bool is an int in Python, but not in what is stored.
            and (index is None or (type(index) is int and 0 <= index <= MAX_INDEX))
        )
    except UnicodeEncodeError:
        return False
