"""Frames of a program without an event of ours → notices with the frame as raw, for whoever wants more.

A known one is a `signal`, one that nobody knows, or that is no message at all, an `unknown_frame`. All of them
together are bounded for each task, in number and in size. Pure.
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
_NAME_CHARS = 80


def brief(name: object) -> str:
    """Return a name that a program gives, short enough to be quoted: its lines may have megabytes."""
    text = str(name)
    return text if len(text) <= _NAME_CHARS else f"{text[:_NAME_CHARS]}…"


class Signals(msgspec.Struct):
    """How many were kept of a task, by method."""

    program: str
    counts: dict[str, int] = {}

    def keep(self, method: str, frame: dict[str, Any]) -> list[Draft]:
        """Return a known frame as a signal, or nothing if enough were kept. The last of a method says so."""
        method = brief(method)
        return self._noted(method, "signal", f"{self.program}: {method}", {"method": method}, frame)

    def unknown(self, what: str, frame: Any, program: str = "") -> list[Draft]:
        """Return the notice of a frame that nobody knows, or nothing if enough were kept."""
        what = brief(what)
        message = f"{program or self.program} sent {what}, which CodeSDK does not know."
        return self._noted(what, "unknown_frame", message, {}, frame)

    def garbage(self, size: int, start: str, program: str = "") -> list[Draft]:
        """Return the notice of a line that is not a message, or nothing if enough were kept."""
        message = f"{program or self.program} wrote a line that is not a message."
        return self._noted("", "unknown_frame", message, {"size": size}, start[:_SHOWN])

    def _noted(self, name: str, kind: str, message: str, details: dict[str, Any], raw: Any) -> list[Draft]:
        count = self.counts.get(name, 0) + 1
        if count > MAX_OF_ONE or sum(self.counts.values()) >= MAX_OF_ALL:
            return []
        self.counts[name] = count
        if count == MAX_OF_ONE:
            details["last"] = True
        return [Draft(RuntimeNotice(kind=kind, message=message, details=details), _cut(name, raw))]


def _cut(name: str, frame: Any) -> Any:
    try:
        data = msgspec.json.encode(frame)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return {"method": name, "start": repr(frame)[:_SHOWN].encode("utf-8", "replace").decode()}
    if len(data) <= MAX_BYTES:
        return frame
    return {"method": name, "size": len(data), "start": data[:_SHOWN].decode("utf-8", "replace")}
