"""`python -m tests.soak [--write FILE] [NAME …]`: everything with the large counts, and a table of what ran.

Each row of `ROWS` is one run of pytest on some tests, so that its time and its outcome are known; a new kind of soak
adds a row, and the figures it needs to `tests.counts`. The whole table takes about an hour on two
cores, so rows can be run one by one: the page keeps the others, and each says at which commit it ran.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.counts import SOAK

ROOT = Path(__file__).parents[1]
FIGURES = "figures"
"""The property under which a test records what it counted, for the table: `record_property(FIGURES, ...)`."""


HEAD = "| what | how much | tests | outcome | seconds | commit |\n|---|---|---|---|---|---|"


class Row(NamedTuple):
    """What is tried, how often, and the tests that do it. `workers` is how many of them may run at once."""

    name: str
    counts: str
    tests: tuple[str, ...]
    workers: int = 2


class Outcome(NamedTuple):
    """How many tests of a row there were, how many of them failed, what that took, and what they counted."""

    tests: int
    failed: int
    seconds: float
    figures: str = ""


ROWS = (
    Row(
        "kills",
        f"{10 * len(SOAK.kill_seeds)} kills at moments drawn by chance; a kill at each step of a call",
        ("tests/crash",),
    ),
    Row(
        "faults",
        f"{SOAK.fault_kills} kills of a daemon under load, with pauses, full disks, clock jumps and limits between them",
        ("tests/chaos/test_scripted.py",),
        1,
    ),
    Row(
        "codex-faults",
        f"{SOAK.program_kills} of the same, with sessions of codex",
        ("tests/chaos/test_codex.py",),
        1,
    ),
    Row(
        "programs",
        f"{SOAK.program_sessions} sessions of each program, ended in every way",
        ("tests/runtimes/test_starts.py",),
        1,
    ),
    Row(
        "conformance",
        f"the whole matrix, {SOAK.claude_retries} retries of claude; once more to certify each program",
        ("tests/runtimes/test_conformance.py", "tests/cli/test_certify.py"),
        3,
    ),
    Row(
        "engine",
        f"{SOAK.machine_examples:,} walks of {SOAK.machine_steps} steps in memory, a sixth of that on SQLite",
        ("tests/engine/test_state_machine.py", "tests/store/test_log_states.py"),
    ),
    Row("chaos", f"{SOAK.chaos_seeds:,} runtimes that misbehave", ("tests/testing/test_chaos.py",)),
    Row(
        "fuzz", f"{SOAK.fuzz_inputs:,} hostile inputs for a parser, fewer where one is dear", ("tests/fuzz",)
    ),
    Row(
        "crowd",
        f"{SOAK.crowd:,} clients at once, one stalled for {SOAK.stall_s:.0f} s over {SOAK.stall_events:,} events",
        ("tests/daemon/test_stream_crowd.py",),
        1,
    ),
    Row(
        "streams",
        f"{SOAK.missed_events:,} missed events read again; daemons killed and ended under load",
        ("tests/daemon/test_streams.py", "tests/daemon/test_stream_ends.py"),
        1,
    ),
    Row(
        "gateway",
        f"{20 * SOAK.gateway_rounds:,} requests, good, bad and given up",
        ("tests/gateway/test_many_requests.py",),
        1,
    ),
    Row(
        "history",
        f"a session of {SOAK.history_events:,} events; {1_000 * SOAK.unread_tasks:,} events that nobody reads",
        ("tests/scale",),
        1,
    ),
    Row(
        "swaps",
        f"{30_000 * SOAK.races:,} file operations while a directory is swapped for a link",
        ("tests/sandbox/files/test_race.py",),
    ),
    Row(
        "examples",
        f"{SOAK.examples:,} examples of each property",
        ("tests/contract", "tests/store", "tests/tools", "tests/redaction", "tests/policy"),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows, print each as it ends. Return 1 if a test failed."""
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Run the large counts.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which rows: {', '.join(names)} (all)")
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="put what ran into the table of this page as well"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [row for row in ROWS if not options.names or row.name in options.names]
    print(HEAD, flush=True)
    failed, commit = False, commit_here()
    for row in chosen:
        outcome = run(row)
        failed = failed or outcome.failed > 0
        print(line := line_of(row, outcome, commit), flush=True)
        if options.write:  # at once, so that a run that is broken off leaves what it did
            before = options.write.read_text() if options.write.exists() else ""
            options.write.write_text(page({**lines_of(before), row.name: line}))
    return 1 if failed else 0


def commit_here() -> str:
    """Return the commit that is tried, with a + if it was changed since."""
    named = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"], cwd=ROOT, capture_output=True, text=True
    )
    return named.stdout.strip() or "unknown"


def lines_of(text: str) -> dict[str, str]:
    """Return the lines of a page's table, by the names of their rows."""
    return {
        line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")
    }


def run(row: Row) -> Outcome:
    """Run the tests of a row. Their output goes to stderr if any of them fails."""
    with tempfile.TemporaryDirectory(prefix="codesdk-soak-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(row.workers), "--dist", "worksteal"]
        command += ["--inline-snapshot=disable", f"--junitxml={report}", *row.tests]
        env = os.environ | {"CODESDK_COUNTS": "soak", "HYPOTHESIS_PROFILE": "ci"}
        started = time.monotonic()
        ran = subprocess.run(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        seconds = time.monotonic() - started
        if ran.returncode != 0:
            print(ran.stdout + ran.stderr, file=sys.stderr, flush=True)
        return outcome_of(report, seconds)


def outcome_of(report: Path, seconds: float) -> Outcome:
    """Read pytest's report. A run that left none, or no test in it, failed as a whole."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite")) if report.exists() else []
    tests = sum(int(suite.attrib["tests"]) for suite in suites)
    failed = sum(int(suite.attrib[kind]) for suite in suites for kind in ("failures", "errors"))
    figures = [
        found.attrib["value"]
        for suite in suites
        for found in suite.iter("property")
        if found.attrib["name"] == FIGURES
    ]
    return Outcome(tests, failed if tests else 1, seconds, "; ".join(figures))


def line_of(row: Row, outcome: Outcome, commit: str) -> str:
    verdict = "passed" if outcome.failed == 0 else f"**{outcome.failed} failed**"
    counts = f"{row.counts}: {outcome.figures}" if outcome.figures else row.counts
    return f"| {row.name} | {counts} | {outcome.tests} | {verdict} | {outcome.seconds:.0f} | {commit} |"


def page(lines: Mapping[str, str]) -> str:
    """Return docs/soak.md: the table in the order of the rows, and what it was measured on."""
    known = [lines[row.name] for row in ROWS if row.name in lines]
    return "\n".join(
        [
            "# Soak",
            "",
            "`make soak` runs all that is worth doing often with the large counts of `tests/counts.py`; `make test` does the",
            'same with small ones. `make soak ARGS="--write docs/soak.md"` wrote this page, row by row; names choose rows:',
            '`make soak ARGS="kills crowd"`. The last column is the commit at which a row last ran.',
            "",
            HEAD,
            *known,
            "",
            f"{len(os.sched_getaffinity(0))} cores, Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}.",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
