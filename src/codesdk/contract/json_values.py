"""How many values a JSON document holds, found out before it is decoded.

Each becomes an object in memory, at once and with the loop held up: 60 MB of `[],` are 20 million lists.
"""

import re

MOST_VALUES = 1_000_000
"""How many values a document from outside may hold. No model request and no message of an agent comes near it."""
_STRING = re.compile(rb'"[^"]*"?')


def has_too_many_values(data: bytes | bytearray) -> bool:
    """Return whether a document holds more than `MOST_VALUES`. One with fewer bytes than that is not looked at.

    What looks like values is counted first, then without what stands in strings. All of it is a few calls, whatever
    the size.
    """
    if len(data) <= MOST_VALUES or _most(data) <= MOST_VALUES:
        return False
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * MOST_VALUES:  # each string is a value or the name of one
        return True
    return _most(_STRING.sub(b"", plain)) > MOST_VALUES


def _most(data: bytes | bytearray) -> int:
    """Return how many values there are at most: each is the first of a list or an object, or comes after a comma."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")
