"""How often one principal may ask: a bucket of requests that refills at a steady rate. And whether work may begin."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeGuard

from codesdk.contract import actions as act
from codesdk.contract.actions import Action
from codesdk.contract.service import SessionService
from codesdk.daemon.problems import shutting_down, slow_down

KEEP_BUCKETS = 10_000  # the least recently used is dropped first, so memory stays bounded


class RateLimit:
    """Counts the requests of each principal, or of any other name. Without a rate nothing is refused."""

    def __init__(self, per_s: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> int:
        """Take one from a bucket. Return 0, or how many seconds to wait until there is one."""
        if self._per_s is None:
            return 0
        now = self._clock()
        left, since = self._buckets.pop(name, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._per_s)
        wait_s = 0 if left >= 1 else max(1, math.ceil((1 - left) / self._per_s))
        self._buckets[name] = (left - 1 if not wait_s else left, now)
        if len(self._buckets) > KEEP_BUCKETS:
            self._buckets.popitem(last=False)
        return wait_s


async def check_work(
    action: Action[Any], principal: str, service: SessionService, tasks: RateLimit, *, draining: bool
) -> None:
    """Refuse what may not begin now: new work while the daemon shuts down, and too many tasks of a runtime.

    `service` has the sessions as the principal may see them.
    """
    if draining and (begins(action) or isinstance(action, act.CreateSession)):
        raise shutting_down()
    if begins(action):
        runtime = (await service.session(action.session_id)).runtime
        if wait_s := tasks.take(f"{principal}\0{runtime}"):
            raise slow_down(wait_s, f"Too many tasks of the runtime {runtime}.")


def begins(action: Action[Any]) -> TypeGuard[act.StartTask | act.ResumeSession | act.CompactSession]:
    """Return whether an action counts towards the number of tasks that a principal may start."""
    if isinstance(action, act.CompactSession):
        return action.strategy == "summary"
    return isinstance(action, act.StartTask | act.ResumeSession)
