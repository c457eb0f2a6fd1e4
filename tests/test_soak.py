"""The table of the soak: every row runs tests that there are, and says what came of them."""

import json
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from tests.counts import COUNTS, SOAK
from tests.soak import (
    CELL,
    HEAD,
    ROOT,
    ROWS,
    Outcome,
    check_on,
    claimed,
    line_of,
    lines_of,
    main,
    matrix_page,
    outcome_of,
    page,
    pythons,
)

REPORT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="0"/></testsuites>'
COUNTED = (
    '<testsuites><testsuite tests="1" failures="0" errors="0"><testcase><properties>'
    '<property name="figures" value="200 kills"/></properties></testcase></testsuite></testsuites>'
)


def test_every_row_names_tests_that_are_there():
    assert [path for row in ROWS for path in row.tests if not (ROOT / path).exists()] == []
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_page_has_the_rows_that_there_are_in_their_order():
    on_page = list(lines_of((ROOT / "docs" / "soak.md").read_text()))
    assert on_page == [*lines_of(HEAD), *(row.name for row in ROWS)]


def test_a_soak_does_no_less_of_anything_than_a_test():
    larger = [
        SOAK.kill_seeds >= COUNTS.kill_seeds,
        *(a >= b for a, b in zip(SOAK[1:], COUNTS[1:], strict=True)),
    ]
    assert all(larger)


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (REPORT.format(7, 0, 0), Outcome(7, 0, 3.0)),
        (REPORT.format(7, 1, 2), Outcome(7, 3, 3.0)),
        (COUNTED, Outcome(1, 0, 3.0, "200 kills")),
        (REPORT.format(0, 0, 0), Outcome(0, 1, 3.0)),
        (None, Outcome(0, 1, 3.0)),
    ],
    ids=["passed", "failed", "figures", "no tests", "no report"],
)
def test_what_came_of_a_row_is_read_from_the_report(tmp_path: Path, report: str | None, outcome: Outcome):
    path = tmp_path / "report.xml"
    if report is not None:
        path.write_text(report)
    assert outcome_of(path, 3.0) == outcome


def test_what_rows_of_the_matrix_gave_is_read_from_the_report_and_put_into_its_page(tmp_path: Path):
    told = {
        "runtime": "codex-sdk",
        "program": "codex 1.0",
        "cells": [{"name": "streaming", "outcome": "fail", "detail": "it was silent"}],
    }
    path = tmp_path / "report.xml"
    path.write_text(
        '<testsuites><testsuite tests="1" failures="1" errors="0"><testcase><properties>'
        f'<property name="{CELL}" value="{escape(json.dumps(told), {chr(34): "&quot;"})}"/>'
        "</properties></testcase></testsuite></testsuites>"
    )
    outcome = outcome_of(path, 3.0)
    assert outcome == Outcome(1, 1, 3.0, "", (told,))
    page = matrix_page("", outcome)
    assert "| program | codex 1.0 |\n" in page
    assert "| streaming | ✗ |\n| tool approve |   |\n" in page
    assert page.endswith("| codex-sdk | streaming | fail | it was silent |\n")
    assert matrix_page(page, outcome) == page


def test_the_page_keeps_the_rows_that_did_not_run_this_time():
    first = line_of(ROWS[1], Outcome(2, 1, 9.0), "1a2b3c")
    assert first.endswith("| 2 | **1 failed** | 9 | 1a2b3c |")
    assert ": 200 kills | 1 | passed" in line_of(ROWS[0], Outcome(1, 0, 9.0, "200 kills"), "1a2b3c")
    before = page({ROWS[1].name: first})
    second = line_of(ROWS[0], Outcome(6, 0, 41.4), "4d5e6f")
    after = page({**lines_of(before), ROWS[0].name: second})
    assert f"{second}\n{first}" in after
    assert page(lines_of(after)) == after


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["nonsense"])
    assert "there is no nonsense; there are kills," in capsys.readouterr().err


def test_every_python_that_the_package_names_is_looked_for_and_this_one_is_found():
    assert claimed() == ["3.11", "3.12", "3.13"]
    found = pythons()
    assert list(found) == claimed()
    version = ".".join(map(str, sys.version_info[:2]))
    path = found[version]
    assert path is not None
    assert subprocess.run(
        [path, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=True
    )


def test_a_python_that_is_not_here_is_named_and_without_any_the_row_fails():
    assert check_on({"3.99": None})[:2] == (0, 1)
    assert check_on({"3.99": None}).figures == "3.99 (not found)"
