"""Resumes interrupted tasks without anyone asking, in sessions with the setting `on_interrupt: resume`.

A session is considered when it is loaded, and when something that it waits for was answered. The engine then resumes
it through `execute` like anyone else, so a person who does so at the same moment is as likely to be first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

from codesdk.contract.actions import Caller, ResumeSession
from codesdk.contract.errors import Busy, CodeSDKError, NotFound, StorageFailure
from codesdk.contract.events import SessionNotResumed
from codesdk.contract.records import TaskRow
from codesdk.engine.log.state import SessionState
from codesdk.engine.sessions.registry import SessionRegistry
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.tasks.lifecycle import ENGINE

MAX_BACKOFF_S = 300.0
_log = logging.getLogger("codesdk.going_on")

Resume = Callable[[ResumeSession, Caller], Awaitable[TaskRow]]


def is_due(state: SessionState) -> bool:
    """Return whether a session should go on now: nobody has to answer anything before."""
    return state.goes_on and not state.awaits_person


def backoff_s(first_s: float, attempt: int) -> float:
    """Return how long to wait before an attempt: not at all before the first, then longer each time."""
    return 0.0 if attempt <= 1 else min(first_s * 2.0 ** min(attempt - 2, 60), MAX_BACKOFF_S)


class GoingOn:
    """Goes on with the interrupted tasks of one engine."""

    def __init__(self, registry: SessionRegistry, resume: Resume) -> None:
        self._registry = registry
        self._resume = resume
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._refusals: dict[str, int] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._closed = False

    def consider(self, live: LiveSession) -> None:
        """Go on with a session after its backoff, if it is due; else do nothing."""
        session_id = live.session_id
        if self._closed or session_id in self._timers or not is_due(live.state):
            return
        settings, refused = live.scope.settings, self._refusals.get(session_id, 0)
        attempt = live.state.attempts + 1
        # One too many is not waited for: it only says that it does not go on.
        wait_s = (
            0.0 if attempt > settings.max_resumes else backoff_s(settings.resume_backoff_s, attempt + refused)
        )
        loop = asyncio.get_running_loop()
        self._timers[session_id] = loop.call_later(wait_s, self._wake, session_id)

    async def close(self) -> None:
        """Go on with nothing more."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for work in self._work:
            work.cancel()
        if self._work:
            await asyncio.wait(self._work)

    def _wake(self, session_id: str) -> None:
        self._timers.pop(session_id, None)
        self._spawn(self._go_on(session_id))

    async def _go_on(self, session_id: str) -> None:
        try:
            live = await self._registry.acquire(session_id)
        except (NotFound, StorageFailure):
            return  # it was deleted, or cannot be read: whoever acts on it is told
        if not is_due(live.state):
            return
        limit = live.scope.settings.max_resumes
        if live.state.attempts >= limit:
            times = "once" if limit == 1 else f"{limit} times in a row"
            message = (
                f"It continued by itself {times} and was interrupted each time. Look at why, then resume it."
            )
            await self._leave(live, "attempts", message)
            return
        try:
            await self._resume(ResumeSession(session_id=session_id), self._caller(live))
            self._refusals.pop(session_id, None)
        except Busy:
            # All slots are taken, unless somebody else has begun: then it is no longer due.
            self._registry.slots.wait(session_id, live.state.runtime_name, lambda: self._again(session_id))
        except CodeSDKError as error:
            await self._refused(live, error)

    def _again(self, session_id: str) -> None:
        if not self._closed:
            self._spawn(self._go_on(session_id))

    async def _refused(self, live: LiveSession, error: CodeSDKError) -> None:
        """Try again later what may work then, such as an MCP server that does not answer; else say why not."""
        if not is_due(live.state) or live.recorder.broken is not None:
            return  # somebody was faster, or the log cannot be written now
        session_id = live.session_id
        refused = self._refusals[session_id] = self._refusals.get(session_id, 0) + 1
        if error.retryable and refused < live.scope.settings.max_resumes:
            self.consider(live)
            return
        self._refusals.pop(session_id, None)
        missing = (error.details or {}).get("equipment_missing", [])
        await self._leave(live, "equipment" if missing else "refused", error.message, missing)

    async def _leave(
        self,
        live: LiveSession,
        cause: Literal["attempts", "equipment", "refused"],
        message: str,
        missing: Sequence[str] = (),
    ) -> None:
        """Record that a task does not continue by itself, and why."""
        task_id = live.state.next_task
        assert task_id is not None, "only a session with something to do is due"
        live.recorder.journal.write(
            SessionNotResumed(
                task_id=task_id,
                cause=cause,
                message=message,
                attempts=live.state.attempts,
                missing=list(missing),
            ),
            in_task=False,
        )
        await live.recorder.settle()

    def _caller(self, live: LiveSession) -> Caller:
        return Caller(principal=live.state.principal, actor=ENGINE)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a session could not continue by itself: %s", type(error).__name__)
