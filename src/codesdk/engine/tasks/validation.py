"""Checks that values from outside can be stored and read back: their depth and size."""

from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest

MAX_DEPTH = 100
"""How deep JSON from outside may be nested, so that any reader can parse it without overflowing its stack."""


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
