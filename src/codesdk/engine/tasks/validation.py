"""Checks that values from outside can be stored and read back: their depth and size."""

import re
import sys
from itertools import accumulate
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest

MAX_DEPTH = 100
"""How deep JSON from outside may be nested, so that any reader can parse it without overflowing its stack."""
MAX_OPTIONS_BYTES = 256 * 1024
"""How large a `runtime_config` may be: it is searched for secrets and written with each task."""
MAX_ID_CHARS = 1_000
"""How long an id of a runtime's own may be: of a message, of a block of one, of a call."""
# One without an end counts, too: else the search for it would begin again at each of its quotes.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # one down, and, as a signed byte, one up
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SHALLOW = bytes(range(MAX_DEPTH + 1))


def is_deep(data: bytes, most: int = sys.maxsize) -> bool:
    """Return whether a JSON document is nested deeper than `MAX_DEPTH`; one of more than `most` bytes is not looked at.

    Brackets that do not match count as deep. The depth at each bracket is added up in one pass and in a few calls
    whatever the size: a step of our own for each byte of megabytes would hold up everybody for seconds.
    """
    if len(data) <= 2 * MAX_DEPTH or data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    if len(data) > most:
        return False
    steps = _STRING.sub(b"", data).translate(_STEPS, _NO_BRACKETS)
    try:
        depths = bytes(accumulate(memoryview(steps).cast("b"), initial=0))
    except ValueError:  # a byte holds neither a bracket that closes nothing nor what is far too deep
        return True
    return depths[-1] > 0 or bool(depths.translate(None, _SHALLOW))


def check_size(value: Any, what: str, limit: int, advice: str = "Make it smaller.") -> bytes:
    """Return a caller's value as JSON. Raise `InvalidRequest` if it is not JSON, or too large to store."""
    try:
        data = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"{what} cannot be stored: {error}.") from None
    if len(data) > limit:
        raise InvalidRequest(f"{what} may have {limit:,} bytes, not {len(data):,}. {advice}")
    return data


def check_settings(value: Any, what: str, limit: int) -> bytes:
    """Return settings as JSON. Raise `InvalidRequest` if they are not JSON, too large, or nested too deep."""
    data = check_size(value, what, limit)
    if is_deep(data):
        raise InvalidRequest(f"The settings of a session may be nested {MAX_DEPTH} levels deep, not more.")
    return data
