"""The calls of one program by their ids: in which state each is, and what is known of it.

Every change of state goes through `states.step`. Calls that are over are forgotten but for their ids, and of these
the oldest, so that a program which never ends costs no more memory than one that does.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from codesdk.channel.limits import REMEMBERED_IDS
from codesdk.channel.outcome import Tally
from codesdk.channel.protocol import ToolRequest
from codesdk.channel.states import Happening, Remark, State, step


class Entry(msgspec.Struct, kw_only=True, eq=False):
    """A call that is not over."""

    request: ToolRequest
    state: State
    since: float
    """When it came into this state."""
    size: int = 0
    retries: int = 0
    """How often the program has sent the request again. It is decided once all the same."""
    judging: "asyncio.Task[None] | None" = None


class CallTable:
    """The calls of one program."""

    def __init__(self, tally: Tally) -> None:
        self._open: dict[str, Entry] = {}
        self._over: OrderedDict[str, None] = OrderedDict()
        self._tally = tally
        self._waiting_bytes = 0
        self._waiting_count = 0
        self._settled: OrderedDict[str, None] = OrderedDict()
        """The calls that wait for no decision any more but have no result, oldest first."""
        self._settled_bytes = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._open.values()))

    @property
    def waiting(self) -> list[Entry]:
        """The calls whose programs wait for a decision."""
        return [entry for entry in self._open.values() if entry.state == "pending"]

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return self._waiting_count

    @property
    def waiting_bytes(self) -> int:
        """How large the requests are together that wait."""
        return self._waiting_bytes

    def state_of(self, call_id: str) -> State:
        """Return the state of a call."""
        if call_id in self._over:
            return "completed"
        entry = self._open.get(call_id)
        return "new" if entry is None else entry.state

    def open(self, request: ToolRequest, happening: Happening, size: int) -> Entry | None:
        """Take a new call in. Return None, and count it, if its id was used before."""
        state, remark = step(self.state_of(request.id), happening)
        if remark is not None:
            self._tally.ignored += 1
            if (known := self._open.get(request.id)) is not None:
                known.retries += 1
            return None
        self._tally.requests += 1
        entry = self._open[request.id] = Entry(request=request, state=state, since=_now(), size=size)
        if state == "pending":
            self._waiting_bytes += size
            self._waiting_count += 1
        else:
            self._settle(entry)
        return entry

    def drop_oldest(self, most: int, most_bytes: int) -> Entry | None:
        """Forget a call that has no result for longest, if there are more of them than may be. Return it as it was."""
        if len(self._settled) <= most and self._settled_bytes <= most_bytes:
            return None
        entry = self._open[next(iter(self._settled))]
        self._forget(entry.request.id)
        return entry

    def move(self, call_id: str, happening: Happening) -> tuple[Entry | None, Remark | None]:
        """Note what happened to a call. Return it, unless it is not open, and what was wrong."""
        before = self.state_of(call_id)
        state, remark = step(before, happening)
        entry = self._open.get(call_id)
        if state == before:
            self._tally.ignored += 1
            return None, remark
        assert entry is not None, "only an open call changes its state"
        if before == "pending":
            self._waiting_bytes -= entry.size
            self._waiting_count -= 1
        entry.state, entry.since = state, _now()
        if state == "completed":
            self._forget(call_id)
        else:
            self._settle(entry)
        return entry, remark

    def rows(self) -> list[dict[str, Any]]:
        """Return all open calls as plain data."""
        now = _now()
        return [
            {
                "id": entry.request.id,
                "tool": entry.request.tool,
                "action": entry.request.action,
                "args": entry.request.args,
                "state": entry.state,
                "for_s": round(now - entry.since, 3),
                "retries": entry.retries,
            }
            for entry in self
        ]

    def _settle(self, entry: Entry) -> None:
        self._settled[entry.request.id] = None
        self._settled_bytes += entry.size

    def _forget(self, call_id: str) -> None:
        self._tally.completed += 1
        entry = self._open.pop(call_id)
        if call_id in self._settled:
            del self._settled[call_id]
            self._settled_bytes -= entry.size
        self._over[call_id] = None
        if len(self._over) > REMEMBERED_IDS:
            self._over.popitem(last=False)


def _now() -> float:
    return asyncio.get_running_loop().time()
