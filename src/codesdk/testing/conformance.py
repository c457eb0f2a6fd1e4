"""The contracts as functions: `check_runtime` for a `Runtime`, `check_event_log` for an `EventLog`.

Each returns a list of `Cell`, one per thing that the contract asks for; nothing is printed and nothing
raised. For whoever writes an adapter or a store, and for the test suite of CodeSDK itself.
"""

from collections.abc import Awaitable, Callable, Iterable

from codesdk.contract.ports import EventLog
from codesdk.testing.bench import Bench, MakeRuntime, Scenario
from codesdk.testing.cells import Cell, Outcome, judge
from codesdk.testing.log_checks import FRAME_CHECKS
from codesdk.testing.log_row_checks import ROW_CHECKS
from codesdk.testing.program_checks import PROGRAM_CHECKS
from codesdk.testing.runtime_checks import RUNTIME_CHECKS, Check

__all__ = [
    "PROGRAM_CELLS",
    "RUNTIME_CELLS",
    "Cell",
    "MakeRuntime",
    "Outcome",
    "Scenario",
    "check_event_log",
    "check_program",
    "check_runtime",
]

RUNTIME_CELLS = tuple(check.scenario.name for check in RUNTIME_CHECKS)
"""The names of the cells of `check_runtime`, in order."""
PROGRAM_CELLS = tuple(check.scenario.name for check in PROGRAM_CHECKS)
"""The names of the cells of `check_program`, in order."""


async def check_runtime(
    make_runtime: MakeRuntime, *, only: Iterable[str] = RUNTIME_CELLS, timeout_s: float = 60.0
) -> list[Cell]:
    """Play every scenario, or some by name, with the runtime that `make_runtime` gives for it.

    A cell that fails although the runtime's capabilities promise it is a `fail`; where they do not, it is
    `unsupported`, with what came of the attempt. `timeout_s` is for one cell.
    """
    return await _play(make_runtime, RUNTIME_CHECKS, only, timeout_s)


async def check_program(
    make_runtime: MakeRuntime, *, only: Iterable[str] = PROGRAM_CELLS, timeout_s: float = 120.0
) -> list[Cell]:
    """The same for what only a runtime that is a program can do: its model is the gateway, its tools come over MCP."""
    return await _play(make_runtime, PROGRAM_CHECKS, only, timeout_s)


async def _play(
    make_runtime: MakeRuntime, checks: Iterable[Check], only: Iterable[str], timeout_s: float
) -> list[Cell]:
    wanted, known = set(only), {check.scenario.name: check for check in checks}
    unknown = wanted.difference(known)
    if unknown:
        raise ValueError(f"no such cell: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [await _cell(make_runtime, check, timeout_s) for name, check in known.items() if name in wanted]


async def check_event_log(
    make_log: Callable[[], Awaitable[EventLog]], *, timeout_s: float = 60.0
) -> list[Cell]:
    """Check frames, owners, rows and cursors of a log. `make_log` gives a new, empty one for each cell."""
    return [await _log_cell(make_log, check, timeout_s) for check in (*FRAME_CHECKS, *ROW_CHECKS)]


async def _cell(make_runtime: MakeRuntime, check: Check, timeout_s: float) -> Cell:
    bench = Bench(make_runtime, check.scenario)

    async def work() -> None:
        await check.run(bench)
        await bench.check()

    try:
        cell = await judge(check.scenario.name, work(), timeout_s)
    finally:
        bench.discard()
    if cell.outcome == "fail" and bench.model is not None and bench.model.problems:
        cell = Cell(cell.name, "fail", f"{cell.detail} (the script: {bench.model.problems[0]})")
    lacking = [flag for flag in check.scenario.needs if not getattr(bench.capabilities, flag, True)]
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
