"""The chat at a terminal that can only print lines: nothing is drawn again, and answers are lines, too."""

import asyncio
import sys
from typing import TYPE_CHECKING

from codesdk.cli.chat.marks import MARK, theirs
from codesdk.cli.view.out import write_text

if TYPE_CHECKING:
    from codesdk.cli.chat.screen import Host

COLUMNS = 80


class PlainScreen:
    """Prints what is finished, and reads lines. What is asked is printed once; a line that is one key answers it."""

    typed = ""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self.ready = asyncio.Event()
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked = ""

    @property
    def columns(self) -> int:
        """How wide lines may be."""
        from shutil import get_terminal_size

        return get_terminal_size((COLUMNS, 24)).columns

    async def run(self) -> None:
        """Read lines until somebody leaves."""
        loop = asyncio.get_running_loop()
        self._prompt()
        self.ready.set()
        loop.add_reader(sys.stdin.fileno(), self._line)
        try:
            await self._left
        finally:
            loop.remove_reader(sys.stdin.fileno())

    def show(self, lines: list[str]) -> None:
        """Print lines."""
        if lines:
            write_text(sys.stdout, "".join(f"{line}\n" for line in lines))

    def refresh(self) -> None:
        """Print what is asked, if that is new."""
        panel = self._host.panel(1000)
        # The first line has the time that is left, the last one may change while a key is pressed.
        asked = "\n".join(panel[1:-1])
        if panel and asked != self._asked and self._host.answers("y"):
            self.show(panel)
        if not panel or self._host.answers("y"):
            self._asked = asked

    def put(self, text: str) -> None:
        """Say that a line was not taken: it cannot be typed for anybody here."""
        self.show([f"{MARK} not sent: {theirs(text)}"])

    def leave(self) -> None:
        """End."""
        if not self._left.done():
            self._left.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End, and have `run` raise this."""
        if not self._left.done():
            self._left.set_exception(error)

    def _prompt(self) -> None:
        write_text(sys.stdout, f"{MARK} {self._host.label()}")

    def _line(self) -> None:
        line = sys.stdin.readline()
        if not line:
            self.leave()
            return
        text = line.rstrip("\n")
        if len(text) == 1 and self._host.answers(text):
            self._host.answer(text)
        else:
            self._host.enter(text)
        self._host.pressed()
        self._prompt()
