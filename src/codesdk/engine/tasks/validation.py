"""Checks that values from outside can be stored and read back: their text, depth and size."""

from typing import Any, cast

import msgspec

from codesdk.contract.errors import InvalidRequest

MAX_DEPTH = 100
"""How deep JSON from outside may be nested, so that any reader can parse it without overflowing its stack."""


def is_text(value: object) -> bool:
    """Return whether a value is text that can be encoded."""
    try:
        return isinstance(value, str) and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False


def mend(value: Any) -> Any:
    """Return a JSON-like value whose text can be encoded: half of a surrogate pair becomes U+FFFD."""
    if isinstance(value, str):
        return (
            value if is_text(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {mend(key): mend(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [mend(item) for item in cast("list[Any]", value)]
    return value


def is_deep(data: bytes) -> bool:
    """Return whether a JSON document is nested deeper than `MAX_DEPTH`."""
    if len(data) <= 2 * MAX_DEPTH or data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            in_string = escaped or byte != 0x22
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest > MAX_DEPTH


def check_size(value: Any, what: str, limit: int) -> bytes:
    """Return a caller's value as JSON. Raise `InvalidRequest` if it is not JSON, or too large to store."""
    try:
        data = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"{what} cannot be stored: {error}.") from None
    if len(data) > limit:
        raise InvalidRequest(f"{what} may have {limit:,} bytes, not {len(data):,}. Attach a file instead.")
    return data


def check_settings(value: Any, what: str, limit: int) -> bytes:
    """Return settings as JSON. Raise `InvalidRequest` if they are not JSON, too large, or nested too deep."""
    data = check_size(value, what, limit)
    if is_deep(data):
        raise InvalidRequest(f"The settings of a session may be nested {MAX_DEPTH} levels deep, not more.")
    return data
