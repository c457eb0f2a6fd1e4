"""The cells of several runtimes ↔ one page: a column for each, with the versions and days on which they were played.

`docs/runtimes/matrix.md` is such a page. Runtimes that did not run this time keep the column that they have.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import CodeSDKError
from codesdk.runtimes import entries
from codesdk.script import Script
from codesdk.testing.cells import Cell, Outcome
from codesdk.testing.conformance import MATRIX, MakeRuntime, Scenario

MARKS: dict[Outcome, str] = {"pass": "✓", "fail": "✗", "unsupported": "-", "not-checked": "?"}
_OUTCOMES: dict[str, Outcome] = {mark: outcome for outcome, mark in MARKS.items()}
_UNPLAYED = " "
_INTRO = """\
# What each agent was seen to do

The [conformance matrix](../testing.md#does-my-runtime-keep-the-contract) on the real programs, offline, with a scripted model. ✓ it holds; - it does not,
the runtime's capabilities say so, and the attempt is below; ✗ it failed; ? it could not be checked. `make soak ARGS="--write docs/soak.md conformance"` and
`codesdk conformance --write FILE` write such a page, a column for each runtime that was played whole; rows that `make test` plays of the others are not on it. A test compares it with the runtimes and rows that there are.
"""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """What one runtime did, and when."""

    program: str
    """The program and its version."""
    day: str
    cells: Mapping[str, Cell]
    """By row. Rows may be missing."""


def write_page(columns: Mapping[str, Column]) -> str:
    """Return the page, as Markdown."""
    return f"{_INTRO}\n{write_table(columns)}"


def write_table(columns: Mapping[str, Column]) -> str:
    """Return the table of a page, and what was found where something does not hold."""
    names = sorted(columns)
    lines = [
        _line("", names),
        _line("---", ["---"] * len(names)),
        _line("program", [columns[name].program for name in names]),
        _line("played on", [columns[name].day for name in names]),
        *(_line(row, [_mark(columns[name].cells.get(row)) for name in names]) for row in MATRIX),
    ]
    told = [
        _line(name, [row, cell.outcome, _words(cell.detail)])
        for name in names
        for row in MATRIX
        if (cell := columns[name].cells.get(row)) is not None and cell.detail
    ]
    if told:
        lines += [
            "",
            _line("runtime", ["row", "outcome", "what was found"]),
            _line("---", ["---"] * 3),
            *told,
        ]
    return "\n".join(lines) + "\n"


def read_page(text: str) -> dict[str, Column]:
    """Return the columns of a page that `write_page` wrote; none if it is no such page."""
    rows = [[part.strip() for part in line.strip("|").split(" | ")] for line in _tables(text)]
    if not rows or rows[0][0]:
        return {}
    names, programs, days = rows[0][1:], rows[2][1:], rows[3][1:]
    told = {(row[0], row[1]): row[3] for row in rows[4 + len(MATRIX) :] if len(row) == 4}
    marks = {row[0]: row[1:] for row in rows[4:] if row[0] in MATRIX}
    return {
        name: Column(
            program=programs[place],
            day=days[place],
            cells={
                row: Cell(row, _OUTCOMES[found[place]], told.get((name, row), ""))
                for row, found in marks.items()
                if place < len(found) and found[place] in _OUTCOMES
            },
        )
        for place, name in enumerate(names)
    }


def column_of(program: str, day: str, cells: Iterable[Cell], before: Column | None = None) -> Column:
    """Return a column with these cells, and with those of before that belong to the same program."""
    new = {cell.name: cell for cell in cells}
    if before is not None and before.program == program:
        new = {**before.cells, **new}
    return Column(program=program, day=day, cells=new)


async def driven(make_runtime: MakeRuntime) -> str:
    """Return the program that a runtime drives, and its version."""
    async with make_runtime(Scenario(name="version", script=Script(turns=()))) as runtime:
        find: Callable[..., Awaitable[Any]] | None = getattr(runtime, "find", None)
        if find is None:
            return "built in"
        try:
            # The matrix is what tests a version, so it must not be asked for before.
            any_version = "allow_untested" in signature(find).parameters
            program = await (find(allow_untested=True) if any_version else find())
        except CodeSDKError:
            return "not installed"
    entry = entries().get(runtime.name)
    command = entry.program.command if entry and entry.program else Path(program.path).name
    return f"{command} {getattr(program, 'version', '')}".rstrip()


def _tables(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("|")]


def _line(first: str, rest: Iterable[str]) -> str:
    return f"| {' | '.join([first, *rest])} |"


def _mark(cell: Cell | None) -> str:
    return _UNPLAYED if cell is None else MARKS[cell.outcome]


def _words(detail: str) -> str:
    """Return a detail on one line, so that it fits a cell."""
    return " ".join(detail.replace("|", "/").split())
