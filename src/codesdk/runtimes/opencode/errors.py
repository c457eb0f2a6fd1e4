"""What opencode says went wrong → an error with our code, and whether trying again may help. Pure."""

from typing import Any, NamedTuple

from codesdk.contract.access import KEY_VARIABLES, PROVIDER_OF
from codesdk.contract.errors import COMPACT, ErrorCode, ErrorInfo
from codesdk.contract.models import Wire
from codesdk.runtimes.opencode import NAME
from codesdk.runtimes.program.endings import shorten
from codesdk.runtimes.program.jsonrpc import as_dict

ABORTED = "MessageAbortedError"


class _Kind(NamedTuple):
    code: ErrorCode
    retryable: bool
    advice: str


_AUTH = _Kind("AUTH_FAILED", False, "The provider refused the key; check {key}.")
_LATER = _Kind("MODEL_ERROR", True, "Try again.")
_LIMIT = _Kind("RATE_LIMITED", True, "Wait a while, then try again.")
_QUOTA = _Kind("RATE_LIMITED", False, "The account's quota is used up; raise it, or use another key.")
_LOADED = _Kind("OVERLOADED", True, "Try again in a while.")
_CONTEXT = _Kind("CONTEXT_TOO_LARGE", False, COMPACT)
_MODEL = _Kind("MODEL_ERROR", False, "Check the model's name, or choose another model.")
_OTHER = _Kind("MODEL_ERROR", False, "Look at the message of the provider.")
_FILTER = _Kind("CONTENT_FILTERED", False, "The provider does not answer this; ask in another way.")

_NAMED: dict[str, _Kind] = {
    "ProviderAuthError": _AUTH,
    "ContextOverflowError": _CONTEXT,
    "ContentFilterError": _FILTER,
    "MessageOutputLengthError": _Kind("MODEL_ERROR", False, "Raise max_output_tokens, or ask for less."),
    "ProviderModelNotFoundError": _MODEL,
}
_BY_STATUS: dict[int, _Kind] = {
    401: _AUTH,
    402: _QUOTA,
    403: _AUTH,
    404: _MODEL,
    413: _CONTEXT,
    429: _LIMIT,
    503: _LOADED,
    529: _LOADED,
}
_TEXTS: tuple[tuple[str, _Kind], ...] = (
    ("context_length_exceeded", _CONTEXT),
    ("prompt is too long", _CONTEXT),
    ("insufficient_quota", _QUOTA),
    ("rate limit", _LIMIT),
    ("too many requests", _LIMIT),
    ("429", _LIMIT),
    ("overloaded", _LOADED),
    ("503", _LOADED),
    ("unable to connect", _LATER),
    ("connection", _LATER),
    ("json", _LATER),
)
"""Errors that have neither a name nor a status, by words in their messages."""


def error_of(error: Any, wire: Wire = "chat") -> ErrorInfo:
    """Return the error that a message of opencode ended with. Anything is accepted."""
    told = as_dict(error)
    data = as_dict(told.get("data"))
    name = str(told.get("name") or "UnknownError")
    message = str(data.get("message") or told.get("message") or (error if not told else "it did not say why"))
    status = data.get("statusCode")
    status = status if isinstance(status, int) else None
    kind = _kind(name, status, f"{message} {data.get('responseBody') or ''}".lower())
    return _made(
        kind, message, wire, {"opencode_error": name} | ({} if status is None else {"http_status": status})
    )


def waited_for(message: str, attempt: int, wait_s: float | None) -> ErrorInfo:
    """Return the error of a model that is asked again too often, or only after a long time. `wait_s` is that time."""
    kind = next((kind for words, kind in _TEXTS if words in message.lower()), _LATER)
    why = f"the next try would be in {wait_s:.0f} s" if wait_s is not None else f"{attempt} tries failed"
    details = {"attempt": attempt} | ({} if wait_s is None else {"wait_s": round(wait_s)})
    return _made(kind, f"{message.rstrip('. ')} ({why})", "chat", details)


def broken_off() -> ErrorInfo:
    """Return the error of an answer that ended without saying so. Opencode would ask for it again, for ever."""
    return _made(_LATER, "the answer broke off in the middle", "chat", {"finish": "unknown"})


def _kind(name: str, status: int | None, text: str) -> _Kind:
    if name in _NAMED:
        return _NAMED[name]
    found = next((kind for words, kind in _TEXTS if words in text), None)
    if found in (_CONTEXT, _QUOTA) and found is not None:
        return found
    if status is not None:
        return _BY_STATUS.get(status, _LATER if status >= 500 else _OTHER)
    return found or _OTHER


def _made(kind: _Kind, message: str, wire: Wire, details: dict[str, Any]) -> ErrorInfo:
    advice = kind.advice.format(key=KEY_VARIABLES[PROVIDER_OF[wire]])
    return ErrorInfo(
        code=kind.code,
        message=f"The model did not answer opencode: {shorten(message).rstrip('. ')}. {advice}",
        retryable=kind.retryable,
        runtime=NAME,
        details=details,
    )
