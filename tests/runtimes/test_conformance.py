"""The conformance matrix, played by the real programs, in a network that has only loopback."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.runtimes.alone import alone, tried_outside

from codesdk.contract.runtime import Runtime
from codesdk.runtimes.registry import create_runtime
from codesdk.testing.conformance import (
    PROGRAM_CELLS,
    RUNTIME_CELLS,
    Cell,
    MakeRuntime,
    Scenario,
    check_program,
    check_runtime,
)

PROGRAMS = ("claude-agent-sdk", "codex-sdk")


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def made(name: str) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        yield create_runtime(name)

    return make


@pytest.mark.parametrize("cell", RUNTIME_CELLS)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_does_what_every_runtime_must(name: str, cell: str):
    assert await check_runtime(made(name), only=[cell]) == [Cell(cell, "pass")]


@pytest.mark.parametrize("cell", PROGRAM_CELLS)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_does_what_programs_must(name: str, cell: str):
    assert await check_program(made(name), only=[cell]) == [Cell(cell, "pass")]
