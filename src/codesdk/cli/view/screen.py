"""Where output for people goes: a rich console whose text is written in a thread.

A slow terminal or pipe then delays only what is shown, never the task behind it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from codesdk.cli.view.out import ReaderGone, write_text
from codesdk.cli.view.safe import printable

if TYPE_CHECKING:
    from types import TracebackType

WIDTH_OF_FILES = 1000  # a file or pipe has no width, so nothing is cut


class Outlet:
    """A file that collects what is printed until `send`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._parts: list[str] = []
        self._order = asyncio.Lock()  # one write at a time: threads would mix their texts

    @property
    def encoding(self) -> str:
        """The encoding of the stream behind it."""
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Collect a text."""
        self._parts.append(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: `send` is what writes."""

    def isatty(self) -> bool:
        """Return whether the stream behind it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream behind it."""
        return self._stream.fileno()

    async def send(self) -> None:
        """Write what was collected. Raise `ReaderGone` if nobody reads it any more."""
        async with self._order:
            text = "".join(self._parts)
            self._parts.clear()
            if text:
                await asyncio.to_thread(write_text, self._stream, text)


class Screen:
    """Stdout for people, or stderr. `async with` sends what is left at the end."""

    def __init__(self, *, err: bool = False) -> None:
        stream: TextIO = sys.stderr if err else sys.stdout
        self._outlet = Outlet(stream)
        self.console = make_console(cast("IO[str]", self._outlet), stream.isatty())
        self.send = self._outlet.send

    async def __aenter__(self) -> "Screen":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        if not isinstance(error, ReaderGone):
            await self.send()


class PlainConsole(Console):
    """Styles what it is given. Nothing in a text can steer the terminal, wherever the text came from."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of what is printed, each harmless; rich's own controls stay."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text is segment.text else segment._replace(text=text)


def make_console(file: IO[str], terminal: bool) -> Console:
    """Return a console that styles what it is given and otherwise changes nothing."""
    width = None if terminal or "COLUMNS" in os.environ else WIDTH_OF_FILES
    return PlainConsole(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)
