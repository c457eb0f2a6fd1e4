"""The last check for secrets: every event passes here before it is stored and folded.

The encoded frame is scanned; only if it looks suspicious is the event walked, redacted and encoded again, and
that is counted as a miss of whoever should have redacted it. Contract words, numbers, ids and hashes are the
engine's own and stay: without them an event means nothing. A name that a caller chose and that holds a secret
is refused.
"""

import functools
import logging
import re
import types
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.codec import encode
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import Event, OutputDelta, RuntimeInfo, SessionCreated, ToolCallRequested
from codesdk.contract.figures import Strain
from codesdk.redaction import Redactor

_log = logging.getLogger("codesdk.redaction")
T = TypeVar("T")

_CHOSEN = frozenset({"task_id", "credential_namespace", "project_id"})
"""Names that callers choose and that others refer to, so they cannot be changed."""
_MADE = frozenset(
    {
        "approval_id",
        "artifact_id",
        "chain",
        "content_hash",
        "expires_at",
        "input_hash",
        "request_id",
        "schema_hash",
        "session_id",
        "task_id",
        "tool_call_id",
        "undo",
    }
)
"""Fields that the engine fills. A runtime may fill some, too: what does not match `_FORM` is redacted."""
_FORM = re.compile(
    r"(?:ses|task|call|art|req|apr)_[0-9a-z]{26}(?:\.\d+\.\d+)?|sha256:[0-9a-f]{64}|[0-9T:.-]{23}Z"
)


class ChokePoint:
    """Removes secrets from a session's events. `redactor` knows the current ones."""

    def __init__(self, redactor: Redactor | None = None, strain: Strain | None = None) -> None:
        self._strain = strain or Strain()
        self._reported: tuple[str, ...] = ()
        self.redactor = redactor or Redactor()

    @property
    def redactor(self) -> Redactor:
        """Finds the secrets. Replaced whenever a new one becomes known."""
        return self._redactor

    @redactor.setter
    def redactor(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._scanned: tuple[RuntimeInfo, OutputDelta] | None = None

    def encode(self, event: Event) -> tuple[Event, bytes]:
        """Return an event and its frame as they may be stored: the same event if it holds no secret."""
        frame = encode(event)
        if not self._suspects(event, frame):
            return event, frame
        runtime, payload = self.clean(event.runtime), self._clean_payload(event.payload)
        if runtime is event.runtime and payload is event.payload:
            return event, frame
        self._report(event.type)
        clean = msgspec.structs.replace(event, runtime=runtime, payload=payload)
        return clean, encode(clean)

    def clean_first(self, payload: SessionCreated) -> SessionCreated:
        """Return the payload of a first event as it may be stored: the very same object if it holds no secret."""
        suspected = self._redactor.suspects(msgspec.json.encode(payload).decode())
        return self.clean(payload) if suspected else payload

    def clean(self, value: T) -> T:
        """Return a contract value without secrets; the very same object if it has none."""
        if isinstance(value, msgspec.Struct):
            return cast("T", self._clean_struct(value))
        if isinstance(value, list):
            return cast("T", self._clean_list(cast("list[Any]", value)))
        return self._redactor.value(value)

    def check_task_id(self, task_id: str) -> None:
        """Raise `InvalidRequest` if a task id holds a secret: every event of the task carries it."""
        self._clean_field("task_id", task_id)

    def _suspects(self, event: Event, frame: bytes) -> bool:
        payload, runtime = event.payload, event.runtime
        if type(payload) is OutputDelta:
            redactor, known = self._redactor, self._scanned
            # Most events are deltas that differ from the one before, already scanned, in text and `raw` only.
            if known is not None and _goes_on(payload, known[1]) and _is_same(runtime, known[0]):
                if payload.delta is not redactor.looked_at and redactor.suspects(payload.delta):
                    return True
                return runtime.raw is not None and redactor.suspects(_raw_of(frame))
            self._scanned = (runtime, payload)
        text = frame.decode()
        suspected = self._redactor.suspects(text[max(0, text.find('"runtime":')) :])
        if suspected:
            self._scanned = None
        return suspected

    def _clean_payload(self, payload: Any) -> Any:
        clean = self.clean(payload)
        if isinstance(payload, ToolCallRequested) and clean.input is not payload.input:
            # The hash covers what is stored; `input_redacted` keeps it from ever being run.
            return msgspec.structs.replace(clean, input_hash=hash_json(clean.input), input_redacted=True)
        return clean

    def _clean_struct(self, value: msgspec.Struct) -> msgspec.Struct:
        changed: dict[str, Any] = {}
        for name in _texts_of(type(value)):
            old = getattr(value, name)
            new = self._clean_field(name, old)
            if new is not old:
                changed[name] = new
        return msgspec.structs.replace(value, **changed) if changed else value

    def _clean_list(self, old: list[Any]) -> list[Any]:
        new = [self.clean(item) for item in old]
        return old if all(a is b for a, b in zip(new, old, strict=True)) else new

    def _clean_field(self, name: str, value: Any) -> Any:
        if name in _MADE and isinstance(value, str) and _FORM.fullmatch(value):
            return value
        clean = self.clean(value)
        if clean is not value and name in _CHOSEN:
            words = name.replace("_", " ")
            raise InvalidRequest(f"The {words} contains a secret, and everybody can see it. Choose another.")
        return clean

    def _report(self, event_type: str) -> None:
        self._strain.late_redactions += 1
        if event_type not in self._reported:
            self._reported += (event_type,)
            _log.warning("a secret reached a %s event and was removed just before it was stored", event_type)


def _goes_on(payload: OutputDelta, known: OutputDelta) -> bool:
    return (
        payload.block_id == known.block_id
        and payload.message_id == known.message_id
        and payload.tool_call_id == known.tool_call_id
        and payload.language == known.language
    )


def _is_same(runtime: RuntimeInfo, known: RuntimeInfo) -> bool:
    return runtime is known or (
        runtime.name is known.name
        and runtime.model is known.model
        and runtime.runtime_session_id is known.runtime_session_id
        and runtime.raw_ref is None
    )


def _raw_of(frame: bytes) -> str:
    """Return the part of a delta's frame that holds its `raw`. Inside strings these quotes are escaped."""
    return frame[frame.index(b'"raw":') : frame.rindex(b'"payload":')].decode()


@functools.cache
def _texts_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that may hold free text."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if not _is_fixed(field.type))


def _is_fixed(kind: Any) -> bool:
    """Return whether a type can hold no text but contract words."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return all(_is_fixed(one) for one in get_args(kind))
    return origin is Literal or kind in (int, float, bool, type(None))
