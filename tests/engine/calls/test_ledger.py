"""A tool call from its announcement to its end: decided once, run at most once, and the runtime hears of it."""

from typing import Any

import pytest
from tests.engine.rig import (
    APPROVED,
    ASKED,
    BEGUN,
    DENIED,
    ENGINE,
    POLICY,
    RAN,
    USER,
    Rig,
    identity,
    rig,
    texts,
)

from codesdk import Conflict, NotFound, Session
from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import FileChange, ToolRun
from codesdk.contract.runtime import ToolAnnouncement, ToolReply
from codesdk.contract.tools import Change, Evaluation, PolicySnapshot, SandboxSummary
from codesdk.engine.calls import execution
from codesdk.testing.fakes import FakeTools, call, done, message

REQUEST = ASKED[:1]
JUDGED = ASKED[:2]
ASK_RULE = Evaluation(
    source="codesdk",
    result="ask",
    rule="mode:ask",
    reason="The permission mode ask asks before any tool runs.",
)


def asked(rig: Rig, *announced: Any, mode: Any = "ask", **settings: Any) -> Session:
    """Start a task that announces calls."""
    session = rig.open(mode, **settings)
    rig.start(session)
    rig.emit(*(announced or (call("fake.write", {"a": 1}),)))
    return session


def test_an_approved_call_runs_once_and_its_result_reaches_the_runtime():
    with rig() as r:
        session = asked(r)
        requested = r.one(session, ev.ToolCallRequested)
        assert r.story(session)[1:] == [*BEGUN, *ASKED]
        r.get(session.approve(requested.tool_call_id, reason="fine"))
        assert r.story(session)[3:] == [*ASKED, *APPROVED, *RAN]
        snapshot = PolicySnapshot(
            permission_mode="ask",
            decision="allow",
            sources=[ASK_RULE, Evaluation(source="user", result="allow", reason="fine")],
        )
        common = {**identity(requested), "name": "fake.write"}
        sandbox = SandboxSummary(network=False)
        assert [event.payload for event in r.events(session.id)[7:]] == [
            ev.ToolCallPolicyEvaluated(**identity(requested), source="user", result="allow", reason="fine"),
            ev.ToolCallApproved(**common, by=USER, policy_snapshot=snapshot, reason="fine"),
            ev.ToolCallStarted(**common, execution_env="codesdk_host", sandbox=sandbox),
            ev.ToolCallCompleted(
                **common,
                executed_by="codesdk",
                execution_env="codesdk_host",
                policy_snapshot=snapshot,
                sandbox=sandbox,
                is_error=False,
                outcome="known",
                duration_ms=r.one(session, ev.ToolCallCompleted).duration_ms,
                changes=[],
                result_preview="ok",
            ),
        ]
        assert [run.input for run in r.tools.invocations] == [{"a": 1}]
        assert r.play.replies == {"c1": ToolReply(result="ok", is_error=False)}


def test_a_denial_reaches_the_runtime_with_its_reason():
    with rig() as r:
        session = asked(r)
        requested = r.one(session, ev.ToolCallRequested)
        r.get(session.deny(requested.tool_call_id, "not on a Friday"))
        assert r.story(session)[3:] == [*ASKED, *DENIED]
        assert r.one(session, ev.ToolCallDenied) == ev.ToolCallDenied(
            **identity(requested),
            name="fake.write",
            by=USER,
            policy_snapshot=PolicySnapshot(
                permission_mode="ask",
                decision="deny",
                sources=[ASK_RULE, Evaluation(source="user", result="deny", reason="not on a Friday")],
            ),
            reason="not on a Friday",
        )
        assert (r.tools.runs, r.play.replies) == ([], {"c1": "not on a Friday"})
        r.emit(message("Well."), done())
        assert texts(r.get(session.transcript())) == [
            ("user", "Go"),
            ("assistant", "Well.", "fake.write#1"),
            ("tool", "error: not on a Friday"),
        ]


def test_reads_overlap_and_writes_run_one_at_a_time():
    with rig() as r:
        r.tools.hold()
        names = ["fake.write", "fake.read", "fake.write", "fake.read"]
        calls = [call(name, {"n": n}, f"c{n}") for n, name in enumerate(names)]
        session = asked(r, *calls, mode="yolo")
        assert [run.invocation.input["n"] for run in r.tools.runs] == [0, 1, 3]
        r.tools.runs[0].finish("first")
        r.settle()
        assert [run.invocation.input["n"] for run in r.tools.runs] == [0, 1, 3, 2]
        r.tools.release()
        r.settle()
        assert r.play.replies == {
            f"c{n}": ToolReply(result="first" if n == 0 else "ok", is_error=False) for n in range(4)
        }
        order = [p.runtime_tool_call_id for p in r.all(session, ev.ToolCallStarted)]
        assert order == ["c0", "c1", "c3", "c2"]


def test_a_question_that_nobody_answers_in_time_is_a_denial():
    with rig() as r:
        session = asked(r, approval_timeout_s=30.0)
        r.pass_time(29.9)
        assert r.story(session)[3:] == ASKED
        r.pass_time(0.2)
        assert r.story(session)[3:] == [*ASKED, *DENIED]
        question = r.one(session, ev.ApprovalRequested)
        why = "Nobody answered within 30 s."
        assert r.one(session, ev.ApprovalAnswered) == ev.ApprovalAnswered(
            approval_id=question.approval_id, decision="deny", by=ENGINE, scope="once", reason=why
        )
        assert r.play.replies == {"c1": why}
        assert r.refused(session.approve(question.tool_call_id), Conflict) == "CONFLICT"


def test_a_tool_approved_for_the_session_is_not_asked_about_again():
    with rig() as r:
        session = asked(r)
        r.get(session.approve(r.call(session), scope="session"))
        r.emit(call("fake.write", {"a": 2}, "c2"), call("fake.read", {}, "c3"), done())
        assert r.play.replies == {"c1": ToolReply(result="ok", is_error=False)} | {
            "c2": ToolReply(result="ok", is_error=False)
        }
        (again,) = [p for p in r.all(session, ev.ToolCallApproved) if p.runtime_tool_call_id == "c2"]
        grant = Evaluation(
            source="codesdk", result="allow", rule="grant:mode:ask", reason="Approved for this session."
        )
        assert (again.by, again.policy_snapshot.sources) == (POLICY, [ASK_RULE, grant])
        assert [row.tool for row in r.get(r.sdk.approvals())] == ["fake.read"]
        r.get(session.deny(r.call(session, "c3"), "no"))
        r.reopen()
        session = r.handle(session)
        r.start(session, "More")
        r.emit(call("fake.write", {"a": 3}, "c4"))
        assert r.get(r.sdk.approvals()) == []
        assert r.play.replies == {"c4": ToolReply(result="ok", is_error=False)}


def test_nobody_is_asked_in_a_non_interactive_session():
    with rig() as r:
        session = asked(r, interaction_mode="non_interactive")
        assert r.story(session)[3:] == [*JUDGED, "tool.call.policy_evaluated", "tool.call.denied"]
        denied = r.one(session, ev.ToolCallDenied)
        assert (denied.by, [s.rule for s in denied.policy_snapshot.sources]) == (
            POLICY,
            ["mode:ask", "non_interactive"],
        )
        assert r.play.replies == {"c1": denied.reason}
        assert r.get(r.sdk.approvals()) == []


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"attempt": 2}, {"input_hash": "sha256:" + "0" * 64}])
@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_an_answer_that_was_meant_for_something_else_is_a_conflict(wrong: Any, decision: str):
    with rig() as r:
        session = asked(r)
        work = session.approve if decision == "approve" else session.deny
        reason: Any = {} if decision == "approve" else {"reason": "no"}
        before = r.story(session)
        assert r.refused(work(r.call(session), **reason, **wrong), Conflict) == "CONFLICT"
        assert r.story(session) == before
        right = {"attempt": 1, "input_hash": hash_json({"a": 1})}
        r.get(work(r.call(session), **reason, **right))
        assert len(r.play.replies) == 1


def test_an_answer_to_a_call_that_is_not_there_is_not_found():
    with rig() as r:
        session = r.open()
        assert r.refused(session.approve("call_none"), NotFound) == "NOT_FOUND"
        r.start(session)
        assert r.refused(session.deny("call_none", "no"), NotFound) == "NOT_FOUND"
        other = asked(r)
        assert r.refused(session.approve(r.call(other)), NotFound) == "NOT_FOUND"


@pytest.mark.parametrize("first", ["approve", "deny"])
def test_the_same_answer_again_is_no_error_and_another_one_is_a_conflict(first: str):
    with rig() as r:
        r.tools.hold()
        session = asked(r)
        name = r.call(session)

        def answer(decision: str) -> Any:
            return session.approve(name) if decision == "approve" else session.deny(name, "no")

        second = {"approve": "deny", "deny": "approve"}[first]
        r.get(answer(first))
        r.get(answer(first))
        assert r.refused(answer(second), Conflict) == "CONFLICT"
        r.tools.release()
        r.settle()
        r.get(answer(first))
        assert r.refused(answer(second), Conflict) == "CONFLICT"
        assert r.story(session)[3:] == [*ASKED, *(APPROVED + RAN if first == "approve" else DENIED)]


def test_an_answer_may_come_before_the_question():
    with rig() as r:
        session = r.open()
        r.start(session)
        live = r.session(session.id)
        r.play.emit(call("fake.write", {"a": 1}))
        while not (live.state.task and live.state.task.calls):
            r.loop.turn()
        (early,) = live.state.task.calls.values()
        assert early.approval_id is None
        r.get(session.approve(early.identity.tool_call_id))
        assert r.story(session)[3:] == [*ASKED, *APPROVED, *RAN]


def test_an_early_answer_that_the_policy_contradicts_is_a_conflict():
    with rig() as r:
        session = r.open("yolo")
        r.start(session)
        live = r.session(session.id)
        r.play.emit(call("fake.write", {"a": 1}))
        while not (live.state.task and live.state.task.calls):
            r.loop.turn()
        (early,) = live.state.task.calls.values()
        name = early.identity.tool_call_id
        assert r.refused(session.deny(name, "no"), Conflict) == "CONFLICT"
        assert r.story(session)[3:] == [*JUDGED, "tool.call.approved", *RAN]


# --- announcements -------------------------------------------------------------------------------


def test_a_call_announced_twice_is_joined_to_the_first():
    with rig() as r:
        session = asked(r, call("fake.read", {"a": 1}), call("fake.read", {"a": 1}), mode="yolo")
        assert [p.runtime_tool_call_id for p in r.all(session, ev.ToolCallRequested)] == ["c1"]
        assert len(r.tools.runs) == 1
        assert r.one(session, ev.RuntimeNotice) == ev.RuntimeNotice(
            kind="warning",
            message="The runtime announced call c1 twice; it was joined to the first.",
            details={"runtime_tool_call_id": "c1", "tool_call_id": r.call(session)},
        )


def test_the_same_runtime_id_with_another_input_is_another_call():
    with rig() as r:
        session = asked(r, call("fake.read", {"a": 1}), call("fake.read", {"a": 2}), mode="yolo")
        asked_for = r.all(session, ev.ToolCallRequested)
        assert [(p.runtime_tool_call_id, p.input) for p in asked_for] == [("c1", {"a": 1}), ("c1", {"a": 2})]
        assert len({p.tool_call_id for p in asked_for}) == 2
        assert [run.input for run in r.tools.invocations] == [{"a": 1}, {"a": 2}]
        assert [notice.kind for notice in r.all(session, ev.RuntimeNotice)] == ["violation"]


@pytest.mark.parametrize(
    ("announced", "rule", "reason"),
    [
        (call("no.such"), "tool:unknown", "There is no tool no.such. On offer: fake.read, fake.write."),
        (call("fake.read", {"invalid": "path is missing"}), "input:invalid", "path is missing"),
        (call("fake.read", ["no object"]), "input:invalid", "fake.read takes an object."),
    ],
)
def test_a_call_that_cannot_be_is_denied_with_a_reason_for_the_model(
    announced: ToolAnnouncement, rule: str, reason: str
):
    with rig() as r:
        session = asked(r, announced, mode="yolo")
        assert r.story(session)[3:] == [*JUDGED, "tool.call.denied"]
        denied = r.one(session, ev.ToolCallDenied)
        opinion = Evaluation(source="codesdk", result="deny", rule=rule, reason=reason)
        assert (denied.by, denied.reason, denied.policy_snapshot.sources) == (POLICY, reason, [opinion])
        assert (r.tools.runs, r.play.replies) == ([], {"c1": reason})


# --- large things, bad tools, output -------------------------------------------------------------


def ref_of(rig: Rig, session: Session, name: str) -> ArtifactRef:
    rows = rig.get(rig.sdk.archive.artifacts(session.id))
    (found,) = [row.ref for row in rows if row.ref.name == name]
    return found


def test_a_large_input_becomes_an_artifact_and_the_tool_still_gets_it_whole():
    big = {"text": "x" * 100}
    with rig() as r:
        session = asked(r, call("fake.read", big), mode="yolo", input_inline_bytes=50)
        requested = r.one(session, ev.ToolCallRequested)
        ref = ref_of(r, session, "input")
        assert (requested.input_ref, requested.input_hash) == (ref, hash_json(big))
        assert r.get(r.sdk.read_artifact(ref.artifact_id)) == b'{"text":"' + b"x" * 100 + b'"}'
        assert [run.input for run in r.tools.invocations] == [big]


@pytest.mark.parametrize(
    ("result", "stored"), [("y" * 100, b"y" * 100), ({"y": "z" * 100}, b'{"y":"' + b"z" * 100 + b'"}')]
)
def test_a_large_result_becomes_an_artifact_and_the_runtime_still_gets_it_whole(result: Any, stored: bytes):
    with rig() as r:
        r.tools.give("fake.read", result)
        session = asked(r, call("fake.read"), mode="yolo", result_inline_bytes=50)
        completed = r.one(session, ev.ToolCallCompleted)
        ref = ref_of(r, session, "result")
        assert completed.result_ref == ref
        assert f"{len(stored)} bytes in all" in completed.result_preview
        assert ref.artifact_id not in completed.result_preview, (
            "the transcript is hashed: no ids of artifacts"
        )
        assert r.get(r.sdk.read_artifact(ref.artifact_id)) == stored
        assert r.play.replies == {"c1": ToolReply(result=result, is_error=False)}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such file"), "The tool failed: ValueError: no such file"),
        (NotFound("There is no a.txt."), "There is no a.txt."),
    ],
)
def test_a_tool_that_raises_gives_an_error_result_and_the_task_goes_on(error: Exception, said: str):
    with rig() as r:
        r.tools.give("fake.read", error)
        session = asked(r, call("fake.read"), mode="yolo")
        assert r.play.replies == {"c1": ToolReply(result=said, is_error=True)}
        completed = r.one(session, ev.ToolCallCompleted)
        assert (completed.is_error, completed.outcome, completed.result_preview) == (True, "known", said)
        r.emit(message("I see."), done())
        assert [type(end) for end in r.ended(session)] == [ev.TaskCompleted]


def test_exit_code_and_changes_of_a_tool_are_kept():
    with rig() as r:
        diff = "--- a\n+++ b\n"
        run = ToolRun(result=None, exit_code=3, changes=[FileChange(path="a.txt", diff=diff)])
        r.tools.give("fake.write", run)
        session = asked(r, call("fake.write"), mode="yolo")
        completed = r.one(session, ev.ToolCallCompleted)
        ref = ref_of(r, session, "a.txt")
        assert (completed.exit_code, completed.changes) == (
            3,
            [Change(path="a.txt", diff_ref=ref, undo=None)],
        )
        assert r.get(r.sdk.read_artifact(ref.artifact_id)) == diff.encode()


def test_output_streams_while_a_tool_runs_and_is_kept_whole():
    with rig() as r:
        r.tools.hold()
        session = asked(r, call("fake.read"), mode="yolo")
        (run,) = r.tools.runs
        run.say("one ")
        r.settle()
        assert [p.delta for p in r.all(session, ev.ToolOutputDelta)] == ["one "]
        run.say("warning", "stderr")
        run.say("two")
        run.finish()
        r.settle()
        said = [(p.stream, p.delta) for p in r.all(session, ev.ToolOutputDelta)]
        assert said == [("stdout", "one "), ("stderr", "warning"), ("stdout", "two")]
        stdout, stderr = ref_of(r, session, "stdout"), ref_of(r, session, "stderr")
        requested = r.one(session, ev.ToolCallRequested)
        assert r.one(session, ev.ToolOutputCompleted) == ev.ToolOutputCompleted(
            **identity(requested), bytes=14, truncated=False, refs=[stdout, stderr]
        )
        assert r.get(r.sdk.read_artifact(stdout.artifact_id)) == b"one two"
        run.say("too late")
        r.settle()
        assert r.story(session)[-2:] == ["tool.output.completed", "tool.call.completed"]


def test_more_output_than_the_bounds_allow_is_cut_and_said_to_be(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(execution, "MAX_DELTA_BYTES", 10)
    monkeypatch.setattr(execution, "MAX_KEPT_BYTES", 15)
    with rig() as r:
        r.tools.hold()
        session = asked(r, call("fake.read"), mode="yolo")
        for _ in range(5):
            r.tools.runs[0].say("12345")
        r.tools.release()
        r.settle()
        assert [p.delta for p in r.all(session, ev.ToolOutputDelta)] == ["12345"] * 2
        ended = r.one(session, ev.ToolOutputCompleted)
        assert (ended.bytes, ended.truncated) == (25, True)
        assert r.get(r.sdk.read_artifact(ended.refs[0].artifact_id)) == b"12345" * 3


def test_a_handle_on_a_task_answers_for_no_other_task():
    with rig() as r:
        session = asked(r)
        name = r.call(session)
        other = r.start(session)
        assert r.refused(other.approve(name), NotFound) == "NOT_FOUND"
        assert r.refused(other.deny(name), NotFound) == "NOT_FOUND"
        assert r.tools.runs == []
        (running,) = [row for row in r.get(session.tasks()) if row.task_id != other.id]
        r.get(session.task(running.task_id).approve(name))
        assert len(r.tools.runs) == 1


# --- after a crash -------------------------------------------------------------------------------


def crashed(rig: Rig, *announced: Any, **settings: Any) -> Session:
    """Let the engine die while calls wait for an answer."""
    session = asked(rig, *announced, **settings)
    rig.crash()
    return rig.handle(session)


def test_a_question_outlives_a_crash_and_is_run_by_resume_exactly_once():
    with rig() as r:
        session = crashed(r, message("Let me."), call("fake.write", {"a": 1}))
        requested = r.one(session, ev.ToolCallRequested)
        (row,) = r.get(r.sdk.approvals())
        assert (row.state, row.tool_call_id, row.attempt, row.input_hash) == (
            "carried",
            requested.tool_call_id,
            1,
            hash_json({"a": 1}),
        )
        at = r.last(session).seq
        r.get(session.approve(row.tool_call_id, reason="go on"))
        assert [row.state for row in r.get(r.sdk.approvals())] == ["approved"]
        assert r.tools.runs == []
        task = r.get(session.resume())
        assert r.story(session, after=at) == [
            "approval.answered",
            "task.started",
            "tool.call.requested",
            "tool.call.policy_evaluated",
            "tool.call.policy_evaluated",
            "tool.call.approved",
            *RAN,
            "model.input",
            "session.resumed",
        ]
        again = r.all(session, ev.ToolCallRequested)[1]
        assert identity(again) == {**identity(requested), "attempt": 2, "runtime_tool_call_id": None}
        approved = r.one(session, ev.ToolCallApproved)
        assert (approved.attempt, approved.by, approved.reason) == (2, USER, "go on")
        answer = Evaluation(source="user", result="allow", rule="carried", reason="go on")
        assert approved.policy_snapshot.sources == [ASK_RULE, answer]
        assert [(run.input, run.attempt) for run in r.tools.invocations] == [({"a": 1}, 2)]
        assert r.get(r.sdk.approvals()) == []
        assert texts(r.play.input.messages) == [
            ("user", "Go"),
            ("assistant", "Let me.", "fake.write#1"),
            ("tool", "error: The process ended before anyone answered; the question is kept for a resume."),
            ("assistant", "fake.write#2"),
            ("tool", "result: ok"),
        ]
        r.emit(message("Done.", "m2"), done())
        assert r.get(task.result()).text == "Done."
        r.crash()
        assert r.refused(r.handle(session).resume(), Conflict) == "CONFLICT"
        assert len(r.tools.runs) == 1


def test_a_carried_question_that_is_denied_does_not_run():
    with rig() as r:
        session = crashed(r)
        (row,) = r.get(r.sdk.approvals())
        r.get(session.deny(row.tool_call_id, "not any more"))
        assert r.get(r.sdk.approvals()) == []
        r.get(session.resume("Go on without it"))
        assert (r.tools.runs, [p.attempt for p in r.all(session, ev.ToolCallRequested)]) == ([], [1])
        assert texts(r.play.input.messages)[-1] == ("user", "Go on without it")


def test_a_carried_question_that_nobody_answered_stays_open_through_a_resume():
    with rig() as r:
        session = crashed(r)
        r.get(session.resume("Go on"))
        assert [row.state for row in r.get(r.sdk.approvals())] == ["carried"]
        r.emit(done())
        r.get(session.approve(r.call(session)))
        r.get(session.resume())
        assert [run.attempt for run in r.tools.invocations] == [2]


def test_a_carried_question_is_that_of_the_interrupted_task_also_when_another_one_has_gone_on():
    with rig() as r:
        session = crashed(r)
        (interrupted,) = r.get(session.tasks())
        task = r.get(session.resume("Go on"))
        name = r.call(session)
        assert r.refused(task.approve(name), NotFound) == "NOT_FOUND"
        r.emit(done())
        r.get(session.task(interrupted.task_id).approve(name))
        r.get(session.resume())
        assert [run.attempt for run in r.tools.invocations] == [2]


def test_the_same_answer_to_a_carried_question_is_no_error_and_another_one_is_a_conflict():
    with rig() as r:
        session = crashed(r)
        name = r.call(session)
        assert r.refused(session.approve(name, attempt=2), Conflict) == "CONFLICT"
        r.get(session.approve(name, attempt=1))
        r.get(session.approve(name))
        assert r.refused(session.deny(name, "no"), Conflict) == "CONFLICT"
        assert len(r.all(session, ev.ApprovalAnswered)) == 1


def test_an_input_that_was_redacted_is_not_run_from_the_store():
    with rig(secrets=("canary-secret",)) as r:
        session = crashed(r, call("fake.write", {"key": "canary-secret"}))
        r.get(session.approve(r.call(session)))
        r.get(session.resume())
        assert r.tools.runs == []
        why = "Its input held a secret, which is not stored, so it cannot be run again."
        assert [(p.attempt, p.reason) for p in r.all(session, ev.ToolCallDenied)][1:] == [(2, why)]
        assert texts(r.play.input.messages)[-1] == ("tool", f"error: {why}")


def test_a_carried_call_whose_tool_is_gone_is_denied():
    with rig() as r:
        session = asked(r)
        r.tools = FakeTools(r.tools.specs()[0])
        r.crash()
        session = r.handle(session)
        r.get(session.approve(r.call(session)))
        r.get(session.resume())
        denied = r.all(session, ev.ToolCallDenied)[-1]
        assert (denied.attempt, denied.reason) == (2, "There is no tool fake.write any more.")


def test_what_ran_or_was_about_to_run_at_a_crash_is_not_run_again():
    with rig() as r:
        r.tools.hold()
        session = asked(
            r, call("fake.write", {"n": 1}, "c1"), call("fake.write", {"n": 2}, "c2"), mode="yolo"
        )
        r.crash()
        session = r.handle(session)
        ends = [(p.runtime_tool_call_id, p.is_error, p.outcome) for p in r.all(session, ev.ToolCallCompleted)]
        assert ends == [("c1", True, "unknown"), ("c2", True, "known")]
        assert r.get(r.sdk.approvals()) == []
        r.get(session.resume())
        assert [run.invocation.input for run in r.tools.runs] == [{"n": 1}]
