"""Text, JSON values and bytes → the same without secrets: known values and what looks like a key becomes `[redacted]`.

The recorder puts everything through a `Redactor` before it is hashed, stored or shown, and every stream of deltas
through a `StreamRedactor` of its own, because a secret may arrive in pieces.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.redaction.patterns import FINISHED, MARKER, find_unfinished, may_contain, rest_of

_SHORTEST = 4
_FEW = 24
_CONTEXT = 16
_LONGEST_HOLD = 8192


class Redactor:
    """Replaces known secrets, also as they are spelled inside JSON, and the usual shapes of keys and tokens.

    Redacting twice changes nothing more. A known value must have at least four characters.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = tuple(secrets)
        """The known values, as they were given."""
        self._needles = sorted(
            {form for secret in self.secrets for form in _spellings(secret)}, key=_longest_first
        )
        words = list(self._needles)
        if any(needle in MARKER for needle in words):
            words.insert(0, MARKER)  # found first, it is left as it is
        known = "|".join(re.escape(word) for word in words)
        self._words = [(word, word[0], word[:2], len(word)) for word in words]
        self._any_known = re.compile(known) if words else None
        self._pattern = re.compile((f"{known}|" if words else "") + FINISHED, re.VERBOSE)
        self._known_bytes = re.compile(known.encode()) if words else None

    def text(self, text: str) -> str:
        """Return the text without secrets; the very same object if there are none."""
        if not self.suspects(text):
            return text
        while (redacted := self._pattern.sub(_replace, text)) != text:
            text = redacted  # what stood beside a secret may now stand alone
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON-like value with its strings and keys redacted; the very same object if nothing changed."""
        try:
            return self._value(value)
        except RecursionError:
            raise InvalidRequest("a value is nested too deeply to be searched for secrets") from None

    def data(self, data: bytes) -> bytes:
        """Return bytes without secrets: UTF-8 as text, anything else without the known values."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            if self._known_bytes is None:
                return data
            return self._known_bytes.sub(MARKER.encode(), data)
        redacted = self.text(text)
        return data if redacted is text else redacted.encode()

    def finds(self, data: bytes) -> bool:
        """Tell whether bytes hold a secret, whatever they are: a text, a database, a log that was cut off."""
        known = self._known_bytes.finditer(data) if self._known_bytes is not None else ()
        if any(match[0] != MARKER.encode() for match in known):
            return True
        text = data.decode("latin-1")
        return may_contain(text) and any(_replace(found) != found[0] for found in self.matches(text, 0))

    def stream(self) -> "StreamRedactor":
        """Return a redactor for one stream of deltas."""
        return StreamRedactor(self)

    def suspects(self, text: str) -> bool:
        """Tell quickly whether a secret could be in the text; False is certain."""
        if len(self._needles) > _FEW:
            if self._any_known is not None and self._any_known.search(text):
                return True
        else:
            for needle in self._needles:
                if needle in text:
                    return True
        return may_contain(text)

    def matches(self, text: str, start: int) -> Iterable[re.Match[str]]:
        """Return the secrets in a text from `start` on; what is before it counts as context."""
        return self._pattern.finditer(text, start)

    def find_cut(self, text: str, start: int, suspected: bool) -> int:
        """Return where a secret may begin that the end of the text cuts off; the length if nowhere."""
        cut = find_unfinished(text, start, suspected)
        size = len(text)
        for word, first, opening, length in self._words:
            at = text.find(opening, max(start, size - length + 1), cut + 1)
            while at >= 0 and not word.startswith(text[at:]):
                at = text.find(opening, at + 1, cut + 1)
            if at >= 0:
                cut = at
            elif cut == size > start and text[-1] == first:
                cut = size - 1
        return cut

    @property
    def longest(self) -> int:
        """The length of the longest known value."""
        return max((length for *_, length in self._words), default=0)

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
    """Redacts text that comes in pieces, holding back an end that may be the beginning of a secret.

    What `feed` and `flush` return, joined, is the redacted form of what was fed, joined.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._limit = max(_LONGEST_HOLD, redactor.longest)
        self._context = ""  # the end of what was let go, unredacted: what follows is judged by it
        self._held = ""
        self._dropping: re.Pattern[str] | None = None

    def feed(self, delta: str) -> str:
        """Take a piece; return what can be let go by now."""
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
        self._keep(text, cut)
        return text[start:cut]

    def flush(self) -> str:
        """Return what is left, at the end of the stream."""
        start = len(self._context)
        text = self._context + self._held
        return self._release(text, start, len(text))

    def _drop(self, delta: str) -> str:
        """Lose the rest of a secret that was too long to hold."""
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
            if match.end() > cut:  # the match is certain, so what is held begins behind it
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


def _longest_first(word: str) -> tuple[int, str]:
    return (-len(word), word)


def _spellings(secret: str) -> set[str]:
    """Return a secret as it is, and as it looks inside a JSON string and the repr of a value."""
    plain = secret.strip()
    if len(plain) < _SHORTEST:
        raise InvalidRequest(
            f"a secret must have at least {_SHORTEST} characters, or it would match everywhere"
        )
    try:
        escaped = msgspec.json.encode(plain)[1:-1].decode()
    except UnicodeEncodeError:
        raise InvalidRequest("a secret holds characters that no text can have; give it in UTF-8") from None
    return {_apart_from_marker(form) for form in (plain, escaped, json.dumps(plain)[1:-1], repr(plain)[1:-1])}


def _apart_from_marker(word: str) -> str:
    """Return a word without ends that a marker beside it could be taken for; redacting again must find nothing."""
    while overlap := max((n for n in range(1, len(MARKER)) if word.endswith(MARKER[:n])), default=0):
        word = word[:-overlap]
    while overlap := max((n for n in range(1, len(MARKER)) if word.startswith(MARKER[-n:])), default=0):
        word = word[overlap:]
    if len(word) < _SHORTEST or MARKER in word:
        raise InvalidRequest(f"a secret cannot be told from the marker {MARKER} that replaces it; change it")
    return word
