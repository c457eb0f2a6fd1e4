"""Most events of a stream differ from the one before in nothing but a piece of text; those need not be decoded.

An event that was judged is learned as what is before its text and what is behind it. The next one with the same bytes
around another text is the same JSON with another string in it, as long as nothing in that text could end the string or
the line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

_STAND_IN = "a text that stands for all others"
_MOST_MISSES = 4


class PlainText(NamedTuple):
    """What an event brings that passes as it came: a piece of text, and where such pieces are kept."""

    text: str
    kept: list[Any]


class Likeness:
    """Recognizes events like the last one. Gives up on a stream whose events differ in more than their text."""

    def __init__(self) -> None:
        self._before = b""
        self._behind = b""
        self._kept: list[Any] | None = None
        self._misses = 0

    def of(self, event: bytes) -> PlainText | None:
        """Return the text of an event that is like the one that was learned."""
        if self._kept is None or not event.startswith(self._before) or not event.endswith(self._behind):
            return None
        end = len(event) - len(self._behind)
        try:
            text = event[len(self._before) : end].decode()
        except UnicodeDecodeError:
            return None
        if end < len(self._before) or not _is_plain(text):
            return None
        self._misses = 0
        return PlainText(text, self._kept)

    def learn(self, event: bytes, found: PlainText, read: Callable[[bytes], str | None]) -> None:
        """Learn an event that passed as it came. `read` returns the text of an event that would pass like this one."""
        if not found.text or not _is_plain(found.text):
            if self._kept is not found.kept:
                self.forget()
            return
        self.forget()
        if self._misses >= _MOST_MISSES:
            return
        self._misses += 1
        before, quoted, behind = event.partition(f'"{found.text}"'.encode())
        # These bytes may stand for something else, and the text be written in another way. So another one is tried.
        if quoted and read(before + f'"{_STAND_IN}"'.encode() + behind) == _STAND_IN:
            self._before, self._behind, self._kept = before + b'"', b'"' + behind, found.kept

    def forget(self) -> None:
        """Recognize nothing until the next event is learned."""
        self._kept = None


def _is_plain(text: str) -> bool:
    """Return whether a text is written in JSON as it is, in one line."""
    return '"' not in text and "\\" not in text and text.isprintable()
