"""Bytes from the terminal → keys, with a long paste taken in a time that grows with its length, not with its square."""

from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress

_END = "\x1b[201~"


class PasteParser(Vt100Parser):
    """Looks for the end of a paste only in what is new of it."""

    def __init__(self, take: Callable[[KeyPress], None]) -> None:
        super().__init__(take)
        self._parts: list[str] = []
        self._tail = ""

    def feed(self, data: str) -> None:
        """Take what was read."""
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        self._parts.append(data)
        seen = self._tail + data
        self._tail = seen[1 - len(_END) :]
        if _END in seen:
            whole, self._parts, self._tail = "".join(self._parts), [], ""
            super().feed(whole)


class ChatInput(Vt100Input):
    """The keyboard of a terminal."""

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self.vt100_parser = PasteParser(self._take)

    def _take(self, key: KeyPress) -> None:
        self._buffer.append(key)  # another list after each read
