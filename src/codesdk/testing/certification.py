"""A program of another version than the tested one → a certificate, if it passes the conformance matrix here.

The matrix is the one of `conformance`, on the files that are installed; they are hashed before and after.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing

import msgspec

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.runtimes import Issued, Program, Row, find_program, issue_certificate, program_tree
from codesdk.testing.cells import Cell
from codesdk.testing.conformance import MATRIX, MakeRuntime, check_rows

Compare = Callable[[], Awaitable[str | None]]
"""Compares the program with recordings, and returns what of it keeps it from being certified."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came out: the program, all rows, and the certificate or why there is none."""

    program: Program
    rows: tuple[Row, ...]
    issued: Issued


async def certify(
    entry: RuntimeEntry,
    make_runtime: MakeRuntime,
    *,
    told: Callable[[Cell], None] = lambda cell: None,
    sessions: Iterable[str] = (),
    compare: Compare | None = None,
) -> Checked:
    """Play the whole matrix on the installed program of a runtime and store a certificate if it may have one.

    `told` hears of each row when it is done. `compare` is asked after a matrix without a fault, about `sessions`.
    Raise `TaskFailure` if there is no program, and `Conflict` if its files change meanwhile.
    """
    if entry.program is None:
        raise InvalidRequest(f"The runtime {entry.name} comes with CodeSDK: there is nothing to certify.")
    program = await find_program(entry, allow_untested=True)
    tree = await asyncio.to_thread(program_tree, entry.program, program.path)
    rows: list[Row] = []
    async with aclosing(check_rows(make_runtime, MATRIX)) as cells:
        async for cell in cells:
            rows.append(Row(cell.name, cell.outcome, cell.detail))
            told(cell)
    sound = not any(row.outcome == "fail" for row in rows)
    problem = await compare() if compare is not None and sound else None
    if await asyncio.to_thread(program_tree, entry.program, program.path) != tree:
        raise Conflict(f"{program.path} changed while it was checked. Certify it again.")
    issued = await asyncio.to_thread(
        issue_certificate,
        entry,
        program.version,
        tree,
        tuple(rows),
        sessions=tuple(sessions),
        problem=problem,
    )
    return Checked(program=program, rows=tuple(rows), issued=issued)
