"""A probed agent → the rows of the matrix that a session cannot do without: who decides about tools, stop, resume."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from codesdk.contract.runtime import Runtime
from codesdk.runtimes import OWNERSHIP_ROWS, AcpRuntime, OwnAgent, entry_of_own
from codesdk.testing.bench import MakeRuntime, Scenario
from codesdk.testing.cells import Cell
from codesdk.testing.conformance import MATRIX, check_row

_OTHERS = (
    "streaming",
    "stop mid-stream",
    "stop in a tool",
    "stop while an approval waits",
    "resume after restart",
    "no process left behind",
)
ROWS = tuple(row for row in MATRIX if row in (*OWNERSHIP_ROWS, *_OTHERS))


def made_from(agent: OwnAgent) -> MakeRuntime:
    """Return what makes the runtime of an agent for the matrix."""

    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncGenerator[Runtime]:
        command = agent.command if scenario.program is None else (scenario.program,)
        yield AcpRuntime(entry_of_own(agent), agent.row, command=command)

    return make


async def check_agent(agent: OwnAgent, tell: Callable[[Cell], None]) -> bool:
    """Play the rows on an agent. Return whether none failed."""
    sound = True
    for row in ROWS:
        cell = await check_row(made_from(agent), row)
        sound = sound and cell.outcome != "fail"
        tell(cell)
    return sound
