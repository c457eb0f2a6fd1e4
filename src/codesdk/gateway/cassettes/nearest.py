"""A request that replay does not know → the most similar recorded one, and where the two differ.

Both are compared as flat maps of JSON pointers to values, so that the difference fits in a few lines.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

MAX_DIFFERENCES = 8
_AROUND = 60
_COMPARED = 2000
Flat = dict[str, Any]
_absent = object()  # stands where a value is missing


class Nearest(NamedTuple):
    """The index of the most similar candidate, and how much of it is the same, from 0 to 1."""

    place: int
    likeness: float


def flatten(value: Any) -> Flat:
    """Return a JSON value as its scalars by JSON pointer; empty arrays and objects count as scalars."""
    return dict(_flat(value, ""))


def find_nearest(asked: Flat, candidates: Sequence[Flat]) -> Nearest | None:
    """Return the candidate with most in common, the first of several. Texts may agree in part."""
    best: Nearest | None = None
    for place, candidate in enumerate(candidates):
        same = sum(_share(candidate.get(pointer, _absent), value) for pointer, value in asked.items())
        # Over all places of both, so that a candidate is not nearer for having more than was requested.
        likeness = same / max(1, len(asked.keys() | candidate.keys()))
        if best is None or likeness > best.likeness:
            best = Nearest(place, likeness)
    return best


def describe_differences(recorded: Flat, asked: Flat) -> list[str]:
    """Return a few lines: `-` for what was recorded, `+` for what was requested at the same place."""
    pointers = [*asked, *(pointer for pointer in recorded if pointer not in asked)]
    places = [p for p in pointers if recorded.get(p, _absent) != asked.get(p, _absent)]
    lines: list[str] = []
    for pointer in places[:MAX_DIFFERENCES]:
        before, after = recorded.get(pointer, _absent), asked.get(pointer, _absent)
        start = _first_difference(before, after)
        lines.append(pointer)
        lines += [f"  {sign} {_show(value, start)}" for sign, value in (("-", before), ("+", after))]
    if len(places) > MAX_DIFFERENCES:
        lines.append(f"and {len(places) - MAX_DIFFERENCES} more")
    return lines


def _share(one: Any, other: Any) -> float:
    """Return how much of two values is the same; of long texts only both ends are compared."""
    if one == other:
        return 1.0
    if not isinstance(one, str) or not isinstance(other, str):
        return 0.0
    size = min(len(one), len(other))
    begin = _first_difference(one[:_COMPARED], other[:_COMPARED])
    end = _first_difference(one[: -_COMPARED - 1 : -1], other[: -_COMPARED - 1 : -1])
    return min(begin + end, size) / (max(len(one), len(other)) + 1)


def _flat(value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in cast("dict[str, Any]", value).items():
            yield from _flat(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _flat(item, f"{pointer}/{index}")
    else:
        yield pointer, value


def _first_difference(before: Any, after: Any) -> int:
    if not isinstance(before, str) or not isinstance(after, str):
        return 0
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))


def _show(value: Any, start: int) -> str:
    """Return a value as JSON; a long text is cut to the surroundings of the first difference."""
    if value is _absent:
        return "(nothing)"
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()[: 2 * _AROUND]
    begin, end = max(0, start - _AROUND // 2), start + _AROUND
    cut = ("…" if begin else "") + value[begin:end] + ("…" if end < len(value) else "")
    return msgspec.json.encode(cut).decode()
