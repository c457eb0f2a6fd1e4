"""How to tell that a program is stuck."""

import asyncio

from codesdk.channel.limits import ArbiterLimits
from codesdk.channel.runner import RunnerSession
from codesdk.channel.table import CallTable

_LOOK_S = 1.0
_SHOWN = 80


def pause_of(limits: ArbiterLimits) -> float:
    """Return how long may pass between two looks."""
    set_ones = [
        limit for limit in (limits.execution_s, limits.silence_s, limits.probe_s) if limit is not None
    ]
    return min(_LOOK_S, *(limit / 4 for limit in set_ones))


def trouble_of(session: RunnerSession, calls: CallTable, limits: ArbiterLimits) -> str | None:
    """Return what is wrong, or None. While a call of its waits, a program has nothing to print."""
    time = asyncio.get_running_loop().time()
    if session.status.done():
        return None
    if len(session.closed) == len(session.tails):
        return "it has closed its outputs and does not end"
    for entry in calls if limits.execution_s is not None else ():
        if entry.state == "allowed" and time - entry.since > (limits.execution_s or 0):
            return f"{entry.request.tool[:_SHOWN]} has run for more than {limits.execution_s:g} s"
    if (
        limits.silence_s is not None
        and time - session.heard_at > limits.silence_s
        and not calls.waiting_count
    ):
        return f"it has printed nothing for {limits.silence_s:g} s"
    return None
