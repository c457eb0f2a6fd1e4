"""Edits to a text in pieces, keeping the cuts between the pieces where they are."""

from collections.abc import Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """Replace `start` to `end` of the joined text. Edits must be in order and must not overlap."""

    start: int
    end: int
    text: str


def splice(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Return the same number of pieces, edited.

    A replacement goes into the piece where the replaced text began.
    """
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
            if edit.end > end:  # it goes on in the next piece, which loses its beginning
                break
            left.pop()
        parts.append(piece[at - start :])
        spliced.append("".join(parts))
        start = end
    return spliced
