"""The conformance matrix, played by the real codex."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.runtimes.alone import alone, tried_outside

from codesdk.contract.runtime import Runtime
from codesdk.runtimes.codex import CodexRuntime
from codesdk.testing.conformance import RUNTIME_CELLS, Cell, Scenario, check_runtime


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


@asynccontextmanager
async def codex(scenario: Scenario) -> AsyncIterator[Runtime]:
    yield CodexRuntime()


@pytest.mark.parametrize("name", RUNTIME_CELLS)
async def test_codex_does_what_every_runtime_must(name: str):
    assert await check_runtime(codex, only=[name]) == [Cell(name, "pass")]
