"""A text → its pieces: what CodeSDK wrote, what is in an instruction file, and the rest.

Only literal matches count; nothing is guessed from what the text says about itself. `sources` applies this
to the texts of a request.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

import msgspec

BEGINNING_CHARS = 64
"""How much of a file's beginning must be present to recognize a truncated file.

A shorter file must be on lines of its own: otherwise one that says "the" would be found everywhere.
"""
MAX_PIECES = 1000
"""How many pieces are taken out of one text. The rest is not searched."""

MAX_STEPS = 600_000
"""How often one request's texts are searched for a piece. What is left then is the runtime's, like any other text."""

_LINE_REST = re.compile(r"[ \t]*\n?")
_OPENING, _CLOSING = re.compile(r"---[ \t]*\n"), re.compile(r"\n---[ \t]*(?:\n|$)")
_FIELD = re.compile(r"^(name|description):[ \t]*(?:[>|][+-]?[ \t]*\n)?((?:.*)(?:\n[ \t]+.*)*)", re.MULTILINE)
_OPENERS, _CLOSERS = "\n>", "\n<"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a text. Blank is white space, which needs no origin.

    `labels` are the files it comes from: more than one if they have the same text and nothing distinguishes
    them.
    """

    start: int
    end: int
    origin: Literal["own", "file", "runtime", "blank"]
    labels: Sequence[str] = ()
    extent: Literal["whole", "part"] | None = None


class Steps:
    """How much work is left for one request. A workspace decides how many files there are, and what they say."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self.left = most

    def take(self, count: int = 1) -> bool:
        """Count work that is about to be done; return whether it may be."""
        self.left -= count
        return self.left >= 0


class Cut:
    """A text being cut. Pieces are taken out of what is left, so they never overlap."""

    def __init__(self, text: str, steps: Steps) -> None:
        self.text = text
        self._steps = steps
        self._taken: list[Piece] = []
        self._left = [(0, len(text))] if text else []

    def take(self, piece: Piece) -> None:
        """Take a stretch that is still left."""
        self._taken.append(piece)
        self._steps.take(len(self._taken))
        self._taken.sort(key=lambda each: each.start)
        starts = [0, *(each.end for each in self._taken)]
        ends = [*(each.start for each in self._taken), len(self.text)]
        self._left = [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]

    def left(self) -> list[tuple[int, int]]:
        """Return the stretches not taken yet."""
        return self._left

    def find(self, wanted: str) -> Iterator[int]:
        """Yield where a text occurs in what is left. The caller may take it before requesting the next."""
        position = 0
        while wanted and len(self._taken) < MAX_PIECES:
            found = self._next(wanted, position)
            if found is None:
                return
            yield found
            position = found + 1  # not behind the match: the caller may have rejected it

    def _next(self, wanted: str, position: int) -> int | None:
        first = bisect_right(self._left, position, key=lambda stretch: stretch[1])
        for start, end in islice(self._left, first, None):
            if not self._steps.take():
                return None
            if (found := self.text.find(wanted, max(start, position), end)) >= 0:
                return found
        return None

    def pieces(self) -> list[Piece]:
        """Return the whole text as pieces, in order, without gaps."""
        rest = [
            Piece(start=start, end=end, origin="runtime" if self.text[start:end].strip() else "blank")
            for start, end in self.left()
        ]
        return sorted([*self._taken, *rest], key=lambda piece: piece.start)


class Pool:
    """Texts that CodeSDK sent. Each is recognized as often as it was sent, ignoring white space around it."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._left = Counter(text.strip() for text in texts)

    def claim(self, text: str) -> bool:
        """Return whether the whole text is one of them; if so, count it as found."""
        text = text.strip()
        if not text or self._left[text] <= 0:
            return False
        self._left[text] -= 1
        return True

    def claim_within(self, cut: Cut) -> None:
        """Take those that occur inside a longer text, on lines of their own or between tags."""
        # Longest first, so that a text contained in another one does not break it up.
        for text in sorted(+self._left, key=len, reverse=True):
            for start in cut.find(text):
                end = start + len(text)
                if self._left[text] > 0 and _stands_alone(cut.text, start, end):
                    self._left[text] -= 1
                    cut.take(Piece(start=start, end=end, origin="own"))


class Files:
    """Instruction files to look for, longer ones first. Depends on the files alone, so many requests can share it."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.given = files
        self._wholes: dict[str, list[str]] = {}
        self._announced: list[tuple[str, str, str]] = []
        for label, data in files.items():
            text = data.decode("utf-8", "replace").removeprefix("\ufeff")
            for form in _forms(text):
                self._wholes.setdefault(form, []).append(label)
            name, description = _front_matter(text, label)
            if description:
                self._announced.append((label, name, description))
        self._longest_first = sorted(self._wholes, key=len, reverse=True)

    def claim_within(self, cut: Cut) -> None:
        """Take whole files, then descriptions of skills, then beginnings of truncated files."""
        for form in self._longest_first:
            fits = _is_word if len(form) > BEGINNING_CHARS else _stands_alone
            for start in cut.find(form):
                if fits(cut.text, start, start + len(form)):
                    self._take(cut, start, start + len(form), form, "whole")
        for label, name, description in self._announced:
            _take_announcement(cut, label, name, description)
        for form in self._longest_first:
            beginning = form[:BEGINNING_CHARS]
            for start in cut.find(beginning) if len(form) > BEGINNING_CHARS else ():
                # The match may go on only to the end of its stretch: what follows is taken already.
                limit = next(end for begin, end in cut.left() if begin <= start < end)
                end = start + _common(form, cut.text[start : min(limit, start + len(form))])
                self._take(cut, start, end, form, "part")

    def _take(self, cut: Cut, start: int, end: int, form: str, extent: Literal["whole", "part"]) -> None:
        before = cut.text[max(begin for begin, _ in cut.left() if begin <= start) : start]
        labels = _named(self._wholes[form], before)
        cut.take(Piece(start=start, end=end, origin="file", labels=labels, extent=extent))


def _forms(text: str) -> list[str]:
    """Return the forms a runtime may give a file without changing what it says, without duplicates."""
    plain = text.replace("\r\n", "\n")
    body = _split_front_matter(plain)[1]
    forms = (text, plain, _without_comments(plain), body, _without_comments(body))
    return [form for form in dict.fromkeys(form.strip() for form in forms) if form]


def _without_comments(text: str) -> str:
    """Return a text without HTML comments, in one pass: an expression would look for an end from every beginning."""
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        kept.append(text[at:start])
        rest = _LINE_REST.match(text, end + 3)
        at = rest.end() if rest else end + 3
    return "".join([*kept, text[at:]])


def _split_front_matter(text: str) -> tuple[str, str]:
    """Return the front matter, empty if there is none, and what follows."""
    opening = _OPENING.match(text)
    closing = opening and _CLOSING.search(text, opening.end())
    return (
        (text[opening.end() : closing.start()], text[closing.end() :]) if opening and closing else ("", text)
    )


def _front_matter(text: str, label: str) -> tuple[str, str]:
    """Return name and description of a skill, agent or command; the folder's name if it has none."""
    fields = dict(_FIELD.findall(_split_front_matter(text.replace("\r\n", "\n"))[0]))
    values = {key: " ".join(value.split()).strip("\"'") for key, value in fields.items()}
    folder = label.rpartition("/")[0].rpartition("/")[2]
    return values.get("name") or folder, values.get("description", "")


def _take_announcement(cut: Cut, label: str, name: str, description: str) -> None:
    """Take a description, or its beginning, that follows its name on one line."""
    line_end = named_at = -1
    for start in cut.find(description[:BEGINNING_CHARS]) if name else ():
        if start > line_end:  # one line may hold the beginning a million times: look for the name in it once
            line_start = max(line_end, cut.text.rfind("\n", max(line_end, 0), start)) + 1
            line_end = cut.text.find("\n", start)
            line_end = len(cut.text) if line_end < 0 else line_end
            named_at = cut.text.find(name, line_start, line_end)
        if 0 <= named_at <= start - len(name):
            limit = next(end for begin, end in cut.left() if begin <= start < end)
            end = start + _common(description, cut.text[start : min(limit, line_end)])
            cut.take(Piece(start=start, end=end, origin="file", labels=[label], extent="part"))


def _named(labels: Sequence[str], before: str) -> list[str]:
    """Return, of files with the same text, those whose path appears most fully in front of it."""
    lengths = [_path_length(label, before) for label in labels]
    longest = max(lengths)
    return [label for label, length in zip(labels, lengths, strict=True) if length == longest]


def _path_length(label: str, before: str) -> int:
    parts = label.split("/")
    tails = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((len(tail) for tail in tails if tail in before), 0)


def _common(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _stands_alone(text: str, start: int, end: int) -> bool:
    return (start == 0 or text[start - 1] in _OPENERS) and (end == len(text) or text[end] in _CLOSERS)


def _is_word(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    return not (before.isalnum() and text[start].isalnum()) and not (
        after.isalnum() and text[end - 1].isalnum()
    )
