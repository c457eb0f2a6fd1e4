"""An answer's text → the edits that remove secrets which a model streamed in pieces, over several events.

The texts of a stream's events are joined by the place they add to (the same block, the same field),
searched for secrets, and split again. `scrub` applies the edits.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from codesdk.redaction import Redactor

_PLACES = ("index", "output_index", "content_index", "summary_index", "item_id")
_ANY_PLACE = frozenset(_PLACES)


class Edit(NamedTuple):
    """Replace `start` to `end` of the joined text. Edits must be in order and must not overlap."""

    start: int
    end: int
    text: str


def find_scattered(text: str, redactor: Redactor) -> list[Edit]:
    """Return the edits that remove the secrets from an answer's events.

    Anything that is not JSON is skipped.
    """
    events = list(_events(text))
    threads: dict[tuple[str, ...], list[_Leaf]] = {}
    for event in events:
        for leaf in event.leaves():
            threads.setdefault(leaf.thread, []).append(leaf)
    for leaves in threads.values():
        texts = [leaf.text for leaf in leaves]
        edits = _secrets_in("".join(texts), redactor)
        if edits:
            for leaf, new in zip(leaves, splice(texts, edits), strict=True):
                leaf.replace(new)
    return [Edit(event.start, event.end, event.written()) for event in events if event.changed]


def splice(pieces: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Return the same number of pieces, edited; the cuts between them stay where they are.

    A replacement goes into the piece where the replaced text began.
    """
    if not edits:
        return list(pieces)
    spliced: list[str] = []
    left = list(reversed(edits))
    start = 0
    for piece in pieces:
        end = start + len(piece)
        parts: list[str] = []
        at = start
        while left and left[-1].start < end:
            edit = left[-1]
            if edit.start >= start:
                parts += (piece[at - start : edit.start - start], edit.text)
            at = min(edit.end, end)
            if edit.end > end:  # it goes on in the next piece, which loses its beginning
                break
            left.pop()
        parts.append(piece[at - start :])
        spliced.append("".join(parts))
        start = end
    return spliced


def _secrets_in(text: str, redactor: Redactor) -> list[Edit]:
    if not redactor.suspects(text):
        return []
    return [Edit(*match) for match in redactor.matches(text, 0)]


class _Event:
    """One JSON value of a stream and its position."""

    def __init__(self, start: int, end: int, value: Any) -> None:
        self.start = start
        self.end = end
        self.value = value
        self.changed = False

    def leaves(self) -> "Iterator[_Leaf]":
        """Yield the texts of the value; each element of an array counts as its own event."""
        value = self.value
        parts = cast("list[Any]", value) if isinstance(value, list) else [value]
        for part in parts:
            kind = str(cast("dict[str, Any]", part).get("type", "")) if isinstance(part, dict) else ""
            for holder, key, thread in _leaves(part, (kind, _place(part))):
                yield _Leaf(self, holder, key, thread)

    def written(self) -> str:
        """Return the value as JSON."""
        return msgspec.json.encode(self.value).decode()


class _Leaf:
    """A text inside an event, and the thread of texts that it continues."""

    def __init__(self, event: _Event, holder: Any, key: Any, thread: tuple[str, ...]) -> None:
        self._event = event
        self._holder = holder
        self._key = key
        self.thread = thread
        self.text: str = holder[key]

    def replace(self, text: str) -> None:
        if text != self.text:
            self._holder[self._key] = text
            self._event.changed = True


def _events(text: str) -> Iterator[_Event]:
    """Yield the JSON values of a stream: its `data:` lines, or the whole text if it is JSON."""
    start = 0
    for line in text.split("\n"):
        payload = line.removeprefix("data:").strip()
        if line.startswith("data:") and (value := _json(payload)) is not None:
            place = text.index(payload, start + 5)
            yield _Event(place, place + len(payload), value)
        start += len(line) + 1
    # Not a stream of events: an unstreamed answer, or Gemini's array.
    if (value := _json(text.strip())) is not None:
        yield _Event(0, len(text), value)


def _json(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def _place(value: Any) -> str:
    """Return the place a value adds to, which distinguishes texts streamed side by side."""
    if not isinstance(value, dict):
        return ""
    entries = cast("dict[str, Any]", value)
    if _ANY_PLACE.isdisjoint(entries):
        return ""
    return "/".join([str(entries.get(name, "")) for name in _PLACES])


def _leaves(value: Any, thread: tuple[str, ...]) -> Iterator[tuple[Any, Any, tuple[str, ...]]]:
    """Yield each text as its container and key, with the thread it belongs to."""
    if isinstance(value, dict):
        entries: Iterable[tuple[Any, Any]] = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        entries = list(enumerate(cast("list[Any]", value)))
    else:
        return
    for key, item in entries:
        below = (*thread, str(key))
        if isinstance(item, str):
            yield value, key, below
        elif isinstance(item, dict | list):
            yield from _leaves(item, (*below, _place(cast("Any", item))))
