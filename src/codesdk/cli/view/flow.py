"""Pieces of streamed text → the same text with lines broken between words. Pure."""

from collections.abc import Callable

from rich.cells import cell_len

_TAB = "    "
_LONGEST = 80  # anything longer is not a word, and is not held back


class Flow:
    """One block of text as it arrives. Holds back a word until it is whole; `end` releases it."""

    def __init__(self, width: Callable[[], int | None], indent: str = "") -> None:
        self._width = width
        self._indent = indent
        self._column = 0
        self._word = ""
        self._space = ""

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        out: list[str] = []
        for char in text.replace("\t", _TAB):
            if char == "\n":
                out += [self._release(), "\n"]
                self._column, self._space = 0, ""
            elif char == " ":
                out.append(self._release())
                self._space += " "
            elif char > "\u1100" and cell_len(char) == 2:  # scripts without spaces break anywhere
                out.append(self._release())
                self._word = char
                out.append(self._release())
            else:
                self._word += char
                if len(self._word) >= _LONGEST:
                    out.append(self._release())
        return "".join(out)

    def end(self) -> str:
        """Return what was held back, and finish the line."""
        text = self._release()
        self._space = ""
        if self._column:
            text += "\n"
            self._column = 0
        return text

    def _release(self) -> str:
        """Return the held word with the space, line break and indent that go before it."""
        if not self._word:
            return ""
        word, self._word = self._word, ""
        space, self._space = self._space, ""
        size, width = cell_len(word), self._width()
        before = ""
        if self._column and width is not None and self._column + len(space) + size > width:
            before, space, self._column = "\n", "", 0
        if not self._column:
            before += self._indent
            self._column = len(self._indent)
        self._column += len(space) + size
        return before + space + word
