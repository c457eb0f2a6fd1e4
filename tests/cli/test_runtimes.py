"""`codesdk runtimes` and `codesdk conformance`, with the real programs in a network that has only loopback."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codesdk.cli import runtime_checks
from codesdk.cli.app import run
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.codex import adapter as codex
from codesdk.runtimes.program.finding import Program
from codesdk.runtimes.registry import runtime_names
from codesdk.testing.network import alone


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


def test_every_runtime_is_listed_with_what_it_needs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
    assert run(["runtimes"]) == 0
    lines = {line.split()[1]: line for line in capfd.readouterr().out.splitlines()}
    assert lines.keys() == set(runtime_names())
    assert lines["codex-sdk"].endswith("0.163.0 tested · the key in OPENAI_API_KEY")
    assert (
        "There is no key for anthropic, and claude-agent-sdk is not logged in." in lines["claude-agent-sdk"]
    )


def test_one_that_is_not_ready_is_an_exit_code(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert run(["runtimes", "claude", "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert (report["name"], report["ready"], report["available"]["ok"]) == ("claude-agent-sdk", False, True)
    assert report["capabilities"]["input_capture"] == "exact"


@pytest.mark.parametrize(
    "which", [["--runtime", "codex"], ["--adapter", "codesdk.runtimes.codex.adapter:CodexRuntime"]]
)
def test_a_cell_of_the_matrix_runs_on_a_built_in_runtime_and_on_one_from_outside(
    capfd: pytest.CaptureFixture[str], which: list[str]
):
    rows = ["no connection except loopback", "program missing", "streaming"]
    only = [word for row in rows for word in ("--only", row)]
    assert run(["conformance", *which, *only, "--json"]) == 0
    cells = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(c["name"], c["outcome"]) for c in cells] == [
        ("streaming", "pass"),
        ("program missing", "pass"),
        ("no connection except loopback", "pass"),
    ]


def fixed_program() -> Runtime:
    """A runtime that cannot be given another program."""
    return codex.CodexRuntime()


def test_what_cannot_be_found_out_of_an_adapter_is_said_with_the_reason(capfd: pytest.CaptureFixture[str]):
    adapter, rows = "tests.cli.test_runtimes:fixed_program", ["--only", "program missing"]
    assert run(["conformance", "--adapter", adapter, *rows, "--only", "malformed output"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        adapter,
        "  ? program missing                     not-checked  the adapter takes no `program`, so it cannot be given another one",
        "  ? malformed output                    not-checked  the adapter takes no `program`, so it cannot be given another one",
        "  2 rows: 2 not-checked",
        "",
    ]
    adapter = "codesdk.testing.fakes:FakeRuntime"
    assert run(["conformance", "--adapter", adapter, *rows]) == 0
    assert capfd.readouterr().out.splitlines() == [
        adapter,
        "  - program missing                     unsupported  input_capture is compiled",
        "  1 rows: 1 unsupported",
        "",
    ]


@pytest.mark.parametrize(
    "wrong", [["--adapter", "no.such:Thing"], ["--only", "flying"], ["--runtime", "hal"]]
)
def test_what_is_not_there_is_said(capfd: pytest.CaptureFixture[str], wrong: list[str]):
    assert run(["conformance", *wrong]) == 2
    assert wrong[1].partition(":")[0] in capfd.readouterr().err


def test_the_doctor_looks_at_everything_that_a_runtime_needs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
    assert run(["runtimes", "doctor", "codex", "--json"]) == 0
    out = capfd.readouterr().out
    report = json.loads(out)
    program = report["findings"].pop(0)
    assert report == {
        "name": "codex-sdk",
        "alias": "codex",
        "ok": True,
        "findings": [
            {"check": "login", "state": "ok", "found": "the key in OPENAI_API_KEY"},
            {
                "check": "isolation",
                "state": "ok",
                "found": "a process namespace of its own: nothing that it starts outlives it",
            },
            {"check": "gateway", "state": "ok", "found": "answers on loopback"},
        ],
    }
    assert program["state"] == "ok"
    assert program["found"].endswith("/codex, version 0.163.0, the tested one")
    assert "sk-of-nobody" not in out


def test_the_doctor_says_what_to_do(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert run(["--data-dir", str(tmp_path), "runtimes", "doctor", "claude", "scripted"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "✗ claude-agent-sdk (claude)"
    assert "  ✗ login      There is no key for anthropic, and claude-agent-sdk is not logged in." in lines
    advice = next(line for line in lines if "→" in line)
    assert "Set ANTHROPIC_API_KEY where CodeSDK runs; or store a key: codesdk keys add anthropic." in advice
    assert lines[-2:] == ["✓ scripted", "  ✓ program    built in"]
    assert not list(tmp_path.iterdir())


def test_a_missing_program_and_missing_namespaces_are_told_apart(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    async def none() -> bool:
        return False

    async def missing(entry: RuntimeEntry, *_: object, **__: object) -> Program:
        raise TaskFailure("It is not there. Install it with: magic", code="RUNTIME_UNAVAILABLE")

    monkeypatch.setattr(runtime_checks, "has_namespaces", none)
    monkeypatch.setattr(codex, "find_program", missing)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
    assert run(["runtimes", "doctor", "codex", "--json"]) == 1
    findings = json.loads(capfd.readouterr().out)["findings"]
    assert findings[0] == {
        "check": "program",
        "state": "failed",
        "found": "It is not there.",
        "to_do": "Run: codesdk runtimes install codex.",
    }
    assert [(f["check"], f["state"]) for f in findings[1:]] == [
        ("login", "ok"),
        ("isolation", "note"),
        ("gateway", "ok"),
    ]


def test_what_would_be_installed_is_shown_and_nothing_more(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "install", "claude", "--dry-run"]) == 0
    shown = capfd.readouterr().out.split()
    assert shown[1:3] == ["pip", "install"]
    assert shown[-3:] == ["--python", sys.executable, "claude-agent-sdk==0.2.182"]


def test_what_is_there_is_not_installed_again(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "install", "codex"]) == 0
    assert capfd.readouterr().out.endswith("/codex, version 0.163.0, is installed already.\n")


def test_a_runtime_without_a_program_has_nothing_to_install(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "install", "scripted"]) == 2
    assert "there is nothing to install" in capfd.readouterr().err
