"""What codex says went wrong → an error with our code, and whether trying again may help. Pure."""

from typing import Any, NamedTuple, cast

from codesdk.contract.errors import COMPACT, ErrorCode, ErrorInfo
from codesdk.runtimes.codex import NAME
from codesdk.runtimes.program.endings import shorten
from codesdk.runtimes.program.jsonrpc import as_dict


class _Kind(NamedTuple):
    code: ErrorCode
    retryable: bool
    advice: str


_AUTH = _Kind("AUTH_FAILED", False, "The provider refused the key; check OPENAI_API_KEY.")
_REFUSED = _Kind("AUTH_FAILED", False, "The provider refused the login; log in again: codesdk login codex")
_LATER = _Kind("MODEL_ERROR", True, "Try again.")
_LIMIT = _Kind("RATE_LIMITED", True, "Wait a while, then try again.")
_QUOTA = _Kind("RATE_LIMITED", False, "The account's quota is used up; raise it, or use another key.")
_FILTER = _Kind("CONTENT_FILTERED", False, "The provider does not answer this; ask in another way.")
_CONTEXT = _Kind("CONTEXT_TOO_LARGE", False, COMPACT)
_MODEL = _Kind("MODEL_ERROR", False, "Check the model's name, or choose another model.")
_OTHER = _Kind("MODEL_ERROR", False, "Look at the message of the provider.")

_NAMED: dict[str, _Kind] = {
    "contextWindowExceeded": _CONTEXT,
    "usageLimitExceeded": _QUOTA,
    "sessionBudgetExceeded": _QUOTA,
    "rateLimitExceeded": _LIMIT,
    "flexUnavailable": _LATER,
    "serverOverloaded": _Kind("OVERLOADED", True, "Try again in a while."),
    "cyberPolicy": _FILTER,
    "misalignmentPolicyViolation": _FILTER,
    "internalServerError": _LATER,
    "unauthorized": _AUTH,
    "responseStreamConnectionFailed": _LATER,
    "responseStreamDisconnected": _LATER,
    "responseTooManyFailedAttempts": _LATER,
    "httpConnectionFailed": _LATER,
}
_BY_STATUS: dict[int, _Kind] = {401: _AUTH, 403: _AUTH, 404: _MODEL, 400: _OTHER, 429: _LIMIT}
_TEXTS: tuple[tuple[str, _Kind], ...] = (
    ("context_length_exceeded", _CONTEXT),
    ("Missing environment variable", _Kind("AUTH_REQUIRED", False, "Give the session a way to its model.")),
    (
        "Failed to refresh token",
        _Kind("AUTH_FAILED", True, "Try again; if that does not help, log in again: codesdk login codex"),
    ),
    ("stream disconnected", _LATER),
)
"""Errors that codex has no name for, by words in their messages."""


def error_of(error: Any, *, login: bool = False) -> ErrorInfo:
    """Return the error of a turn that failed, with a key or with a `login`. Anything is accepted."""
    told = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    message = str(told.get("message") or "codex did not say why")
    name, status = _named(told.get("codexErrorInfo"))
    kind = _kind(name, status, f"{message} {told.get('additionalDetails') or ''}")
    if login and kind is _AUTH:
        kind = _REFUSED
    details: dict[str, Any] = {"codex_error": name}
    if status is not None:
        details["http_status"] = status
    return ErrorInfo(
        code=kind.code,
        message=f"The model did not answer codex: {shorten(message).rstrip('. ')}. {kind.advice}",
        retryable=kind.retryable,
        runtime=NAME,
        details=details,
    )


def is_dead(error: ErrorInfo) -> bool:
    """Return whether a turn failed because its login is not renewed any more: codex has a name for that alone."""
    return error.code == "AUTH_FAILED" and (error.details or {}).get("codex_error") == "unauthorized"


def _kind(name: str, status: int | None, text: str) -> _Kind:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if name in _NAMED:
        return _NAMED[name]
    return next((kind for words, kind in _TEXTS if words in text), _OTHER)


def _named(info: Any) -> tuple[str, int | None]:
    """Return the name of a kind, and the HTTP status that some kinds carry."""
    if isinstance(info, str):
        return info, None
    if isinstance(info, dict) and info:
        name, inner = next(iter(cast("dict[str, Any]", info).items()))
        status = as_dict(inner).get("httpStatusCode")
        return name, status if isinstance(status, int) else None
    return "other", None
