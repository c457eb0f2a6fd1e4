"""The conformance matrix on the command line: a runtime's own network, its rows as they are done, and their sum."""

import contextlib
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Unpack

import msgspec

from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import one_line
from codesdk.contract.entry import AdapterOptions
from codesdk.contract.runtime import Runtime
from codesdk.runtimes import create_runtime
from codesdk.testing.cells import Cell
from codesdk.testing.conformance import MATRIX, MakeRuntime, Scenario
from codesdk.testing.matrix import MARKS
from codesdk.testing.network import alone, can_be_alone

_WIDTH = max(map(len, MATRIX))


class MatrixView:
    """Shows the rows of one runtime, one by one."""

    def __init__(self, name: str, *, as_json: bool) -> None:
        self._name = name
        self._as_json = as_json
        self.counts = Counter[str]()

    def show(self, cell: Cell) -> None:
        """Show a row that is done."""
        self.counts[cell.outcome] += 1
        if self._as_json:
            write_json({"runtime": self._name, **msgspec.to_builtins(cell)})
            return
        detail = f"  {one_line(cell.detail, 300)}" if cell.detail else ""
        write_text(sys.stdout, f"  {MARKS[cell.outcome]} {cell.name:{_WIDTH}}  {cell.outcome}{detail}\n")

    def sum_up(self) -> None:
        """Show how many rows came out how."""
        if not self._as_json:
            told = ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in MARKS if self.counts[outcome])
            write_text(sys.stdout, f"  {self.counts.total()} rows: {told}\n\n")


@contextmanager
def network() -> Generator[None]:
    """Enter a network that has only loopback, if that is possible."""
    with alone() if can_be_alone() else contextlib.nullcontext():
        yield


def built_in(name: str, **options: Unpack[AdapterOptions]) -> MakeRuntime:
    """Return what makes a runtime of this version for the matrix, perhaps to work in one of several ways."""

    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncGenerator[Runtime]:
        asked: AdapterOptions = {**options, **program_option(scenario)}
        yield create_runtime(name, **asked)

    return make


def program_option(scenario: Scenario) -> AdapterOptions:
    """Return the options of an adapter that a scenario asks for."""
    return {} if scenario.program is None else {"program": scenario.program}
