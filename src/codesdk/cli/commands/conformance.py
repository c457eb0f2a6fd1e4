"""`codesdk conformance`: a runtime, built in or your own → the matrix of what it must do, cell by cell."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from inspect import signature
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
from codesdk.runtimes import entries, resolve
from codesdk.testing.cells import Unchecked
from codesdk.testing.conformance import MATRIX, MakeRuntime, Scenario, check_row


@click.command()
@click.option(
    "--runtime",
    "names",
    multiple=True,
    metavar="NAME",
    help="The runtime to check. Repeatable. [default: all that ask a model]",
)
@click.option("--adapter", metavar="MODULE:NAME", help="A runtime of your own: a callable that returns one.")
@click.option("--only", multiple=True, metavar="CELL", help="Check only this cell. Repeatable.")
@json_option("Print one cell per line as JSON.")
def conformance(names: tuple[str, ...], adapter: str | None, only: tuple[str, ...], as_json: bool) -> int:
    """Run the conformance matrix on the real program of a runtime, with a scripted model and no network.

    Needs no account and no key. As root, the programs run in a network that has only loopback; otherwise the
    cell about connections is not checked. Exits 1 if a cell fails.
    """
    unknown = set(only) - set(MATRIX)
    if unknown:
        raise InvalidRequest(f"There is no cell {min(unknown)!r}. The cells are: {', '.join(MATRIX)}.")
    rows = [row for row in MATRIX if not only or row in only]
    made = (
        {adapter: _outside(adapter)}
        if adapter
        else {name: built_in(name) for name in map(resolve, names or _with_a_model())}
    )
    failed = False
    for name, make in made.items():
        # A network for each runtime: the kernel's count of forbidden connections starts at 0 in it.
        with network():
            failed |= run_async(_check(name, make, rows, as_json))
    return FAILED if failed else OK


async def _check(name: str, make: MakeRuntime, rows: list[str], as_json: bool) -> bool:
    """Run and print the rows for one runtime. Return whether one failed."""
    view = MatrixView(name, as_json=as_json)
    if not as_json:
        write_text(sys.stdout, f"{name}\n")
    for row in rows:
        view.show(await check_row(make, row))
    view.sum_up()
    return view.counts["fail"] > 0


def _with_a_model() -> list[str]:
    """Return the runtimes that ask a model: the model is what the matrix plays."""
    return [entry.name for entry in entries().values() if entry.wire is not None]


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
