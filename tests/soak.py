"""`python -m tests.soak [--write FILE] [NAME …]`: everything with the large counts, and a table of what ran.

Each row of `ROWS` is one run of pytest on some tests, so that its time and its outcome are known; a new kind of soak
adds a row, and the figures it needs to `tests.counts`. The whole table takes about an hour on two
cores, so rows can be run one by one: the page keeps the others, and each says at which commit it ran.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.counts import SOAK

from codesdk.runtimes import entries
from codesdk.testing.cells import Cell
from codesdk.testing.matrix import column_of, read_page, write_page

ROOT = Path(__file__).parents[1]
FIGURES = "figures"
"""The property under which a test records what it counted, for the table: `record_property(FIGURES, ...)`."""
CELL = "cells"
"""The property under which a test records cells of the conformance matrix, for its page."""
MATRIX_PAGE = ROOT / "docs" / "runtimes" / "matrix.md"


PROGRAMS = [name for name, entry in entries().items() if entry.program is not None]
"""The runtimes that are programs: whichever there are, they are tried."""
HEAD = "| what | how much | tests | outcome | seconds | commit |\n|---|---|---|---|---|---|"


class Row(NamedTuple):
    """What is tried, how often, and the tests that do it; without tests it is `make check` on every Python.

    `workers` is how many of the tests may run at once.
    """

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
    cells: tuple[dict[str, Any], ...] = ()
    """What became of rows of the conformance matrix: runtime, program and cells."""


ROWS = (
    Row(
        "kills",
        f"{10 * len(SOAK.kill_seeds)} kills at moments drawn by chance; a kill at each step of a call; {SOAK.kills_in_a_start} in the middle of a start, for each of five ways to start a program",
        ("tests/crash", "tests/processes/test_guard.py"),
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
        f"{SOAK.program_deaths} starts and kills of each of the {len(PROGRAMS)} programs, and every other way to end",
        ("tests/runtimes/test_starts.py",),
        1,
    ),
    Row(
        "conformance",
        f"the whole matrix on {len(PROGRAMS)} programs, {SOAK.claude_retries} retries of claude; once more to certify; one script and one circle on all; what was compiled for each with what it sent",
        (
            "tests/runtimes/test_conformance.py",
            "tests/runtimes/test_same.py",
            "tests/runtimes/test_circle.py",
            "tests/runtimes/test_context.py",
            "tests/cli/test_certify.py",
        ),
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
        "channel",
        f"{SOAK.channel_requests:,} requests through one wrapped program; {SOAK.arbiter_kills} kills of an arbiter, half of them of a whole `codesdk wrap`, at moments drawn by chance",
        ("tests/channel/test_programs.py", "tests/channel/test_kills.py", "tests/cli/test_wrap.py"),
    ),
    Row(
        "extensions",
        f"{SOAK.extension_histories} histories of handlers over reloads and {SOAK.extension_histories} over kills; {5 * len(SOAK.kill_seeds)} kills among jobs, and one at each step of a job and of a dispatch",
        (
            "tests/extensions/test_properties.py",
            "tests/extensions/test_restart.py",
            "tests/extensions/test_job_kills.py",
        ),
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
        (
            "tests/contract",
            "tests/store",
            "tests/tools",
            "tests/redaction",
            "tests/policy",
            "tests/channel/test_framing.py",
            "tests/channel/test_json_prefix.py",
            "tests/channel/test_protocol.py",
            "tests/extensions/test_answers.py",
            "tests/extensions/test_outcomes.py",
            "tests/extensions/test_versions.py",
        ),
    ),
    Row("pythons", "`make check` on every Python that pyproject.toml names and that is found", ()),
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
            if outcome.cells:
                matrix = MATRIX_PAGE.read_text() if MATRIX_PAGE.exists() else ""
                MATRIX_PAGE.write_text(matrix_page(matrix, outcome))
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
    if not row.tests:
        return check_on(pythons())
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


def claimed() -> list[str]:
    """Return the versions of Python that the package says it is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    return sorted(named, key=lambda version: int(version.partition(".")[2]))


def pythons() -> dict[str, str | None]:
    """Return the path of each of these versions, or None where it is not on this machine."""
    found = subprocess.run([ROOT / "scripts" / "find-pythons"], capture_output=True, text=True, check=True)
    paths = dict(line.split(" ", 1) for line in found.stdout.splitlines())
    return {version: paths.get(version) for version in claimed()}


def check_on(paths: Mapping[str, str | None]) -> Outcome:
    """Run `make check` with each Python, in an environment of its own, and sum up. Checks that fail count as a test."""
    tests, failed, started = 0, 0, time.monotonic()
    for version, path in paths.items():
        if path is None:
            continue
        with tempfile.TemporaryDirectory(prefix="codesdk-soak-") as folder:
            report = Path(folder) / "report.xml"
            command = ["make", "check", f"PYTHON={path}", f"ARGS=--junitxml={report}"]
            # The counts and settings of a soak are not those of a check.
            env = {
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("MAKE", "MFLAGS", "VENV"))
            }
            ran = subprocess.run(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if ran.returncode != 0:
                print(f"Python {version}:\n{ran.stdout}{ran.stderr}", file=sys.stderr, flush=True)
            outcome = outcome_of(report, 0)
        tests += outcome.tests
        failed += outcome.failed or (1 if ran.returncode else 0)
    figures = [version if path else f"{version} (not found)" for version, path in paths.items()]
    return Outcome(tests, failed if tests else 1, time.monotonic() - started, ", ".join(figures))


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
    cells = tuple(
        json.loads(found.attrib["value"])
        for suite in suites
        for found in suite.iter("property")
        if found.attrib["name"] == CELL
    )
    return Outcome(tests, failed if tests else 1, seconds, "; ".join(figures), cells)


def matrix_page(before: str, outcome: Outcome) -> str:
    """Return the page of the conformance matrix with what came of a run. Runtimes that did not run keep theirs."""
    columns, today = read_page(before), time.strftime("%Y-%m-%d", time.gmtime())
    for told in outcome.cells:
        cells = [Cell(**cell) for cell in told["cells"]]
        name = told["runtime"]
        columns[name] = column_of(told["program"], today, cells, columns.get(name))
    return write_page(columns)


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
