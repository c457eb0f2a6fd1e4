"""The rounds of two sides → what got slower or faster beyond the noise.

A side is a checkout, measured now by its own Python and its own bench, or a file that an earlier run wrote. Rounds of
two checkouts take turns, and the one that goes first changes, so that a machine that gets slower slows down both.
"""

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from bench.table import Line, short

Key = tuple[str, str, str]
"""Benchmark, name and unit: two sides are compared where all three are the same."""
Rounds = dict[Key, list[float]]
Verdict = Literal["slower", "same", "faster"]

# Three times how far the medians of two equal sides would be apart: with the second helping of rounds that a
# slower line gets, fewer than one line in a thousand is called slower without being so.
_CAUTION = 3.0
_WIDTHS = (61, 14, 14, 7, 7)


class Failed(Exception):
    """A benchmark did not run to its end."""


class Checkout:
    """A directory with a bench package, and the Python to run it with: that of its .venv if none is given."""

    def __init__(self, directory: Path, python: Path | None = None) -> None:
        self._directory = directory.resolve()
        self._python = python or self._directory / ".venv" / "bin" / "python"
        if not self._python.exists() or not (self._directory / "bench" / "__main__.py").exists():
            raise ValueError(
                f"{directory} has no bench or no .venv. Name a checkout in which `make setup` was run, "
                "or a file that `--json` wrote."
            )

    def round(self, bench: str, quick: bool) -> Iterator[Line]:
        """Measure once, if there is such a benchmark. A line without a figure was not measured."""
        if not (self._directory / "bench" / f"{bench}.py").exists():
            return
        command = [str(self._python), "-m", "bench", "--child", bench, *(["--quick"] if quick else [])]
        # Neither side may find the modules of the other, and both keep their bytecode.
        names = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
        env = {name: value for name, value in os.environ.items() if name not in names}
        with subprocess.Popen(command, cwd=self._directory, env=env, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for line in child.stdout:
                yield msgspec.json.decode(line, type=Line)
        if child.returncode != 0:
            raise Failed(f"The benchmark {bench} failed in {self._directory.name}; the messages are above.")


class Stored:
    """What an earlier run wrote: as many rounds as it had, all of them before ours."""

    def __init__(self, file: Path) -> None:
        try:
            document = msgspec.json.decode(file.read_bytes(), type=_Document)
        except (OSError, msgspec.DecodeError) as error:
            raise ValueError(f"{file} cannot be read as figures of the bench: {error}") from error
        self.quick = bool(document.facts.get("quick"))
        self._lines = document.lines

    @property
    def has_one_round(self) -> bool:
        """Return whether no line was measured more than once."""
        return all(len(line.rounds or ()) < 2 for line in self._lines)

    def rounds(self) -> Rounds:
        return {
            key_of(line): list(line.rounds or [line.figure])
            for line in self._lines
            if line.figure is not None
        }


class _Document(msgspec.Struct):
    facts: dict[str, object]
    lines: list[Line]


class Comparison(NamedTuple):
    """One line of both sides. `noise` is in the unit of the figures."""

    key: Key
    before: float
    after: float
    noise: float
    verdict: Verdict


def key_of(line: Line) -> Key:
    return (line.bench, line.name, line.unit)


def compare(key: Key, before: Sequence[float], after: Sequence[float]) -> Comparison:
    """Hold the medians of two sides against what their own rounds are apart."""
    first, second = statistics.median(before), statistics.median(after)
    spread = max(_spread(before), _spread(after))
    noise = _CAUTION * spread * math.sqrt(1 / len(before) + 1 / len(after))
    more = second - first
    verdict: Verdict = "same"
    if abs(more) > noise:
        # Rates are better when they are higher; times, sizes and losses when they are lower.
        verdict = "slower" if (more < 0) == (key[2] == "/s") else "faster"
    return Comparison(key, first, second, noise, verdict)


def _spread(values: Sequence[float]) -> float:
    """Return how far the middle half of some rounds reaches. One round says nothing of noise."""
    if len(values) < 2:
        return 0.0
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return quarters[2] - quarters[0]


def measure(sides: Sequence[Checkout], bench: str, count: int, quick: bool, found: Sequence[Rounds]) -> None:
    """Add rounds of one benchmark to what was found, the sides taking turns."""
    for number in range(count):
        print(f"  … {bench}: round {number + 1} of {count}", file=sys.stderr, flush=True)
        turns = list(zip(sides, found, strict=True))
        for side, rounds in turns if number % 2 == 0 else reversed(turns):
            for line in side.round(bench, quick):
                if line.figure is not None:
                    rounds.setdefault(key_of(line), []).append(line.figure)


def held_against(
    other: Checkout | Stored, here: Checkout, benches: Sequence[str], count: int, quick: bool
) -> tuple[list[Comparison], list[str]]:
    """Measure and compare, benchmark by benchmark. Return the lines, and what failed, as sentences.

    A benchmark with a slower line is measured as often again before that is believed.
    """
    print(_row("line", "before", "after", "ratio", "noise", ""))
    print("─" * (sum(_WIDTHS) + 16), flush=True)
    all_lines: list[Comparison] = []
    failed: list[str] = []
    for bench in benches:
        try:
            lines = _one(other, here, bench, count, quick)
        except Failed as error:
            failed.append(str(error))
            continue
        _print(bench, lines)
        all_lines += lines
    return all_lines, failed


def _one(other: Checkout | Stored, here: Checkout, bench: str, count: int, quick: bool) -> list[Comparison]:
    before: Rounds = other.rounds() if isinstance(other, Stored) else {}
    after: Rounds = {}
    sides, found = ([here], [after]) if isinstance(other, Stored) else ([other, here], [before, after])
    measure(sides, bench, count, quick, found)
    if any(line.verdict == "slower" for line in _compared(before, after)):
        measure(sides, bench, count, quick, found)
    return _compared(before, after)


def _compared(before: Rounds, after: Rounds) -> list[Comparison]:
    return [compare(key, before[key], figures) for key, figures in after.items() if key in before]


def verdict(compared: Sequence[Comparison]) -> str:
    """Say in one sentence what changed."""
    counts = {word: sum(line.verdict == word for line in compared) for word in ("slower", "faster", "same")}
    listed = "; ".join(f"{line.key[0]}, {line.key[1]}" for line in compared if line.verdict == "slower")
    words = f"{len(compared)} lines compared: {', '.join(f'{n} {word}' for word, n in counts.items())}."
    return words + (f" Slower: {listed}." if listed else "")


def _print(bench: str, compared: Sequence[Comparison]) -> None:
    print(bench)
    for line in compared:
        unit = line.key[2]
        ratio = f"{line.after / line.before:.2f}x" if line.before else ""
        noise = f"{line.noise / line.before:.0%}" if line.before else short(line.noise)
        before, after = (f"{short(figure)} {unit}" for figure in (line.before, line.after))
        word = "" if line.verdict == "same" else line.verdict
        print(_row(f"  {line.key[1]}", before, after, ratio, noise, word), flush=True)


def _row(name: str, before: str, after: str, ratio: str, noise: str, word: str) -> str:
    a, b, c, d, e = _WIDTHS
    return f"{name:<{a}} {before:>{b}} {after:>{c}} {ratio:>{d}} {noise:>{e}}  {word}".rstrip()
