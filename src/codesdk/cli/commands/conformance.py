"""`codesdk conformance`: a runtime, built in or your own → the matrix of what it must do, cell by cell."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import click

from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.view.matrix import MatrixView, built_in, network, program_option
from codesdk.cli.view.out import write_text
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.runtime import Runtime
from codesdk.doors import load
from codesdk.runtimes import entries, external_runtime, resolve
from codesdk.testing.cells import Cell, Unchecked
from codesdk.testing.conformance import MATRIX, MakeRuntime, Scenario, check_rows
from codesdk.testing.matrix import Column, column_of, driven, read_page, write_page, write_table


@click.command()
@click.option(
    "--runtime",
    "names",
    multiple=True,
    metavar="NAME",
    help="The runtime to check. Repeatable. [default: all that ask a model]",
)
@click.option("--adapter", metavar="MODULE:NAME", help="A runtime of your own: a callable that returns one.")
@click.option(
    "--external",
    metavar="COMMAND",
    help="An executable of your own that speaks the adapter protocol (docs/adapter-protocol.md).",
)
@click.option("--only", multiple=True, metavar="CELL", help="Check only this cell. Repeatable.")
@click.option(
    "--write",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the results to a page, one column per runtime, and keep the other columns that the page has.",
)
@json_option("Print one cell per line as JSON.")
def conformance(
    names: tuple[str, ...],
    adapter: str | None,
    external: str | None,
    only: tuple[str, ...],
    page: Path | None,
    as_json: bool,
) -> int:
    """Run the conformance matrix on the real program of a runtime, with a scripted model and no network.

    Needs no account and no key. As root, the programs run in a network that has only loopback; otherwise the
    cell about connections is not checked. Exits 1 if a cell fails.
    """
    unknown = set(only) - set(MATRIX)
    if unknown:
        raise InvalidRequest(f"There is no cell {min(unknown)!r}. The cells are: {', '.join(MATRIX)}.")
    if sum(map(bool, (names, adapter, external))) > 1:
        raise InvalidRequest("Use only one of --runtime, --adapter and --external.")
    rows = [row for row in MATRIX if not only or row in only]
    if adapter:
        made = {adapter: _outside(adapter)}
    elif external:
        made = {external: _external(external)}
    else:
        known_entries = entries()
        made = {
            column: built_in(name, **options)
            for name in map(resolve, names or _with_a_model())
            for column, options in known_entries[name].columns.items()
        }
    known = read_page(page.read_text()) if page is not None and page.exists() else {}
    columns: dict[str, Column] = {}
    failed = False
    for name, make in made.items():
        # A network for each runtime: the kernel's count of forbidden connections starts at 0 in it.
        with network():
            program, cells = run_async(_check(name, make, rows, as_json))
        columns[name] = column_of(program, datetime.now(UTC).strftime("%Y-%m-%d"), cells, known.get(name))
        failed |= any(cell.outcome == "fail" for cell in cells)
        if page is not None:  # at once, so that a run that is broken off leaves what it did
            page.write_text(write_page({**known, **columns}))
    if len(columns) > 1 and not as_json:
        write_text(sys.stdout, write_table(columns))
    return FAILED if failed else OK


async def _check(name: str, make: MakeRuntime, rows: list[str], as_json: bool) -> tuple[str, list[Cell]]:
    """Run and print the rows for one runtime. Return the program that was driven, and the cells."""
    view = MatrixView(name, as_json=as_json)
    if not as_json:
        write_text(sys.stdout, f"{name}\n")
    cells: list[Cell] = []
    async with aclosing(check_rows(make, rows)) as played:
        async for cell in played:
            cells.append(cell)
            view.show(cell)
    view.sum_up()
    return await driven(make), cells


def _with_a_model() -> list[str]:
    """Return the runtimes that ask a model: the model is what the matrix plays."""
    return [entry.name for entry in entries().values() if entry.wire is not None]


def _external(command: str) -> MakeRuntime:
    runtime = external_runtime("judged", command)

    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncGenerator[Runtime]:
        problem = await runtime.introduce()
        if problem is not None:
            raise problem
        yield runtime if scenario.program is None else runtime.driving(scenario.program)

    return make


def _outside(adapter: str) -> MakeRuntime:
    try:
        factory: Any = load(adapter)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(
            f"The adapter {adapter} cannot be loaded ({error}). Write it like package.module:Name."
        ) from None

    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncGenerator[Runtime]:
        if scenario.program is not None and "program" not in signature(factory).parameters:
            raise Unchecked("the adapter takes no `program`, so it cannot be given another one")
        yield factory(**program_option(scenario))

    return make
