"""The `pattern` of a foreign schema → a search that takes time linear in the text, by RE2.

RE2 has no look-around. One at the very beginning, as in `^(?!\\.)[a-z.]+$`, is common and can be done as a
search of its own; patterns with any other are refused, and so are back references.
"""

import re
from importlib import import_module
from typing import Any

MAX_CHARS = 2_000
_MAX_BYTES = 1 << 18
"""What RE2 may use for one pattern. It bounds the size of the program, by which each character is multiplied."""
_STATES_PER_STEP = 128
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


class BadPattern(ValueError):
    """The pattern is not a regular expression, or not one that can be searched for in linear time."""


class LinearPattern:
    """A compiled pattern. `size` is the number of its states."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_CHARS:
            raise BadPattern(f"a pattern may have {MAX_CHARS:,} characters")
        self._parts = [(_compile(part), wanted) for part, wanted in _split(_in_re2(pattern))]
        self.size = sum(part.programsize for part, _ in self._parts)

    def steps(self, text: str) -> int:
        """Return what a search costs at most: RE2 may have to visit every state at every character."""
        return 1 + len(text) * self.size // _STATES_PER_STEP

    def found_in(self, text: str) -> bool:
        """Return whether the pattern matches somewhere in a text."""
        data = text.encode("utf-8", "replace")  # half of a surrogate pair has no encoding
        return all((part.search(data) is not None) == wanted for part, wanted in self._parts)


def _compile(pattern: str) -> Any:
    re2: Any = import_module("re2")  # few schemas have patterns
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MAX_BYTES, False, True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said: Any = error.args[0]
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise BadPattern(f"the pattern cannot be used ({why})") from None
    except UnicodeEncodeError:
        raise BadPattern("half of a surrogate pair is not a character") from None


def _in_re2(pattern: str) -> str:
    """Rewrite the escapes that JavaScript and Python have and RE2 spells in another way."""

    def rewrite(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return f"\\x{{{escape[1]}}}"
        return r"\z" if escape[2] == "Z" else escape[0]

    return _ESCAPE.sub(rewrite, pattern)


def _split(pattern: str) -> list[tuple[str, bool]]:
    """Return a pattern as searches that must succeed (True) or fail (False), one for each look-ahead at its start."""
    parts: list[tuple[str, bool]] = []
    rest = pattern.removeprefix("^")
    while rest != pattern and rest.startswith(("(?=", "(?!")):
        end = _closing(rest)
        parts.append((f"^(?:{rest[3:end]})", rest[2] == "="))
        rest = rest[end + 1 :]
    if not parts:
        return [(pattern, True)]
    if rest.startswith(("*", "+", "?", "{")) or _has_alternatives(rest):
        raise BadPattern("a look-ahead that is repeated, or part of one alternative only, cannot be used")
    return [*parts, (f"^{rest}", True)]


def _closing(pattern: str) -> int:
    """Return where the group at the start of a pattern ends."""
    depth = 0
    for piece in _PIECE.finditer(pattern):
        depth += (piece[0] == "(") - (piece[0] == ")")
        if depth == 0:
            return piece.start()
    raise BadPattern("a parenthesis of the pattern is not closed")


def _has_alternatives(pattern: str) -> bool:
    depth = 0
    for piece in _PIECE.finditer(pattern):
        depth += (piece[0] == "(") - (piece[0] == ")")
        if depth == 0 and piece[0] == "|":
            return True
    return False
