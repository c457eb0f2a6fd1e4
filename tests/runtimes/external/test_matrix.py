"""The conformance matrix through the adapter protocol: the reference adapters, and runtimes of this package as processes."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.external.adapters import PYTHON_AGENT, makes_external, makes_hosted, typescript_agent
from tests.runtimes.test_conformance import EXCLUDED

from codesdk.contract.runtime import Runtime
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.testing.conformance import MATRIX, RUNTIME_CELLS, Cell, Scenario, check_row, check_rows

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


NO_NATIVE_TOOLS = "native_tools names none that could be called"
NO_MCP = "tool_execution_model is stream"
OF_AGENTS = {
    "output schema, natively": "output_schema is tool",
    "native tool asks first": NO_NATIVE_TOOLS,
    "MCP transport recorded": NO_MCP,
}
"""What the reference adapters do not do, and say so."""


@pytest.mark.parametrize("row", MATRIX)
async def test_the_python_adapter_does_what_the_contract_asks_for(row: str):
    assert await check_row(makes_external(sys.executable, str(PYTHON_AGENT)), row) == expected(row, OF_AGENTS)


@pytest.mark.parametrize("row", MATRIX)
async def test_the_typescript_adapter_does_what_the_contract_asks_for(row: str):
    assert await check_row(makes_external("node", str(typescript_agent())), row) == expected(row, OF_AGENTS)


@pytest.mark.parametrize("row", MATRIX)
async def test_a_program_hosted_as_a_process_does_what_the_contract_asks_for(row: str, tmp_path: Path):
    found = await check_row(makes_hosted("codex-sdk", tmp_path), row)
    assert found == expected(row, {"artifacts": EXCLUDED["codex-sdk", "artifacts"]})


async def test_minicode_hosted_as_a_process_does_what_the_contract_asks_for(tmp_path: Path):
    make = makes_hosted("minicode", tmp_path, provider="openai", max_retries=1)
    async with aclosing(check_rows(make)) as played:
        cells = [cell async for cell in played]
    assert cells == [expected(row, OF_AGENTS) for row in MATRIX]


@pytest.mark.parametrize("row", ["streaming", "tool approve", "5xx"])
async def test_an_agent_hosted_as_a_process_waits_for_its_tools_and_asks_how_its_model_answered(
    row: str, tmp_path: Path
):
    assert await check_row(makes_hosted("acp:gemini", tmp_path), row) == expected(row, {})


@pytest.mark.parametrize("row", MATRIX)
async def test_the_scripted_runtime_as_a_process_does_what_it_does_in_process(row: str, tmp_path: Path):
    hosted = await check_row(makes_hosted("scripted", tmp_path), row)
    assert hosted == await check_row(in_process, row)
    assert hosted.outcome in (("pass", "unsupported") if row in RUNTIME_CELLS else ("unsupported",))


@asynccontextmanager
async def in_process(scenario: Scenario) -> AsyncIterator[Runtime]:
    yield ScriptedRuntime(None if scenario.where else scenario.script)


def expected(row: str, unsupported: dict[str, str]) -> Cell:
    return Cell(row, "unsupported", unsupported[row]) if row in unsupported else Cell(row, "pass")
