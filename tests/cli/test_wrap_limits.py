"""The limits of `codesdk wrap` as its options set them, and how it ends when they are exceeded or it fails itself."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from tests.channel.requirements import shows
from tests.cli.shell import Live, Shell, environment
from tests.cli.test_wrap import POLICY, command, events, executed

ENDED = "codesdk wrap: the program is ended: "


def test_a_program_that_does_not_go_on_is_ended_and_the_log_says_why(shell: Shell):
    """Both at once: a program that is asked whether it lives has some seconds for its answer."""
    (shell.home / "policy.toml").write_text(POLICY)
    cases = {
        "running": (["--execution-timeout", "0.1"], "never_done", "ok.read has run for more than 0.1 s"),
        "silent": (["--silence-timeout", "0.1"], "interrupted", "it has printed nothing for 0.1 s"),
    }
    with ExitStack() as stack:
        started = {
            place: stack.enter_context(
                Live(
                    shell,
                    *["--data-dir", place, "wrap", "--policy", "policy.toml", "--grace", "0.2"],
                    *[*options, *command(program)],
                )
            )
            for place, (options, program, _) in cases.items()
        }
        for place, live in started.items():
            why = cases[place][2]
            _, err = live.process.communicate(timeout=60)
            assert (live.process.returncode, err.splitlines()[0]) == (40, f"{ENDED}{why}")
            stored = shell.codesdk("--data-dir", place, "events", "last", "--json").lines
            notices = [e["payload"] for e in stored if e["type"] == "runtime.notice"]
            assert [(n["kind"], n["message"]) for n in notices] == [
                ("violation", f"The program is stuck: {why}.")
            ]
            assert why in stored[-1]["payload"]["error"]["message"]
            assert shell.codesdk("--data-dir", place, "verify", "last").code == 0
    assert sorted(executed(shell)) == ["ok.read", "ready"]


@shows("8.1-warning")
@pytest.mark.parametrize(
    ("actions", "program", "code"),
    [
        (["exec"], "stays_without_waiting", 40),
        (["read", "exec"], "stays_without_waiting", 40),
        (["read"], "does_not_wait", 0),
    ],
)
def test_a_call_of_high_risk_that_nobody_decides_can_end_the_program(
    shell: Shell, actions: list[str], program: str, code: int
):
    options = [word for action in actions for word in ("--abort-on", action)]
    ran = shell.spawn("wrap", "--grace", "0.2", *options, *command(program))
    first = ran.err.splitlines()[0]
    assert (ran.code, first) == (
        code,
        f"{ENDED}it does tell (exec), which nobody decides here"
        if code
        else "codesdk wrap: audit only: it does not wait for a decision on tell (exec)",
    )
    assert events(shell)[-1]["type"] == ("task.failed" if code else "task.completed")


@pytest.mark.parametrize(("most", "code"), [("0", 40), ("1", 0)])
def test_more_unreadable_events_than_allowed_end_the_program(shell: Shell, most: str, code: int):
    ran = subprocess_bytes(
        shell, "wrap", "--grace", "0.2", "--max-parse-errors", most, *command("invalid_utf8")
    )
    assert ran.returncode == code
    assert (f"{ENDED}more than 0 of its events could not be read".encode() in ran.stderr) is bool(code)
    assert executed(shell) == []


def subprocess_bytes(shell: Shell, *args: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a command whose output is no text."""
    return subprocess.run(
        [sys.executable, "-m", "codesdk.cli.main", *args],
        cwd=shell.home,
        env=environment({}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


@shows("6.1-timeout")
def test_a_question_that_nobody_answers_in_time_is_denied(shell: Shell):
    ran = shell.spawn("wrap", "--interactive", "--decision-timeout", "0.3", *command("waits"))
    assert (ran.code, executed(shell)) == (0, [])
    kinds = [event["type"] for event in events(shell)]
    assert kinds.count("approval.requested") == 1
    assert kinds.count("tool.call.denied") == 1
    assert "tool.call.approved" not in kinds
    assert shell.codesdk("verify", "last").code == 0


def test_a_program_that_never_ends_is_shown_as_it_goes_and_ended_on_request(shell: Shell):
    with Live(shell, "wrap", "--grace", "0.2", *command("forever")) as live:
        assert live.process.stdout is not None
        assert [live.process.stdout.readline() for _ in range(20)] == ["still here\n"] * 20
        live.process.send_signal(signal.SIGTERM)
        live.process.communicate(timeout=60)
        assert live.process.returncode == 130
    last = events(shell)[-1]
    assert (last["type"], "SIGTERM was received" in json.dumps(last["payload"])) == ("task.failed", True)
    assert shell.codesdk("verify", "last").code == 0


BUG = """
import sys
from codesdk.channel.{module} import {name}
from codesdk.cli.app import run

async def fail(*_):
    raise ZeroDivisionError("nobody expected this")

{name}.{method} = fail
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("module", "name", "method"),
    [("arbiter", "Arbiter", "_event"), ("process", "ProcessRunner", "start_session")],
    ids=["while it runs", "before it runs"],
)
def test_a_bug_of_ours_ends_the_program_and_has_a_code_of_its_own(
    shell: Shell, module: str, name: str, method: str
):
    code = BUG.format(module=module, name=name, method=method)
    ran = subprocess.run(
        [sys.executable, "-c", code, "wrap", "--mode", "auto", *command("good")],
        cwd=shell.home,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, executed(shell)) == (50, [])
    assert events(shell)[-1]["type"] == "task.failed"
    assert shell.codesdk("verify", "last").code == 0
