"""Frames of a program without an event of ours → notices of kind `signal` with the frame as raw, for whoever wants more.

Bounded for each task, in number and in size. Pure.
"""

from typing import Any

import msgspec

from codesdk.contract.events import RuntimeNotice
from codesdk.contract.runtime import Draft

MAX_OF_ONE = 20
"""How many frames of one method are kept of a task."""
MAX_OF_ALL = 200
MAX_BYTES = 64 * 1024
"""A longer frame is kept by its size and its beginning."""
_SHOWN = 4 * 1024


class Signals(msgspec.Struct):
    """How many were kept of a task, by method."""

    program: str
    counts: dict[str, int] = {}

    def keep(
        self, method: str, frame: dict[str, Any], kind: str = "signal", message: str = ""
    ) -> list[Draft]:
        """Return a frame as a signal, or nothing if enough were kept. The last of a method says so."""
        count = self.counts.get(method, 0) + 1
        if count > MAX_OF_ONE or sum(self.counts.values()) >= MAX_OF_ALL:
            return []
        self.counts[method] = count
        details: dict[str, Any] = {"method": method} | ({"last": True} if count == MAX_OF_ONE else {})
        notice = RuntimeNotice(kind=kind, message=message or f"{self.program}: {method}", details=details)
        return [Draft(notice, _cut(method, frame))]


def _cut(method: str, frame: dict[str, Any]) -> dict[str, Any]:
    data = msgspec.json.encode(frame)
    if len(data) <= MAX_BYTES:
        return frame
    return {"method": method, "size": len(data), "start": data[:_SHOWN].decode("utf-8", "replace")}
