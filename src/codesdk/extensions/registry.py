"""`AgentEventRegistry`: what an extension's `register` is given, and the handlers that it leaves there, in order."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.extensions.outcomes import AgentRuntimeEvent, EnqueueResult

DEFAULT_PRIORITY = 100
DEFAULT_TIMEOUT_MS = 5_000
MAX_TIMEOUT_MS = 60_000
DEFAULT_JOB_TIMEOUT_MS = 30_000
MAX_JOB_TIMEOUT_MS = 600_000
DEFAULT_ATTEMPTS = 5
MAX_ATTEMPTS = 100
DEFAULT_BACKOFF_MS = 1_000
MAX_BACKOFF_MS = 300_000
MAX_HANDLERS = 1_000
_MAX_PRIORITY = 1_000_000
_TYPE_CHARS = 200
_JOB_TYPE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?")


class AgentRuntimeTools(Protocol):
    """What a handler may use until it ends. Afterwards everything here refuses: there are no late side effects."""

    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """Writes log lines that name the extension."""
        ...

    async def enqueue_job(self, job: dict[str, Any]) -> EnqueueResult:
        """Queue a job: `type`, and `project_id`, `source_session_id`, `payload`, `identity` if they are given."""
        ...

    async def get_session_settings(self, session_id: str) -> dict[str, Any]:
        """Return the values that apps and extensions keep in a session."""
        ...

    async def get_session_setting(self, session_id: str, key: str) -> Any:
        """Return one of these values, or None if there is none."""
        ...


EventHandler = Callable[[AgentRuntimeEvent, AgentRuntimeTools], Awaitable[Any] | Any]


class Registration(NamedTuple):
    """A handler in its place. Smaller ones are called first."""

    priority: int
    module_name: str
    place: int
    event_type: str
    handler: EventHandler | None
    """None here if the extension has a process of its own: there it is known by its place."""
    timeout_ms: int
    attempts: int = 0
    """How often a job of this type is tried; 0 if this is a handler of events."""
    backoff_ms: int = 0
    """How long after a job's first attempt comes the second."""

    @property
    def order(self) -> tuple[int, str, int]:
        """What handlers are ordered by."""
        return (self.priority, self.module_name, self.place)

    @property
    def label(self) -> str:
        """The handler's name in keys and log lines: its place among the extension's own, which a restart keeps."""
        return f"{self.event_type}#{self.place}"


class AgentEventRegistry:
    """Takes the handlers of one extension. Open only while its `register` runs."""

    def __init__(self, module_name: str) -> None:
        self.module_name = module_name
        self.registrations: list[Registration] = []
        self._open = True

    def on(
        self,
        event_type: str,
        handler: EventHandler,
        priority: int = DEFAULT_PRIORITY,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Call a handler for each event of a type. Raise `InvalidRequest` for what cannot be registered."""
        if not isinstance(cast("object", event_type), str) or not 0 < len(event_type) <= _TYPE_CHARS:
            raise InvalidRequest(f"An event type is a text of 1 to {_TYPE_CHARS} characters.")
        _check(event_type, "priority", priority, -_MAX_PRIORITY, _MAX_PRIORITY)
        _check(event_type, "timeout_ms", timeout_ms, 1, MAX_TIMEOUT_MS)
        if any(
            one.event_type == event_type and one.handler == handler and not one.attempts
            for one in self.registrations
        ):
            raise InvalidRequest(f"The same handler is registered twice for {event_type}. Register it once.")
        self._add(
            Registration(priority, self.module_name, len(self.registrations), event_type, handler, timeout_ms)
        )

    def job(
        self,
        job_type: str,
        handler: EventHandler,
        timeout_ms: int = DEFAULT_JOB_TIMEOUT_MS,
        attempts: int = DEFAULT_ATTEMPTS,
        backoff_ms: int = DEFAULT_BACKOFF_MS,
    ) -> None:
        """Call a handler for each job of a type, until it returns or was tried so often.

        The second attempt comes `backoff_ms` after the first, each later one after twice the pause before it. Raise
        `InvalidRequest` for what cannot be registered.
        """
        if not isinstance(cast("object", job_type), str) or not _JOB_TYPE.fullmatch(job_type):
            raise InvalidRequest("A job type is 1 to 100 of a-z, 0-9 and . _ - between them.")
        _check(job_type, "timeout_ms", timeout_ms, 1, MAX_JOB_TIMEOUT_MS)
        _check(job_type, "attempts", attempts, 1, MAX_ATTEMPTS)
        _check(job_type, "backoff_ms", backoff_ms, 1, MAX_BACKOFF_MS)
        if any(one.event_type == job_type and one.attempts for one in self.registrations):
            raise InvalidRequest(f"There are two handlers for jobs of the type {job_type}. Register one.")
        place = len(self.registrations)
        self._add(
            Registration(
                DEFAULT_PRIORITY, self.module_name, place, job_type, handler, timeout_ms, attempts, backoff_ms
            )
        )

    def _add(self, registration: Registration) -> None:
        if not self._open:
            raise InvalidRequest("Handlers are registered in `register`, not later. Reload the extensions.")
        if not callable(registration.handler):
            raise InvalidRequest(f"The handler for {registration.event_type} cannot be called.")
        if len(self.registrations) >= MAX_HANDLERS:
            raise InvalidRequest(f"An extension has at most {MAX_HANDLERS} handlers.")
        self.registrations.append(registration)

    def close(self) -> None:
        """Take no more handlers."""
        self._open = False


def _check(event_type: str, name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequest(f"The {name} for {event_type} must be a whole number from {low} to {high}.")
