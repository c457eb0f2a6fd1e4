"""Questions to a person: asked by a tool call, by a runtime's own tool or by an MCP server; answered with text, once."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.engine.rig import BEGUN, ENGINE, RAN, USER, Rig, rig

from codesdk import Conflict, InvalidRequest, NotFound, Session
from codesdk.contract import events as ev
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.codec import encode
from codesdk.contract.messages import ToolResult
from codesdk.contract.ports import ToolInvocation, ToolRun, ToolSink
from codesdk.contract.records import ApprovalRow, StoredFrame
from codesdk.contract.runtime import ToolAnnouncement, ToolReply
from codesdk.contract.settings import Limits
from codesdk.contract.tools import Question
from codesdk.engine.calls import server_questions
from codesdk.engine.calls.evaluation import NOBODY_ANSWERS
from codesdk.engine.checks.rules_log import Checker
from codesdk.policy.modes import ModePolicy
from codesdk.testing.fakes import FakeRuntime, FakeTools, call, done, message
from codesdk.tools import builtin_registry

WHICH = Question(text="Which database?", options=["SQLite", "Postgres"])
ASK = {"question": "Which database?", "options": ["SQLite", "Postgres"]}
ANSWERED = ["approval.answered", "tool.call.policy_evaluated", "tool.call.approved"]
OWN = ["tool.call.requested", *["tool.call.policy_evaluated"] * 2, "approval.requested"]


def asked(r: Rig, mode: Any = "ask", **options: Any) -> Session:
    """Open a session whose model has asked which database to use."""
    session = r.open(mode, **options)
    r.start(session)
    r.emit(call("user.ask", ASK))
    return session


def waiting(r: Rig, session: Session) -> ApprovalRow:
    (row,) = r.get(session.approvals())
    return row


def test_a_question_is_answered_through_the_task_that_asks_and_no_other():
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        row = waiting(r, session)
        other = r.start(session)
        assert r.refused(other.answer(row.approval_id, "SQLite"), NotFound) == "NOT_FOUND"
        r.get(session.task(row.task_id or "").answer(row.approval_id, "Postgres"))
        assert r.play.replies["c1"] == ToolReply(result="Postgres", is_error=False)


@pytest.mark.parametrize("mode", ["ask", "auto", "yolo"])
def test_the_answer_is_the_result_and_asking_needs_no_approval_of_its_own(mode: Any):
    with rig(tools=builtin_registry()) as r:
        session = asked(r, mode)
        assert r.story(session)[1:] == [*BEGUN, *OWN]
        row = waiting(r, session)
        assert (row.kind, row.question, row.tool, row.summary) == ("question", WHICH, "user.ask", WHICH.text)
        r.get(session.answer(row.approval_id, "Postgres, please"))
        assert r.one(session, ev.ApprovalAnswered) == ev.ApprovalAnswered(
            approval_id=row.approval_id, decision="approve", by=USER, scope="once", answer="Postgres, please"
        )
        assert r.play.replies["c1"] == ToolReply(result="Postgres, please", is_error=False)
        r.emit(message("Fine."), done())
        assert r.story(session)[1:] == [
            *BEGUN,
            *OWN,
            *ANSWERED,
            *RAN,
            "model.output.completed",
            "task.completed",
        ]
        assert r.get(session.approvals()) == r.get(session.grants()) == []


def test_a_question_is_declined_with_a_reason_that_the_model_reads():
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        r.get(session.deny(r.call(session), "not now"))
        assert r.play.replies["c1"] == "not now"
        r.emit(done())


def test_the_first_answer_counts_and_a_question_is_not_approved():
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        name = waiting(r, session).approval_id
        assert r.refused(session.approve(r.call(session)), InvalidRequest) == "INVALID_REQUEST"
        first, second = (
            r.loop.create_task(session.answer(name, "one")),
            r.loop.create_task(session.answer(name, "two")),
        )
        r.settle()
        assert first.exception() is None
        assert isinstance(second.exception(), Conflict)
        assert r.refused(session.answer("apr_nothing", "x"), Conflict) == "CONFLICT"
        assert r.play.replies["c1"] == ToolReply(result="one", is_error=False)
        r.emit(done())


def test_what_asks_for_a_decision_is_not_answered_with_text():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write"))
        assert (
            r.refused(session.answer(waiting(r, session).approval_id, "yes"), InvalidRequest)
            == "INVALID_REQUEST"
        )
        r.get(session.approve(r.call(session)))
        r.emit(done())


@pytest.mark.parametrize("how", ["time", "stop"])
def test_time_and_a_stop_decline_in_their_own_name(how: str):
    with rig(tools=builtin_registry()) as r:
        session = asked(r, approval_timeout_s=30.0)
        if how == "time":
            r.pass_time(31)
        else:
            r.do(session.stop("enough"))
        answer = r.one(session, ev.ApprovalAnswered)
        assert (answer.decision, answer.by, answer.answer) == ("deny", ENGINE, None)
        assert r.one(session, ev.ToolCallDenied).by == ENGINE
        r.emit(done())


def test_a_question_outlives_a_crash_and_its_answer_is_given_to_the_model_once():
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        name = waiting(r, session).approval_id
        r.crash()
        session = r.handle(session)
        row = waiting(r, session)
        assert (row.approval_id, row.state, row.kind, row.question) == (name, "carried", "question", WHICH)
        assert r.refused(session.approve(r.call(session)), InvalidRequest) == "INVALID_REQUEST"
        r.get(session.answer(name, "SQLite"))
        assert r.refused(session.answer(name, "Postgres"), Conflict) == "CONFLICT"
        r.crash()  # the answer is stored
        session = r.handle(session)
        r.get(session.resume())
        again = r.all(session, ev.ToolCallRequested)[-1]
        ended = r.one(session, ev.ToolCallCompleted)
        assert (again.attempt, ended.attempt, ended.result_preview) == (2, 2, "SQLite")
        assert [
            block.result
            for m in r.play.input.messages
            for block in m.content
            if isinstance(block, ToolResult)
        ] == [
            "The process ended before anyone answered; the question is kept for a resume.",
            "SQLite",
        ]
        r.emit(done())


def test_a_policy_can_forbid_asking_and_nobody_is_asked_where_nobody_is():
    with rig(tools=builtin_registry(), policy=ModePolicy(denied=["user.ask"])) as r:
        session = asked(r, "yolo")
        assert r.one(session, ev.ToolCallDenied).reason.startswith("The tool user.ask is on the deny list")
        r.emit(done())
    with rig(tools=builtin_registry()) as r:
        session = asked(r, "yolo", interaction_mode="non_interactive")
        assert r.play.replies["c1"] == NOBODY_ANSWERS.reason
        assert "user.ask" not in [spec.name for spec in r.play.input.tools]
        assert "user.ask" not in [entry.name for entry in r.one(session, ev.ModelInput).tool_manifest]
        assert r.all(session, ev.ApprovalRequested) == []
        r.emit(done())
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        assert "user.ask" in [spec.name for spec in r.play.input.tools]
        r.get(session.deny(r.call(session)))
        r.emit(done())


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"question": ""},
        {"question": "x" * 4_001},
        {"question": "?", "options": ["a"] * 11},
        {"question": 3},
    ],
)
def test_a_question_that_cannot_be_shown_is_an_error_for_the_model(given: Any):
    with rig(tools=builtin_registry()) as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(call("user.ask", given))
        assert isinstance(r.play.replies["c1"], str)
        assert r.all(session, ev.ApprovalRequested) == []
        r.emit(done())


def test_secrets_are_in_neither_the_question_nor_the_answer():
    with rig(tools=builtin_registry(), secrets=("hunter2-hunter2",)) as r:
        session = r.open()
        r.start(session)
        r.emit(call("user.ask", {"question": "Is hunter2-hunter2 the password?"}))
        row = waiting(r, session)
        assert "hunter2" not in (row.text or "") + row.summary
        r.get(session.answer(row.approval_id, "Yes, hunter2-hunter2"))
        assert "hunter2" not in str(r.one(session, ev.ApprovalAnswered).answer)
        assert "hunter2" not in str(r.play.replies["c1"])
        r.emit(done())


# --- a runtime's own tool -------------------------------------------------------------------------


def native(number: int = 1) -> ToolAnnouncement:
    return ToolAnnouncement(name="ask_me", input=ASK, runtime_tool_call_id=f"q{number}", origin="native")


def asking_runtime() -> FakeRuntime:
    return FakeRuntime(
        capabilities=msgspec.structs.replace(Capabilities(), native_tools={"ask_me": "read_only"})
    )


def opened(r: Rig) -> Session:
    from tests.engine.acting import create_session

    from codesdk.contract.settings import SessionConfig

    config = SessionConfig(runtime="fake", workspace="/workspace", native_tools=["ask_me"])
    session = r.handle(r.get(create_session(r.engine, config)).session_id)
    r.start(session)
    return session


def test_what_a_runtime_asks_by_itself_is_recorded_and_answered_like_any_question():
    with rig(runtime=asking_runtime()) as r:
        session = opened(r)
        reply = r.loop.create_task(r.play.host.ask_user(native(), WHICH))
        r.settle()
        row = waiting(r, session)
        assert (row.kind, row.question, row.tool) == ("question", WHICH, "ask_me")
        r.get(session.answer(row.approval_id, "SQLite"))
        assert reply.result() == ToolReply(result="SQLite", is_error=False)
        ended = r.one(session, ev.ToolCallCompleted)
        assert (ended.executed_by, ended.result_preview) == ("runtime", "SQLite")
        r.emit(done())


@pytest.mark.parametrize(
    "question",
    [
        Question(text="x" * 8_001),
        Question(text="Which?", options=["a"] * 65),
        Question(text="Which?", asker="x" * 8_001),
        Question(text=5),  # type: ignore[arg-type]
        None,
    ],
)
def test_what_a_runtime_cannot_ask_is_an_error_of_that_call_alone(question: Any):
    with rig(runtime=asking_runtime()) as r:
        session = opened(r)
        reply = r.get(r.play.host.ask_user(native(), question))
        assert reply.is_error
        assert reply.result.startswith("Nobody was asked: it is ")
        (notice,) = r.all(session, ev.RuntimeNotice)
        assert "a question that cannot be asked" in notice.message
        r.emit(done())
        assert r.last(session).type == "task.completed"


def test_a_runtime_that_asks_without_end_is_stopped():
    with rig(runtime=asking_runtime(), limits=Limits(max_output_chars=10_000)) as r:
        session = opened(r)
        for number in range(100):
            r.do(r.play.host.ask_user(native(number), Question(text="x" * 8_000)))
        r.settle()
        r.emit(done())
        r.pass_time(1_000)
        assert "limits.max_output_chars" in r.one(session, ev.TaskFailed).error.message
        assert len(r.all(session, ev.ApprovalRequested)) < 20


def test_what_a_runtime_asked_outlives_a_crash_too_and_withdrawing_it_closes_it():
    with rig(runtime=asking_runtime()) as r:
        session = opened(r)
        withdrawn = r.loop.create_task(r.play.host.ask_user(native(1), WHICH))
        r.settle()
        withdrawn.cancel()
        r.settle()
        assert r.one(session, ev.ApprovalAnswered).by == ENGINE
        r.do(r.play.host.ask_user(native(2), WHICH))
        r.crash()
        session = r.handle(session)
        r.get(session.answer(waiting(r, session).approval_id, "SQLite"))
        r.get(session.resume())
        assert r.one(session, ev.ToolCallCompleted).result_preview == "SQLite"
        r.emit(done())


# --- a server, while it works on a call -----------------------------------------------------------


class Asking(FakeTools):
    """A tool that asks while it runs, and gives back the answers."""

    def __init__(self, *questions: Question) -> None:
        super().__init__()
        self.questions = questions

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        answers = await asyncio.gather(*(call.ask(question) for question in self.questions))
        return ToolRun(result=answers)


def running(r: Rig, **options: Any) -> Session:
    session = r.open("yolo", **options)
    r.start(session)
    r.emit(call("fake.write"))
    return session


def of(expects: Any, **more: Any) -> Question:
    return Question(text="How many?", expects=expects, asker="deploy", **more)


FORMS = [
    (of("integer"), "3.5", "3"),
    (of("number"), "many", "3.5"),
    (of("number"), "nan", "1e3"),
    (of("choice", options=["a", "b"]), "c", "b"),
    (of("integer", optional=True), "none", ""),
]


@pytest.mark.parametrize(("question", "wrong", "right"), FORMS)
def test_an_answer_to_a_server_must_be_what_it_expects(question: Question, wrong: str, right: str):
    with rig(tools=Asking(question)) as r:
        session = running(r)
        row = waiting(r, session)
        assert (row.kind, row.question, row.tool_call_id) == ("question", question, None)
        assert row.summary == "deploy asks: How many?"
        assert r.refused(session.answer(row.approval_id, wrong), InvalidRequest) == "INVALID_REQUEST"
        assert r.refused(session.approve(row.approval_id), InvalidRequest) == "INVALID_REQUEST"
        r.get(session.answer(row.approval_id, right))
        assert r.refused(session.answer(row.approval_id, right), Conflict) == "CONFLICT"
        assert r.play.replies["c1"] == ToolReply(result=[right], is_error=False)
        r.emit(done())


def test_yes_and_no_are_booleans():
    with rig(tools=Asking(of("boolean"), of("boolean"))) as r:
        session = running(r)
        for row, said in zip(r.get(session.approvals()), ["Yes", "n"], strict=True):
            r.get(session.answer(row.approval_id, said))
        assert r.play.replies["c1"] == ToolReply(result=["true", "false"], is_error=False)
        r.emit(done())


@pytest.mark.parametrize("how", ["deny", "time", "stop", "crash", "cancel"])
def test_a_server_that_gets_no_answer_is_told_so_and_the_log_says_who_declined(how: str):
    with rig(tools=Asking(of("text"))) as r:
        session = running(r, approval_timeout_s=30.0)
        name = waiting(r, session).approval_id
        if how == "deny":
            r.get(session.deny(name, "no"))
        elif how == "time":
            r.pass_time(31)
        elif how == "stop":
            r.do(session.stop("enough"))
        elif how == "crash":
            r.crash()
            session = r.handle(session)
        else:
            r.session(session.id).queue.run.calls._executions.cancel_all()  # type: ignore[union-attr]
            r.settle()
        answer = r.one(session, ev.ApprovalAnswered)
        assert (answer.approval_id, answer.decision) == (name, "deny")
        assert answer.by == (USER if how == "deny" else ENGINE)
        assert r.get(session.approvals()) == []
        if how in ("deny", "time"):
            assert r.play.replies["c1"] == ToolReply(result=[None], is_error=False)
        if how != "crash":
            r.emit(done())


def test_a_flood_of_questions_is_bounded_and_noted_once():
    with rig(tools=Asking(*[of("text")] * 500)) as r:
        session = running(r)
        assert len(r.get(session.approvals())) == server_questions.MAX_QUESTIONS
        assert [notice.message for notice in r.all(session, ev.RuntimeNotice)] == [
            "The MCP server deploy asked a question, which was declined: one call may ask 16 questions."
        ]
        r.do(session.stop("enough"))
        r.emit(done())


def test_nobody_is_shown_what_is_too_long_or_asked_where_nobody_is():
    with rig(tools=Asking(of("text"), Question(text="x" * 8_001))) as r:
        session = running(r, interaction_mode="non_interactive")
        assert r.play.replies["c1"] == ToolReply(result=[None, None], is_error=False)
        assert len(r.all(session, ev.RuntimeNotice)) == 2
        r.emit(done())
    with rig(tools=Asking(Question(text="x" * 8_001))) as r:
        session = running(r)
        assert r.play.replies["c1"] == ToolReply(result=[None], is_error=False)
        assert "too long to be shown" in r.one(session, ev.RuntimeNotice).message
        r.emit(done())


def test_a_session_that_is_closed_closes_its_questions():
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        name = waiting(r, session).approval_id
        r.crash()
        session = r.handle(session)
        r.get(session.close())
        assert r.refused(session.answer(name, "late"), Conflict) == "CONFLICT"
        assert r.refused(session.deny(name), NotFound) == "NOT_FOUND"


def test_an_answer_that_nobody_gave_is_found_by_verify():
    with rig(tools=builtin_registry()) as r:
        session = asked(r)
        r.get(session.answer(waiting(r, session).approval_id, "SQLite"))
        r.emit(done())
        checker, found = Checker(session.id), list[Any]()
        for event in r.events(session.id):
            if isinstance(event.payload, ev.ApprovalAnswered):  # an approval, and no word of a person
                event = msgspec.structs.replace(
                    event, payload=msgspec.structs.replace(event.payload, answer=None)
                )
            found += checker.take(StoredFrame(seq=event.seq, data=encode(event)))
        assert [(finding.invariant, "has no answer in words" in finding.message) for finding in found] == [
            (6, True)
        ]
