"""Errors → exit codes and words on stderr. The one table of exit codes, and the text of it in `--help`."""

import os
import sys
import traceback
from typing import Final

import msgspec

from codesdk.contract.errors import CodeSDKError, ErrorCode, ErrorInfo
from codesdk.contract.events import Event, TaskCompleted

OK: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
NOT_FOUND: Final = 3
BUSY: Final = 4
STORAGE: Final = 5
DENIED: Final = 6
UNRECOVERED: Final = 7
# 128 plus the number of SIGINT or SIGPIPE, as shells report a process that died of it.
INTERRUPTED: Final = 130
READER_GONE: Final = 141

MEANINGS: dict[int, str] = {
    OK: "success",
    FAILED: "the task failed, or a check found something",
    BAD_INPUT: "bad usage, bad input, or not allowed",
    NOT_FOUND: "there is no such session, call or artifact",
    BUSY: "conflict or busy: another process or another answer was first",
    STORAGE: "the data directory cannot be read or written",
    DENIED: "the task is done, but calls were denied (`--fail-on-denied`)",
    UNRECOVERED: "a session was interrupted and is not recovered yet (`verify`)",
    INTERRUPTED: "interrupted: the task was stopped",
    READER_GONE: "the reader of the output went away",
}

EXIT_OF: dict[ErrorCode, int] = {
    "INVALID_REQUEST": BAD_INPUT,
    "CONTEXT_TOO_LARGE": BAD_INPUT,
    "FORBIDDEN": BAD_INPUT,
    "AUTH_REQUIRED": BAD_INPUT,
    "AUTH_FAILED": BAD_INPUT,
    "NOT_FOUND": NOT_FOUND,
    "CONFLICT": BUSY,
    "SESSION_BUSY": BUSY,
    "QUEUE_FULL": BUSY,
    "RATE_LIMITED": BUSY,
    "OVERLOADED": BUSY,
    "STORAGE_FAILED": STORAGE,
}
"""Errors that end a command. Codes not listed here are failures of a task or of CodeSDK itself: 1."""

_ENDINGS = {"task.completed": OK, "task.failed": FAILED, "task.stopped": INTERRUPTED}


def exit_of(code: ErrorCode) -> int:
    """Return the exit code for an error."""
    return EXIT_OF.get(code, FAILED)


def exit_of_ending(event: Event, *, fail_on_denied: bool = False) -> int:
    """Return the exit code for a task's terminal event."""
    if fail_on_denied and isinstance(event.payload, TaskCompleted) and event.payload.work.denied:
        return DENIED
    return _ENDINGS[event.type]


def report(error: ErrorInfo, *, as_json: bool) -> int:
    """Write an error to stderr, in one line, and return its exit code."""
    try:
        from codesdk.cli.view.safe import printable, printable_json

        if as_json:
            print(printable_json(msgspec.json.encode({"error": error})).decode(), file=sys.stderr, flush=True)
        else:
            print(f"error ({error.code}): {printable(error.message)}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads stderr; the exit code still says it
    return exit_of(error.code)


def report_failure(error: CodeSDKError | OSError, *, as_json: bool) -> int:
    """Report what kept a command from its work, and return the exit code."""
    if isinstance(error, CodeSDKError):
        return report(error.info(), as_json=as_json)
    where = f": {error.filename}" if error.filename else ""
    words = f"{error.strerror or error}{where}."
    return report(ErrorInfo(code="STORAGE_FAILED", message=words, retryable=False), as_json=as_json)


def report_bug(error: Exception, *, as_json: bool) -> int:
    """Report an error that nobody expected, and return the exit code."""
    if os.environ.get("CODESDK_DEBUG"):
        traceback.print_exception(error)
    words = f"{type(error).__name__}: {error}. This is a bug. CODESDK_DEBUG=1 shows where."
    return report(ErrorInfo(code="INTERNAL", message=words, retryable=False), as_json=as_json)
