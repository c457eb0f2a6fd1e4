"""The result with which claude gives up → an error of the contract. Pure."""

from collections.abc import Mapping
from typing import Any

from codesdk.contract.errors import COMPACT, ErrorCode, ErrorInfo
from codesdk.runtimes.claude import NAME

_STATUS: dict[int, tuple[ErrorCode, bool]] = {
    401: ("AUTH_FAILED", False),
    403: ("AUTH_FAILED", False),
    413: ("CONTEXT_TOO_LARGE", False),
    429: ("RATE_LIMITED", True),
    503: ("OVERLOADED", True),
    529: ("OVERLOADED", True),
}
_ADVICE: dict[ErrorCode, str] = {
    "AUTH_REQUIRED": "Give the gateway a key (ANTHROPIC_API_KEY).",
    "AUTH_FAILED": "The provider refused the key; check ANTHROPIC_API_KEY.",
    "CONTEXT_TOO_LARGE": COMPACT,
    "CONTENT_FILTERED": "Ask in another way, or start a new session.",
    "RATE_LIMITED": "Try again later.",
    "OVERLOADED": "Try again later.",
    "RUNTIME_CRASHED": "Start the task again.",
}
_LOGIN_ADVICE = "The provider refused the login; log in again: codesdk login claude"
_OTHER_MODEL = "Check the model's name, or choose another model."


def error_of(result: Mapping[str, Any], reason: str | None, *, login: bool = False) -> ErrorInfo:
    """Return the error of a failed result. `reason` is claude's own name for it, from the message before.

    With `login` claude uses an account of its own.
    """
    code, retryable = _classify(result, reason)
    advice = (
        _LOGIN_ADVICE
        if login and code in ("AUTH_REQUIRED", "AUTH_FAILED")
        else _ADVICE.get(code, "Try again." if retryable else _OTHER_MODEL)
    )
    message = f"claude gave up: {_text(result)} {advice}"
    known = {"status": result.get("api_error_status"), "reason": reason, "end": result.get("terminal_reason")}
    details = {name: value for name, value in known.items() if value is not None}
    return ErrorInfo(code=code, message=message, retryable=retryable, runtime=NAME, details=details)


def _classify(result: Mapping[str, Any], reason: str | None) -> tuple[ErrorCode, bool]:
    status = result.get("api_error_status")
    if result.get("terminal_reason") == "prompt_too_long":
        return "CONTEXT_TOO_LARGE", False
    if result.get("stop_reason") == "refusal":
        return "CONTENT_FILTERED", False
    if isinstance(status, int):
        return _STATUS.get(status, ("MODEL_ERROR", status >= 500))
    if reason == "authentication_failed":
        return "AUTH_REQUIRED", False
    if result.get("terminal_reason") == "api_error":
        return "MODEL_ERROR", True  # no status: the connection was lost, again and again
    return "RUNTIME_CRASHED", True


def _text(result: Mapping[str, Any]) -> str:
    errors: Any = result.get("errors")
    said = result.get("result") or "; ".join(str(error) for error in errors or ()) or result.get("subtype")
    text = str(said).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
