"""The arbiter with a scripted program: every rule of it, without a process."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.channel.judges import Judge
from tests.channel.requirements import shows

from codesdk.channel import (
    Arbiter,
    ArbiterLimits,
    Diagnostics,
    Launch,
    Outcome,
    PolicyAbort,
    PolicyAck,
    PolicyDecision,
    PolicyPing,
    ScriptedRunner,
    ToolProgress,
    ToolRequest,
    ToolResult,
)
from codesdk.channel.outcome import Abort
from codesdk.channel.protocol import ParseError
from codesdk.channel.runner import OutputLost, ParseFailed, StdinBroken, StreamClosed, ToolSeen
from codesdk.channel.scripted import Play, ScriptedSession
from codesdk.contract.errors import InvalidRequest
from codesdk.redaction import Redactor

FAST = ArbiterLimits(grace_s=0.01, probe_s=0.01)
KEY = "sk-ant-api03-" + "a" * 40


def request(call_id: str, tool: str = "ok", *, waits: bool = True, **fields: Any) -> ToolRequest:
    return ToolRequest(v=1, ts=1, id=call_id, tool=tool, requires_policy=waits, **fields)


def result(call_id: str, *, ok: bool = True) -> ToolResult:
    return ToolResult(v=1, ts=1, id=call_id, ok=ok)


async def play(
    program: Play, limits: ArbiterLimits = FAST, **options: Any
) -> tuple[Outcome, Judge, ScriptedSession]:
    judge, runner = Judge(), ScriptedRunner(program)
    arbiter = Arbiter(runner, judge, limits, **options)
    await arbiter.start_session(Launch(argv=["program"]))
    outcome = await asyncio.wait_for(arbiter.serve(), 20)
    assert runner.session is not None
    return outcome, judge, runner.session


def decisions(session: ScriptedSession) -> list[tuple[str, str]]:
    return [(one.id, one.decision) for one in session.told if isinstance(one, PolicyDecision)]


@shows("5.2-scripted", "5.3-judged", "5.3-exit")
async def test_requests_are_decided_and_their_results_taken():
    async def program(session: ScriptedSession) -> int:
        for name, tool in (("a", "ok.read"), ("b", "shell")):
            await session.say(request(name, tool))
            decision = await session.decision(name)
            assert isinstance(decision, PolicyDecision)
            await session.say(result(name, ok=decision.decision == "allow"))
        return 3

    outcome, judge, session = await play(program, run_id="run-1")
    assert decisions(session) == [("a", "allow"), ("b", "deny")]
    assert judge.ended == [("a", True)]
    assert (outcome.exit_code, outcome.abort, outcome.controlled) == (3, None, True)
    tally = outcome.tally
    assert (tally.requests, tally.allowed, tally.denied, tally.completed, tally.ignored) == (2, 1, 1, 2, 0)
    denied = [one for one in session.told if isinstance(one, PolicyDecision)][1]
    assert (denied.reason, denied.rule_id, denied.run_id) == ("no such thing", "by-name", "run-1")
    assert len({one.nonce for one in session.told}) == len(session.told)


@shows("3.3-hello")
async def test_the_first_command_is_a_ping():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a"))
        await session.decision("a")
        return 0

    _, _, session = await play(program)
    first = session.told[0]
    assert isinstance(first, PolicyPing)
    assert (first.capabilities, first.timeout_ms) == (["policy.decision.v1"], 300_000)


@shows("1.2-parallel")
async def test_a_call_that_waits_for_a_person_holds_up_no_other():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("slow", "wait"))
        await session.say(request("quick"))
        await session.decision("quick")
        await session.say(result("slow", ok=False))
        return 0

    outcome, judge, session = await play(program)
    assert decisions(session) == [("quick", "allow")]
    assert judge.withdrawn == ["slow"]
    assert outcome.abort is None


@shows("5.1-deadline")
async def test_no_answer_in_time_is_a_deny_that_is_written():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "wait"))
        decision = await session.decision("a")
        assert isinstance(decision, PolicyDecision)
        assert decision.decision == "deny"
        await session.say(result("a", ok=False))
        return 0

    outcome, judge, _ = await play(program, ArbiterLimits(decision_s=0.01))
    assert (outcome.tally.timeouts, outcome.tally.denied, judge.withdrawn) == (1, 0, ["a"])


async def test_a_judge_that_fails_is_a_deny():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "bug"))
        await session.decision("a")
        return 0

    _, _, session = await play(program)
    assert decisions(session) == [("a", "deny")]


async def test_unknown_and_repeated_ids_are_ignored_and_counted():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a"))
        await session.say(request("a", "shell"))
        await session.decision("a")
        await session.say(result("nobody"))
        await session.say(result("a"))
        await session.say(result("a"))
        await session.say(request("a"))
        return 0

    outcome, judge, session = await play(program)
    assert decisions(session) == [("a", "allow")]
    assert judge.asked == ["a"]
    assert judge.ended == [("a", True)]
    assert outcome.tally.ignored == 4


@shows("3.4-abort")
async def test_a_program_that_ignores_a_denial_is_ended_by_force():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "shell"))
        await session.decision("a")
        await session.say(result("a"))
        await asyncio.get_running_loop().create_future()
        return 0

    outcome, judge, session = await play(program)
    reason = "it ran shell although that was denied"
    assert outcome.abort == Abort(code="policy_violation", reason=reason)
    assert (outcome.exit_code, outcome.tally.ignored_denials) == (40, 1)
    assert session.signals == [signal.SIGTERM, signal.SIGKILL]
    last = session.told[-1]
    assert isinstance(last, PolicyAbort)
    assert (last.code, last.reason) == ("policy_violation", reason)
    assert isinstance(session.told[-2], PolicyPing)
    assert judge.notes == [("violation", f"The program did not obey: {reason}.")]


@shows("8.1-audit")
async def test_a_program_that_does_not_wait_is_watched_and_reported_once():
    warned: list[str] = []

    async def program(session: ScriptedSession) -> int:
        for name in ("a", "b"):
            await session.say(request(name, "shell", waits=False))
            await session.say(result(name))
        return 0

    outcome, judge, session = await play(program, warn=warned.append)
    assert (outcome.exit_code, outcome.controlled, decisions(session)) == (0, False, [])
    assert judge.watched == ["a", "b"]
    assert judge.ended == [("a", True), ("b", True)]
    assert warned == ["audit only: it does not wait for a decision on shell (exec)"]
    assert len(judge.notes) == 1


async def test_control_can_be_required():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", waits=False))
        await session.decision("a")
        return 0

    outcome, _, _ = await play(program, ArbiterLimits(grace_s=5, require_control=True))
    assert outcome.abort is not None
    assert outcome.abort.code == "policy_violation"
    assert outcome.exit_code == 40


@shows("8.1-warning")
@pytest.mark.parametrize(("action", "code"), [("exec", 40), ("unheard-of", 40), ("read", 0)])
async def test_a_call_of_high_risk_that_nobody_decides_can_end_the_program(action: str, code: int):
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", waits=False, action=action))
        await session.say(request("b"))
        await session.decision("b")
        return 0

    outcome, _, _ = await play(program, ArbiterLimits(grace_s=5, abort_on=("exec",)))
    assert outcome.exit_code == code


async def test_a_call_that_runs_before_it_is_decided_is_found_out():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "wait"))
        await session.say(result("a"))
        return 0

    outcome, judge, _ = await play(program)
    assert (outcome.tally.unasked, outcome.controlled, judge.ended) == (1, False, [])
    assert judge.notes[0][0] == "violation"
    assert judge.withdrawn in (["a"], [])  # the question may not have been put yet


async def test_in_the_mode_audit_everything_is_allowed_and_recorded():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "shell"))
        decision = await session.decision("a")
        assert isinstance(decision, PolicyDecision)
        await session.say(result("a", ok=decision.decision == "allow"))
        return 0

    outcome, judge, _ = await play(program, audit=True)
    assert (judge.asked, judge.watched, judge.ended) == ([], ["a"], [("a", True)])
    assert (outcome.controlled, outcome.tally.watched) == (True, 1)


@shows("8.2-threshold", "5.3-unparsed")
async def test_more_parse_errors_than_the_threshold_abort():
    async def program(session: ScriptedSession) -> int:
        for _ in range(4):
            await session.report(ParseFailed("stdout", ParseError(kind="json", problem="it is no JSON")))
        await session.decision("x")
        return 0

    outcome, judge, _ = await play(program, ArbiterLimits(grace_s=5, max_parse_errors=3))
    assert outcome.tally.parse_errors == 4
    assert outcome.abort is not None
    assert outcome.abort.code == "fatal_error"
    assert len(judge.notes) == 1
    fine, _, _ = await play(program_of_errors(3), ArbiterLimits(max_parse_errors=3))
    assert (fine.abort, fine.tally.parse_errors) == (None, 3)


def program_of_errors(count: int) -> Play:
    async def program(session: ScriptedSession) -> int:
        for _ in range(count):
            await session.report(ParseFailed("stdout", ParseError(kind="json", problem="it is no JSON")))
        return 0

    return program


async def test_a_request_that_cannot_be_read_is_denied_if_its_id_can():
    async def program(session: ScriptedSession) -> int:
        error = ParseError(kind="missing_field", problem="it has no tool", waits="a")
        await session.report(ParseFailed("stdout", error))
        decision = await session.decision("a")
        assert isinstance(decision, PolicyDecision)
        assert (decision.decision, decision.reason) == (
            "deny",
            "The request could not be read: it has no tool.",
        )
        return 0

    outcome, _, _ = await play(program)
    assert outcome.tally.denied == 1


@shows("5.1-broken", "5.3-writer", "6.1-transport")
async def test_stdin_that_is_gone_while_a_decision_waits_aborts(tmp_path: Path):
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "wait"))
        await session.report(StdinBroken("its stdin is closed"))
        await asyncio.get_running_loop().create_future()
        return 0

    outcome, _, session = await play(program, diagnostics=Diagnostics(tmp_path, "x", Redactor()))
    assert outcome.abort == Abort(
        code="fatal_error", reason="a decision cannot reach it: its stdin is closed"
    )
    assert outcome.exit_code == 40
    assert decisions(session) == []
    assert outcome.diagnostics is not None
    (call,) = json.loads(outcome.diagnostics.read_text())["calls"]
    assert (call["id"], call["state"]) == ("a", "transport_failed")


async def test_a_program_that_asks_after_its_stdin_is_gone_is_ended_too():
    async def program(session: ScriptedSession) -> int:
        await session.report(StdinBroken("its stdin is closed"))
        await session.say(request("a"))
        await asyncio.get_running_loop().create_future()
        return 0

    outcome, judge, _ = await play(program)
    assert outcome.abort is not None
    assert judge.asked == []


async def test_a_program_that_only_closes_its_stdin_may_go_on():
    async def program(session: ScriptedSession) -> int:
        await session.report(StdinBroken("its stdin is closed"))
        return 5

    outcome, _, _ = await play(program)
    assert (outcome.exit_code, outcome.abort) == (5, None)


async def test_an_end_while_a_call_waits_withdraws_the_question():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "wait"))
        return 9

    outcome, judge, session = await play(program)
    assert (outcome.exit_code, outcome.abort, decisions(session)) == (9, None, [])
    assert judge.withdrawn in (["a"], [])


async def test_what_ran_when_the_program_ended_has_an_end_that_nobody_knows():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a"))
        await session.decision("a")
        return 0

    _, judge, _ = await play(program)
    assert judge.ended == [("a", None)]


@pytest.mark.parametrize("trouble", ["execution", "silence", "closed"])
async def test_a_program_that_does_not_go_on_is_asked_whether_it_lives_and_then_ended(trouble: str):
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a"))
        await session.decision("a")
        if trouble == "closed":
            await session.report(StreamClosed("stdout"))
            await session.report(StreamClosed("stderr"))
        await session.decision("never")
        return 0

    limits = ArbiterLimits(
        grace_s=5,
        probe_s=0.02,
        execution_s=0.02 if trouble == "execution" else None,
        silence_s=0.02 if trouble == "silence" else None,
    )
    outcome, _, session = await play(program, limits)
    assert outcome.abort is not None
    assert outcome.abort.code == "fatal_error"
    kinds = [type(one) for one in session.told]
    assert kinds == [PolicyPing, PolicyDecision, PolicyPing, PolicyAbort]


async def test_a_program_that_answers_the_probe_is_left_alone():
    async def program(session: ScriptedSession) -> int:
        while sum(isinstance(one, PolicyPing) for one in session.told) < 3:
            pings = sum(isinstance(one, PolicyPing) for one in session.told)
            while sum(isinstance(one, PolicyPing) for one in session.told) == pings:
                async with session._news:
                    await session._news.wait()
            await session.say(PolicyAck(v=1, ts=1, id="p"))
        return 0

    outcome, _, _ = await play(program, ArbiterLimits(silence_s=0.2, probe_s=0.1))
    assert outcome.abort is None


async def test_waiting_for_a_person_is_no_silence():
    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "wait"))
        decision = await session.decision("a")
        assert isinstance(decision, PolicyDecision)
        return 0

    outcome, _, _ = await play(program, ArbiterLimits(silence_s=0.01, probe_s=0.01, decision_s=0.3))
    assert (outcome.abort, outcome.tally.timeouts) == (None, 1)


async def test_too_many_requests_that_wait_are_denied_at_once():
    async def program(session: ScriptedSession) -> int:
        for number in range(5):
            await session.say(request(f"w{number}", "wait"))
        await session.decision("w4")
        return 0

    _, _, session = await play(program, ArbiterLimits(max_waiting=3))
    assert decisions(session) == [("w3", "deny"), ("w4", "deny")]


async def test_progress_is_noted():
    async def program(session: ScriptedSession) -> int:
        await session.say(ToolProgress(v=1, ts=1, id="a", stage="copy", message="half", percent=50))
        return 0

    _, judge, _ = await play(program)
    assert judge.notes == [("signal", "copy: half")]


async def test_output_that_nobody_reads_ends_the_program():
    async def program(session: ScriptedSession) -> int:
        await session.report(OutputLost("stdout"))
        await session.decision("x")
        return 0

    outcome, _, _ = await play(program, ArbiterLimits(grace_s=5))
    assert outcome.exit_code == 130


async def test_the_first_interrupt_goes_to_the_program_and_the_second_ends_it():
    started = asyncio.Event()

    async def program(session: ScriptedSession) -> int:
        started.set()
        await session.decision("never")
        return 0

    judge, runner = Judge(), ScriptedRunner(program)
    arbiter = Arbiter(runner, judge, ArbiterLimits(grace_s=5))
    await arbiter.start_session(Launch(argv=["program"]))
    serving = asyncio.create_task(arbiter.serve())
    await started.wait()
    arbiter.interrupt()
    assert runner.session is not None
    assert runner.session.signals == [signal.SIGINT]
    arbiter.interrupt()
    outcome = await serving
    assert outcome.abort == Abort(code="user_cancel", reason="cancelled by the user")
    assert outcome.exit_code == 130


@shows("5.1-table", "5.1-retries", "5.2-output")
async def test_an_abort_leaves_a_file_that_explains_it_without_secrets(tmp_path: Path):
    unreadable = ParseFailed(
        "stderr", ParseError(kind="json", problem="it is no JSON"), f"{'x' * 1_950} {KEY}" + "y" * 5_000
    )

    async def program(session: ScriptedSession) -> int:
        session.tails["stdout"] = f"before {KEY}".encode()
        for _ in range(3):
            await session.say(request("w", "wait", args={"token": KEY}))
        await session.report(unreadable)
        await session.say(request("a", "shell"))
        await session.decision("a")
        await session.say(result("a"))
        await session.decision("never")
        return 0

    diagnostics = Diagnostics(tmp_path / "d", "ses_1", Redactor())
    outcome, _, _ = await play(program, ArbiterLimits(grace_s=5), diagnostics=diagnostics)
    path = outcome.diagnostics
    assert path is not None
    assert path == tmp_path / "d" / "abort-ses_1.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    text = path.read_text()
    assert "sk-ant" not in text
    found = json.loads(text)
    assert found["abort"]["code"] == "policy_violation"
    assert [(call["id"], call["state"], call["retries"]) for call in found["calls"]] == [("w", "pending", 2)]
    assert found["calls"][0]["for_s"] >= 0
    last = found["last_events"]
    kinds = ["tool.request"] * 3 + ["unreadable", "tool.request", "tool.result"]
    assert [event["type"] for event in last] == kinds
    assert (last[3]["stream"], last[3]["error"]["problem"]) == ("stderr", "it is no JSON")
    assert last[3]["line"].startswith("x" * 1_950)
    assert len(last[3]["line"]) <= 2_000
    assert found["stdout_tail"].startswith("before ")


async def test_a_disk_that_takes_no_diagnostics_does_not_hold_up_an_abort(tmp_path: Path):
    (tmp_path / "file").write_text("")

    async def program(session: ScriptedSession) -> int:
        await session.say(request("a", "shell"))
        await session.decision("a")
        await session.say(result("a"))
        await session.decision("never")
        return 0

    diagnostics = Diagnostics(tmp_path / "file", "x", Redactor())
    outcome, _, _ = await play(program, ArbiterLimits(grace_s=5), diagnostics=diagnostics)
    assert (outcome.exit_code, outcome.diagnostics) == (40, None)


async def test_cancelling_the_arbiter_kills_the_program():
    started = asyncio.Event()

    async def program(session: ScriptedSession) -> int:
        started.set()
        await session.decision("never")
        return 0

    runner = ScriptedRunner(program)
    arbiter = Arbiter(runner, Judge(), FAST)
    await arbiter.start_session(Launch(argv=["program"]))
    serving = asyncio.create_task(arbiter.serve())
    await started.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert runner.session is not None
    assert runner.session.signals == [signal.SIGKILL]


@pytest.mark.parametrize("limits", [{"max_open": 10}, {"max_open_bytes": 10 * 1000}])
@pytest.mark.parametrize("waits", [True, False])
async def test_calls_without_a_result_are_kept_in_a_bounded_number(limits: dict[str, Any], waits: bool):
    """The oldest end in a way that nobody knows; their ids stay used."""

    async def program(session: ScriptedSession) -> int:
        for number in range(40):
            await session.report(ToolSeen("stdout", request(str(number), waits=waits), 1000))
            if waits:
                await session.decision(str(number))
        await session.say(request("0", waits=waits))
        return 0

    arbiter_limits = ArbiterLimits(grace_s=0.01, probe_s=0.01, **limits)
    judge, runner = Judge(), ScriptedRunner(program)
    arbiter = Arbiter(runner, judge, arbiter_limits)
    await arbiter.start_session(Launch(argv=["program"]))
    outcome = await asyncio.wait_for(arbiter.serve(), 20)
    assert len(list(arbiter._calls)) <= 11
    assert outcome.tally.ignored == 1
    assert outcome.tally.completed >= 29


def test_limits_that_cannot_be_are_refused_at_once():
    with pytest.raises(InvalidRequest, match="grace_s must be a number, at least 0 and at most 2592000"):
        Arbiter(ScriptedRunner(quiet), Judge(), ArbiterLimits(grace_s=1e308))


async def quiet(session: ScriptedSession) -> int:
    return 0
