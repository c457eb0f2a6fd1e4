"""Calls into an adapter, which is not trusted: it may raise, hang, cancel itself or return garbage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from codesdk.contract.access import AuthStatus
from codesdk.contract.errors import CodeSDKError, ErrorInfo, TaskFailure
from codesdk.contract.runtime import (
    Failed,
    Finished,
    HistoryLost,
    Host,
    Runtime,
    RuntimeEnv,
    RuntimeTask,
    TaskInput,
)
from codesdk.contract.text import mend
from codesdk.engine.tasks.validation import MAX_ID_CHARS, is_deep
from codesdk.foreign import call, name_of

Ending = Finished | Failed
TOO_LONG = "a reason that is too long to be recorded"


async def start(runtime: Runtime, host: Host, task: TaskInput, limit_s: float) -> RuntimeTask:
    """Have a runtime start a task. Raise `TaskFailure` if it does not, whatever the cause.

    `HistoryLost` passes, if the runtime was to go on natively.
    """
    deadline = asyncio.timeout(limit_s)
    try:
        async with deadline:
            return await call(runtime.start_task, host, task)
    except (CodeSDKError, HistoryLost):
        raise
    except Exception as error:
        why = f"The runtime {runtime.name} could not be started ({name_of(error)})."
        if deadline.expired():
            why = f"The runtime {runtime.name} did not start within {limit_s:g} s."
        raise TaskFailure(why, code="RUNTIME_UNAVAILABLE", retryable=True, runtime=runtime.name) from error


async def require_ready(runtime: Runtime, env: RuntimeEnv, limit_s: float) -> AuthStatus:
    """Return how a runtime would talk to its model. Raise `TaskFailure` if it could not. Its program is not started."""
    try:
        async with asyncio.timeout(limit_s):
            status = await call(runtime.auth_status, env)
    except CodeSDKError:
        raise
    except Exception as error:
        why = f"The runtime {runtime.name} does not say whether it is ready ({name_of(error)}). Use another one."
        raise TaskFailure(why, code="RUNTIME_UNAVAILABLE", retryable=True, runtime=runtime.name) from error
    if not status.ok:
        why = " ".join(filter(None, [status.problem, status.to_do])) or f"{runtime.name} is not ready."
        raise TaskFailure(why, code="AUTH_REQUIRED", runtime=runtime.name)
    return status


async def call_within(timeout_s: float, method: Callable[..., Awaitable[None]], *args: object) -> None:
    """Call a method of an adapter, ignoring the outcome, and cancel it after `timeout_s`."""
    calling = asyncio.create_task(call(method, *args))
    try:
        await asyncio.wait([calling], timeout=timeout_s)
    finally:
        forget(calling)


def forget(future: "asyncio.Future[Ending] | asyncio.Future[None]") -> None:
    """Cancel a future, or consume its error, so that asyncio does not log it later."""
    if future.done():
        if not future.cancelled():
            future.exception()
    else:
        future.cancel()


def crash(runtime: str, why: str) -> Failed:
    """Return the ending of a task whose runtime broke off."""
    return Failed(
        error=ErrorInfo(
            code="RUNTIME_CRASHED",
            message=f"The runtime {runtime} broke off: {why.rstrip('.')}. The task can be tried again.",
            retryable=True,
            runtime=runtime,
        )
    )


def ending_of(runtime: str, playing: asyncio.Task[Ending]) -> Ending:
    """Return the ending that a finished run gave, or a crash if it raised or was cancelled."""
    if playing.cancelled():
        return crash(runtime, "it was cancelled from inside")
    error = playing.exception()
    if error is None:
        return playing.result()
    if isinstance(error, CodeSDKError):
        return Failed(error=error.info())
    return crash(runtime, name_of(error))


def legible_ending(runtime: str, ending: Ending, max_bytes: int) -> Ending:
    """Return an ending as it can be stored: a malformed one becomes a crash, and what is too large in one is left out."""
    value: Any = ending.error if isinstance(ending, Failed) else ending.stop_reason
    kind = ErrorInfo if isinstance(ending, Failed) else str
    try:
        data = msgspec.json.encode(mend(msgspec.to_builtins(value)))
        stored: Any = msgspec.json.decode(data, type=kind)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return crash(runtime, "its final message was unreadable")
    if isinstance(ending, Finished):
        return Finished(stop_reason=stored if len(stored) <= MAX_ID_CHARS else TOO_LONG, raw=ending.raw)
    if len(data) > max_bytes or is_deep(data):
        # Not its beginning: a secret that is cut in two is not found any more.
        message = (
            f"The runtime {runtime} failed, and its error is too large or nested too deep to be recorded."
        )
        stored = ErrorInfo(code=stored.code, message=message, retryable=stored.retryable, runtime=runtime)
    return Failed(error=stored, raw=ending.raw)
