"""Marks in what an agent repeats → the model's denied calls, in the steps in which it made them.

An agent keeps the text of an answer as it likes, often joined. So a mark may stand anywhere in a text, and one
message may hold marks of several steps; it is then split where the model had been asked again.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from codesdk.gateway.ownership.acts import DeniedCall


class Marks:
    """Finds the marks of earlier denied calls in texts."""

    def __init__(self, denied: Mapping[str, DeniedCall]) -> None:
        self._denied = {mark: call for mark, call in denied.items() if mark}
        self._start = _common_start(self._denied)
        self._lengths = sorted({len(mark) for mark in self._denied}, reverse=True)
        longest_first = sorted(self._denied, key=len, reverse=True)
        # For marks that have nothing in common. Ours have; then a search for that is cheaper.
        self._any = None if self._start else re.compile("|".join(map(re.escape, longest_first)))

    def __bool__(self) -> bool:
        return bool(self._denied)

    def within(self, text: object) -> bool:
        """Return whether a text holds a mark."""
        return isinstance(text, str) and bool(self._denied) and self._next(text, 0) is not None

    def split(self, text: str) -> list[str | DeniedCall]:
        """Return a text in pieces: what is between the marks, without what is blank, and the calls."""
        pieces: list[str | DeniedCall] = []
        start = 0
        while (found := self._next(text, start)) is not None:
            at, call = found
            pieces += [text[start:at], call]
            start = at + len(call.mark)
        pieces.append(text[start:])
        return [piece for piece in pieces if not isinstance(piece, str) or piece.strip()]

    def _next(self, text: str, start: int) -> tuple[int, DeniedCall] | None:
        if not self._denied:
            return None
        if self._any is not None:
            found = self._any.search(text, start)
            return None if found is None else (found.start(), self._denied[found[0]])
        at = text.find(self._start, start)
        while at >= 0:
            for length in self._lengths:
                call = self._denied.get(text[at : at + length])
                if call is not None:
                    return at, call
            at = text.find(self._start, at + 1)
        return None


def _common_start(marks: Iterable[str]) -> str:
    first, last = min(marks, default=""), max(marks, default="")
    same = (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(same, min(len(first), len(last)))]


class Step:
    """What a model said in one answer: its content, in the terms of its format, with the denied calls in it."""

    def __init__(self, content: Iterable[Any] = ()) -> None:
        self.content = list(content)

    @property
    def denied(self) -> list[DeniedCall]:
        """The denied calls."""
        return [part for part in self.content if isinstance(part, DeniedCall)]


def steps_of(
    content: Iterable[Any], is_call: Callable[[Any], bool], *, keeps_calls: bool = False
) -> list[Step]:
    """Split what an agent takes for one answer at the ends of the steps after which the model was asked again.

    That is only done if no call reached the agent, so a step never ends behind one. `keeps_calls`: calls follow
    apart from this content, and are of the last step.
    """
    steps = [Step()]
    last: DeniedCall | None = None
    holds_call = False
    for part in content:
        if last is not None and not holds_call and _is_later(part, last):
            steps.append(Step())
            last = None
        steps[-1].content.append(part)
        if isinstance(part, DeniedCall):
            last = part
        else:
            holds_call = holds_call or is_call(part)
    if keeps_calls and last is not None and not last.beside:
        steps.append(Step())
    return steps


def _is_later(part: object, last: DeniedCall) -> bool:
    if isinstance(part, DeniedCall):
        return part.step != last.step
    return last.beside == 0
