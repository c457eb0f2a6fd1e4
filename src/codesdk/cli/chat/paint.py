"""Renderables → lines for the terminal, no wider than it is: ours behind the mark, those of others indented.

The only place where styles become escape sequences, and where text of others passes on its way to the screen.
"""

import io
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.segment import Segment, SegmentLines
from rich.style import Style
from rich.text import Text

from codesdk.cli.chat.blocks import Block
from codesdk.cli.chat.marks import INDENT, MARK, theirs
from codesdk.cli.view.screen import PlainConsole

MIN_WIDTH = 20
_TAB = 4


class Painter:
    """Paints for a terminal of some width, with or without colour."""

    def __init__(self, width: int, *, colour: bool = True, styled: bool = True) -> None:
        """Make one. Without `styled` there is no escape sequence at all: a dumb terminal, or a file."""
        self._console = PlainConsole(
            file=io.StringIO(),
            width=max(width, MIN_WIDTH),
            force_terminal=styled,
            color_system=("256" if colour else "standard") if styled else None,
            no_color=not colour,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return self._console.width

    def resize(self, width: int) -> None:
        """Paint for another width from now on."""
        self._console.width = max(width, MIN_WIDTH)

    def ours(self, text: Text | str, style: str = "", *, one: bool = False) -> list[str]:
        """Return lines of CodeSDK itself. `one`: a single line, cut where the terminal ends."""
        shown = Text(text, style) if isinstance(text, str) else text
        shown.no_wrap, shown.overflow = (True, "ellipsis") if one else (False, "fold")
        mark = Segment(f"{MARK} ", Style(color="cyan", bold=True))
        return self._lines(shown, [mark])

    def others(self, what: RenderableType | Iterable[Text]) -> list[str]:
        """Return lines that somebody else wrote."""
        if isinstance(what, str):
            return self._lines(_plain(Text(what)), [Segment(INDENT)])
        if isinstance(what, Iterable):
            texts = [_plain(text) for text in what]
            return self._lines(Group(*texts), [Segment(INDENT)]) if texts else []
        return self._lines(what, [Segment(INDENT)])

    def markdown(self, block: Block) -> list[str]:
        """Return a block of Markdown, with an empty line before it unless it joins the one above."""
        source = theirs(block.text.expandtabs(_TAB))
        shown = Markdown(source, code_theme="ansi_dark", hyperlinks=False)
        lines = self._lines(shown, [Segment(INDENT)])
        while lines and not _seen(lines[0]):
            lines.pop(0)
        while lines and not _seen(lines[-1]):
            lines.pop()
        return lines if block.joins or not lines else ["", *lines]

    def _lines(self, what: RenderableType, before: Sequence[Segment]) -> list[str]:
        room = self.width - sum(segment.cell_length for segment in before)
        options = self._console.options.update(width=room)
        lines = self._console.render_lines(what, options, pad=False)
        safe = [[*before, *_fitting(line, room)] for line in lines]
        with self._console.capture() as captured:
            self._console.print(SegmentLines(safe, new_lines=True), end="", crop=False)
        return [line.rstrip(" ") for line in captured.get().split("\n")[:-1]]


def _fitting(line: Iterable[Segment], room: int) -> list[Segment]:
    """Return the segments as they may be shown. What an entity of HTML hid comes to light only here."""
    safe = [segment._replace(text=theirs(segment.text)) for segment in line if not segment.control]
    return Segment.adjust_line_length(safe, room, pad=False)


def _plain(text: Text) -> Text:
    text.expand_tabs(_TAB)
    return text


def _seen(line: str) -> bool:
    return bool(Text.from_ansi(line).plain.strip())
