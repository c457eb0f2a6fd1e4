"""How long it takes to be there, or to say why not: the command line, the imports, a task that nobody pays for."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import median
from bench.table import Report, at_most

_GOAL_MS = 80
_KEYLESS_MS = 500


async def run(report: Report, quick: bool) -> None:
    rounds = 3 if quick else 15
    python = [sys.executable, "-c", "pass"]
    commands = {
        "import codesdk": [sys.executable, "-c", "import codesdk"],
        "from codesdk import CodeSDK": [sys.executable, "-c", "from codesdk import CodeSDK"],
    }
    if _has_command_line():
        commands["codesdk --version"] = [str(Path(sys.executable).with_name("codesdk")), "--version"]
    report.progress("processes")
    found = interleaved({"python -c pass": python} | commands, rounds)
    base = found.pop("python -c pass")
    report.line("python -c pass", base, "ms")
    for name, ms in found.items():
        goal = None if name.startswith("from") else at_most(_GOAL_MS)
        report.line(f"{name}, on top", ms - base, "ms", goal=goal)
    if not _has_command_line():
        report.missing("codesdk --version, on top", "there is no command line yet")
    await _without_a_key(report, quick)


async def _without_a_key(report: Report, quick: bool) -> None:
    """Measure how soon a task that nobody pays for says so. No program is started for it, and no model asked."""
    from codesdk import CodeSDK, CodeSDKError
    from codesdk.gateway import providers_from
    from codesdk.runtimes import entries

    for name, entry in entries().items():
        if not entry.wires:  # it asks no model, so it needs no key
            continue
        took: list[float] = []
        async with CodeSDK.open(providers=providers_from({})) as sdk:
            for _ in range(3 if quick else 15):
                session = await sdk.create_session(runtime=name, workspace=".")
                started = time.perf_counter()
                try:
                    await (await session.start("Hello")).result()
                except CodeSDKError as error:
                    if error.code != "AUTH_REQUIRED":
                        raise
                else:
                    raise AssertionError(f"a task of {name} without a key did not fail")
                took.append((time.perf_counter() - started) * 1000)
        report.line(f"{name}: a task without a key fails", median(took), "ms", goal=at_most(_KEYLESS_MS))


def interleaved(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each command; they take turns, so that noise meets all."""
    took: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            if number:
                took[name].append((time.perf_counter() - started) * 1000)
    return {name: median(values) for name, values in took.items()}


def _has_command_line() -> bool:
    try:
        return importlib.util.find_spec("codesdk.cli.main") is not None
    except ModuleNotFoundError:
        return False
