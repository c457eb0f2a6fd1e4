"""`codesdk conformance`: a runtime, ours or another's → the matrix of what it must do, cell by cell."""

import contextlib
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

import click
import msgspec

from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.out import write_json, write_text
from codesdk.cli.safe import one_line
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.registry import create_runtime, resolve
from codesdk.testing.cells import Cell
from codesdk.testing.conformance import (
    PROGRAM_CELLS,
    RUNTIME_CELLS,
    MakeRuntime,
    Scenario,
    check_program,
    check_runtime,
)
from codesdk.testing.network import alone, can_be_alone, tried_outside

LOOPBACK = "no connection except loopback"
DEFAULTS = ("claude-agent-sdk", "codex-sdk")
_MARKS = {"pass": "✓", "fail": "✗", "unsupported": "-", "not-checked": "?"}


@click.command()
@click.option(
    "--runtime", "names", multiple=True, metavar="NAME", help="This runtime. Repeat for more. [default: all]"
)
@click.option(
    "--adapter", metavar="MODULE:NAME", help="A runtime of your own: what gives one when it is called."
)
@click.option("--only", multiple=True, metavar="CELL", help="This cell. Repeat for more.")
@json_option("Print one cell a line as JSON.")
def conformance(names: tuple[str, ...], adapter: str | None, only: tuple[str, ...], as_json: bool) -> int:
    """Run the conformance matrix on the real program of a runtime, with a scripted model and no network.

    Needs no account and no key. As root the programs are started in a network that has only loopback; otherwise the
    cell about connections is not checked. Exits 1 if a cell fails.
    """
    unknown = set(only) - {*RUNTIME_CELLS, *PROGRAM_CELLS, LOOPBACK}
    if unknown:
        raise InvalidRequest(
            f"There is no cell {min(unknown)!r}. There are: {', '.join((*RUNTIME_CELLS, *PROGRAM_CELLS))}."
        )
    made = (
        {adapter: _outside(adapter)}
        if adapter
        else {name: _built_in(name) for name in map(resolve, names or DEFAULTS)}
    )
    failed = False
    for name, make in made.items():
        with _network() as isolated:
            failed |= run_async(_check(name, make, set(only), isolated, as_json))
    return FAILED if failed else OK


async def _check(name: str, make: MakeRuntime, only: set[str], isolated: bool, as_json: bool) -> bool:
    """Run and print the cells of one runtime. Return whether one failed."""
    failed = False
    async for cell in _cells(make, only, isolated):
        failed |= cell.outcome == "fail"
        if as_json:
            write_json({"runtime": name, **msgspec.to_builtins(cell)})
        else:
            detail = f"  {one_line(cell.detail, 300)}" if cell.detail else ""
            write_text(
                sys.stdout, f"{_MARKS[cell.outcome]} {name:18} {cell.name:32} {cell.outcome}{detail}\n"
            )
    return failed


async def _cells(make: MakeRuntime, only: set[str], isolated: bool) -> AsyncGenerator[Cell]:
    for cells, check in ((RUNTIME_CELLS, check_runtime), (PROGRAM_CELLS, check_program)):
        for name in cells:
            if not only or name in only:
                for cell in await check(make, only=[name]):
                    yield cell
    if not isolated:
        yield Cell(LOOPBACK, "not-checked", "only root can give the programs a network of their own")
        return
    tried = tried_outside()
    yield Cell(
        LOOPBACK, "fail" if tried else "pass", f"{tried} attempts to reach another address" if tried else ""
    )


@contextmanager
def _network() -> Generator[bool]:
    """Work in a network that has only loopback, where that is possible; say whether it is."""
    with contextlib.ExitStack() as stack:
        if can_be_alone():
            stack.enter_context(alone())
            yield True
        else:
            yield False


def _built_in(name: str) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncGenerator[Runtime]:
        yield create_runtime(name)

    return make


def _outside(adapter: str) -> MakeRuntime:
    module, _, attribute = adapter.partition(":")
    try:
        factory: Any = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(
            f"The adapter {adapter} cannot be loaded ({error}). Write it like package.module:Name."
        ) from None

    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncGenerator[Runtime]:
        yield factory()

    return make
