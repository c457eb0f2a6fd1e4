"""A sign of life on a terminal while nothing else is printed. Elsewhere, nothing at all."""

import asyncio
import time
from collections.abc import Callable

from codesdk.cli.view.out import ReaderGone
from codesdk.cli.view.screen import Screen

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
QUIET_S = 0.4
FRAME_S = 0.1
_ERASE = "\r\x1b[2K"


class Spinner:
    """Shown after a quiet moment. Call `clear` before any other output: it erases it."""

    def __init__(self, screen: Screen, label: Callable[[], str | None]) -> None:
        console = screen.console
        self._screen = screen
        self._label = label
        self._moves = console.is_terminal and not console.is_dumb_terminal
        self._shown = False
        self._quiet_since = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def clear(self) -> None:
        """Erase it, if it is there, and begin a new quiet moment."""
        self._quiet_since = time.monotonic()
        if self._shown:
            self._shown = False
            self._screen.console.file.write(_ERASE)

    async def __aenter__(self) -> "Spinner":
        if self._moves:
            self._task = asyncio.create_task(self._turn())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.clear()

    async def _turn(self) -> None:
        while True:
            await asyncio.sleep(FRAME_S)
            label = self._label()
            quiet = time.monotonic() - self._quiet_since
            if label is None or quiet < QUIET_S:
                continue
            sign = FRAMES[int(quiet / FRAME_S) % len(FRAMES)]
            text = f"{sign} {label}" + (f" {quiet:.0f} s" if quiet >= 3 else "")
            file = self._screen.console.file
            file.write(f"{_ERASE}\x1b[2m{text[: self._screen.console.width - 1]}\x1b[0m")
            self._shown = True
            try:
                await self._screen.send()
            except ReaderGone:
                return  # the next real output raises it where it ends the command
