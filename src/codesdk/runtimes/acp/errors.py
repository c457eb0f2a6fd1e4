"""How an agent's turn failed → an error with our code, and whether trying again may help. Pure.

Agents wrap what a provider says in words of their own, retry in silence, or call a failed turn a finished one. The
gateway saw the answer itself, so its word goes before the agent's.
"""

import re
from collections.abc import Sequence
from typing import Any

from codesdk.contract.access import KEY_VARIABLES, PROVIDER_OF
from codesdk.contract.errors import COMPACT, ErrorCode, ErrorInfo
from codesdk.contract.models import ModelAnswered, Wire
from codesdk.runtimes.program.endings import shorten
from codesdk.runtimes.program.jsonrpc import as_dict

AUTH_REQUIRED = -32000
_STATUS: dict[int, tuple[ErrorCode, bool]] = {
    401: ("AUTH_FAILED", False),
    403: ("AUTH_FAILED", False),
    413: ("CONTEXT_TOO_LARGE", False),
    429: ("RATE_LIMITED", True),
    503: ("OVERLOADED", True),
    529: ("OVERLOADED", True),
}
_TOO_LARGE = re.compile(
    r"context.length|context.window|prompt is too long|maximum number of tokens|too many tokens|maximum context",
    re.IGNORECASE,
)
_REVOKED = re.compile(r"\binvalid_(grant|token)\b")
"""How OAuth says that a login is not good any more, while it is renewed or when it is used."""
_ADVICE: dict[ErrorCode, str] = {
    "CONTEXT_TOO_LARGE": COMPACT,
    "RATE_LIMITED": "Wait a while, then try again.",
    "OVERLOADED": "Try again in a while.",
    "RUNTIME_CRASHED": "Start the task again.",
    "RUNTIME_PROTOCOL": "Start the task again; if that does not help, look at the agent's own words.",
}


def error_of(runtime: str, error: Any, log_in: str = "", crashed: Sequence[str] = ()) -> ErrorInfo:
    """Return the error with which an agent answers a prompt, by its own words. Anything is accepted.

    `log_in` is the command for that, if the agent uses an account of its own; `crashed` are words with which it says
    that the program behind it has ended.
    """
    told = as_dict(error)
    message = shorten(str(told.get("message") or error))
    data = told.get("data")
    said = (
        as_dict(data).get("details")
        or as_dict(data).get("message")
        or (data if isinstance(data, str) else "")
    )
    number = told.get("code")
    code, retryable = _classify(number if isinstance(number, int) else None, f"{message} {said}")
    if log_in and _REVOKED.search(f"{message} {said}"):
        code, retryable = "AUTH_FAILED", False
    if any(text in f"{message} {said}" for text in crashed):
        code, retryable = "RUNTIME_CRASHED", True
    words = f"{message.rstrip('. ')}: {shorten(str(said))}" if said else message
    return _info(runtime, code, retryable, words, None, {"agent_error": number}, log_in)


def model_error(
    runtime: str, wire: Wire, answered: ModelAnswered | None, words: str = ""
) -> ErrorInfo | None:
    """Return the error of a turn whose last model request failed, as the gateway saw it; None if it did not fail."""
    if answered is None or answered.status != "failed":
        return None
    code, retryable = _classify(answered.http_status, answered.error or "", model=True)
    status = answered.http_status
    said = answered.error or words or (f"status {status}" if status else "the connection broke")
    details: dict[str, Any] = {} if status is None else {"http_status": status}
    return _info(runtime, code, retryable, shorten(said), wire, details)


def _classify(status: int | None, text: str, *, model: bool = False) -> tuple[ErrorCode, bool]:
    if _TOO_LARGE.search(text):
        return "CONTEXT_TOO_LARGE", False
    if status == AUTH_REQUIRED:
        return "AUTH_REQUIRED", False
    if status in _STATUS:
        return _STATUS[status]
    if status is not None and 400 <= status < 600:
        return "MODEL_ERROR", status >= 500
    # Without a status of HTTP, a stream that the gateway saw fail broke in the middle.
    return ("MODEL_ERROR", True) if model else ("RUNTIME_PROTOCOL", False)


def _info(
    runtime: str,
    code: ErrorCode,
    retryable: bool,
    words: str,
    wire: Wire | None,
    details: dict[str, Any],
    log_in: str = "",
) -> ErrorInfo:
    advice = _ADVICE.get(
        code, "Try again." if retryable else "Look at the provider's message, or choose another model."
    )
    if log_in and code in ("AUTH_FAILED", "AUTH_REQUIRED"):
        advice = f"The provider refused the login; log in again: {log_in}"
    elif code == "AUTH_FAILED":
        variable = "the key" if wire is None else KEY_VARIABLES[PROVIDER_OF[wire]]
        advice = f"The provider refused the key; check {variable}."
    elif code == "AUTH_REQUIRED":
        advice = "Give the session a way to its model."
    who = (
        "The agent gave up"
        if code in ("RUNTIME_PROTOCOL", "RUNTIME_CRASHED")
        else f"The model did not answer {runtime}"
    )
    return ErrorInfo(
        code=code,
        message=f"{who}: {words.rstrip('. ')}. {advice}",
        retryable=retryable,
        runtime=runtime,
        details=details,
    )
