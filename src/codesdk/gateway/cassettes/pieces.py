"""Edits to a text that is cut into pieces, with the cuts left where they are."""

from collections.abc import Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """Replace what stands from `start` to `end` of the joined text. Edits do not overlap and come in order."""

    start: int
    end: int
    text: str


def splice(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Return as many pieces, edited. A replacement goes where the replaced text began."""
    if not edits:
        return list(pieces)
    spliced: list[str] = []
    left = list(reversed(edits))
    start = 0
    for piece in pieces:
        end = start + len(piece)
        parts: list[str] = []
        at = start
        while left and left[-1].start < end:
            edit = left[-1]
            if edit.start >= start:
                parts += (piece[at - start : edit.start - start], edit.text)
            at = min(edit.end, end)
            if edit.end > end:
                break
            left.pop()
        parts.append(piece[at - start :])
        spliced.append("".join(parts))
        start = end
    return spliced
