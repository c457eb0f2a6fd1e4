"""`HandlerTools`: what a handler is given, from the extension's thread into the engine's loop, and dead once it ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Protocol, TypeVar

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.jobs import MAX_PAYLOAD_BYTES, too_large
from codesdk.extensions.outcomes import EnqueueResult

_MAX_JOB_BYTES = 2 * MAX_PAYLOAD_BYTES
"""What comes near the engine at all: a payload and its names."""
T = TypeVar("T")


class HandlerEnded(RuntimeError):
    """The handler has ended or timed out, so its tools do nothing any more."""


class ToolPorts(Protocol):
    """What tools reach, in the engine's loop, for one event."""

    async def enqueue(self, job: dict[str, Any]) -> EnqueueResult:
        """Queue a job."""
        ...

    async def settings_of(self, session_id: str) -> dict[str, Any]:
        """Return the values of a session of the event's principal."""
        ...


class HandlerTools:
    """The tools of one call of a handler."""

    def __init__(self, module_name: str, ports: ToolPorts) -> None:
        self._ports = ports
        self._home = asyncio.get_running_loop()
        self._ended = False
        self.logger = _HandlerLogger(module_name, lambda: self._ended)

    def end(self) -> None:
        """Refuse everything from now on."""
        self._ended = True

    async def enqueue_job(self, job: dict[str, Any]) -> EnqueueResult:
        """Queue a job."""
        try:
            # Here, in the extension's thread: looking at what it gives may run code of its own.
            data = msgspec.json.encode(job)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"The job is not JSON: {error}.") from None
        if len(data) > _MAX_JOB_BYTES:
            raise too_large(len(data))
        return await self._at_home(lambda: self._ports.enqueue(msgspec.json.decode(data)))

    async def get_session_settings(self, session_id: str) -> dict[str, Any]:
        """Return the values of a session."""
        return await self._at_home(lambda: self._ports.settings_of(session_id))

    async def get_session_setting(self, session_id: str, key: str) -> Any:
        """Return one value of a session, or None."""
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - whatever an extension gives
            raise InvalidRequest("The key of a session's value is a text.")
        return (await self.get_session_settings(session_id)).get(key)

    async def _at_home(self, make: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            # Here, in the engine's loop, where `end` is called: so nothing begins once the handler has ended.
            if self._ended:
                raise HandlerEnded("The handler has ended, so its tools do nothing any more.")
            return await make()

        return await _across(run(), self._home)


async def _across(work: Coroutine[Any, Any, T], home: asyncio.AbstractEventLoop) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))


class _HandlerLogger(logging.LoggerAdapter[logging.Logger]):
    """Names the extension in each line, and writes none once the handler has ended."""

    def __init__(self, module_name: str, ended: Callable[[], bool]) -> None:
        super().__init__(logging.getLogger(f"codesdk.extensions.{module_name}"), {})
        self._ended = ended

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        return not self._ended() and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs
