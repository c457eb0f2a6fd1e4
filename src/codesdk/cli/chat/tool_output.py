"""Output of a running tool → its first lines for the scrollback, its last ones while it runs, and how many there were. Pure."""

from collections import deque
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from codesdk.cli.chat.paint import Painter

HEAD_LINES = 20
TAIL_LINES = 5
MAX_LINE_CHARS = 2_000


class ToolOutput:
    """What one call printed. `tail` are its last lines, as far as they were not printed."""

    def __init__(self) -> None:
        self._unfinished: dict[str, str] = {}
        self._printed = 0
        self._held = 0
        self.tail: deque[Text] = deque(maxlen=TAIL_LINES)

    def feed(self, stream: str, delta: str) -> list[Text]:
        """Take more of it, and return the lines to print now. Unfinished lines are held back."""
        *lines, rest = (self._unfinished.pop(stream, "") + delta).split("\n")
        if len(rest) > MAX_LINE_CHARS:  # no line, but a stream without lines
            lines.append(rest)
        elif rest:
            self._unfinished[stream] = rest
        return self._take(stream, lines)

    def end(self) -> tuple[list[Text], int]:
        """Return the lines that were held back, and how many are left out between the first and the last."""
        found = [text for stream, rest in self._unfinished.items() for text in self._take(stream, [rest])]
        self._unfinished.clear()
        return found, self._held - len(self.tail)

    def live(self, painter: "Painter") -> list[str]:
        """Return the last lines, while it runs."""
        if not self._held:
            return []
        return [*painter.ours(f"  … {self._held:,} more", "dim"), *painter.others(self.tail)]

    def _take(self, stream: str, lines: list[str]) -> list[Text]:
        shown: list[Text] = []
        for line in lines:
            text = Text(
                line[:MAX_LINE_CHARS],
                "red" if stream == "stderr" else "dim",
                no_wrap=True,
                overflow="ellipsis",
            )
            if self._printed < HEAD_LINES:
                self._printed += 1
                shown.append(text)
            else:
                self._held += 1
                self.tail.append(text)
        return shown
