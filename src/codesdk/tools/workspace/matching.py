"""Where a text occurs in a file, and why it does not occur where a model expects it."""

import re
from collections.abc import Hashable, Sequence
from itertools import islice

_NUMBERED = re.compile(r"\s*\d+\t")
_SHOWN = 5


def find_all(data: bytes, wanted: bytes, most: int) -> list[int]:
    """Return where `wanted` begins, including overlapping occurrences; the first `most` of them.

    Each of them is a search of its own, so without a bound a file of one letter would be compared with itself.
    """
    places: list[int] = []
    at = data.find(wanted)
    while at >= 0 and len(places) < most:
        places.append(at)
        at = data.find(wanted, at + 1)
    return places


def find_lines(lines: Sequence[Hashable], wanted: Sequence[Hashable], most: int, first: int = 0) -> list[int]:
    """Return where a run of lines begins, from `first` on, including overlapping ones; the first `most` of them.

    Each line is looked at twice at most (Knuth, Morris, Pratt), whatever the lines are. `wanted` must not be empty.
    """
    numbers = {line: number for number, line in enumerate(wanted)}  # so that long lines are compared once
    pattern = [numbers[line] for line in wanted]
    back = [0] * len(pattern)  # how much of a failed match may still be the beginning of one
    size = 0
    for at in range(1, len(pattern)):
        while size and pattern[at] != pattern[size]:
            size = back[size - 1]
        size += pattern[at] == pattern[size]
        back[at] = size
    places: list[int] = []
    size = 0
    for at in range(first, len(lines)):
        number = numbers.get(lines[at], -1)
        while size and (size == len(pattern) or number != pattern[size]):
            size = back[size - 1]
        size += number == pattern[size]
        if size == len(pattern):
            places.append(at - size + 1)
            if len(places) == most:
                break
    return places


def line_of(data: bytes, at: int) -> int:
    """Return the line number, from 1, of a position."""
    return data.count(b"\n", 0, at) + 1


def no_match(path: str, data: bytes, old: str) -> str:
    """Return, for the model, why its text was not found."""
    start = f"The old text was not found in {path}. Nothing was changed."
    if b"\r\n" in data and "\n" in old and "\r\n" not in old:
        return f"{start} The file has Windows line ends (\\r\\n) and the old text has \\n; use \\r\\n in both texts."
    lines = old.split("\n")
    if all(_NUMBERED.match(line) for line in lines if line):  # copied from what reading it showed
        return f"{start} Leave out the line numbers: they are not part of the file."
    similar = _similar(data, lines)
    if similar:
        places = ", ".join(map(str, similar[:_SHOWN]))
        there = f"The text at line {places}" if len(similar) == 1 else f"Texts at lines {places}"
        return f"{start} {there} would match without its white space; copy the text exactly."
    return f"{start} Read the file again and copy the text exactly."


def _similar(data: bytes, wanted: list[str]) -> list[int]:
    """Return the first lines at which `wanted` begins if white space is ignored."""
    bare = ["".join(line.split()) for line in wanted]
    while bare and not bare[0]:
        bare.pop(0)
    while bare and not bare[-1]:
        bare.pop()
    if not bare:
        return []
    there = ["".join(line.split()) for line in data.decode("utf-8", "replace").split("\n")]
    if len(bare) == 1:
        places = (at for at, line in enumerate(there) if bare[0] in line)
    else:
        # The lines between the first and the last one are there whole; without any, every line may be the first.
        middle = bare[1:-1]
        starts = (
            [at - 1 for at in find_lines(there, middle, len(there), first=1)]
            if middle
            else range(len(there) - 1)
        )
        places = (at for at in starts if _begins(there, bare, at))
    return [at + 1 for at in islice(places, _SHOWN + 1)]


def _begins(there: list[str], bare: list[str], at: int) -> bool:
    last = at + len(bare) - 1
    return last < len(there) and there[at].endswith(bare[0]) and there[last].startswith(bare[-1])
