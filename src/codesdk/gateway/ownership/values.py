"""Foreign JSON, read as leniently as any agent would read it, and written so that every agent can read it.

What one reader rejects another may accept, and then act on. So the reader here accepts what some reader of JSON
does: halves of surrogate pairs, NaN, control characters, numbers of any size. Only what is nested too deeply to
be judged, or holds too many values, raises `RecursionError`; whoever reads must not pass that on.
"""

import hashlib
import json
import math
from typing import Any, cast

import msgspec

from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.gateway.wires.fields import input_of

MAX_DEPTH = 200
"""How deeply a value may be nested: far deeper than any provider's, and still fit to be written again."""
_BOM = "\ufeff"
_LONGEST_INT = 300
_LEVELS = 8  # of objects in a report of usage; no provider has more than three
# Some clients split lines at these.
_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def read_json(data: bytes) -> Any:
    """Return a JSON value, or None if no reader of JSON would take it."""
    if len(data) > MOST_VALUES and has_too_many_values(data):
        raise RecursionError
    try:
        value = msgspec.json.decode(data)
    except ValueError:
        value = _read_leniently(data)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deep(value):
        raise RecursionError
    return value


def _read_leniently(data: bytes) -> Any:
    text = data.decode("utf-8", "replace").strip().removeprefix(_BOM)
    try:
        return json.loads(text, strict=False, parse_int=_integer)
    except ValueError:
        return None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for part in level for child in _children(part)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _integer(digits: str) -> int | float:
    # Python refuses to read a number of thousands of digits as an integer; others take it for infinity.
    return int(digits) if len(digits) <= _LONGEST_INT else math.inf


def write_json(value: Any) -> bytes:
    """Return a value as JSON in one line."""
    try:
        data = msgspec.json.encode(value)
    except (ValueError, TypeError, OverflowError):
        # Half of a surrogate pair can only be written as an escape, and an infinite number not at all.
        data = json.dumps(_finite(value), separators=(",", ":")).encode()
    for line_end, escaped in _LINE_ENDS:
        if line_end in data:
            data = data.replace(line_end, escaped)
    return data


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(part) for part in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def input_object(arguments: Any) -> dict[str, Any]:
    """Return the input of a call where only an object will do."""
    if isinstance(arguments, dict):
        return cast("dict[str, Any]", arguments)
    return {} if arguments in (None, "") else {"input": arguments}


def read_input(arguments: str) -> Any:
    """Return the input of a call from the text of its arguments; none is an empty object."""
    value: Any = input_of(arguments) if arguments.strip() else {}
    return arguments if _is_deep(value) else value


def clean(value: Any) -> Any:
    """Return a copy of a value that every writer of JSON takes: for the log, and for later requests."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (ValueError, TypeError, OverflowError):
        written = json.dumps(_finite(value), ensure_ascii=False)
        return msgspec.json.decode(written.encode("utf-8", "replace"))


def made_up_id(mark: str) -> str:
    """Return an id for a call that its format, or the model, gave none. It is the same every time."""
    return f"call_{hashlib.sha256(mark.encode('utf-8', 'replace')).hexdigest()[:24]}"


def add_usage(total: dict[str, Any], more: dict[str, Any], levels: int = _LEVELS) -> dict[str, Any]:
    """Return the sum of two reports of usage: counts are added, lists joined; of all else the later one counts."""
    return {**total, **{key: _sum(total.get(key), value, levels - 1) for key, value in more.items()}}


def _sum(one: Any, other: Any, levels: int) -> Any:
    match one, other:
        case (None, _) | (_, None):
            return one if other is None else other
        case dict(), dict() if levels:
            return add_usage(cast("dict[str, Any]", one), cast("dict[str, Any]", other), levels)
        case list(), list():
            return [*cast("list[Any]", one), *cast("list[Any]", other)]
        case (int() | float()) as first, (int() | float()) as second if not _is_bool(first, second):
            return first + second
        case _:
            return other


def _is_bool(*values: object) -> bool:
    return any(isinstance(value, bool) for value in values)
