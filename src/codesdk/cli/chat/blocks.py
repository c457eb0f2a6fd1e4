"""Markdown as it streams in → blocks that are finished, and the one that is not. Pure.

A finished block never changes again, so it is printed once. What is long and cannot end soon (code, lists) is
handed out in pieces that render the same as the whole.
"""

import re
from typing import NamedTuple

MAX_HELD_LINES = 40
"""A fence that is longer than this is handed out in pieces."""
MAX_HELD_CHARS = 8_000
"""The same for text: a paragraph without an end must not be drawn again and again."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r"#{1,6}\s")


class Block(NamedTuple):
    """A piece of Markdown that can be rendered by itself. `joins`: no empty line goes before it."""

    text: str
    joins: bool = False


class Blocks:
    """One text as it arrives."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._held_chars = 0  # of text; what is in a fence counts by lines
        self._line = ""
        self._fence = ""
        self._opening = ""
        self._joins = False

    @property
    def rest(self) -> Block:
        """The block that is not finished."""
        lines = [*self._lines, self._line] if self._line else self._lines
        return Block("\n".join(lines), self._joins)

    def feed(self, text: str) -> list[Block]:
        """Take more of the text, and return the blocks that are finished by it."""
        found: list[Block] = []
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            found += self._take(line)
        if len(self._line) > MAX_HELD_CHARS:
            found += self._take(self._line)
            self._line = ""
        return found

    def end(self) -> list[Block]:
        """Return what is left, and begin again."""
        found = self._take(self._line) if self._line else []
        self._line = ""
        found += self._cut()
        self._fence = self._opening = ""
        self._joins = False
        return found

    def _take(self, line: str) -> list[Block]:
        return self._in_fence(line) if self._fence else self._in_text(line)

    def _in_fence(self, line: str) -> list[Block]:
        self._lines.append(line)
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = self._opening = ""
            return self._cut()
        if len(self._lines) <= MAX_HELD_LINES:
            return []
        # A piece is closed and the next one opened again: each is a whole fence.
        piece = Block("\n".join([*self._lines, self._fence]), self._joins)
        self._lines, self._joins = [self._opening], True
        return [piece]

    def _in_text(self, line: str) -> list[Block]:
        opened = _FENCE.fullmatch(line)
        found: list[Block] = []
        if not line.strip():
            if self._lines and self._lines[-1]:
                self._lines.append("")
            return []
        if self._begins_block(line) or opened:
            found = self._cut()
        if opened:
            self._fence, self._opening = opened.group(1), line
        self._lines.append(line)
        self._held_chars += len(line)
        if self._held_chars > MAX_HELD_CHARS and not opened:
            found += self._cut()
            self._joins = True
        return found

    def _begins_block(self, line: str) -> bool:
        """Return whether a line begins another block. One that is indented may belong to the item of a list above."""
        if not self._lines or line[0] in " \t":
            return False
        if self._lines[-1] == "" or _HEADING.match(line) or _HEADING.match(self._lines[-1]):
            return True
        return _ITEM.match(line) is not None and _ITEM.match(self._lines[0]) is not None

    def _cut(self) -> list[Block]:
        lines, joins = self._lines, self._joins
        self._lines, self._held_chars = [], 0
        apart = bool(lines) and lines[-1] == ""
        while lines and lines[-1] == "":
            lines.pop()
        # The items of a tight list follow each other without an empty line.
        self._joins = bool(lines) and _ITEM.match(lines[0]) is not None and not apart
        return [Block("\n".join(lines), joins)] if lines else []
