"""Messages of runtimes' app servers → handlers, live: in order in each session, at most once, and bounded.

They are not in the log, so what no handler has taken when the process ends, or finds no room, is lost. Whoever must miss
nothing subscribes to events.
"""

import asyncio
import contextlib
import functools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from codesdk.contract.ports import AppServerSignal, EventLog
from codesdk.contract.records import SessionRow
from codesdk.extensions.outcomes import AgentRuntimeEvent
from codesdk.extensions.signals import APP_SERVER, Origin, Signal, normalize_method, project_id_of

MAX_WAITING = 1_000
"""How many messages of one session wait for handlers."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""How many bytes of messages wait for handlers, of all sessions."""
MAX_METHOD_CHARS = 200
"""A longer one cannot be subscribed to."""
LANES = 16
"""How many sessions' messages are dispatched side by side."""
_log = logging.getLogger("codesdk.extensions")

Hears = Callable[[str, str], bool]
Emit = Callable[[Signal], Awaitable[Any]]


@functools.lru_cache(maxsize=1_024)
def event_type_of(method: str, *, is_request: bool) -> str:
    """Return the name of a message for handlers."""
    return f"{APP_SERVER}{'request.' if is_request else ''}{normalize_method(method)}"


class AppServerSignals:
    """Queues messages and dispatches them, one of a session after the other."""

    def __init__(self, log: EventLog, hears: Hears, emit: Emit) -> None:
        self._log = log
        self._hears = hears
        self._emit = emit
        self._waiting: dict[str, deque[AppServerSignal]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lanes = asyncio.Semaphore(LANES)
        self._bytes = 0
        self.subscribed: Sequence[str] = ()
        """The names of messages that handlers subscribe to."""
        self.lost = 0
        """How many messages found no room."""

    def wants(self, method: str | None, runtime: str, *, is_request: bool) -> bool:
        """Return whether a handler subscribes to such messages, or to any."""
        if method is None:
            return any(self._hears(name, runtime) for name in self.subscribed)
        if not self.subscribed or len(method) > MAX_METHOD_CHARS:
            return False
        return self._hears(event_type_of(method, is_request=is_request), runtime)

    def tell(self, signal: AppServerSignal) -> None:
        """Queue a message, if there is room."""
        session_id = signal.session_id
        lane = self._waiting.get(session_id, ())
        if len(lane) >= MAX_WAITING or self._bytes + signal.size_bytes > MAX_WAITING_BYTES:
            self._lose(signal)
            return
        self._waiting.setdefault(session_id, deque()).append(signal)
        self._bytes += signal.size_bytes
        if session_id not in self._tasks:
            self._tasks[session_id] = asyncio.create_task(self._drain(session_id))

    async def settle(self) -> None:
        """Wait until nothing is queued or under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self, timeout_s: float) -> None:
        """Give handlers what is queued, for at most `timeout_s`. The rest is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.settle()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._waiting.clear()

    def _lose(self, signal: AppServerSignal) -> None:
        if not self.lost:
            _log.warning(
                "handlers are slower than %s says something; %s of session %s, and whatever else finds no room, is lost",
                signal.runtime,
                signal.method,
                signal.session_id,
            )
        self.lost += 1

    async def _drain(self, session_id: str) -> None:
        lane = self._waiting[session_id]
        try:
            async with self._lanes:
                while lane:
                    signal = lane.popleft()
                    try:
                        await self._dispatch(signal)
                    except Exception:  # noqa: BLE001 - a store that fails, say; the next message may go through
                        _log.exception("%s of session %s was lost", signal.method, session_id)
                    finally:
                        self._bytes -= signal.size_bytes
        finally:
            self._bytes -= sum(one.size_bytes for one in lane)
            del self._tasks[session_id], self._waiting[session_id]

    async def _dispatch(self, signal: AppServerSignal) -> None:
        session = await self._log.session(signal.session_id)
        if session is not None:  # else it was deleted, and nothing may be done to it
            await self._emit(_signal(signal, session, await signal.read()))


def _signal(signal: AppServerSignal, session: SessionRow, params: Any) -> Signal:
    signal_id = f"app_server-{secrets.token_hex(8)}"
    is_request = signal.request_id is not None
    kind = event_type_of(signal.method, is_request=is_request)
    project_id = project_id_of(session)
    payload: dict[str, Any] = {
        "source": "app_server",
        "signal_type": "request" if is_request else "notification",
        "event_type": kind,
        "method": signal.method,
        "received_at": signal.received_at,
        "context": {"thread_id": signal.thread_id, "turn_id": signal.turn_id},
        "params": params,
        "session": {"id": session.session_id, "title": session.title, "project_id": project_id},
        "task_id": signal.task_id,
        "runtime": signal.runtime,
    }
    if is_request:
        payload["request_id"] = signal.request_id
    event = AgentRuntimeEvent(
        type=kind,
        payload=payload,
        emitted_at=signal.received_at,
        correlation_id=f"{signal.session_id}:{signal_id}",
    )
    # Its params are the runtime's words. Nothing in them may stand for what an action is about.
    origin = Origin(
        principal=signal.principal,
        session_id=signal.session_id,
        task_id=signal.task_id,
        project_id=project_id,
        seq=signal.seq,
        data={},
        signal_id=signal_id,
    )
    return Signal(event, origin, signal.runtime)
