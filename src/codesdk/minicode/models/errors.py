"""What goes wrong between us and a provider → an error with our code, advice, and whether trying again may help. Pure."""

import re
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic_ai import exceptions as library

from codesdk.contract.errors import COMPACT, CodeSDKError, ErrorCode
from codesdk.minicode.models.settings import ModelSettings

_LONGEST = 600
_KINDS: tuple[tuple[type[Exception], ErrorCode, bool, str], ...] = (
    (library.ModelAuthenticationError, "AUTH_FAILED", False, "The provider refused the key. {key}"),
    (
        library.ModelQuotaExceededError,
        "RATE_LIMITED",
        False,
        "The account's quota is used up; raise it, or use another key.",
    ),
    (library.ModelRateLimitError, "RATE_LIMITED", True, "Wait a while, then try again."),
    (library.ModelUnavailableError, "OVERLOADED", True, "Try again in a while."),
    (library.ModelContextWindowExceededError, "CONTEXT_TOO_LARGE", False, COMPACT),
    (
        library.ModelNotFoundError,
        "MODEL_ERROR",
        False,
        "Check the model's name ({model}) and the address of the provider.",
    ),
    (library.ModelRequestRejectedError, "MODEL_ERROR", False, "Look at the message of the provider."),
    (library.ContentFilterError, "CONTENT_FILTERED", False, "Ask in another way."),
    (library.UserError, "MODEL_ERROR", False, "Choose another model, or leave out what it cannot take."),
)
"""By kind, the special before the general. All else may be gone the next time."""
_LATER = "Try again."
_SEARCHED = 4096
"""How much of a provider's message is looked at: a message has any length, and the search goes back and forth."""
_TOO_LONG = re.compile(
    r"context.?length|context window|prompt is too long|too many tokens|maximum context|token count .*exceeds|input is too long",
    re.IGNORECASE,
)


class WebPage(Exception):
    """Something that is no model answered: with a web page."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a web page ({status})")
        self.status = status


def error_of(error: Exception, settings: ModelSettings) -> CodeSDKError:
    """Return what a request failed with. Anything is accepted."""
    if isinstance(error, CodeSDKError):
        return error
    page = _page_behind(error)
    if page is not None:
        return _not_a_model(settings, {"http_status": page.status})
    said, details = _said(error), _details(error)
    status = details.get("http_status")
    code, retryable, advice = _kind(error, said, status)
    advice = advice.format(key=settings.how_to_get_a_key, model=settings.model)
    message = f"{settings.provider} did not answer: {_short(said)}. {advice}"
    return CodeSDKError(message, code=code, retryable=retryable, details=details or None)


def broken_off(settings: ModelSettings) -> CodeSDKError:
    """Return the error of an answer that ended without saying so."""
    return CodeSDKError(
        f"The answer of {settings.provider} broke off in the middle. {_LATER}",
        code="MODEL_ERROR",
        retryable=True,
    )


def filtered(settings: ModelSettings, why: str) -> CodeSDKError:
    """Return the error of an answer that the provider held back."""
    said = f": {_short(why)}" if why else ""
    return CodeSDKError(
        f"{settings.provider} declined to answer{said}. Ask in another way.", code="CONTENT_FILTERED"
    )


def _kind(error: Exception, said: str, status: Any) -> tuple[ErrorCode, bool, str]:
    if status == 413 or (status == 400 and _TOO_LONG.search(said, 0, _SEARCHED)):
        return "CONTEXT_TOO_LARGE", False, COMPACT
    for kind, code, retryable, advice in _KINDS:
        if isinstance(error, kind):
            return code, retryable, advice
    return "MODEL_ERROR", True, _LATER


def _not_a_model(settings: ModelSettings, details: dict[str, Any]) -> CodeSDKError:
    where = urlsplit(settings.base_url or "").hostname or "its own address"  # what follows may be secret
    return CodeSDKError(
        f"{settings.provider} at {where} answered with a web page, not as a model does. Check the address:"
        f" {settings.url_field} in the configuration.",
        code="MODEL_ERROR",
        details=details or None,
    )


def _page_behind(error: BaseException | None) -> WebPage | None:
    """Return what a client wrapped into an error of its own, if it is that."""
    while error is not None and not isinstance(error, WebPage):
        error = error.__cause__ or error.__context__
    return error


def _said(error: Exception) -> str:
    """Return the provider's own words, without what the library puts around them."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        told = cast("dict[str, Any]", body)
        inner = told.get("error", told)
        message = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else inner
        if isinstance(message, str) and message.strip():
            return message
    text = str(getattr(error, "message", "") or error) or type(error).__name__
    return body if isinstance(body, str) and body.strip() else text


def _details(error: Exception) -> dict[str, Any]:
    found: dict[str, Any] = {}
    status, wait = getattr(error, "status_code", None), getattr(error, "retry_after", None)
    if isinstance(status, int):
        found["http_status"] = status
    if isinstance(wait, int | float):
        found["retry_after_s"] = max(0.0, float(wait))
    return found


def _short(text: str) -> str:
    plain = " ".join(text[:_SEARCHED].split())
    return (plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…").rstrip(". ")
