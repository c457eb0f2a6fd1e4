"""JSON that somebody else wrote, read field by field.

Answers are read leniently: a value of the wrong kind counts as absent. Requests are read with
`*_at`, which raise a `ValueError` that names the field. Both are for the codecs.
"""

from typing import Any, cast

import msgspec


def decode_json(data: bytes) -> Any:
    """Return what the bytes say, or None if they are not JSON."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """Return an object, empty in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a list, empty in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """Return a string, empty in place of anything else."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return a number of things, zero in place of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def error_text(error: object, kind: str) -> str:
    """Return what an error says, in one line. `kind` is its field for what sort of error it is."""
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
    """Return a string of a request that must not be empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{place}: {_missing(value)} a string that is not empty")
    return value


def _missing(value: object) -> str:
    return "field required," if value is None else "should be"
