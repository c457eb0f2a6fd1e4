"""Errors of the contract → HTTP statuses and problem details (RFC 9457)."""

from http import HTTPStatus

import msgspec

from codesdk.contract.api import Problem
from codesdk.contract.errors import Busy, CodeSDKError, Forbidden, InvalidRequest, NotFound, StorageFailure

STATUS: dict[str, int] = {
    "INVALID_REQUEST": 400,
    "CONTEXT_TOO_LARGE": 413,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "FORBIDDEN": 403,
    "SESSION_BUSY": 409,
    "QUEUE_FULL": 429,
    "RATE_LIMITED": 429,
    "OVERLOADED": 429,
    "AUTH_REQUIRED": 401,
    "AUTH_FAILED": 403,
    "CONTENT_FILTERED": 422,
    "BUDGET_EXCEEDED": 402,
    "TIMEOUT": 504,
    "RUNTIME_UNAVAILABLE": 503,
    "RUNTIME_CRASHED": 502,
    "RUNTIME_PROTOCOL": 502,
    "MODEL_ERROR": 502,
    "TOOL_FAILED": 502,
    "SANDBOX_UNAVAILABLE": 503,
    "STORAGE_FAILED": 507,
    "INTERRUPTED": 409,
    "INTERNAL": 500,
}
"""The status of each code. A refusal by HTTP itself (405, 413, 415) brings its own."""

RETRY_AFTER_S = 1
MEDIA_TYPE = "application/problem+json"


class Refused(CodeSDKError):
    """A request that is refused with a status of its own."""

    def __init__(
        self, status: int, error: CodeSDKError, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(error.message, code=error.code, retryable=error.retryable, details=error.details)
        self.status = status
        self.headers = headers


def too_large(limit: int) -> Refused:
    """Return the error for a body that is too long."""
    return Refused(413, InvalidRequest(f"The body of this request may have at most {limit:,} bytes."))


def wrong_type(wanted: str) -> Refused:
    """Return the error for a body of another media type."""
    return Refused(415, InvalidRequest(f"The body must be {wanted}, and its Content-Type must say so."))


def wrong_method(method: str, allowed: list[str]) -> Refused:
    """Return the error for a path that exists, but not for this method."""
    words = f"{method} is not allowed here; {' and '.join(allowed)} {'is' if len(allowed) == 1 else 'are'}."
    return Refused(405, InvalidRequest(words), ((b"allow", ", ".join(allowed).encode()),))


def no_route() -> NotFound:
    """Return the error for an unknown path. The path is not repeated: the sender is not known yet."""
    return NotFound("There is nothing at this path. /openapi.json lists all paths.")


def who_are_you(message: str) -> Refused:
    """Return the error for a request whose token is missing, wrong or no longer valid."""
    error = Forbidden(message, code="AUTH_REQUIRED")
    return Refused(401, error, ((b"www-authenticate", b'Bearer realm="codesdk"'),))


def slow_down(retry_after_s: int, why: str = "Too many requests.") -> Refused:
    """Return the error for a principal that asks too often."""
    error = Busy(f"{why} Try again in {retry_after_s} s.", code="RATE_LIMITED")
    return Refused(429, error, ((b"retry-after", str(retry_after_s).encode()),))


def shutting_down() -> Refused:
    """Return the error for work that comes while the daemon shuts down."""
    error = Busy("The daemon is shutting down. Try again when it is back.", code="OVERLOADED")
    return Refused(503, error, ((b"retry-after", b"5"),))


def not_ready(why: str) -> Refused:
    """Return the error of a daemon whose store cannot be written."""
    advice = (
        "Work is refused until there is room and the data directory can be written; no restart is needed."
    )
    return Refused(503, StorageFailure(f"{why} {advice}"), ((b"retry-after", b"5"),))


def render(
    error: CodeSDKError, request_id: str, *, draining: bool
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers and body of an error."""
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    if isinstance(error, Refused):
        status = error.status
        headers += error.headers
    else:
        status = 503 if draining and error.code == "OVERLOADED" else STATUS[error.code]
        if status in (429, 503):
            headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    problem = Problem(
        type=f"urn:codesdk:error:{error.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        code=error.code,
        retryable=error.retryable,
        runtime=error.runtime,
        details=error.details,
        request_id=request_id,
    )
    return status, headers, msgspec.json.encode(problem)
