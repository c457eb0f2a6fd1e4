"""Where a text occurs in a file, and why it does not occur where a model expects it."""

import re

_NUMBERED = re.compile(r"\s*\d+\t")
_SHOWN = 5


def find_all(data: bytes, wanted: bytes) -> list[int]:
    """Return where `wanted` begins, including overlapping occurrences."""
    places: list[int] = []
    at = data.find(wanted)
    while at >= 0:
        places.append(at)
        at = data.find(wanted, at + 1)
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
    """Return the lines at which `wanted` begins if white space is ignored."""
    bare = ["".join(line.split()) for line in wanted]
    while bare and not bare[0]:
        bare.pop(0)
    while bare and not bare[-1]:
        bare.pop()
    if not bare:
        return []
    there = ["".join(line.split()) for line in data.decode("utf-8", "replace").split("\n")]
    last = len(there) - len(bare) + 1
    return [i + 1 for i in range(last) if bare[0] in there[i] and _same(there[i : i + len(bare)], bare)]


def _same(there: list[str], bare: list[str]) -> bool:
    if len(bare) == 1:
        return True
    return there[0].endswith(bare[0]) and there[1:-1] == bare[1:-1] and there[-1].startswith(bare[-1])
