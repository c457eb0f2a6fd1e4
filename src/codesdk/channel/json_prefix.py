"""The bytes of a line so far → whether they can still become a JSON object. Pure, and linear however they are cut.

Every byte from 0x80 up may be in a string: whether text is UTF-8 is for whoever reads the whole line.
"""

import re
from collections.abc import Mapping

_DIGITS, _NOT_ZERO, _HEX = b"0123456789", b"123456789", b"0123456789abcdefABCDEF"
_BLANKS, _PLAIN, _NUMBER = re.compile(rb"[ \t\r]*"), re.compile(rb'[^"\\\x00-\x1f]*'), re.compile(rb"[0-9]*")
_ENDS = frozenset({"zero", "whole", "fraction", "power"})
"""Where a number may end: what comes next is no part of it."""


def _to(*ways: tuple[bytes, str]) -> Mapping[int, str]:
    return {byte: state for taken, state in ways for byte in taken}


def _words() -> dict[str, Mapping[int, str]]:
    """Return the states inside `true`, `false` and `null`, each named by what is there so far."""
    return {
        word[:length]: _to((word[length].encode(), word[: length + 1] if length + 1 < len(word) else "next"))
        for word in ("true", "false", "null")
        for length in range(1, len(word))
    }


_VALUE = (
    *((letter.encode(), letter) for letter in "tfn"),
    (b'"', "string"),
    (b"-", "minus"),
    (b"0", "zero"),
    (_NOT_ZERO, "whole"),
    (b"{[", "open"),
)
_EXPONENT = (b"eE", "exponent")
_WAYS: Mapping[str, Mapping[int, str]] = {
    "begin": _to((b"{", "open")),
    "key": _to((b'"', "string")),
    "key or end": _to((b'"', "string"), (b"}", "close")),
    "colon": _to((b":", "value")),
    "value": _to(*_VALUE),
    "value or end": _to(*_VALUE, (b"]", "close")),
    "next": _to((b",", "comma"), (b"}]", "close")),
    "whole object": {},
    "string": _to((b'"', "quote"), (b"\\", "escape")),
    "escape": _to((b'"\\/bfnrt', "string"), (b"u", "u")),
    "u": _to((_HEX, "u1")),
    "u1": _to((_HEX, "u2")),
    "u2": _to((_HEX, "u3")),
    "u3": _to((_HEX, "string")),
    "minus": _to((b"0", "zero"), (_NOT_ZERO, "whole")),
    "zero": _to((b".", "point"), _EXPONENT),
    "whole": _to((b".", "point"), _EXPONENT),
    "point": _to((_DIGITS, "fraction")),
    "fraction": _to(_EXPONENT),
    "exponent": _to((b"+-", "sign"), (_DIGITS, "power")),
    "sign": _to((_DIGITS, "power")),
    "power": {},
    **_words(),
}
_RUNS = {
    "string": _PLAIN,
    **dict.fromkeys(("whole", "fraction", "power"), _NUMBER),
    **dict.fromkeys(("key", "key or end", "colon", "value", "value or end", "next", "whole object"), _BLANKS),
}
"""What may be repeated in a state without leaving it."""


class ObjectPrefix:
    """One line. Give it the bytes as they come with `feed`."""

    def __init__(self) -> None:
        self._state = "begin"
        self._open = bytearray()
        self._is_key = False

    @property
    def is_whole(self) -> bool:
        """Whether the object has been closed: nothing but blanks may follow."""
        return self._state == "whole object"

    def feed(self, data: bytes) -> bool:
        """Return whether the line may still become an object. After the first no, the answer means nothing."""
        place = 0
        while True:
            if (run := _RUNS.get(self._state)) and (found := run.match(data, place)):
                place = found.end()
            if place == len(data):
                return True
            way = _WAYS[self._state].get(data[place])
            if way is None and self._state in _ENDS:
                self._state = "next"
                continue
            if way is None or not self._go(way, data[place]):
                return False
            place += 1

    def _go(self, way: str, byte: int) -> bool:
        """Take a step. Return whether it can be taken: a bracket has to close what is open."""
        if way == "open":
            self._open.append(byte)
            way = "key or end" if byte == ord("{") else "value or end"
        elif way == "close":
            if self._open.pop() + 2 != byte:  # in ASCII, a bracket closes two places after it opens
                return False
            way = "next" if self._open else "whole object"
        elif way == "comma":
            way = "key" if self._open[-1] == ord("{") else "value"
        elif way == "quote":
            way = "colon" if self._is_key else "next"
        elif way == "string" and self._state not in ("escape", "u3"):
            self._is_key = self._state.startswith("key")
        self._state = way
        return True
