"""The terminal: finished lines go into the scrollback once, above a few that are drawn again.

Those are the text that streams, what waits for an answer, the line that is typed and the status. What they say is asked of
the `Host`; what is typed and pressed is told to it. Loaded before everything else, so that the prompt is there at once.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition, has_completions, is_done, is_searching
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    SearchBufferControl,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import ColorDepth

from codesdk.cli.chat.keyboard import Host as KeyHost, bindings
from codesdk.cli.chat.keys_in import ChatInput
from codesdk.cli.chat.marks import MARK
from codesdk.cli.chat.output import HeldOutput, Writer
from codesdk.cli.view.out import ReaderGone

FRAME_S = 0.04
"""The least time between two pictures."""
MAX_TYPED_ROWS = 10
MENU_ROWS = 8
REFLOWING = (
    "TMUX",
    "VTE_VERSION",
    "KITTY_WINDOW_ID",
    "ALACRITTY_WINDOW_ID",
    "KONSOLE_VERSION",
    "WT_SESSION",
    "TERM_PROGRAM",
)
"""The variables of terminals that break the lines on the screen again when they get narrower. Others cut them."""


class Host(KeyHost, Protocol):
    """Says what is on the screen."""

    def live(self, most: int) -> list[str]:
        """Return the lines that still change, at most so many."""
        ...

    def panel(self, most: int) -> list[str]:
        """Return what waits for an answer, in at most so many lines."""
        ...

    def label(self) -> str:
        """Return what stands before the line that is typed."""
        ...

    def status(self) -> str:
        """Return the words of the last line."""
        ...


class Screen:
    """The lines at the bottom of a terminal, and the way into its scrollback."""

    def __init__(self, host: Host, completer: Completer, history: Path | None, *, colour: bool) -> None:
        self._host = host
        self._pending: list[str] = []
        self.buffer = Buffer(
            name="typed",
            completer=completer,
            complete_while_typing=True,
            history=_history(history),
            multiline=True,
        )
        self._output = HeldOutput(sys.stdout, os.environ.get("TERM"))
        self._app = _Application(
            self._before_picture,
            layout=self._layout(),
            key_bindings=bindings(host, self.buffer),
            output=self._output,
            input=ChatInput(sys.stdin),
            color_depth=ColorDepth.DEPTH_8_BIT if colour else ColorDepth.DEPTH_1_BIT,
            min_redraw_interval=FRAME_S,
            max_render_postpone_time=FRAME_S,
            mouse_support=False,
        )
        self._app.ttimeoutlen = 0.1
        self._app.key_processor.after_key_press += self._pressed
        self.ready = asyncio.Event()
        """Set once the prompt is on the screen."""
        self._app.after_render += self._drawn

    async def run(self) -> None:
        """Show the prompt until somebody leaves. Raise what `fail` was given."""
        loop = asyncio.get_running_loop()
        self._output.writer = writer = Writer(
            sys.stdout.fileno(),
            lambda: _call(loop, self._app.catch_up),
            lambda: _call(loop, lambda: self.fail(ReaderGone())),
        )
        self._app.writer = writer
        try:
            await self._app.run_async(handle_sigint=False)
        finally:
            self._app.drain()
            await asyncio.to_thread(writer.close)
            # The terminal outlives us, and the next program expects it to wait.
            os.set_blocking(sys.stdin.fileno(), True)
            os.set_blocking(sys.stdout.fileno(), True)

    def show(self, lines: list[str]) -> None:
        """Add lines to the scrollback."""
        self._pending += lines
        self._app.invalidate()

    def refresh(self) -> None:
        """Draw again what can change."""
        self._app.invalidate()

    def put(self, text: str) -> None:
        """Give a text back to be typed on, before what is typed already."""
        typed = self.buffer.text
        self.buffer.text = f"{text}\n{typed}" if typed else text
        self.buffer.cursor_position = len(self.buffer.text)

    def leave(self) -> None:
        """End."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def fail(self, error: BaseException) -> None:
        """End, and have `run` raise this."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)

    @property
    def typed(self) -> str:
        """What is in the line."""
        return self.buffer.text

    @property
    def columns(self) -> int:
        """How wide the terminal is."""
        return self._output.get_size().columns

    @property
    def rows(self) -> int:
        """How high the terminal is."""
        return self._output.get_size().rows

    def _pressed(self, _: object) -> None:
        self._host.pressed()

    def _drawn(self, _: object) -> None:
        self.ready.set()

    def _before_picture(self) -> str:
        lines, self._pending = self._pending, []
        return "".join(f"{line}\r\n" for line in lines)

    def _layout(self) -> Layout:
        search = SearchBufferControl(Buffer(name="search"))
        typed = BufferControl(
            self.buffer,
            search_buffer_control=search,
            preview_search=True,
            include_default_input_processors=True,
        )
        children = [
            _shown(lambda: _ansi(self._host.live(max(self.rows // 2 - 2, 3)))),
            _shown(lambda: _ansi(self._host.panel(max(self.rows - 6, 3)))),
            ConditionalContainer(CompletionsMenu(max_height=MENU_ROWS), filter=has_completions & ~is_done),
            Window(
                typed,
                height=Dimension(min=1, max=MAX_TYPED_ROWS),
                wrap_lines=True,
                dont_extend_height=True,
                get_line_prefix=self._prefix,
            ),
            ConditionalContainer(
                Window(search, height=1, get_line_prefix=_searching),
                filter=is_searching,
            ),
            ConditionalContainer(
                Window(FormattedTextControl(self._last_line), height=1, style="class:status"), filter=~is_done
            ),
        ]
        return Layout(HSplit(children), focused_element=typed)

    def _prefix(self, line: int, wrapped: int) -> AnyFormattedText:
        if line or wrapped:
            return [("ansicyan bold", f"{MARK} ")]
        return [("ansicyan bold", f"{MARK} "), ("ansigreen bold", self._host.label())]

    def _last_line(self) -> AnyFormattedText:
        return [("ansicyan", MARK), ("italic", f" {self._host.status()}"[: max(self.columns - 2, 0)])]


class _Application(Application[None]):
    """Draws the scrollback and the rest in one write, and nothing while the last one is on its way."""

    def __init__(self, before: Callable[[], str], **options: object) -> None:
        self._before = before
        self._behind = False
        self.writer: Writer | None = None
        super().__init__(**options)  # type: ignore[arg-type]

    def catch_up(self) -> None:
        """Draw what was put off."""
        if self._behind and self.is_running:
            self._behind = False
            self.invalidate()

    def drain(self) -> None:
        """Write the lines that no picture took along."""
        assert isinstance(self.output, HeldOutput), "it is given one"
        if text := self._before():
            self.output.write_raw(text)
        self.output.held = False
        self.output.flush()

    def _on_resize(self) -> None:
        """Draw again. Lines that the terminal has broken for its new width are erased whole."""
        output, screen = self.output, self.renderer.last_rendered_screen
        if screen is not None and any(name in os.environ for name in REFLOWING):
            window, columns = self.layout.current_window, max(output.get_size().columns, 1)
            at = screen.get_cursor_position(window)
            rows = [screen.data_buffer[row] for row in range(at.y)]
            ends = [
                max((column for column, cell in row.items() if cell.char.strip()), default=0) for row in rows
            ]
            output.cursor_up(sum(end // columns for end in ends) + at.x // columns)
        super()._on_resize()

    def _redraw(self, render_as_done: bool = False) -> None:
        output = self.output
        assert isinstance(output, HeldOutput), "it is given one"
        if self.writer is not None and self.writer.busy and not render_as_done:
            self._behind = True
            return
        output.held = True
        try:
            if not self.is_done and (text := self._before()):
                self.renderer.erase(leave_alternate_screen=False)
                output.write_raw(text)
            super()._redraw(render_as_done)
        finally:
            output.held = False
            output.flush()


def _shown(lines: Callable[[], ANSI]) -> ConditionalContainer:
    """Return a window as high as its lines, which is gone when there are none, and at the end."""
    window = Window(
        FormattedTextControl(lines), dont_extend_height=True, wrap_lines=False, height=Dimension(min=0)
    )
    return ConditionalContainer(window, filter=~is_done & Condition(lambda: bool(lines().value)))


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """Have the loop call something, from the thread of the writer. A loop that is over needs nothing any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what)


def _searching(line: int, wrapped: int) -> AnyFormattedText:
    return [("", f"{MARK} search: ")]


def _ansi(lines: list[str]) -> ANSI:
    return ANSI("\n".join(lines))


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    return FileHistory(str(path))
