"""The contracts as functions: `check_runtime` and `check_program` for runtimes, `check_event_log` for logs.

Each returns a list of `Cell`, one per requirement of the contract, and neither prints nor raises. For authors
of an adapter or a store, and for CodeSDK's own tests.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

from codesdk.contract.ports import EventLog
from codesdk.testing.bench import Bench, MakeRuntime, Scenario
from codesdk.testing.cells import Cell, Outcome, judge
from codesdk.testing.consent_checks import CONSENT_CHECKS, KILL_CHECKS
from codesdk.testing.feature_checks import FEATURE_CHECKS, OWN_CHECKS
from codesdk.testing.job_checks import JOB_CHECKS
from codesdk.testing.log_checks import FRAME_CHECKS
from codesdk.testing.log_row_checks import ROW_CHECKS
from codesdk.testing.output_checks import OUTPUT_CHECKS
from codesdk.testing.ownership_checks import OWNERSHIP_CHECKS
from codesdk.testing.process_checks import PROCESS_CHECKS
from codesdk.testing.program_checks import PROGRAM_CHECKS
from codesdk.testing.runtime_checks import RUNTIME_CHECKS, Check
from codesdk.testing.shared import SharedBench

__all__ = [
    "MATRIX",
    "PROGRAM_CELLS",
    "RUNTIME_CELLS",
    "SHARED_ROWS",
    "Cell",
    "MakeRuntime",
    "Outcome",
    "Scenario",
    "check_event_log",
    "check_program",
    "check_row",
    "check_rows",
    "check_runtime",
    "shown_by",
]

MATRIX = (
    "streaming",
    "tool approve",
    "tool deny with reason",
    "parallel tool calls",
    "stop mid-stream",
    "stop in a tool",
    "stop while an approval waits",
    "non-interactive ask",
    "forbidden tool does not run",
    "native tool attempt does not run",
    "no native tool in the exact input",
    "every native name called, none run",
    "hostile workspace runs nothing",
    "implicit sources listed",
    "exact input captured",
    "usage and cost",
    "resume after restart",
    "resume by reconstruction",
    "steer",
    "large tool result",
    "session create",
    "fork",
    "images",
    "artifacts",
    "reasoning",
    "output schema",
    "output schema, natively",
    "native tool asks first",
    "instruction file captured",
    "consent: no client",
    "consent: client gone",
    "consent: timeout",
    "consent: stop",
    "auth missing",
    "401",
    "429 with retry",
    "5xx",
    "stream dies",
    "context too large",
    "MCP transport recorded",
    "consent: agent killed",
    "consent: CodeSDK killed",
    "program missing",
    "program killed mid-task",
    "malformed output",
    "no connection except loopback",
    "no process left behind",
)
"""The rows of the matrix, in order: the one about connections looks back at all that ran before it."""
_OF_RUNTIMES = {
    check.scenario.name: check
    for check in (*RUNTIME_CHECKS, *FEATURE_CHECKS, *OUTPUT_CHECKS, *CONSENT_CHECKS)
}
_OF_PROGRAMS = {
    check.scenario.name: check
    for check in (*PROGRAM_CHECKS, *OWNERSHIP_CHECKS, *PROCESS_CHECKS, *OWN_CHECKS, *KILL_CHECKS)
}
RUNTIME_CELLS = tuple(row for row in MATRIX if row in _OF_RUNTIMES)
"""The names of the cells of `check_runtime`, in order."""
PROGRAM_CELLS = tuple(row for row in MATRIX if row in _OF_PROGRAMS)
"""The names of the cells of `check_program`, in order."""
SHARED_ROWS = tuple(row for row in MATRIX if (_OF_PROGRAMS.get(row) or _OF_RUNTIMES[row]).shares)
"""The rows that one started agent can play one after the other. All others start their own."""


def shown_by() -> dict[str, list[str]]:
    """Return the fields of `Capabilities` that rows of the matrix show, and the rows that show each."""
    found: dict[str, list[str]] = {}
    for row in MATRIX:
        for check in (known[row] for known in (_OF_RUNTIMES, _OF_PROGRAMS) if row in known):
            scenario = check.scenario
            for field in (*scenario.needs, *(name for name, _ in scenario.where), *scenario.shows):
                rows = found.setdefault(field, [])
                if row not in rows:
                    rows.append(row)
    return found


async def check_runtime(
    make_runtime: MakeRuntime, *, only: Iterable[str] = RUNTIME_CELLS, timeout_s: float = 60.0
) -> list[Cell]:
    """Play every scenario, or some by name, with the runtime that `make_runtime` makes for it.

    A cell that fails is a `fail` if the runtime's capabilities promise it; otherwise it is `unsupported`, with
    the result of the attempt. `timeout_s` is for one cell.
    """
    return await _play(make_runtime, _OF_RUNTIMES, only, timeout_s)


async def check_program(
    make_runtime: MakeRuntime, *, only: Iterable[str] = PROGRAM_CELLS, timeout_s: float = 120.0
) -> list[Cell]:
    """Do the same for what only a program can do: its model is the gateway, its tools come over MCP.

    For a runtime whose capabilities say that it is not a program, the cells are `unsupported` and not tried.
    Cells that cannot be checked here are `not-checked`.
    """
    return await _play(make_runtime, _OF_PROGRAMS, only, timeout_s)


async def check_row(make_runtime: MakeRuntime, row: str, *, timeout_s: float = 120.0) -> Cell:
    """Play one row of the matrix: as a check of programs if the runtime is one, else of any runtime."""
    cell = Cell(row, "unsupported")
    for known in (_OF_PROGRAMS, _OF_RUNTIMES):
        if row in known and cell.outcome == "unsupported":
            cell = await _cell(make_runtime, known[row], timeout_s)
    return cell


async def check_rows(
    make_runtime: MakeRuntime, rows: Iterable[str] = MATRIX, *, timeout_s: float = 120.0
) -> AsyncGenerator[Cell]:
    """Play rows of the matrix in their order, each as `check_row` does, and give each cell when it is done.

    A program is started once for all rows that can share it. A row that does not pass there is played again by
    itself, and that counts.
    """
    chosen = set(rows)
    wanted = [row for row in MATRIX if row in chosen]
    stage = _Stage(make_runtime, [row for row in wanted if row in SHARED_ROWS], timeout_s)
    try:
        for row in wanted:
            cell = await stage.play(row)
            yield cell or await check_row(make_runtime, row, timeout_s=timeout_s)
    finally:
        await stage.close()


class _Stage:
    """One started agent for several rows, as long as there are some that can be played on it."""

    def __init__(self, make_runtime: MakeRuntime, rows: list[str], timeout_s: float) -> None:
        self._make = make_runtime
        self._left = rows if len(rows) > 1 else []
        self._timeout_s = timeout_s
        self._bench: SharedBench | None = None

    async def play(self, row: str) -> Cell | None:
        """Return the cell if it passes here, else None."""
        if row not in self._left:
            return None
        self._left.remove(row)
        check = _OF_PROGRAMS.get(row) or _OF_RUNTIMES[row]
        cell: Cell | None = None
        if await self._fits(check):
            bench = self._bench = self._bench or SharedBench(self._make)
            bench.begin(check.scenario)
            cell = await judge(row, _work(bench, check), self._timeout_s)
        failed = cell is not None and cell.outcome != "pass"
        if failed or not self._left:  # what failed may have left anything behind
            await self.close()
        return None if failed else cell

    async def _fits(self, check: Check) -> bool:
        async with self._make(check.scenario) as runtime:
            capabilities = runtime.capabilities()
        return capabilities.input_capture == "exact" and all(
            getattr(capabilities, flag) for flag in check.scenario.needs
        )

    async def close(self) -> None:
        """End the agent."""
        bench, self._bench = self._bench, None
        if bench is not None:
            await bench.aclose()


async def _work(bench: Bench, check: Check) -> None:
    await bench.fit()
    await check.run(bench)
    await bench.check()


async def _play(
    make_runtime: MakeRuntime, known: Mapping[str, Check], only: Iterable[str], timeout_s: float
) -> list[Cell]:
    wanted = set(only)
    unknown = wanted.difference(known)
    if unknown:
        raise ValueError(f"no such cell: {', '.join(sorted(unknown))}; the cells are {', '.join(known)}")
    return [await _cell(make_runtime, known[row], timeout_s) for row in MATRIX if row in wanted]


async def check_event_log(
    make_log: Callable[[], Awaitable[EventLog]], *, timeout_s: float = 60.0
) -> list[Cell]:
    """Check frames, owners, rows, jobs and cursors of a log. `make_log` returns a new, empty one for each cell."""
    checks = (*FRAME_CHECKS, *ROW_CHECKS, *JOB_CHECKS)
    return [await _log_cell(make_log, check, timeout_s) for check in checks]


async def _cell(make_runtime: MakeRuntime, check: Check, timeout_s: float) -> Cell:
    bench = Bench(make_runtime, check.scenario)
    try:
        cell = await judge(check.scenario.name, _work(bench, check), timeout_s)
    finally:
        bench.discard()
    if cell.outcome == "fail" and bench.model is not None and bench.model.problems:
        cell = Cell(cell.name, "fail", f"{cell.detail} (the script: {bench.model.problems[0]})")
    lacking = [flag for flag in check.scenario.needs if not getattr(bench.stated, flag, True)]
    if not lacking:
        return cell
    flags = " and ".join(f"{flag} is false" for flag in lacking)
    if cell.outcome == "pass":
        return Cell(cell.name, "pass", f"it works, although {flags}")
    return Cell(cell.name, "unsupported", f"{flags}; {cell.detail}")


async def _log_cell(
    make_log: Callable[[], Awaitable[EventLog]],
    check: Callable[[EventLog], Awaitable[None]],
    timeout_s: float,
) -> Cell:
    async def work() -> None:
        log = await make_log()
        try:
            await check(log)
        finally:
            await log.close()

    return await judge(getattr(check, "__name__", "check").replace("_", " "), work(), timeout_s)
