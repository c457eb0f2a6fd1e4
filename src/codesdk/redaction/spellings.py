"""A known secret → its spellings: plain, as JSON and Python quote it, encoded, and with characters escaped.

The usual and the encoded forms are found by a plain search. Others (`\\u0073`, `\\/`, quotes inside quotes)
contain a backslash, or a % as in URLs; only then is one expression per secret tried. It reads a run of
backslashes as one, since each level of quoting doubles them. An expression takes long to compile, so all redactors
share it.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from weakref import WeakValueDictionary

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.redaction.encodings import (
    UNFINISHED_PERCENT,
    any_percent_escape,
    digits,
    encoded_forms,
    percent_tokens,
)
from codesdk.redaction.patterns import MARKER

SHORTEST = 4

_SHORT = {'"': '"', "'": "'", "/": "/", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_HEX = "[0-9A-Fa-f]"
_BACKSLASH = re.compile(r"\\")
HEAD = 32
"""How many characters of a secret are one expression. A secret that repeats itself is compared with a text like it from
every place on, and a long expression takes long to compile; behind these, each character is looked at once."""
_MOST_STEPS = 4_000
"""How far the beginnings of one unfinished secret are followed, for the same reason."""
# An escape cut off by the end of the text, or the first half of a surrogate pair.
_UNFINISHED = re.compile(
    rf"""(?<!\\)(?:\\++u[dD][89abAB]{_HEX}{{2}}(?:\\+(?:u{_HEX}{{0,3}})?)?
    | \\++(?:u{_HEX}{{0,3}}|x{_HEX}?|U{_HEX}{{0,7}})?)\Z""",
    re.VERBOSE,
)


def spelling_of(secret: str) -> "Spelling":
    """Return the spelling of a secret, the same object as long as somebody has it."""
    found = _known.get(secret)
    if found is None:
        found = _known[secret] = Spelling(secret)
    return found


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
        return Escaped(self.plain, _tokens(self.plain), _BACKSLASH, _UNFINISHED)

    @functools.cached_property
    def percented(self) -> "Escaped":
        """The secret with any mixture of the escapes of URLs."""
        escape = any_percent_escape([self.plain])
        return Escaped(self.plain, percent_tokens(self.plain), escape, UNFINISHED_PERCENT)


class Escaped:
    """A secret as expressions, one for each character, each escaped or not."""

    def __init__(
        self, plain: str, tokens: Iterable[str], escape: re.Pattern[str], unfinished: re.Pattern[str]
    ) -> None:
        self._plain = plain
        self._tokens = list(tokens)
        self._escape = escape
        self._unfinished = unfinished

    @functools.cached_property
    def head(self) -> re.Pattern[str]:
        """An expression for the secret, or for the beginning of a long one."""
        return re.compile("".join(self._tokens[:HEAD]))

    @functools.cached_property
    def _each(self) -> list[re.Pattern[str]]:
        compiled = {token: re.compile(token) for token in set(self._tokens)}
        return [compiled[token] for token in self._tokens]

    def find(self, text: str, start: int) -> tuple[int, int] | None:
        """Return where a text has the secret with an escape in it; of a long one, as much of it as the text has.

        Without an escape it is a word, found elsewhere. Linear: what was followed to the end is removed.
        """
        escape = self._escape.search(text, start)
        while escape and (head := self.head.search(text, max(start, escape.start() - len(self._plain)))):
            start, after = head.span()
            escape = self._escape.search(text, start)
            if escape is not None and self._goes_on(text, after, escape.start()):
                end, _ = self._follow(text, after, len(text), HEAD)
                if escape.start() < end:
                    return start, end
            start += 1
        return None

    def _goes_on(self, text: str, at: int, escape: int) -> bool:
        """Return whether what is between the head and an escape, if it is behind the head, may belong to the secret."""
        size = escape - at
        if size <= 0 or size > len(self._plain) - HEAD:
            return size <= 0
        return _with_plus(text[at:escape]) == _with_plus(self._plain[HEAD : HEAD + size])

    def find_begun(self, text: str, start: int) -> int:
        """Return where the escaped secret may begin, cut off by the text's end; else the text's length.

        Where that would take too long, a place from which on it may begin.
        """
        cut = self._unfinished.search(text, start)
        end = len(text) if cut is None else cut.start()
        steps = _MOST_STEPS
        for found in self._each[0].finditer(text, start):
            if found.start() >= end:
                break
            reached, place = self._follow(text, found.start(), end)
            steps -= place + 1
            if (reached >= end and place < len(self._tokens)) or steps < 0:
                return found.start()
        return end

    def _follow(self, text: str, at: int, end: int, place: int = 0) -> tuple[int, int]:
        """Return how far a text goes on like the secret from its token number `place` on, and to which token."""
        each = self._each
        while place < len(each) and at < end:
            found = each[place].match(text, at)
            if found is None:
                break
            at = found.end()
            place += 1
        return at, place


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
            yield from [""] * (count - 1)  # one for each character
            escape, first = r"\\*+", ""  # the run consumed the backslashes of the next character
            continue
        for _ in range(count):
            yield rf"(?:{first}{escape}(?:{code})|{re.escape(character)})"
            escape, first = r"\\++", ""


def _with_plus(text: str) -> str:
    """Return a text with the spaces as URLs may have them."""
    return text.replace(" ", "+")


def _escaped(character: str) -> str:
    """Return what may follow the backslashes of an escaped character."""
    code = ord(character)
    if code > 0xFFFF:
        high, low = divmod(code - 0x10000, 0x400)
        pair = rf"u{digits(0xD800 + high, 4)}\\++u{digits(0xDC00 + low, 4)}"
        return rf"{pair}|U{digits(code, 8)}"
    ways = [f"u{digits(code, 4)}"]
    if code < 0x100:
        ways.append(f"x{digits(code, 2)}")
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


_known: WeakValueDictionary[str, Spelling] = WeakValueDictionary()
