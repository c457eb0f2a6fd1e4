"""Frames of codex that have no event of ours → notices of kind `signal` with the frame as raw, for whoever wants more.

Bounded for each turn, in number and in size. Pure, like `normalize`, which decides what becomes a signal.
"""

from typing import Any

import msgspec

from codesdk.contract.events import RuntimeNotice
from codesdk.contract.runtime import Draft

QUIET = frozenset(
    {
        "account/rateLimits/updated",
        "account/updated",
        "item/commandExecution/outputDelta",
        "item/fileChange/outputDelta",
        "item/fileChange/patchUpdated",
        "item/mcpToolCall/progress",
        "item/reasoning/summaryPartAdded",
        "mcpServer/startupStatus/updated",
        "remoteControl/status/changed",
        "serverRequest/resolved",
        "skills/changed",
        "thread/closed",
        "thread/name/updated",
        "thread/readState/changed",
        "thread/settings/updated",
        "thread/started",
        "thread/status/changed",
        "turn/diff/updated",
        "turn/started",
    }
)
"""Known frames that no event would be made of."""
MAX_OF_ONE = 20
"""How many frames of one method are kept of a turn."""
MAX_OF_ALL = 200
MAX_BYTES = 64 * 1024
"""A longer frame is kept by its size and its beginning."""
_SHOWN = 4 * 1024


class Signals(msgspec.Struct):
    """How many were kept of a turn, by method."""

    counts: dict[str, int] = {}

    def keep(self, method: str, frame: dict[str, Any]) -> list[Draft]:
        """Return a frame as a signal, or nothing if enough were kept. The last of a method says so."""
        count = self.counts.get(method, 0) + 1
        if count > MAX_OF_ONE or sum(self.counts.values()) >= MAX_OF_ALL:
            return []
        self.counts[method] = count
        details: dict[str, Any] = {"method": method} | ({"last": True} if count == MAX_OF_ONE else {})
        return [Draft(RuntimeNotice(kind="signal", message=f"codex: {method}", details=details), _cut(frame))]


def _cut(frame: dict[str, Any]) -> dict[str, Any]:
    data = msgspec.json.encode(frame)
    if len(data) <= MAX_BYTES:
        return frame
    return {
        "method": frame.get("method"),
        "size": len(data),
        "start": data[:_SHOWN].decode("utf-8", "replace"),
    }
