"""`codesdk runtimes` and `codesdk conformance`, with the real programs in a network that has only loopback."""

import json
from collections.abc import Iterator

import pytest

from codesdk.cli.app import run
from codesdk.testing.network import alone


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


def test_every_runtime_is_listed_with_what_it_needs(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes"]) == 0
    lines = {line.split()[1]: line for line in capfd.readouterr().out.splitlines()}
    assert lines.keys() == {"claude-agent-sdk", "codex-sdk", "scripted"}
    assert "0.163.0" in lines["codex-sdk"]
    assert "not logged in" in lines["claude-agent-sdk"]


def test_one_that_is_not_ready_is_an_exit_code(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "claude", "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert (report["name"], report["status"]["ok"]) == ("claude-agent-sdk", False)
    assert report["capabilities"]["input_capture"] == "exact"


@pytest.mark.parametrize(
    "which", [["--runtime", "codex"], ["--adapter", "codesdk.runtimes.codex:CodexRuntime"]]
)
def test_a_cell_of_the_matrix_runs_on_a_built_in_runtime_and_on_one_from_outside(
    capfd: pytest.CaptureFixture[str], which: list[str]
):
    assert run(["conformance", *which, "--only", "streaming", "--json"]) == 0
    cells = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(c["name"], c["outcome"]) for c in cells] == [
        ("streaming", "pass"),
        ("no connection except loopback", "pass"),
    ]


@pytest.mark.parametrize(
    "wrong", [["--adapter", "no.such:Thing"], ["--only", "flying"], ["--runtime", "hal"]]
)
def test_what_is_not_there_is_said(capfd: pytest.CaptureFixture[str], wrong: list[str]):
    assert run(["conformance", *wrong]) == 2
    assert wrong[1].partition(":")[0] in capfd.readouterr().err
