"""What both of OpenAI's formats are judged by: each fault, and the error that its official client makes of it."""

import json
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
from openai import APIStatusError

from codesdk.gateway.wires.exchange import Fault, FaultKind

CONNECTION_ERRORS = (openai.APIConnectionError, httpx2.TransportError)

RESPONSES_TYPES = (
    "response.created",
    "response.output_text.delta",
    "response.output_item.done",
    "response.completed",
    "response.failed",
    "error",
    "response.unheard_of",
)


@dataclass(frozen=True)
class Expected:
    """A fault, and how the client should report it."""

    fault: Fault
    error: type[APIStatusError]
    type: str
    code: str | None

    def told_by(self, error: APIStatusError, context_param: str) -> bool:
        """Return whether the client's error says all that the fault does."""
        is_too_long = self.fault.kind == "context_too_large"
        found = (error.status_code, error.type, error.code, error.param)
        expected = (self.fault.status, self.type, self.code, context_param if is_too_long else None)
        assert found == expected
        assert is_too_long or self.fault.message in error.message
        return True


def _expected(
    status: int, kind: FaultKind, error: type[APIStatusError], type_: str, code: str | None
) -> Expected:
    return Expected(Fault(status=status, kind=kind, message=f"a message about {kind}"), error, type_, code)


_INVALID = "invalid_request_error"
_DOWN = "service_unavailable_error"
FAULTS = [
    _expected(400, "invalid", openai.BadRequestError, _INVALID, None),
    _expected(401, "authentication", openai.AuthenticationError, _INVALID, "invalid_api_key"),
    _expected(403, "permission", openai.PermissionDeniedError, _INVALID, "insufficient_permissions"),
    _expected(404, "not_found", openai.NotFoundError, _INVALID, None),
    _expected(413, "too_large", openai.APIStatusError, _INVALID, "request_too_large"),
    _expected(429, "rate_limit", openai.RateLimitError, "requests", "rate_limit_exceeded"),
    _expected(429, "quota", openai.RateLimitError, "insufficient_quota", "insufficient_quota"),
    _expected(400, "context_too_large", openai.BadRequestError, _INVALID, "context_length_exceeded"),
    _expected(500, "server", openai.InternalServerError, "server_error", "server_error"),
    _expected(503, "unavailable", openai.InternalServerError, _DOWN, "service_unavailable"),
    _expected(529, "overloaded", openai.InternalServerError, _DOWN, "server_is_overloaded"),
]


def as_stream(events: list[dict[str, Any]]) -> bytes:
    """Return events as the bytes of a stream."""
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
