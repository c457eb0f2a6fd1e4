"""Ends the process of a session's runtime when no task has needed it for a while.

The process is the runtime's to start again: the next task waits until it is gone, and then resumes its conversation.
"""

import asyncio
import contextlib

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import RuntimeNotice
from codesdk.engine.sessions.resources import Resources
from codesdk.engine.sessions.scope import SessionScope


class IdleRuntime:
    """Ends a session's runtime once it has been idle for `Limits.runtime_idle_s`."""

    def __init__(self, scope: SessionScope, resources: Resources) -> None:
        self._scope = scope
        self._resources = resources
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Keep the runtime: a task begins, or the session is closed by other means."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self) -> None:
        """Begin to count: the session has no task."""
        self.keep()
        limit_s = self._scope.ports.limits.runtime_idle_s
        if limit_s is not None and self._resources.serves_runtime:
            self._timer = asyncio.get_running_loop().call_later(limit_s, self._end)

    @property
    def ending(self) -> bool:
        """Whether a runtime is being ended."""
        return self._ending is not None and not self._ending.done()

    async def ended(self) -> None:
        """Return when no runtime is being ended, so that a new one meets neither its process nor its files."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    def _end(self) -> None:
        self._timer = None
        if self._scope.recorder.broken is None and self._resources.serves_runtime:
            self._ending = asyncio.create_task(self._release())

    async def _release(self) -> None:
        limit_s = self._scope.ports.limits.runtime_idle_s
        message = f"No task ran for {limit_s:g} s, so the runtime was ended. The next task starts it again."
        await self._resources.release_runtime()
        # Without a task id: a task may have begun meanwhile, and waits for this.
        notice = RuntimeNotice(kind="idle", message=message, details={"idle_s": limit_s})
        if self._scope.recorder.broken is None:
            self._scope.journal.write(notice, in_task=False)
            with contextlib.suppress(
                CodeSDKError
            ):  # a log that cannot be written is the registry's to handle
                await self._scope.recorder.settle()
