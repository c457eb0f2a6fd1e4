"""`codesdk runtimes probe` on programs that are no agents: one sentence each, and nothing is left running."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtimes.acp.rig import pretending
from tests.runtimes.alone import alone, left_behind, tried_outside

from codesdk.cli import probing
from codesdk.cli.app import run
from codesdk.testing.probe import talk

FLOOD = "import sys\nwhile True: sys.stdout.write('{' * 100 + '\\n')"


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("tempfile.tempdir", None)
    with alone():
        yield
        assert tried_outside() == 0
    assert left_behind(tmp_path) == []
    assert list(tmp_path.glob("codesdk-*")) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["cat"], "The program repeats what it is told, so it is not an agent."),
        (["false"], "The program ended with code 1 before it answered initialize."),
        ([sys.executable, "-c", FLOOD], "The program writes without end, and none of it is a message."),
        (pretending("silent"), "The program did not answer initialize within 0.5 s."),
        (
            pretending("v2"),
            "The program speaks version 2 of the Agent Client Protocol, and CodeSDK speaks 1.",
        ),
        (
            pretending("v2-only"),
            "The program refused version 1 of the Agent Client Protocol, the one that CodeSDK speaks"
            " (info and capabilities are missing).",
        ),
        (
            pretending("dies", "initialize"),
            "The program ended with code 3 before it answered initialize. It wrote: I give up.",
        ),
    ],
)
def test_a_program_that_is_no_agent_is_said_so_in_a_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str], words: str
):
    if "silent" in command:
        monkeypatch.setattr(talk, "INTRODUCTION_S", 0.5)
    assert run(["runtimes", "probe", "--", *command]) == 1
    assert capfd.readouterr().err == f"error (RUNTIME_PROTOCOL): {words}\n"


def test_an_agent_whose_model_cannot_be_reached_has_no_row(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    assert run(["runtimes", "probe", "--json", "--write", "mine", "--", *pretending("told")]) == 1
    *findings, last = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert findings[0] == {
        "about": "agent",
        "certainty": "note",
        "words": "pretender 9.9.9-nobody, version 1 of the protocol",
    }
    assert (findings[-1]["about"], findings[-1]["certainty"]) == ("model", "unknown")
    assert findings[-1]["means"].startswith("Sessions are refused.")
    assert (last["usable"], last["written"]) == (False, None)
    assert not (tmp_path / "data").exists()


def test_an_agent_that_dies_later_is_said_so_with_its_last_words(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "probe", "--", *pretending("dies", "session/new")]) == 1
    said = capfd.readouterr().err
    assert "The program ended with code 3 before it answered session/new. It wrote: I give up." in said
    assert said.endswith("No session could use this agent, so there is no row.\n")


def test_time_that_is_up_is_a_finding(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "probe", "--timeout", "2", "--", *pretending("deaf")]) == 1
    assert "? time           The agent took more than 2 s." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--env", "NAME", "--", "cat"], "--env takes NAME=VALUE, not 'NAME'."),
        (["--row", "no-such-file", "--", "cat"], "The row no-such-file cannot be read"),
        (["--row", os.devnull, "--", "cat"], "is not a row"),
        (["--write", "qwen", "--", "cat"], "acp:qwen ships with CodeSDK."),
        (["--write", "../x", "--", "cat"], "cannot be an agent's name"),
        (["--", "no-such-program"], "There is no program 'no-such-program' that could be run."),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    capfd: pytest.CaptureFixture[str], options: list[str], words: str
):
    assert run(["runtimes", "probe", *options]) == 2
    assert words in capfd.readouterr().err


def test_without_a_network_of_its_own_an_agent_is_not_started(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probing, "can_be_alone", lambda: False)
    monkeypatch.setattr(probing, "is_alone", lambda: False)
    assert run(["runtimes", "probe", "--", "cat"]) == 2
    assert "--with-network" in capfd.readouterr().err
