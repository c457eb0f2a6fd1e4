"""The conformance matrix, played by the real programs, in a network that has only loopback."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.counts import COUNTS
from tests.runtimes.alone import alone, tried_outside

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.claude.adapter import ClaudeRuntime
from codesdk.runtimes.program.certificates import OWNERSHIP_ROWS
from codesdk.runtimes.registry import create_runtime
from codesdk.testing.conformance import (
    MATRIX,
    PROGRAM_CELLS,
    RUNTIME_CELLS,
    Cell,
    MakeRuntime,
    Scenario,
    check_row,
    shown_by,
)

ASKED = """
streaming · tool approve · tool deny with reason · parallel tool calls · stop mid-stream · stop in a tool · stop while an
approval waits · non-interactive ask · forbidden tool does not run · native tool attempt does not run · implicit sources
listed · exact input captured · usage and cost · resume after restart · resume by reconstruction · steer · large tool
result · session create · fork · images · artifacts · reasoning · native tool asks first · instruction file captured · auth missing · 401 · 429 with retry · 5xx · stream dies · context too large · program missing · program killed
mid-task · malformed output · MCP transport recorded · no connection except loopback · no process left behind
"""
"""What the contract asks for, in the order in which it does."""
PROGRAMS = ("claude-agent-sdk", "codex-sdk")
EXCLUDED = {
    ("codex-sdk", "artifacts"): (
        "supports_artifacts is false; InvalidRequest: The runtime codex-sdk cannot take files."
    ),
}
"""What a program cannot do, and says so."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def made(name: str) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        if name == "claude-agent-sdk":  # as the registry makes it, but for how long it tries again
            yield ClaudeRuntime(scenario.program, max_retries=COUNTS.claude_retries)
        else:
            yield create_runtime(name, program=scenario.program)

    return make


def test_every_row_that_the_contract_asks_for_is_a_cell():
    assert [row.strip() for row in ASKED.replace("\n", " ").split("·")] == list(MATRIX)
    assert {*RUNTIME_CELLS, *PROGRAM_CELLS} == set(MATRIX)


def test_every_capability_is_shown_by_a_row_and_no_row_speaks_of_another():
    assert set(shown_by()) == set(Capabilities.__struct_fields__)


def test_the_rows_without_which_there_is_no_certificate_are_rows():
    assert set(OWNERSHIP_ROWS) <= set(MATRIX)


@pytest.mark.parametrize("row", MATRIX)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_does_what_the_contract_asks_for(name: str, row: str):
    excluded = EXCLUDED.get((name, row))
    expected = Cell(row, "pass") if excluded is None else Cell(row, "unsupported", excluded)
    assert await check_row(made(name), row) == expected
