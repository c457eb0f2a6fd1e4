"""What OpenAI's two formats, Responses and Chat Completions, share: fields of requests, and how errors are written and read."""

import math
from typing import Any, NamedTuple

import msgspec

from codesdk.gateway.wires.exchange import Fault, FaultKind
from codesdk.gateway.wires.fields import mapping, string

CREATED = 0
"""The creation time of every answer: a codec has no clock, and equal answers must be equal bytes."""

_INVALID = "invalid_request_error"


class _Terms(NamedTuple):
    type: str
    code: str | None


_TERMS: dict[FaultKind, _Terms] = {
    "invalid": _Terms(_INVALID, None),
    "authentication": _Terms(_INVALID, "invalid_api_key"),
    "permission": _Terms(_INVALID, "insufficient_permissions"),
    "not_found": _Terms(_INVALID, None),
    "too_large": _Terms(_INVALID, "request_too_large"),
    "rate_limit": _Terms("requests", "rate_limit_exceeded"),
    "quota": _Terms("insufficient_quota", "insufficient_quota"),
    "context_too_large": _Terms(_INVALID, "context_length_exceeded"),
    "server": _Terms("server_error", "server_error"),
    "unavailable": _Terms("service_unavailable_error", "service_unavailable"),
    "overloaded": _Terms("service_unavailable_error", "server_is_overloaded"),
}


def write_error(fault: Fault, context_param: str, context_message: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body of an error. The `context_…` arguments are for a request that is too long."""
    terms = _TERMS[fault.kind]
    is_too_long = fault.kind == "context_too_large"
    error = {
        "message": context_message if is_too_long else fault.message,
        "type": terms.type,
        "param": context_param if is_too_long else None,
        "code": terms.code,
    }
    return _headers(fault), msgspec.json.encode({"error": error})


def _headers(fault: Fault) -> dict[str, str]:
    """Return the headers of an error. The official clients and similar ones obey all three."""
    headers: dict[str, str] = {}
    if fault.kind == "quota":  # clients retry a 429 unless told otherwise, and a quota does not pass
        headers["x-should-retry"] = "false"
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(fault.retry_after_s))
        headers["retry-after-ms"] = str(math.ceil(fault.retry_after_s * 1000))
    return headers


def error_text(body: Any) -> str | None:
    """Return an error's message in one line, or None if `body` is not an error."""
    fields = mapping(body)
    error: object = fields.get("error")
    if error is None and fields.get("type") != "error":
        detail = string(fields.get("detail"))  # the shape used by the backend behind a ChatGPT login
        return detail or None
    if isinstance(error, str) and error:
        return error
    details = mapping(error) or fields
    code: object = details.get("code") or details.get("type")
    message = string(details.get("message")) or "unknown error"
    return f"{code}: {message}" if isinstance(code, str | int) and code != "error" else message


def is_streamed(body: dict[str, Any]) -> bool:
    """Return whether a request wants its answer as a stream."""
    stream: object = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise ValueError("stream: must be true or false")
    return stream is True
