"""Foreign JSON, read field by field. For the codecs.

Answers are read leniently: a value of the wrong type counts as absent. Requests are read with the `*_at`
functions, which raise a `ValueError` that names the field. The input of a tool call is JSON inside JSON.
"""

from typing import Any, cast

import msgspec

from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.contract.models import MAX_TOKENS

_MOST_PIECES = 8
_LEAST_PIECE = 16
_FILES = ("file_id", "fileUri", "file_uri")


def decode_json(data: bytes) -> Any:
    """Return the JSON value, or None if the bytes are not JSON or hold too many values."""
    if len(data) > MOST_VALUES and has_too_many_values(data):
        return None
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """Return an object; an empty one instead of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a list; an empty one instead of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """Return a string; an empty one instead of anything else."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return a positive integer that can be a count; zero instead of anything else."""
    # A bool is an int in Python, but not a count.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_TOKENS else 0


def error_text(error: object, kind: str) -> str:
    """Return an error's message in one line. `kind` is the field with the type of the error."""
    if isinstance(error, str) and error:
        return error
    fields = mapping(error)
    sort, message = string(fields.get(kind)), string(fields.get("message")) or "unknown error"
    return f"{sort}: {message}" if sort else message


def object_at(value: object, place: str) -> dict[str, Any]:
    """Return an object of a request."""
    if not isinstance(value, dict):
        raise ValueError(f"{place}: {_missing(value)} an object")
    return cast("dict[str, Any]", value)


def list_at(value: object, place: str) -> list[Any]:
    """Return a list of a request."""
    if not isinstance(value, list):
        raise ValueError(f"{place}: {_missing(value)} a list")
    return cast("list[Any]", value)


def string_at(value: object, place: str) -> str:
    """Return a non-empty string of a request."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{place}: {_missing(value)} a non-empty string")
    return value


def refuse_stored(value: object, place: str) -> None:
    """Raise `ValueError` for a reference to a conversation, a prompt, a file or a cache that the provider keeps.

    It may be another user's of the same key, bring tools of its own, and would not be in the log.
    """
    if value is not None:
        raise ValueError(stored_at(place))


def stored_at(place: str) -> str:
    """Return why a request is refused that refers to something that the provider keeps."""
    return f"{place}: this gateway passes on what a request says, nothing stored at the provider"


def refuse_files(part: object, place: str) -> None:
    """Raise `ValueError` if a part of a message refers to a file that the provider keeps, however deep in it."""
    waiting = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            for name in _FILES:
                refuse_stored(fields.get(name), f"{place}.{name}")
            waiting += fields.values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)


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


def _missing(value: object) -> str:
    return "field required," if value is None else "should be"
