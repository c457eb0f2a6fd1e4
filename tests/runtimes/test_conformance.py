"""The conformance matrix, played by the real programs, in a network that has only loopback."""

import json
from collections.abc import Callable, Iterator
from contextlib import aclosing

import msgspec
import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import ESSENTIAL, PROGRAMS, made, rows_of
from tests.soak import CELL

from codesdk.contract.capabilities import Capabilities
from codesdk.runtimes.acp import ROWS
from codesdk.runtimes.program.certificates import OWNERSHIP_ROWS
from codesdk.runtimes.registry import entries
from codesdk.testing.conformance import (
    MATRIX,
    PROGRAM_CELLS,
    RUNTIME_CELLS,
    SHARED_ROWS,
    Cell,
    MakeRuntime,
    check_row,
    check_rows,
    shown_by,
)
from codesdk.testing.matrix import driven

ASKED = """
streaming · tool approve · tool deny with reason · parallel tool calls · stop mid-stream · stop in a tool · stop while an
approval waits · non-interactive ask · forbidden tool does not run · native tool attempt does not run · no native tool in
the exact input · every native name called, none run · hostile workspace runs nothing · implicit sources listed · exact input
captured · usage and cost · resume after restart · resume by reconstruction · steer · large tool result · session create ·
fork · images · artifacts · reasoning · output schema · output schema, natively · native tool asks first · instruction file captured · consent: no client · consent:
client gone · consent: timeout · consent: stop · auth missing · 401 · 429 with retry · 5xx · stream dies · context too large ·
MCP transport recorded · consent: agent killed · consent: CodeSDK killed · program missing · program killed mid-task ·
malformed output · no connection except loopback · no process left behind
"""
"""What the contract asks for, in the order in which it is played."""
EXCLUDED = {
    ("codex-sdk", "artifacts"): (
        "supports_artifacts is false; InvalidRequest: The runtime codex-sdk cannot take files."
    ),
}
"""What a program cannot do, and says so."""
NO_NATIVES = "native_tools names none that could be called"
"""Of programs whose directory is not the workspace: tools of their own would have nothing to work on."""
NO_PARALLEL = "supports_parallel_tool_calls is false; not done after 20 s"
NO_STEER = (
    "supports_steer is false; InvalidRequest: The runtime {name} cannot be steered; queue a task instead."
)
THOUGHTS = "supports_reasoning is false; what streamed as reasoning: wanted 'Let me think.', found '****\\nLet me****\\nthink.'"
NO_PROCESS = "recommended_isolation_mode is in_process"
BY_TOOL = "output_schema is tool"
"""Of all but codex: what others do with a schema is a tool of their own, which ours takes the place of."""
BUILT_IN = {
    "output schema, natively": BY_TOOL,
    "native tool asks first": NO_NATIVES,
    "MCP transport recorded": "tool_execution_model is stream",
    "consent: agent killed": NO_PROCESS,
    "program missing": NO_PROCESS,
    "program killed mid-task": NO_PROCESS,
    "malformed output": NO_PROCESS,
    "no process left behind": NO_PROCESS,
}
"""What minicode cannot show in this process. Hosted as one of its own, it shows the last five (external/test_matrix.py)."""
MINICODE = entries()["minicode"]
Note = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def expected(name: str, row: str) -> Cell:
    reason = EXCLUDED.get((name, row)) or excluded(name, row)
    return Cell(row, "pass") if reason is None else Cell(row, "unsupported", reason)


def excluded(name: str, row: str) -> str | None:
    """Return what an agent of the Agent Client Protocol cannot do according to its row, or opencode's server."""
    if row == "native tool asks first" and name not in ("claude-agent-sdk", "codex-sdk"):
        return NO_NATIVES
    if row == "output schema, natively" and name != "codex-sdk":
        return BY_TOOL
    agent = "gemini" if name == "gemini-cli-core" else name.removeprefix("acp:")
    if agent not in ROWS:
        return None
    known = ROWS[agent].row
    if row == "parallel tool calls" and not known.parallel:
        return NO_PARALLEL
    if row == "steer" and not known.steers:
        return NO_STEER.format(name=name)
    return THOUGHTS if row == "reasoning" and not known.reasoning else None


def is_shared(name: str, row: str) -> bool:
    """Return whether a row is played by a started agent. What waits for its time to be over is apart."""
    return row in SHARED_ROWS and excluded(name, row) != NO_PARALLEL


async def note(record: Note, name: str, cells: list[Cell], make: MakeRuntime | None = None) -> None:
    """Leave the cells in the report, from which a soak makes the page of the matrix."""
    program = await driven(make or made(name))
    told = {"runtime": name, "program": program, "cells": msgspec.to_builtins(cells)}
    record(CELL, json.dumps(told))


def test_every_row_that_the_contract_asks_for_is_a_cell():
    assert [" ".join(row.split()) for row in ASKED.split("·")] == list(MATRIX)
    assert {*RUNTIME_CELLS, *PROGRAM_CELLS} == set(MATRIX)
    assert set(ESSENTIAL) < set(MATRIX)


def test_every_capability_is_shown_by_a_row_and_no_row_speaks_of_another():
    assert set(shown_by()) == set(Capabilities.__struct_fields__)


def test_the_rows_without_which_there_is_no_certificate_are_rows():
    assert set(OWNERSHIP_ROWS) <= set(MATRIX)


@pytest.mark.parametrize(
    ("name", "row"), [(name, row) for name in PROGRAMS for row in rows_of(name) if not is_shared(name, row)]
)
async def test_a_program_does_what_the_contract_asks_for(name: str, row: str, record_property: Note):
    # What cannot be done is tried all the same, but not for minutes.
    cell = await check_row(
        made(name), row, timeout_s=20.0 if expected(name, row).detail == NO_PARALLEL else 120.0
    )
    await note(record_property, name, [cell])
    assert cell == expected(name, row)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_that_was_started_once_does_what_the_contract_asks_for(
    name: str, record_property: Note
):
    """The rows that share a started agent: each is as strict as by itself, and who fails is played again alone."""
    rows = [row for row in rows_of(name) if is_shared(name, row)]
    async with aclosing(check_rows(made(name), rows)) as played:
        cells = [cell async for cell in played]
    await note(record_property, name, cells)
    assert cells == [expected(name, row) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("column", MINICODE.columns)
async def test_minicode_does_what_the_contract_asks_for_in_every_format(column: str, record_property: Note):
    make = made("minicode", **MINICODE.columns[column])
    async with aclosing(check_rows(make)) as played:
        cells = [cell async for cell in played]
    await note(record_property, column, cells, make)
    assert cells == [
        Cell(row, "unsupported", BUILT_IN[row]) if row in BUILT_IN else Cell(row, "pass") for row in MATRIX
    ]
