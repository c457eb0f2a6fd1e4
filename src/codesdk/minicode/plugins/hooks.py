"""Events of one turn → the hooks of plugins, beside the turn and never in its way.

`tell` takes an event and returns at once; a task hands events on, one at a time and to one hook after the other, each
within its time. A hook that fails is logged. One that is late too often in a row is off for the rest of the turn.
"""

import asyncio
import collections
import logging
from collections.abc import Sequence

from codesdk import foreign
from codesdk.minicode.config.schema import HookLimits
from codesdk.minicode.deadlines import OutOfTime, within
from codesdk.minicode.plugins.compose import PluginHook
from codesdk.minicode.plugins.types import HookContext, PluginError
from codesdk.minicode.types import Abort, Finish, TurnError, TurnEvent

MAX_WAITING = 1_000
_LAST = (Finish, Abort, TurnError)
_log = logging.getLogger(__name__)


class TurnHooks:
    """The hooks of one turn. The last event of the turn, or `close`, ends it."""

    def __init__(
        self,
        hooks: Sequence[PluginHook],
        context: HookContext,
        limits: HookLimits,
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._context = context
        self._limits = limits
        self._max_waiting = max_waiting
        self._waiting: collections.deque[TurnEvent] = collections.deque()
        self._arrived = asyncio.Event()
        self._late = [0] * len(hooks)
        """How often in a row each hook was late; `off_after` times means that it is off."""
        self._hooks = list(hooks)
        self.dropped = 0
        """Events that no hook was told of, because too many were waiting."""
        self._task = asyncio.create_task(self._run()) if hooks else None

    def tell(self, event: TurnEvent) -> None:
        """Take an event. Never waits, never raises: if too many wait, this one is dropped, unless it is the last."""
        if self._task is None or self._task.done():
            return
        if len(self._waiting) >= self._max_waiting:
            if not self.dropped:
                _log.warning(
                    "Hooks are too slow: %s events wait for them, further ones are dropped", self._max_waiting
                )
            self.dropped += 1
            if not isinstance(event, _LAST):
                return
            self._waiting.pop()
        self._waiting.append(event)
        self._arrived.set()

    async def finished(self) -> None:
        """Wait until hooks were told of the last event. Not for a turn, which has no reason to wait for them."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Stop telling hooks, whatever still waits. The one that runs is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                event = self._waiting.popleft()
                for index, hook in enumerate(self._hooks):
                    await self._tell(index, hook, event)
                if isinstance(event, _LAST):
                    return

    async def _tell(self, index: int, hook: PluginHook, event: TurnEvent) -> None:
        most = self._limits.off_after
        if self._late[index] >= most:
            return
        timeout_s = self._limits.timeout_ms / 1000
        try:
            await within(
                timeout_s, lambda: hook.function(event, self._context), f"A hook of {hook.plugin.id}"
            )
        except OutOfTime:
            self._late[index] += 1
            words = f"a hook took more than {self._limits.timeout_ms} ms"
            if self._late[index] >= most:
                words += f", {most} times in a row: it is off for the rest of this turn"
            _log.warning("%s", _problem(hook, words).message)
            return
        except Exception as error:  # noqa: BLE001 - a hook must not end the turn, whatever it raises
            _log.warning(
                "%s", _problem(hook, f"a hook raised {foreign.name_of(error)}").message, exc_info=error
            )
        self._late[index] = 0


def _problem(hook: PluginHook, words: str) -> PluginError:
    return PluginError("run", hook.plugin.reference, words, hook.plugin.id)
