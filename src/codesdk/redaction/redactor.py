"""Text, JSON values and bytes → the same with known secrets and anything shaped like a key as `[redacted]`.

`Redactor` works on complete data, `StreamRedactor` on text that arrives in pieces. Everything stored for a
session passes through the session's choke point, which holds its redactor. `patterns` has the shapes,
`spellings` the ways to write a known value.
"""

import functools
import re
import sys
from collections.abc import Iterable
from typing import Any, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.redaction.encodings import any_percent_escape, by_telling_character
from codesdk.redaction.patterns import FINISHED, LAST_TWO, MARKER, find_unfinished, may_contain, rest_of
from codesdk.redaction.spellings import Spelling

_FEW = 24  # up to this many needles, one `in` each is faster than an expression of all of them
_LONGEST_ESCAPE = 20  # four bytes as `%25XX`; a pair of `\\uXXXX`, quoted once more, has 12
_CONTEXT = 16
_LONGEST_HOLD = 8192  # so that a stream that looks like one endless secret cannot stall


class Redactor:
    """Replaces known secrets, in any JSON spelling, and the usual shapes of keys and tokens.

    Redacting twice gives the same as redacting once. A known value must have at least four characters.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = tuple(secrets)
        """The known values, as given."""
        self.looked_at: str | None = None
        """The last text a stream released without suspicion: the choke point need not scan it again."""
        self._spellings = [Spelling(secret) for secret in self.secrets]
        usual = {form for spelling in self._spellings for form in spelling.usual}
        encoded = {form for spelling in self._spellings for form in spelling.encoded} - usual
        self._needles = sorted(usual, key=_longest_first)
        self._words = sorted(usual | encoded, key=_longest_first)
        if any(needle in MARKER for needle in self._needles):
            self._words.insert(0, MARKER)  # matched first, so no secret is found inside a marker
        self._encoded = by_telling_character(encoded)
        # No spelling is shorter than these, so most texts are seen to be free of them at once.
        self._shortest = min(map(len, self._needles), default=sys.maxsize)
        self._shortest_encoded = min(map(len, encoded), default=sys.maxsize)
        special = any(spelling.special for spelling in self._spellings)
        self._escapes = ("\\",) if special else ("\\u", "\\x", "\\U")

    def text(self, text: str) -> str:
        """Return the text without secrets; the same object if there are none."""
        if not self.suspects(text):
            return text
        while (redacted := self._pattern_for(text).sub(_replace, text)) != text:
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
            return data if not self.secrets else self._known_bytes.sub(MARKER.encode(), data)
        redacted = self.text(text)
        return data if redacted is text else redacted.encode()

    def finds(self, data: bytes) -> bool:
        """Return whether any bytes hold a secret: text, a database, a truncated log."""
        known = self._known_bytes.finditer(data) if self.secrets else ()
        if any(match[0] != MARKER.encode() for match in known):
            return True
        text = data.decode("latin-1")  # never fails, and keeps the ASCII that keys and tokens consist of
        return may_contain(text) and any(_replace(found) != found[0] for found in self.matches(text, 0))

    def stream(self) -> "StreamRedactor":
        """Return a redactor for one stream of deltas."""
        return StreamRedactor(self)

    def suspects(self, text: str) -> bool:
        """Return quickly whether a secret could be in the text; False is certain."""
        if len(text) < self._shortest:
            return may_contain(text)
        if len(self._needles) > _FEW:
            if self._any_usual.search(text):
                return True
        else:
            for needle in self._needles:
                if needle in text:
                    return True
        if len(text) >= self._shortest_encoded and self._holds_encoded(text):
            return True
        if "\\" in text and self._has_escapes(text) and self._any_backslashed.search(text):
            return True
        if "%" in text and self._percent_escape.search(text) and self._any_percented.search(text):
            return True
        return may_contain(text)

    def matches(self, text: str, start: int) -> Iterable[re.Match[str]]:
        """Return the matches in a text from `start` on; the text before it is context only."""
        return self._pattern_for(text).finditer(text, start)

    def find_cut(self, text: str, start: int, suspected: bool) -> int:
        """Return where a secret cut off by the end of the text may begin, or the text's length."""
        cut = size = len(text)
        last, one = text[-2:], text[-1:]
        if suspected or last in LAST_TWO or one in LAST_TWO:  # every delta comes here, and most end otherwise
            cut = find_unfinished(text, start, suspected)
        for word in self._by_pair.get(last, ()):
            cut = min(cut, _find_begun(word, text, start))
        if cut == size > start and one in self._openings:
            cut = size - 1
        if self._spellings and ("\\" in text or "%" in text):
            cut = min(cut, self._find_escaped(text, start))
        return cut

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
        reach = max(start, len(text) - _LONGEST_ESCAPE * self.longest)
        cut = len(text)
        for spelling in self._spellings:
            if "\\" in text:
                cut = min(cut, spelling.backslashed.find_begun(text, reach))
            if "%" in text:
                cut = min(cut, spelling.percented.find_begun(text, reach))
        return cut

    def _has_escapes(self, text: str) -> bool:
        return any(escape in text for escape in self._escapes)

    def _pattern_for(self, text: str) -> re.Pattern[str]:
        if not self.secrets:
            return self._plain_pattern
        escaped = ("\\" in text and self._has_escapes(text)) or (
            "%" in text and self._percent_escape.search(text) is not None
        )
        return self._full_pattern if escaped else self._plain_pattern

    # What only streams or suspicious texts need is made on first use: expressions are slow to compile.

    @functools.cached_property
    def _openings(self) -> frozenset[str]:
        return frozenset(word[0] for word in self._words)

    @functools.cached_property
    def _by_pair(self) -> dict[str, list[str]]:
        """The words by each two characters in a row: a text that ends with others cuts none of them off."""
        found: dict[str, list[str]] = {}
        for word in self._words:
            for pair in {word[at : at + 2] for at in range(len(word) - 2)}:
                found.setdefault(pair, []).append(word)
        return found

    @functools.cached_property
    def _any_usual(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._needles)))

    @functools.cached_property
    def _percent_escape(self) -> re.Pattern[str]:
        return any_percent_escape(spelling.plain for spelling in self._spellings)

    @functools.cached_property
    def _any_backslashed(self) -> re.Pattern[str]:
        return re.compile("|".join(spelling.backslashed.expression for spelling in self._spellings))

    @functools.cached_property
    def _any_percented(self) -> re.Pattern[str]:
        return re.compile("|".join(spelling.percented.expression for spelling in self._spellings))

    @functools.cached_property
    def _plain_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join([*map(re.escape, self._words), FINISHED]), re.VERBOSE)

    @functools.cached_property
    def _known(self) -> str:
        escaped = [
            expression
            for spelling in self._spellings
            for expression in (spelling.backslashed.expression, spelling.percented.expression)
        ]
        return "|".join([*map(re.escape, self._words), *escaped])

    @functools.cached_property
    def _full_pattern(self) -> re.Pattern[str]:
        return re.compile(f"{self._known}|{FINISHED}", re.VERBOSE)

    @functools.cached_property
    def _known_bytes(self) -> re.Pattern[bytes]:
        return re.compile(self._known.encode())

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
        self._limit = max(_LONGEST_HOLD, redactor.longest)
        self._context = ""  # the unredacted end of what was released: a match may look back at it
        self._held = ""
        self._dropping: re.Pattern[str] | None = None

    def feed(self, delta: str) -> str:
        """Take a piece; return what can be released now."""
        if self._dropping is not None and (delta := self._drop(delta)) == "":
            return ""
        start = len(self._context)
        text = self._context + self._held + delta
        suspected = self._redactor.suspects(text)
        cut = self._redactor.find_cut(text, start, suspected)
        if len(text) - cut > self._limit:
            cut = len(text)
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
        text = self._context + self._held
        return self._release(text, start, len(text))

    def _drop(self, delta: str) -> str:
        """Drop the rest of a secret that was too long to hold back."""
        assert self._dropping is not None
        match = self._dropping.match(delta)
        delta = delta[match.end() :] if match is not None else delta
        if delta:
            self._dropping = None
        return delta

    def _release(self, text: str, start: int, cut: int) -> str:
        parts: list[str] = []
        at = start
        for match in self._redactor.matches(text, start):
            if match.start() >= cut:
                break
            if match.end() > cut:  # a complete match is released at once; hold back only what follows it
                cut = self._redactor.find_cut(text, match.end(), True)
            parts += (text[at : match.start()], _replace(match))
            at = match.end()
            if at == len(text) and at - match.start() > self._limit:
                self._dropping = rest_of(match[0])
        parts.append(text[at:cut])
        self._keep(text, cut)
        return "".join(parts)

    def _keep(self, text: str, cut: int) -> None:
        self._context = text[max(0, cut - _CONTEXT) : cut]
        self._held = text[cut:]


def _replace(match: re.Match[str]) -> str:
    return (match["user"] or "") + MARKER


def _find_begun(word: str, text: str, start: int) -> int:
    """Return where the word begins that the text's end cuts off, or the text's length."""
    at = text.find(word[:2], max(start, len(text) - len(word) + 1))
    while at >= 0 and not word.startswith(text[at:]):
        at = text.find(word[:2], at + 1)
    return at if at >= 0 else len(text)


def _longest_first(word: str) -> tuple[int, str]:
    return (-len(word), word)
