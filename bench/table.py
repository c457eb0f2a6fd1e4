"""Measured lines → a table on the terminal, a verdict, and JSON."""

import sys
from collections.abc import Callable
from typing import Any, Literal, Self

import msgspec

_WIDTHS = (49, 13, 32, 7, 17)


class Goal(msgspec.Struct, frozen=True):
    """A bound on a line's figure or on its ratio."""

    of: Literal["figure", "ratio"]
    at_least: bool
    bound: float

    def holds(self, figure: float, ratio: float | None) -> bool:
        value = figure if self.of == "figure" else ratio
        if value is None:
            return False
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {short(self.bound)}{'x' if self.of == 'ratio' else ''}"


def at_most(bound: float) -> Goal:
    return Goal("figure", False, bound)


def at_least(bound: float) -> Goal:
    return Goal("figure", True, bound)


def ratio_at_most(bound: float) -> Goal:
    return Goal("ratio", False, bound)


def ratio_at_least(bound: float) -> Goal:
    return Goal("ratio", True, bound)


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One measured figure, what it is held against, and whether that is good enough.

    `figure` is null when it could not be measured; `note` then says why. After several rounds it is their median,
    and `rounds` has each of them.
    """

    bench: str
    name: str
    figure: float | None
    unit: str
    against: str | None = None
    against_figure: float | None = None
    ratio: float | None = None
    goal: str | None = None
    ok: bool | None = None
    note: str | None = None
    rounds: list[float] | None = None


class Report:
    """Takes the lines of one benchmark and passes each on as soon as it is there."""

    def __init__(self, bench: str, sink: Callable[[Line], None]) -> None:
        self._bench = bench
        self._sink = sink

    def line(
        self,
        name: str,
        figure: float | None,
        unit: str,
        *,
        against: tuple[str, float] | None = None,
        goal: Goal | None = None,
        note: str | None = None,
    ) -> None:
        ratio = None
        if against is not None and figure is not None and against[1]:
            ratio = figure / against[1]
        self._sink(
            Line(
                bench=self._bench,
                name=name,
                figure=figure,
                unit=unit,
                against=against[0] if against else None,
                against_figure=against[1] if against else None,
                ratio=ratio,
                goal=str(goal) if goal else None,
                ok=goal.holds(figure, ratio) if goal and figure is not None else None,
                note=note,
            )
        )

    def missing(self, name: str, why: str) -> None:
        self.line(name, None, "", note=why)

    def progress(self, text: str) -> None:
        print(f"  … {self._bench}: {text}", file=sys.stderr, flush=True)


class Table:
    """Prints lines as they come."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._bench = ""

    def head(self) -> Self:
        print(_row("line", "figure", "against", "ratio", "goal", ""), flush=True)
        print("─" * (sum(_WIDTHS) + 17), flush=True)
        return self

    def add(self, line: Line) -> None:
        if line.bench != self._bench:
            self._bench = line.bench
            print(line.bench, flush=True)
        self.lines.append(line)
        against = ""
        if line.against is not None and line.against_figure is not None:
            against = f"{line.against}: {short(line.against_figure)}"
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}x"
        figure = "-" if line.figure is None else f"{short(line.figure)} {line.unit}"
        verdict = {None: "", True: "ok", False: "SHORT"}[line.ok]
        print(_row(f"  {line.name}", figure, against, ratio, line.goal or "", verdict), flush=True)
        if line.note:
            print(f"      {line.note}", flush=True)

    def verdict(self) -> str:
        """Say which lines are short of their goal."""
        judged = [line for line in self.lines if line.ok is not None]
        missed = [line for line in judged if not line.ok]
        unmeasured = [line for line in self.lines if line.figure is None]
        words = f"{len(judged) - len(missed)} of {len(judged)} goals are met."
        if missed:
            listed = "; ".join(
                f"{line.bench}, {line.name} ({short(line.figure or 0)} {line.unit}"
                f"{'' if line.ratio is None else f', {line.ratio:.2f}x'}, goal {line.goal})"
                for line in missed
            )
            words += f" Short: {listed}."
        if unmeasured:
            words += f" Not measured: {'; '.join(f'{line.bench}, {line.name}' for line in unmeasured)}."
        return words


def to_json(facts: dict[str, Any], table: Table) -> bytes:
    document = {"format": "codesdk.bench/1", "facts": facts, "lines": table.lines, "verdict": table.verdict()}
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def short(number: float) -> str:
    """Write a figure with as many digits as anyone reads."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    if number == int(number):
        return f"{number:.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def _row(name: str, figure: str, against: str, ratio: str, goal: str, verdict: str) -> str:
    a, b, c, d, e = _WIDTHS
    return f"{name:<{a}} {figure:>{b}}  {against:<{c}} {ratio:>{d}}  {goal:<{e}} {verdict}".rstrip()
