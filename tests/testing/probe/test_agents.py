"""Real agents, probed as if nobody knew them: the row is the one that ships, but for these fields, and good enough for the matrix."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.counts import COUNTS
from tests.runtimes.alone import alone

from codesdk.runtimes.acp import ROWS
from codesdk.runtimes.program.finding import find_program
from codesdk.runtimes.registry import entry_of
from codesdk.testing.cells import Cell
from codesdk.testing.conformance import check_row
from codesdk.testing.probe.check import ROWS as ALL_ROWS, made_from
from codesdk.testing.probe.deduce import differences
from codesdk.testing.probe.probing import probe_agent

ALWAYS = {"launch", "greets", "meta", "begins", "model", "side", "transports", "reading", "exit", "exit_s"}
"""What a probe cannot know (settings), need not know (all transports, all places), or finds by how busy the machine is."""
MORE: dict[str, set[str]] = {
    "codex-acp": set(),
    "qwen": set(),
    "claude-agent-acp": {"modes"},
    "gemini": {"session_file", "commands"},
}
"""Further fields in which a probed row differs: claude begins in the mode that its row names; gemini's file and its second
sign of commands are seen by nobody who does not know them."""
ARGUMENTS = {"qwen": ("--acp",), "gemini": ("--acp",)}
ESSENTIAL = (
    "tool approve",
    "tool deny with reason",
    "stop mid-stream",
    "native tool attempt does not run",
    "resume after restart",
)


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MORE) if COUNTS.whole_matrix else ["codex-acp"])
async def test_a_known_agent_is_probed_to_its_row_and_the_row_passes(name: str):
    program = await find_program(entry_of(f"acp:{name}"), allow_untested=True)
    command = (*program.argv, *ARGUMENTS.get(name, ()))
    async with asyncio.timeout(900):
        probe = await probe_agent(command, lambda finding: None)
        assert probe.usable
        found = differences(probe.row, ROWS[name].row)
        assert set(found) - ALWAYS == MORE[name], found
        agent = probe.agent("probed")
        rows = ALL_ROWS if COUNTS.whole_matrix else ESSENTIAL
        cells = [await check_row(made_from(agent), row) for row in rows]
    assert cells == [Cell(row, "pass") for row in rows]
