"""Errors: one structure on the wire, one small tree of exceptions that carry it.

    CodeSDKError
    ├── InvalidRequest     fix the call: INVALID_REQUEST, CONTEXT_TOO_LARGE
    ├── NotFound           NOT_FOUND
    ├── Conflict           look again, then decide: CONFLICT
    ├── Forbidden          FORBIDDEN, AUTH_REQUIRED, AUTH_FAILED
    ├── Busy               try later: SESSION_BUSY, QUEUE_FULL, RATE_LIMITED, OVERLOADED
    ├── StorageFailure     look at the disk: STORAGE_FAILED
    ├── SandboxUnavailable install what is missing: SANDBOX_UNAVAILABLE
    └── TaskFailure        what happened inside a task, when its result is asked for: any code

A failure inside a task is an event; an exception is raised only at the API call.
"""

from typing import Any, Literal

import msgspec

ErrorCode = Literal[
    "INVALID_REQUEST",
    "NOT_FOUND",
    "CONFLICT",
    "FORBIDDEN",
    "SESSION_BUSY",
    "QUEUE_FULL",
    "RATE_LIMITED",
    "OVERLOADED",
    "AUTH_REQUIRED",
    "AUTH_FAILED",
    "CONTEXT_TOO_LARGE",
    "CONTENT_FILTERED",
    "BUDGET_EXCEEDED",
    "TIMEOUT",
    "RUNTIME_UNAVAILABLE",
    "RUNTIME_CRASHED",
    "RUNTIME_PROTOCOL",
    "MODEL_ERROR",
    "TOOL_FAILED",
    "SANDBOX_UNAVAILABLE",
    "STORAGE_FAILED",
    "INTERRUPTED",
    "INTERNAL",
]

SETTLED = "settled"
"""In the details of a `Conflict`: what was to be decided had been decided before."""
COMPACT = "Compact the session with `session.compact()` or `codesdk compact`, then start the task again."
"""What to do about CONTEXT_TOO_LARGE, for every runtime that a provider tells so."""


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, as clients see it. `message` says what happened and what to do next."""

    code: ErrorCode
    message: str
    retryable: bool
    runtime: str | None = None
    details: dict[str, Any] | None = None
    raw: Any = None


class CodeSDKError(Exception):
    """The root of all exceptions that CodeSDK raises on purpose."""

    code: ErrorCode = "INTERNAL"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retryable: bool | None = None,
        runtime: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.retryable = type(self).retryable if retryable is None else retryable
        self.runtime = runtime
        self.details = details

    def info(self) -> ErrorInfo:
        """Return the same error in its wire form."""
        return ErrorInfo(
            code=self.code,
            message=self.message,
            retryable=self.retryable,
            runtime=self.runtime,
            details=self.details,
        )


class InvalidRequest(CodeSDKError):
    """The request is invalid; change it."""

    code = "INVALID_REQUEST"


class NotFound(CodeSDKError):
    """Nothing has that id, or the caller may not see it."""

    code = "NOT_FOUND"


class Conflict(CodeSDKError):
    """The state has moved on: another answer, another attempt, another writer."""

    code = "CONFLICT"


class Forbidden(CodeSDKError):
    """The principal or the configuration does not allow it."""

    code = "FORBIDDEN"


class Busy(CodeSDKError):
    """A limit is reached; the same call may go through later."""

    code = "OVERLOADED"
    retryable = True


class StorageFailure(CodeSDKError):
    """The data directory could not be read or written."""

    code = "STORAGE_FAILED"


class SandboxUnavailable(CodeSDKError):
    """The sandbox cannot run here as required; the message names what is missing and how to get it."""

    code = "SANDBOX_UNAVAILABLE"


class TaskFailure(CodeSDKError):
    """A task ended without a result; the error is the one of its terminal event."""


_FAMILY: dict[str, type[CodeSDKError]] = {
    "INVALID_REQUEST": InvalidRequest,
    "CONTEXT_TOO_LARGE": InvalidRequest,
    "NOT_FOUND": NotFound,
    "CONFLICT": Conflict,
    "FORBIDDEN": Forbidden,
    "AUTH_REQUIRED": Forbidden,
    "AUTH_FAILED": Forbidden,
    "SESSION_BUSY": Busy,
    "QUEUE_FULL": Busy,
    "RATE_LIMITED": Busy,
    "OVERLOADED": Busy,
    "STORAGE_FAILED": StorageFailure,
    "SANDBOX_UNAVAILABLE": SandboxUnavailable,
}


def from_info(info: ErrorInfo) -> CodeSDKError:
    """Return the exception class that the code belongs to, with this error."""
    # A code that no call answers with, such as MODEL_ERROR, can only come out of a task.
    return _FAMILY.get(info.code, TaskFailure)(
        info.message,
        code=info.code,
        retryable=info.retryable,
        runtime=info.runtime,
        details=info.details,
    )
