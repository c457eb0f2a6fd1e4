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
    TANGLED_PERCENT,
    UNFINISHED_PERCENT,
    digits,
    encoded_forms,
    percent_tokens,
)
from codesdk.redaction.patterns import MARKER

SHORTEST = 4

_SHORT = {'"': '"', "'": "'", "/": "/", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_HEX = "[0-9A-Fa-f]"
_HEAD = 8
"""How many characters at the beginning of a secret are looked for at once."""
LONGEST_ESCAPE = 80
"""How long an escaped character is at most: a pair of `\\uXXXX`, quoted six times, has 74; four bytes as `%XX`, eight times, 68."""
_FIRST = r"(?<!\\)"
# Backslashes in front of what reads like an escaped u or x; several at the end, of which each may be escaped.
_TANGLED = re.compile(r"\\+(?:u0075|x78)|\\{2,}\Z")
_MOST_TANGLED = 64
_AGAIN = 20_000
"""How much may be compared again for secrets with a backslash or a % in them: one that repeats itself is no real one."""
_DOUBT = LONGEST_ESCAPE * _MOST_TANGLED
"""How much text must come behind what can be read in two ways before it is certain which one was meant."""
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
        self.shortest = len(re.sub(r"\\{2,}", r"\\", self.plain))
        """How long it is at least: a run of backslashes is read as one."""
        self.encoded = {_apart_from_marker(form) for form in encoded_forms(plain)}
        """It in base64 and hexadecimal, for a plain search, too."""

    @functools.cached_property
    def backslashed(self) -> "Escaped":
        """The secret with any mixture of backslash escapes."""
        return Escaped(self.plain, _tokens(self.plain), _TANGLED, _UNFINISHED)

    @functools.cached_property
    def percented(self) -> "Escaped":
        """The secret with any mixture of the escapes of URLs."""
        return Escaped(self.plain, percent_tokens(self.plain), TANGLED_PERCENT, UNFINISHED_PERCENT)


class Escaped:
    """A secret as expressions, one for each character, each escaped or not; found in linear work.

    One expression of all of them would be compared with the text from every place on, and take long to compile. So
    characters are compared one by one behind the first few, by the algorithm of Knuth, Morris and Pratt: where the text
    differs, the next place where the secret may begin is known from what was compared.
    """

    def __init__(
        self, plain: str, tokens: Iterable[str], tangles: re.Pattern[str], unfinished: re.Pattern[str]
    ) -> None:
        """`tangles` matches what of a secret reads like an escape itself: its characters are one expression."""
        expressions = list(tokens)
        self._units = list(_units(plain, expressions, tangles))
        self._unfinished = unfinished
        self._opening = expressions[0] if len(self._units[0][0]) > 1 else None
        """The first character, where it is a part of a unit."""

    def prepare(self) -> None:
        """Compile what is otherwise compiled on first use."""
        _ = self._head, self._each, self._borders

    def find(self, text: str, start: int) -> tuple[int, int] | None:
        """Return where a text has the secret, from `start` on."""
        each, borders, again = self._each, self._borders, _AGAIN + len(text)
        while head := self._head.search(text, start):
            at, state, starts = head.start(), 0, list[int]()
            while True:
                found = each[state].match(text, at)
                if found is not None:
                    starts.append(at)
                    at, state = found.end(), state + 1
                    if state == len(each):
                        return starts[-state], at
                elif state == 0:
                    break
                elif self._ambiguous < state and again > 0:
                    at, again = starts[-state] + 1, again - state
                    break
                else:
                    state = borders[state]
            start = max(at, head.start() + 1)
        return None

    def find_begun(self, text: str, start: int, steps: int) -> tuple[int, int]:
        """Return where the escaped secret may begin, cut off by the text's end, else the text's length; and steps left.

        Where that would take more steps, `start`.
        """
        cut = self._unfinished.search(text, start)
        end = len(text) if cut is None else cut.start()
        found, steps = self._find_begun(text, start, end, steps)
        if self._opening is not None and (first := self._first.search(text, max(start, end - _DOUBT))):
            found = min(found, first.start())
        return min(found, end), steps

    def _find_begun(self, text: str, start: int, end: int, steps: int) -> tuple[int, int]:
        each, borders, again = self._each, self._borders, _AGAIN
        reach, at = end - LONGEST_ESCAPE * _HEAD, start
        while steps >= 0:
            first = self._head.search(text, at) or each[0].search(text, max(at, reach))
            if first is None or first.start() >= end:
                return end, steps
            at, state, starts = first.start(), 0, list[int]()
            while at < end:
                steps -= 1
                found = each[state].match(text, at) if state < len(each) else None
                if found is not None:
                    starts.append(at)
                    at, state = found.end(), state + 1
                elif self._in_doubt(starts, at, state, end):
                    return starts[-state], steps
                elif state == 0:
                    break
                elif self._ambiguous < state and again > 0:
                    at, again = starts[-state] + 1, again - state
                    state = 0
                    break
                else:
                    state = borders[state]
            if at >= end:
                if state == len(each) and at == end and not self._in_doubt(starts, at, state, end):
                    state = borders[state]
                if state:
                    return starts[-state], steps
            at = max(at, first.start() + 1)
        return start, steps

    def _in_doubt(self, starts: list[int], at: int, state: int, end: int) -> bool:
        """Return whether what came last can still turn out to be the secret, read in another way."""
        tangled = [n for n in self._tangled if n <= state] if state else []
        if not tangled:
            return False
        place = at if tangled[-1] == state else starts[tangled[-1] - state]
        return end - place <= _DOUBT

    @functools.cached_property
    def _head(self) -> re.Pattern[str]:
        return re.compile("".join(unit for _, unit in self._units[:_HEAD]))

    @functools.cached_property
    def _first(self) -> re.Pattern[str]:
        return re.compile(self._opening or "")

    @functools.cached_property
    def _each(self) -> list[re.Pattern[str]]:
        compiled = {unit: re.compile(unit) for unit in {unit for _, unit in self._units}}
        return [compiled[unit] for _, unit in self._units]

    @functools.cached_property
    def _ambiguous(self) -> int:
        """The first unit that can be read as something else: behind it, another place can be a beginning, too.

        It looks like the beginning of an escape, or a `+` stands for a space in one place and for itself in another.
        """
        literals = {literal[0] for literal, _ in self._units}
        marked = "\\% +" if literals >= {" ", "+"} else "\\%"
        marks = (number for number, (literal, _) in enumerate(self._units) if literal[0] in marked)
        return next(marks, len(self._units))

    @functools.cached_property
    def _tangled(self) -> list[int]:
        return [number for number, (literal, _) in enumerate(self._units) if len(literal) > 1]

    @functools.cached_property
    def _borders(self) -> list[int]:
        """For each number of units, how many of the first of them are also the last of them, but not all."""
        # The first one looks behind itself, for a backslash; for the others what was there is known.
        units = [unit.replace(_FIRST, "", 1) for _, unit in self._units]
        borders, border = [0, 0], 0
        for unit in units[1:]:
            while border and unit != units[border]:
                border = borders[border]
            border += unit == units[border]
            borders.append(border)
        return borders


def _units(plain: str, tokens: list[str], tangles: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield each character of a secret with its expression, and tangled ones together."""
    at = 0
    while at < len(plain):
        tangled = tangles.match(plain, at)
        size = 1 if tangled is None else max(1, min(len(tangled[0]), _MOST_TANGLED))
        yield plain[at : at + size], "".join(tokens[at : at + size])
        at += size


def _tokens(word: str) -> Iterator[str]:
    """Yield an expression for each character of a word, and one for each run of backslashes inside it.

    Backslashes are matched possessively (`++`), from the first of a run: otherwise a text of nothing but
    backslashes would take forever. Those that end the word are counted, because the next one may escape
    something else.
    """
    runs = [(character, len(list(same))) for character, same in groupby(word)]
    escape, first = r"\\++", _FIRST
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
