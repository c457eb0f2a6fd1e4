"""Text, JSON values and bytes → the same with known secrets and anything shaped like a key as `[redacted]`.

`Redactor` works on complete data, `StreamRedactor` on text that arrives in pieces. Everything stored for a
session passes through the session's choke point, which holds its redactor. `patterns` has the shapes,
`spellings` the ways to write a known value.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.redaction.encodings import any_percent_escape, by_telling_character
from codesdk.redaction.patterns import (
    FINISHED,
    HEADS,
    LAST_TWO,
    MARKER,
    TOKEN,
    find_unfinished,
    may_contain,
    rest_of,
)
from codesdk.redaction.spellings import LONGEST_ESCAPE, Escaped, spelling_of

_FEW = 24  # up to this many needles, one `in` each is faster than an expression of all of them
_SHORT = 2_000  # in a longer text, too: that expression looks for each needle from every place on
_BEGINNING = 16
_MOST_STEPS = 20_000  # for one piece: a secret that repeats itself could begin everywhere in a text like it
_CONTEXT = 16
_LONGEST_HOLD = (
    8192  # of what is only shaped like a secret, so that a stream that looks like an endless one cannot stall
)
_GROWTH = (
    8  # a longer hold is searched again when it has grown by an eighth: each search is of all that is held
)


class Match(NamedTuple):
    """A part of a text that must go, and what comes in its place."""

    start: int
    end: int
    replacement: str


Search = Callable[[str, int], Match | None]
"""Finds the first match in a text from a place on; the text before it is context only."""


class Redactor:
    """Replaces known secrets, in any JSON spelling, and the usual shapes of keys and tokens.

    Redacting twice gives the same as redacting once. A known value must have at least four characters.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = tuple(secrets)
        """The known values, as given."""
        self.looked_at: str | None = None
        """The last text a stream released without suspicion: the choke point need not scan it again."""
        self._spellings = [spelling_of(secret) for secret in self.secrets]
        usual = {form for spelling in self._spellings for form in spelling.usual}
        encoded = {form for spelling in self._spellings for form in spelling.encoded} - usual
        self._needles = sorted(usual, key=_longest_first)
        self._words = sorted(usual | encoded, key=_longest_first)
        if any(needle in MARKER for needle in self._needles):
            self._words.insert(0, MARKER)  # matched first, so no secret is found inside a marker
        self._encoded = by_telling_character(encoded)
        # No spelling is shorter than these, so most texts are seen to be free of them at once.
        lengths = [*map(len, self._needles), *(spelling.shortest for spelling in self._spellings)]
        self._shortest = min(lengths, default=sys.maxsize)
        self._shortest_encoded = min(map(len, encoded), default=sys.maxsize)
        special = any(spelling.special for spelling in self._spellings)
        self._escapes = ("\\",) if special else ("\\u", "\\x", "\\U")

    def prepare(self) -> "Redactor":
        """Make all that is made on first use. For another thread: with long secrets it takes a while."""
        for spelling in self._spellings:
            spelling.backslashed.prepare()
            spelling.percented.prepare()
        return self

    def text(self, text: str) -> str:
        """Return the text without secrets; the same object if there are none."""
        if not self.suspects(text):
            return text
        while (redacted := _without(text, self.matches(text, 0))) != text:
            text = redacted  # a removed secret may uncover another one beside it
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON-like value with its strings and keys redacted; the same object if nothing changed."""
        try:
            return self._value(value)
        except RecursionError:
            raise InvalidRequest(
                "A value is nested too deeply to be searched for secrets. Make it flatter."
            ) from None

    def data(self, data: bytes) -> bytes:
        """Return bytes without secrets: UTF-8 as text; in other bytes only known values are replaced."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode(errors="surrogateescape")
            redacted = _without(text, _in_turn(self._known_in(text), text, 0))
            return data if redacted == text else redacted.encode(errors="surrogateescape")
        redacted = self.text(text)
        return data if redacted is text else redacted.encode()

    def finds(self, data: bytes) -> bool:
        """Return whether any bytes hold a secret: text, a database, a truncated log."""
        text = data.decode(errors="surrogateescape")
        if any(text[at:end] != MARKER for at, end, _ in _in_turn(self._known_in(text), text, 0)):
            return True
        text = data.decode("latin-1")  # never fails, and keeps the ASCII that keys and tokens consist of
        return may_contain(text) and any(text[at:end] != new for at, end, new in self.matches(text, 0))

    def stream(self) -> "StreamRedactor":
        """Return a redactor for one stream of deltas."""
        return StreamRedactor(self)

    def suspects(self, text: str) -> bool:
        """Return quickly whether a secret could be in the text; False is certain."""
        if len(text) < self._shortest:
            return may_contain(text)
        if len(self._needles) <= _FEW or len(text) > _SHORT or self._any_usual.search(text):
            for needle in self._needles:
                if needle in text:
                    return True
        if len(text) >= self._shortest_encoded and self._holds_encoded(text):
            return True
        if ("\\" in text or "%" in text) and any(value.find(text, 0) for value in self._escaped_in(text)):
            return True
        return may_contain(text)

    def matches(self, text: str, start: int) -> Iterable[Match]:
        """Return what must go from a text, from `start` on; the text before it is context only."""
        return _in_turn([*self._known_in(text), _shape], text, start)

    def find_cut(self, text: str, start: int, suspected: bool) -> int:
        """Return where a secret cut off by the end of the text may begin, or the text's length.

        A known one is found whole, however it is spelled: what comes behind a part of it would be let out.
        """
        cut = size = len(text)
        last, one = text[-2:], text[-1:]
        if suspected or last in LAST_TWO or one in LAST_TWO:  # every delta comes here, and most end otherwise
            cut = find_unfinished(text, start, suspected)
            if size - cut > _LONGEST_HOLD:
                cut = size
        if size > 1 and last in self._all_words:
            for word in self._words:
                if last in word:
                    cut = min(cut, _find_begun(word, text, start))
        if cut == size > start and one in self._openings:
            cut = size - 1
        if self._spellings and ("\\" in text or "%" in text):
            cut = min(cut, self._find_escaped(text, start))
        return cut

    @property
    def longest_plain(self) -> int:
        """The length of the longest known value."""
        return max((len(spelling.plain) for spelling in self._spellings), default=0)

    @property
    def longest(self) -> int:
        """The length of the longest form of a known value."""
        return max(map(len, self._words), default=0)

    def _holds_encoded(self, text: str) -> bool:
        for telling, forms in self._encoded:
            if telling in text:
                for form in forms:
                    if form in text:
                        return True
        return False

    def _find_escaped(self, text: str, start: int) -> int:
        reach = max(start, len(text) - LONGEST_ESCAPE * self.longest_plain)
        cut, steps = len(text), _MOST_STEPS
        for spelling in self._spellings:
            if steps < 0:
                return reach
            if "\\" in text:
                begun, steps = spelling.backslashed.find_begun(text, reach, steps)
                cut = min(cut, begun)
            if "%" in text:
                begun, steps = spelling.percented.find_begun(text, reach, steps)
                cut = min(cut, begun)
        return cut

    def _escaped_in(self, text: str) -> list[Escaped]:
        """Return the known values of which a text may hold spellings with escapes."""
        found: list[Escaped] = []
        if "\\" in text and any(escape in text for escape in self._escapes):
            found += [spelling.backslashed for spelling in self._spellings]
        if "%" in text and self._spellings and self._percent_escape.search(text):
            found += [spelling.percented for spelling in self._spellings]
        return found

    def _known_in(self, text: str) -> list[Search]:
        """Return the searches for known values that may find some in a text."""
        words = [functools.partial(_word, word) for word in self._words if word in text]
        return [*words, *(functools.partial(_escaped, value) for value in self._escaped_in(text))]

    # What only streams or suspicious texts need is made on first use: expressions are slow to compile.

    @functools.cached_property
    def _openings(self) -> frozenset[str]:
        return frozenset(word[0] for word in self._words)

    @functools.cached_property
    def _all_words(self) -> str:
        """All words, one behind the other: a text that ends with two characters that are not in here cuts none of them off."""
        return "\0".join(self._words)

    @functools.cached_property
    def _any_usual(self) -> re.Pattern[str]:
        return re.compile("|".join({re.escape(needle[:_BEGINNING]) for needle in self._needles}))

    @functools.cached_property
    def _percent_escape(self) -> re.Pattern[str]:
        return any_percent_escape(spelling.plain for spelling in self._spellings)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._mapping(cast("dict[Any, Any]", value))
        if isinstance(value, list | tuple):
            return self._sequence(cast("list[Any]", value))
        if isinstance(value, bytes):
            return self.data(value)
        return value

    def _sequence(self, value: list[Any]) -> list[Any]:
        changed = [self._value(item) for item in value]
        return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        changed = {self._value(key): self._value(item) for key, item in value.items()}
        if len(changed) == len(value):
            pairs = zip(changed.items(), value.items(), strict=True)
            if all(new[0] is old[0] and new[1] is old[1] for new, old in pairs):
                return value
        return changed


class StreamRedactor:
    """Redacts text that arrives in pieces, holding back an end that may begin a secret.

    Everything returned by `feed` and `flush`, joined, equals the redacted form of everything fed, joined.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._context = ""  # the end of what was released, redacted: a match may look back at it
        self._held = ""
        self._unsearched: list[str] = []
        self._unsearched_chars = 0
        self._dropping: re.Pattern[str] | None = None

    def feed(self, delta: str) -> str:
        """Take a piece; return what can be released now."""
        if self._dropping is not None and (delta := self._drop(delta)) == "":
            return ""
        if len(self._held) > _LONGEST_HOLD and (delta := self._gather(delta)) == "":
            return ""
        start = len(self._context)
        text = self._context + self._held + delta
        suspected = self._redactor.suspects(text)
        cut = self._redactor.find_cut(text, start, suspected)
        if suspected:
            return self._release(text, start, cut)
        released = delta if cut == len(text) and not self._held else text[start:cut]
        self._context = text[cut - _CONTEXT : cut] if cut > _CONTEXT else text[:cut]
        self._held = text[cut:]
        self._redactor.looked_at = released
        return released

    def flush(self) -> str:
        """End the stream; return what was held back."""
        start = len(self._context)
        text = self._context + self._held + "".join(self._unsearched)
        self._unsearched, self._unsearched_chars = [], 0
        return self._release(text, start, len(text), ends=True)

    def _gather(self, delta: str) -> str:
        """Keep a piece behind a long hold until it is worth another search; then return all such pieces."""
        self._unsearched.append(delta)
        self._unsearched_chars += len(delta)
        if self._unsearched_chars * _GROWTH < len(self._held):
            return ""
        gathered, self._unsearched, self._unsearched_chars = "".join(self._unsearched), [], 0
        return gathered

    def _drop(self, delta: str) -> str:
        """Drop the rest of a secret that was too long to hold back."""
        assert self._dropping is not None
        match = self._dropping.match(delta)
        delta = delta[match.end() :] if match is not None else delta
        if delta:
            self._dropping = None
        return delta

    def _release(self, text: str, start: int, cut: int, *, ends: bool = False) -> str:
        """Return what is before the cut without secrets, and hold the rest; where the stream `ends`, there is none."""
        while True:
            redacted, at = self._replace(text, start, cut)
            cut += len(redacted) - len(text)
            if redacted == text:
                break
            text = redacted  # a removed secret may uncover another one beside it
            cut = len(text) if ends else min(max(cut, at), self._redactor.find_cut(text, at, True))
        self._keep(text, cut)
        return text[start:cut]

    def _replace(self, text: str, start: int, cut: int) -> tuple[str, int]:
        """Return a text without the secrets that begin before the cut, and where the last one was."""
        parts = [text[:start]]
        at = start
        for found, end, replacement in self._redactor.matches(text, start):
            if found >= cut:
                break
            if end > cut:  # a complete match is released at once; hold back only what follows it
                cut = self._redactor.find_cut(text, end, True)
            parts += (text[at:found], replacement)
            at = end
            if at == len(text) and at - found > _LONGEST_HOLD and find_unfinished(text, found, True) == found:
                self._dropping = rest_of(text[found:])
        before = "".join(parts)
        return before + text[at:], len(before)

    def _keep(self, text: str, cut: int) -> None:
        self._context = text[max(0, cut - _CONTEXT) : cut]
        self._held = text[cut:]


# Words are searched for by `str.find`, which is linear, and all searches side by side: one expression of them all would
# compare each with the text from every place on, and be compiled again for each session.


def _word(word: str, text: str, start: int) -> Match | None:
    at = text.find(word, start)
    return None if at < 0 else Match(at, at + len(word), MARKER)


def _escaped(value: Escaped, text: str, start: int) -> Match | None:
    found = value.find(text, start)
    return None if found is None else Match(*found, MARKER)


def _shape(text: str, start: int) -> Match | None:
    found = _shapes().search(text, start)
    return None if found is None else Match(found.start(), found.end(), (found["user"] or "") + MARKER)


def _uncovered(text: str, start: int) -> Match | None:
    """Return the key that begins right behind a secret: once that is gone, it is not inside a word any more."""
    found = _token().match(text, start) if text.startswith(HEADS, start) else None
    return None if found is None else Match(start, found.end(), MARKER)


@functools.cache
def _token() -> re.Pattern[str]:
    return re.compile(TOKEN, re.VERBOSE)


@functools.cache
def _shapes() -> re.Pattern[str]:
    return re.compile(FINISHED, re.VERBOSE)  # on first use: compiling it takes milliseconds


def _in_turn(searches: Sequence[Search], text: str, start: int) -> Iterator[Match]:
    """Yield what the searches find, one behind the other, the first searches preferred."""
    nexts = [
        (found.start, number, found)
        for number, search in enumerate(searches)
        if (found := search(text, start))
    ]
    heapify(nexts)
    while nexts:
        first = nexts[0][2]
        yield first
        if (behind := _uncovered(text, first.end)) is not None:
            heappush(nexts, (behind.start, len(searches), behind))
        while nexts and nexts[0][0] < first.end:
            number = nexts[0][1]
            found = searches[number](text, first.end) if number < len(searches) else None
            if found is None:
                heappop(nexts)
            else:
                heapreplace(nexts, (found.start, number, found))


def _without(text: str, matches: Iterable[Match]) -> str:
    """Return a text with its matches replaced."""
    parts: list[str] = []
    at = 0
    for start, end, replacement in matches:
        parts += (text[at:start], replacement)
        at = end
    return "".join((*parts, text[at:])) if parts else text


def _find_begun(word: str, text: str, start: int) -> int:
    """Return where the word begins that the text's end cuts off, or the text's length."""
    at = text.find(word[:2], max(start, len(text) - len(word) + 1))
    while at >= 0 and not word.startswith(text[at:]):
        at = text.find(word[:2], at + 1)
    return at if at >= 0 else len(text)


def _longest_first(word: str) -> tuple[int, str]:
    return (-len(word), word)
