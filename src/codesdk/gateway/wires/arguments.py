"""The input of a tool call ↔ the text in which models write and stream it. For the codecs."""

from typing import Any

import msgspec

_MOST_PIECES = 8
_LEAST_PIECE = 16


def arguments_of(value: Any) -> str:
    """Return the input of a call as models write it."""
    return msgspec.json.encode(value).decode()


def input_of(arguments: str) -> Any:
    """Return the value of a model's arguments; text that is not JSON is returned unchanged."""
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


def pieces_of(text: str) -> list[str]:
    """Return a text in pieces, as models stream it; only a few, however long it is."""
    size = max(_LEAST_PIECE, -(-len(text) // _MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]
