"""What handlers are given and what becomes of what they return: the types of document 001, and their normalization.

Pure. `to_emit_result` and `to_handler_error` turn anything into one of four envelopes, so that nothing behind them
has to look at a value of unknown shape.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from codesdk.contract.tools import Record
from codesdk.foreign import name_of

CORE_API_VERSION = 1
"""The version of what extensions and CodeSDK share."""

ActionStatus = Literal[
    "performed", "already_resolved", "not_eligible", "conflict", "forbidden", "invalid", "failed"
]
EnqueueStatus = Literal["enqueued", "already_queued"]
ErrorKind = Literal["error", "timeout"]

SHOWN_CHARS = 2_000
_READ_CHARS = 100 * SHOWN_CHARS
"""How much of a foreign error's text is kept."""


class AgentRuntimeProfile(Record, frozen=True, kw_only=True):
    """A runtime that sessions can have, as extensions are bound to it."""

    runtime_profile_id: str
    runtime_profile_version: str
    core_api_version: int = CORE_API_VERSION


class ProfileBinding(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A runtime that an extension is made for: any version of it, exactly one, or those in a range."""

    name: str
    version: str | None = None
    version_range: str | None = None


class AgentRuntimeCompatibility(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an extension needs: a version of the core API, or a range of them, and runtimes. None: all of them."""

    core_api_version: int | None = None
    core_api_version_range: str | None = None
    profiles: list[ProfileBinding] = []  # noqa: RUF012 - msgspec copies it


class EventSession(Record, frozen=True, kw_only=True):
    """The session of an event."""

    id: str
    title: str | None = None
    project_id: str | None = None


class AgentRuntimeEvent(Record, frozen=True, kw_only=True):
    """An event as a handler gets it. `payload` is plain JSON."""

    type: str
    payload: dict[str, Any]
    emitted_at: str | None = None
    correlation_id: str | None = None
    """Names the event in the log: `SESSION:SEQ`. The same event again has the same one."""


class Job(Record, frozen=True, kw_only=True):
    """A job as its queue knows it."""

    id: str
    type: str
    state: str
    project_id: str | None = None
    source_session_id: str | None = None


class _Envelope(Record, frozen=True, kw_only=True, tag_field="kind"):
    module_name: str
    event_type: str


class EnqueueResult(_Envelope, frozen=True, kw_only=True, tag="enqueue_result"):
    """A job that was queued, or that had been queued before."""

    status: EnqueueStatus
    job: Job


class ActionResult(_Envelope, frozen=True, kw_only=True, tag="action_result"):
    """What became of an action that a handler asked for."""

    action_type: str
    status: ActionStatus
    request_id: str | None = None
    message: str | None = None


class HandlerResult(_Envelope, frozen=True, kw_only=True, tag="handler_result"):
    """What a handler has to say, and changes nothing."""

    value: Any = None


class HandlerError(_Envelope, frozen=True, kw_only=True, tag="handler_error"):
    """A handler that raised or took too long."""

    error: ErrorKind = "error"
    message: str


AgentEventEmitResult = EnqueueResult | ActionResult | HandlerResult | HandlerError
_KINDS: Mapping[str, type[AgentEventEmitResult]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (EnqueueResult, ActionResult, HandlerResult, HandlerError)
}


class ActionRequest(Record, frozen=True, kw_only=True, tag_field="kind", tag="action_request"):
    """Something that a handler wants done. Returned, not done: CodeSDK carries it out, or says why not.

    Under one `idempotency_key` it is done once; without one, once for the handler and the event.
    """

    action_type: str
    payload: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it
    request_id: str | None = None
    idempotency_key: str | None = None


class HandlerTimeout(Exception):
    """A handler took longer than it may."""


def is_action_request(raw: object) -> bool:
    """Return whether a handler's output asks for an action, rightly or not."""
    return isinstance(raw, ActionRequest) or _kind(raw) == "action_request"


def to_action_request(raw: object) -> ActionRequest:
    """Return the request in a handler's output. Raise `ValueError` if it is not a valid one."""
    try:
        # Through plain data in any case: a struct that was made by hand need not hold what its types say.
        request = msgspec.convert(msgspec.to_builtins(raw), type=ActionRequest)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The action request is not valid: {error}.") from None
    if not request.action_type:
        raise ValueError("The action request names no action_type.")
    return request


def to_emit_result(module_name: str, event_type: str, raw: object) -> AgentEventEmitResult:
    """Return a handler's output as an envelope.

    An envelope stays what it is, in the name of the handler that returned it; plain data becomes a
    `handler_result`; what claims to be an envelope and is not, or is no JSON at all, a `handler_error`.
    """
    try:
        plain: object = msgspec.to_builtins(raw)
        msgspec.json.encode(plain)
    except (TypeError, ValueError, RecursionError) as error:
        return _not_json(module_name, event_type, raw, error)
    kind = _KINDS.get(_kind(plain) or "")
    if kind is None:
        return HandlerResult(module_name=module_name, event_type=event_type, value=plain)
    fields = {**cast("dict[str, Any]", plain), "module_name": module_name, "event_type": event_type}
    try:
        return msgspec.convert(fields, type=kind)
    except msgspec.ValidationError as error:
        words = f"It returned an invalid {kind.__struct_config__.tag}: {error}."
        return HandlerError(module_name=module_name, event_type=event_type, message=words)


def to_handler_error(module_name: str, event_type: str, error: object) -> HandlerError:
    """Return what a handler raised, or that it took too long, as an envelope."""
    kind: ErrorKind = "timeout" if isinstance(error, HandlerTimeout | TimeoutError) else "error"
    words = words_of(error)[:SHOWN_CHARS]
    return HandlerError(module_name=module_name, event_type=event_type, error=kind, message=words)


def words_of(error: object) -> str:
    """Return what an error says. Far more than is shown, so that what is cut off a redacted one holds no half of a secret."""
    if isinstance(error, BaseException) and not isinstance(error, HandlerTimeout):
        return name_of(error)[:_READ_CHARS]
    return str(error)[:_READ_CHARS]


def _kind(raw: object) -> str | None:
    if not isinstance(raw, dict):
        return None
    kind = cast("dict[object, object]", raw).get("kind")
    return kind if isinstance(kind, str) else None


def _not_json(module_name: str, event_type: str, raw: object, error: Exception) -> HandlerError:
    words = f"It returned {type(raw).__name__}, which is not JSON: {error}. Return plain data."
    return HandlerError(module_name=module_name, event_type=event_type, message=words[:SHOWN_CHARS])
