"""A known secret → its spellings: plain, as JSON and Python quote it, encoded, and with characters escaped.

The usual and the encoded forms are found by a plain search. Others (`\\u0073`, `\\/`, quotes inside quotes)
contain a backslash, or a % as in URLs; only then is one expression per secret tried. It reads a run of
backslashes as one, since each level of quoting doubles them.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.redaction.encodings import UNFINISHED_PERCENT, encoded_forms, percent_tokens
from codesdk.redaction.patterns import MARKER

SHORTEST = 4

_SHORT = {'"': '"', "'": "'", "/": "/", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_HEX = "[0-9A-Fa-f]"
# An escape cut off by the end of the text, or the first half of a surrogate pair.
_UNFINISHED = re.compile(
    rf"""(?<!\\)(?:\\++u[dD][89abAB]{_HEX}{{2}}(?:\\+(?:u{_HEX}{{0,3}})?)?
    | \\++(?:u{_HEX}{{0,3}}|x{_HEX}?|U{_HEX}{{0,7}})?)\Z""",
    re.VERBOSE,
)


class Spelling:
    """One known secret and the ways to write it. Raise `InvalidRequest` if it would match everywhere."""

    def __init__(self, secret: str) -> None:
        plain = secret.strip()
        if len(plain) < SHORTEST:
            raise InvalidRequest(
                f"A secret must have at least {SHORTEST} characters, or it would match everywhere. Leave shorter ones out."
            )
        try:
            quoted = msgspec.json.encode(plain)[1:-1].decode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                "A secret holds half of a surrogate pair, which is not a character. Pass it as valid UTF-8."
            ) from None
        usual = (plain, quoted, json.dumps(plain)[1:-1], repr(plain)[1:-1])
        self.usual = {_apart_from_marker(form) for form in usual}
        """The usual forms, for a plain search."""
        self.special = any(character in _SHORT or character == "\\" for character in plain)
        """Whether it has a character that a single backslash can escape."""
        self.plain = _apart_from_marker(plain)
        """The secret itself."""
        self.encoded = {_apart_from_marker(form) for form in encoded_forms(plain)}
        """It in base64 and hexadecimal, for a plain search, too."""

    @functools.cached_property
    def backslashed(self) -> "Escaped":
        """The secret with any mixture of backslash escapes."""
        return Escaped(_tokens(self.plain), _UNFINISHED)

    @functools.cached_property
    def percented(self) -> "Escaped":
        """The secret with any mixture of the escapes of URLs."""
        return Escaped(percent_tokens(self.plain), UNFINISHED_PERCENT)


class Escaped:
    """A secret as expressions, one for each character, each escaped or not."""

    def __init__(self, tokens: Iterable[str], unfinished: re.Pattern[str]) -> None:
        self._tokens = list(tokens)
        self._unfinished = unfinished

    @property
    def expression(self) -> str:
        """An expression for the whole secret."""
        return "".join(self._tokens)

    @functools.cached_property
    def _each(self) -> list[re.Pattern[str]]:
        return [re.compile(token) for token in self._tokens]

    def find_begun(self, text: str, start: int) -> int:
        """Return where the escaped secret may begin, cut off by the text's end; else the text's length."""
        cut = self._unfinished.search(text, start)
        end = len(text) if cut is None else cut.start()
        for found in self._each[0].finditer(text, start):
            if found.start() >= end:
                break
            if self._reaches(end, text, found.start()):
                return found.start()
        return end

    def _reaches(self, end: int, text: str, at: int) -> bool:
        """Return whether the text from `at` to `end` (its end, or a cut off escape) begins the secret."""
        for token in self._each:
            if at >= end:
                return True
            found = token.match(text, at)
            if found is None:
                return False
            at = found.end()
        return False  # complete, so not cut off


def _tokens(word: str) -> Iterator[str]:
    """Yield an expression for each character of a word, and one for each run of backslashes inside it.

    Backslashes are matched possessively (`++`), from the first of a run: otherwise a text of nothing but
    backslashes would take forever. Those that end the word are counted, because the next one may escape
    something else.
    """
    runs = [(character, len(list(same))) for character, same in groupby(word)]
    escape, first = r"\\++", r"(?<!\\)"
    for place, (character, count) in enumerate(runs):
        code = _escaped(character)
        if character == "\\" and place < len(runs) - 1:
            yield rf"{first}\\++(?:(?:{code})\\*+)*+"
            escape, first = r"\\*+", ""  # the run consumed the backslashes of the next character
            continue
        for _ in range(count):
            yield rf"(?:{first}{escape}(?:{code})|{re.escape(character)})"
            escape, first = r"\\++", ""


def _escaped(character: str) -> str:
    """Return what may follow the backslashes of an escaped character."""
    code = ord(character)
    if code > 0xFFFF:
        high, low = divmod(code - 0x10000, 0x400)
        pair = rf"u(?i:{0xD800 + high:04x})\\++u(?i:{0xDC00 + low:04x})"
        return rf"{pair}|U(?i:{code:08x})"
    ways = [f"u(?i:{code:04x})"]
    if code < 0x100:
        ways.append(f"x(?i:{code:02x})")
    if character in _SHORT:
        ways.append(re.escape(_SHORT[character]))
    return "|".join(ways)


def _apart_from_marker(word: str) -> str:
    """Return a word without ends that overlap the marker: redacting again must find nothing beside one."""
    while overlap := max((n for n in range(1, len(MARKER)) if word.endswith(MARKER[:n])), default=0):
        word = word[:-overlap]
    while overlap := max((n for n in range(1, len(MARKER)) if word.startswith(MARKER[-n:])), default=0):
        word = word[overlap:]
    if len(word) < SHORTEST or MARKER in word:
        raise InvalidRequest(
            f"A secret cannot be told from its replacement {MARKER}. Use a different secret."
        )
    return word
