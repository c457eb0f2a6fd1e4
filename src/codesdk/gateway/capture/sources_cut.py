"""A text → its pieces: what CodeSDK wrote, what is in an instruction file, and the rest.

Only literal matches count; nothing is guessed from what the text says about itself. `sources` applies this
to the texts of a request.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

BEGINNING_CHARS = 64
"""How much of a file's beginning must be present to recognize a truncated file.

A shorter file must be on lines of its own: otherwise one that says "the" would be found everywhere.
"""
MAX_PIECES = 1000
"""How many pieces are taken out of one text. The rest is not searched."""

_COMMENT = re.compile(r"<!--.*?-->[ \t]*\n?", re.DOTALL)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)
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


class Cut:
    """A text being cut. Pieces are taken out of what is left, so they never overlap."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._taken: list[Piece] = []
        self._left = [(0, len(text))] if text else []

    def take(self, piece: Piece) -> None:
        """Take a stretch that is still left."""
        self._taken.append(piece)
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
            places = (self.text.find(wanted, max(start, position), end) for start, end in self.left())
            found = next((place for place in places if place >= 0), None)
            if found is None:
                return
            yield found
            position = found + 1  # not behind the match: the caller may have rejected it

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
    """Instruction files to look for, longer ones first."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
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
                end = start + _common(form, cut.text[start:limit])
                self._take(cut, start, end, form, "part")

    def _take(self, cut: Cut, start: int, end: int, form: str, extent: Literal["whole", "part"]) -> None:
        before = cut.text[max(begin for begin, _ in cut.left() if begin <= start) : start]
        labels = _named(self._wholes[form], before)
        cut.take(Piece(start=start, end=end, origin="file", labels=labels, extent=extent))


def _forms(text: str) -> list[str]:
    """Return the forms a runtime may give a file without changing what it says, without duplicates."""
    plain = text.replace("\r\n", "\n")
    body = _FRONT_MATTER.sub("", plain, count=1) if plain.startswith("---") else plain
    forms = (form.strip() for form in (text, plain, _COMMENT.sub("", plain), body, _COMMENT.sub("", body)))
    return [form for form in dict.fromkeys(forms) if form]


def _front_matter(text: str, label: str) -> tuple[str, str]:
    """Return name and description of a skill, agent or command; the folder's name if it has none."""
    found = _FRONT_MATTER.match(text.replace("\r\n", "\n"))
    fields = dict(_FIELD.findall(found[1])) if found else {}
    values = {key: " ".join(value.split()).strip("\"'") for key, value in fields.items()}
    folder = label.rpartition("/")[0].rpartition("/")[2]
    return values.get("name") or folder, values.get("description", "")


def _take_announcement(cut: Cut, label: str, name: str, description: str) -> None:
    """Take a description, or its beginning, that follows its name on one line."""
    for start in cut.find(description[:BEGINNING_CHARS]):
        line_start, line_end = cut.text.rfind("\n", 0, start) + 1, cut.text.find("\n", start)
        limit = next(end for begin, end in cut.left() if begin <= start < end)
        limit = min(limit, line_end) if line_end >= 0 else limit
        if name and name in cut.text[line_start:start]:
            end = start + _common(description, cut.text[start:limit])
            cut.take(Piece(start=start, end=end, origin="file", labels=[label], extent="part"))


def _named(labels: Sequence[str], before: str) -> list[str]:
    """Return, of files with the same text, those whose path appears most fully in front of it."""
    lengths = [_path_length(label, before) for label in labels]
    return [label for label, length in zip(labels, lengths, strict=True) if length == max(lengths)]


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
