"""Every fault that a script can play, and what each official client makes of it, streaming and not.

A client that raises has `Raises` here; one that takes the fault for an answer has what it heard, so that who builds
on it knows that it must look at the stop itself. `HTTP` has the refusals, which are the same either way.
"""

from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
from tests.gateway.clients import Heard
from tests.gateway.peers import gemini_errors

from codesdk.gateway.wires.exchange import Wire

SAID = "So it is."


@dataclass(frozen=True)
class Raises:
    """An exception of exactly this class with these attributes, whose text has `says` in it."""

    error: type[Exception]
    says: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


Outcome = Raises | Heard


class Row(NamedTuple):
    """What one client makes of a fault in a stream, and of the same without one."""

    streamed: Outcome
    whole: Outcome


def claude(error: type[Exception], status: int, kind: str, says: str = SAID) -> Raises:
    """Return what `anthropic` raises for a refusal."""
    return Raises(error, says, {"status_code": status, "type": kind})


def gpt(
    error: type[Exception],
    status: int,
    kind: str,
    code: str | None,
    says: str = SAID,
    param: str | None = None,
) -> Raises:
    """Return what `openai` raises for a refusal."""
    return Raises(error, says, {"status_code": status, "type": kind, "code": code, "param": param})


def google(error: type[Exception], status: int, kind: str, says: str = SAID) -> Raises:
    """Return what `google-genai` raises for a refusal."""
    return Raises(error, says, {"code": status, "status": kind})


_INVALID = "invalid_request_error"
_DOWN = "service_unavailable_error"
_REFUSALS: dict[int, tuple[Raises, Raises, Raises]] = {
    400: (
        claude(anthropic.BadRequestError, 400, "invalid_request_error"),
        gpt(openai.BadRequestError, 400, _INVALID, None),
        google(gemini_errors.ClientError, 400, "INVALID_ARGUMENT"),
    ),
    401: (
        claude(anthropic.AuthenticationError, 401, "authentication_error"),
        gpt(openai.AuthenticationError, 401, _INVALID, "invalid_api_key"),
        google(gemini_errors.ClientError, 401, "UNAUTHENTICATED"),
    ),
    403: (
        claude(anthropic.PermissionDeniedError, 403, "permission_error"),
        gpt(openai.PermissionDeniedError, 403, _INVALID, "insufficient_permissions"),
        google(gemini_errors.ClientError, 403, "PERMISSION_DENIED"),
    ),
    404: (
        claude(anthropic.NotFoundError, 404, "not_found_error"),
        gpt(openai.NotFoundError, 404, _INVALID, None),
        google(gemini_errors.ClientError, 404, "NOT_FOUND"),
    ),
    413: (
        claude(anthropic.RequestTooLargeError, 413, "request_too_large"),
        gpt(openai.APIStatusError, 413, _INVALID, "request_too_large"),
        google(gemini_errors.ClientError, 413, "INVALID_ARGUMENT"),
    ),
    429: (
        claude(anthropic.RateLimitError, 429, "rate_limit_error"),
        gpt(openai.RateLimitError, 429, "requests", "rate_limit_exceeded"),
        google(gemini_errors.ClientError, 429, "RESOURCE_EXHAUSTED"),
    ),
    500: (
        claude(anthropic.InternalServerError, 500, "api_error"),
        gpt(openai.InternalServerError, 500, "server_error", "server_error"),
        google(gemini_errors.ServerError, 500, "INTERNAL"),
    ),
    503: (
        claude(anthropic.ServiceUnavailableError, 503, "api_error"),
        gpt(openai.InternalServerError, 503, _DOWN, "service_unavailable"),
        google(gemini_errors.ServerError, 503, "UNAVAILABLE"),
    ),
    529: (
        claude(anthropic.OverloadedError, 529, "overloaded_error"),
        gpt(openai.InternalServerError, 529, _DOWN, "server_is_overloaded"),
        google(gemini_errors.ServerError, 529, "UNAVAILABLE"),
    ),
}
HTTP: dict[int, dict[Wire, Raises]] = {
    status: {"anthropic": first, "responses": second, "chat": second, "gemini": third}
    for status, (first, second, third) in _REFUSALS.items()
}

_HALF = {"text": ["Ha", "lf"]}
STEPS: dict[str, list[dict[str, Any]]] = {
    "context too large": [{"context_too_large": True}],
    "reset at once": [{"reset": True}],
    "reset in mid-stream": [_HALF, {"reset": True}],
    "end without a finish": [_HALF, {"truncate": True}],
    "silence at once": [{"silence": True}],
    "silence in mid-stream": [_HALF, {"silence": True}],
    "malformed frame": [_HALF, {"malformed_frame": ""}, {"text": " and more"}],
    "frame of no format": [_HALF, {"malformed_frame": "data: {nonsense\n\n"}, {"text": " and more"}],
    "refusal": [{"refusal": "I will not."}],
    "refusal after a text": [_HALF, {"refusal": "I will not."}],
    "cut off at the limit": [_HALF, {"max_tokens": True}],
    "empty answer": [{"empty": True}],
}
"""The faults as they stand in a script."""

_CUT_OFF = Raises(httpx2.RemoteProtocolError, "without sending complete message body")
_TOO_LATE = Raises(httpx2.ReadTimeout)
_NOT_JSON = Raises(JSONDecodeError)
_CLAUDE_LOST = Raises(anthropic.APIConnectionError, "Connection error")
_CLAUDE_LATE = Raises(anthropic.APITimeoutError, "timed out")
_GPT_LOST = Raises(openai.APIConnectionError, "Connection error")
_GPT_LATE = Raises(openai.APITimeoutError, "timed out")
_GPT_LONG = (openai.BadRequestError, 400, _INVALID, "context_length_exceeded")
_NOTHING = (0, 0, 0)


def _both(outcome: Outcome) -> Row:
    return Row(outcome, outcome)


def _heard(stop: str | None, text: str = "", refusal: str | None = None) -> Row:
    return _both(Heard(text=text, stop=stop, refusal=refusal, tokens=_NOTHING))


TABLE: dict[str, dict[Wire, Row]] = {
    "context too large": {
        "anthropic": _both(
            claude(
                anthropic.BadRequestError,
                400,
                _INVALID,
                "prompt is too long: 200001 tokens > 200000 maximum",
            )
        ),
        "responses": _both(gpt(*_GPT_LONG, "exceeds the context window of this model", "input")),
        "chat": _both(
            gpt(
                *_GPT_LONG,
                "maximum context length is 128000 tokens. However, your messages resulted in 128001 tokens.",
                "messages",
            )
        ),
        "gemini": _both(
            google(
                gemini_errors.ClientError,
                400,
                "INVALID_ARGUMENT",
                "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
            )
        ),
    },
    # Two clients let their HTTP library's error through: `anthropic` in a stream, `google-genai` always.
    "reset at once": {
        "anthropic": Row(_CUT_OFF, _CLAUDE_LOST),
        "responses": _both(_GPT_LOST),
        "chat": _both(_GPT_LOST),
        "gemini": _both(_CUT_OFF),
    },
    "reset in mid-stream": {
        "anthropic": Row(_CUT_OFF, _CLAUDE_LOST),
        "responses": _both(_GPT_LOST),
        "chat": _both(_GPT_LOST),
        "gemini": _both(_CUT_OFF),
    },
    # Swallowed by all in a stream: only the absent stop tells.
    "end without a finish": {
        "anthropic": Row(Heard(text="Half", tokens=_NOTHING), _NOT_JSON),
        "responses": Row(Heard(text="Half"), _NOT_JSON),
        "chat": Row(Heard(text="Half"), _NOT_JSON),
        "gemini": Row(Heard(text="Half"), _NOT_JSON),
    },
    "silence at once": {
        "anthropic": Row(_TOO_LATE, _CLAUDE_LATE),
        "responses": _both(_GPT_LATE),
        "chat": _both(_GPT_LATE),
        "gemini": _both(_TOO_LATE),
    },
    "silence in mid-stream": {
        "anthropic": Row(_TOO_LATE, _CLAUDE_LATE),
        "responses": _both(_GPT_LATE),
        "chat": _both(_GPT_LATE),
        "gemini": _both(_TOO_LATE),
    },
    "malformed frame": {
        "anthropic": _both(_NOT_JSON),
        "responses": _both(_NOT_JSON),
        "chat": _both(_NOT_JSON),
        "gemini": Row(Raises(gemini_errors.UnknownApiResponseError, "Failed to parse"), _NOT_JSON),
    },
    # Swallowed by `anthropic` in a stream: an event without a name is passed over unread.
    "frame of no format": {
        "anthropic": Row(Heard(text="Half and more", stop="end_turn", tokens=_NOTHING), _NOT_JSON),
        "responses": _both(_NOT_JSON),
        "chat": _both(_NOT_JSON),
        "gemini": Row(Raises(gemini_errors.UnknownApiResponseError, "Failed to parse"), _NOT_JSON),
    },
    # `google-genai` drops the words of a refusal (`finishMessage`) where it speaks to the Gemini API.
    "refusal": {
        "anthropic": _heard("refusal", refusal="I will not."),
        "responses": _heard("completed", refusal="I will not."),
        "chat": _heard("content_filter", refusal="I will not."),
        "gemini": _heard("SAFETY"),
    },
    "refusal after a text": {
        "anthropic": _heard("refusal", "Half", refusal="I will not."),
        "responses": _heard("completed", "Half", refusal="I will not."),
        "chat": _heard("content_filter", "Half", refusal="I will not."),
        "gemini": _heard("SAFETY", "Half"),
    },
    "cut off at the limit": {
        "anthropic": _heard("max_tokens", "Half"),
        "responses": _heard("incomplete: max_output_tokens", "Half"),
        "chat": _heard("length", "Half"),
        "gemini": _heard("MAX_TOKENS", "Half"),
    },
    "empty answer": {
        "anthropic": _heard("end_turn"),
        "responses": _heard("completed"),
        "chat": _heard("stop"),
        "gemini": _heard("STOP"),
    },
}
