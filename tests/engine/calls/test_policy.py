"""What the engine makes of opinions: all are written, one decides, and answers for a session can be taken back."""

from typing import Any

import msgspec
import pytest
from tests.engine.acting import create_session
from tests.engine.rig import POLICY, USER, Rig, rig

from codesdk import Forbidden, NotFound, Session
from codesdk.contract import events as ev
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.runtime import ToolReply
from codesdk.contract.settings import SessionConfig
from codesdk.contract.tools import Evaluation, Grant, Subjects
from codesdk.engine.permits import Permits
from codesdk.policy import RulePolicy
from codesdk.policy.decision import grant_opinion
from codesdk.policy.modes import judge_mode
from codesdk.policy.rules import Rule
from codesdk.testing.fakes import FakeTools, call, done

OK = ToolReply(result="ok", is_error=False)
ASK = judge_mode("ask", "write")
YOLO = judge_mode("yolo", "write")


class PathTools(FakeTools):
    """Fakes that say which path a call touches."""

    def subjects(self, name: str, arguments: Any) -> Subjects:
        return Subjects(paths=[arguments["path"]] if "path" in arguments else [])


def opinion(result: Any, rule: str, reason: str) -> Evaluation:
    return Evaluation(source="codesdk", result=result, rule=rule, reason=reason)


RULES = RulePolicy(
    [
        Rule(id="no-env", result="deny", path="**/.env", reason="It holds secrets."),
        Rule(id="careful", result="ask", path="deploy/**", reason="It goes live."),
        Rule(id="docs", result="allow", tool="fake.write", path="docs/**", reason="Words are free."),
    ]
)
DENY = opinion("deny", "no-env", "It holds secrets.")
CAREFUL = opinion("ask", "careful", "It goes live.")
DOCS = opinion("allow", "docs", "Words are free.")


def ruled() -> Any:
    return rig(tools=PathTools(), policy=RULES)


def write(rig: Rig, path: str, call_id: str = "c1") -> None:
    rig.emit(call("fake.write", {"path": path}, call_id))


def begin(rig: Rig, mode: Any = "ask", **options: Any) -> Session:
    session = rig.open(mode, **options)
    rig.start(session)
    return session


def sources(rig: Rig, session: Session, kind: type[Any] = ev.ToolCallApproved) -> list[Evaluation]:
    return rig.all(session, kind)[-1].policy_snapshot.sources


def test_every_opinion_that_took_part_is_written_and_is_in_the_snapshot():
    with ruled() as r:
        session = begin(r)
        write(r, "docs/a.md")
        written = [
            Evaluation(source=p.source, result=p.result, rule=p.rule, reason=p.reason)
            for p in r.all(session, ev.ToolCallPolicyEvaluated)
        ]
        assert written == sources(r, session) == [ASK, DOCS]
        assert (r.one(session, ev.ToolCallApproved).by, r.play.replies) == (POLICY, {"c1": OK})


def test_no_mode_runs_what_a_rule_denies():
    with ruled() as r:
        session = begin(r, "yolo")
        write(r, "a/.env")
        assert sources(r, session, ev.ToolCallDenied) == [YOLO, DENY]
        assert (r.tools.runs, r.play.replies) == ([], {"c1": "It holds secrets."})


def test_a_rule_can_ask_in_the_mode_that_asks_about_nothing():
    with ruled() as r:
        session = begin(r, "yolo")
        write(r, "deploy/live.toml")
        assert [row.tool for row in r.get(r.sdk.approvals())] == ["fake.write"]
        r.get(session.approve(r.call(session)))
        assert sources(r, session) == [YOLO, CAREFUL, Evaluation(source="user", result="allow")]


def test_nobody_is_asked_by_a_rule_in_a_non_interactive_session():
    with ruled() as r:
        session = begin(r, interaction_mode="non_interactive")
        write(r, "deploy/live.toml")
        assert [source.rule for source in sources(r, session, ev.ToolCallDenied)] == [
            "mode:ask",
            "careful",
            "non_interactive",
        ]


def test_an_answer_for_the_session_answers_the_one_that_asked_and_nobody_else():
    with ruled() as r:
        session = begin(r)
        write(r, "a.txt")
        r.get(session.approve(r.call(session), scope="session", reason="fine"))
        write(r, "b.txt", "c2")
        assert sources(r, session) == [ASK, grant_opinion("mode:ask")]
        write(r, "deploy/live.toml", "c3")
        assert [row.tool_call_id for row in r.get(r.sdk.approvals())] == [r.call(session, "c3")]
        r.get(session.approve(r.call(session, "c3"), scope="session"))
        write(r, "deploy/other.toml", "c4")
        assert sources(r, session) == [ASK, CAREFUL, grant_opinion("careful")]
        write(r, "docs/.env", "c5")
        assert sources(r, session, ev.ToolCallDenied) == [ASK, DENY]
        answered = [event.time for event in r.events(session.id) if event.type == "approval.answered"]
        assert r.get(session.grants()) == [
            Grant(tool="fake.write", rule="mode:ask", by=USER, granted_at=answered[0], reason="fine"),
            Grant(tool="fake.write", rule="careful", by=USER, granted_at=answered[1]),
        ]


def test_an_answer_for_the_session_that_is_taken_back_is_asked_for_again():
    with rig() as r:
        session = begin(r)
        write(r, "a.txt")
        r.get(session.approve(r.call(session), scope="session"))
        assert r.refused(session.revoke("fake.read"), NotFound) == "NOT_FOUND"
        at = r.last(session).seq
        r.get(session.revoke("fake.write"))
        (revoked,) = [event for event in r.events(session.id) if event.seq > at]
        assert (revoked.payload, revoked.trace.task_id) == (
            ev.GrantRevoked(tool="fake.write", by=USER),
            r.events(session.id)[1].trace.task_id,
        )
        assert (r.get(session.grants()), r.get(r.engine.archive.grants(session.id))) == ([], [])
        write(r, "b.txt", "c2")
        assert [row.tool for row in r.get(r.sdk.approvals())] == ["fake.write"]
        r.get(session.deny(r.call(session, "c2"), "no"))
        r.emit(done())
        assert r.refused(session.revoke("fake.write"), NotFound) == "NOT_FOUND"


def test_what_was_taken_back_stays_so_after_a_crash_and_can_be_given_again():
    with rig() as r:
        session = begin(r)
        write(r, "a.txt")
        r.get(session.approve(r.call(session), scope="session"))
        r.emit(done())
        r.get(session.revoke("fake.write"))
        r.crash()
        session = r.handle(session)
        r.start(session)
        write(r, "b.txt", "c2")
        r.get(session.approve(r.call(session, "c2"), scope="session"))
        r.crash()
        assert [grant.tool for grant in r.get(r.engine.archive.grants(session.id))] == ["fake.write"]


def test_a_call_approved_after_a_crash_does_not_run_if_a_rule_forbids_it_by_then():
    with rig(tools=PathTools()) as r:
        session = begin(r)
        write(r, "a/.env")
        r.policy = RULES
        r.crash()
        session = r.handle(session)
        r.get(session.approve(r.get(r.sdk.approvals())[0].tool_call_id, reason="go on"))
        r.get(session.resume())
        answer = Evaluation(source="user", result="allow", rule="carried", reason="go on")
        denied = r.all(session, ev.ToolCallDenied)[-1]
        assert (denied.attempt, denied.by, denied.reason) == (2, POLICY, "It holds secrets.")
        assert denied.policy_snapshot.sources == [ASK, DENY, answer]
        assert r.tools.runs == []


def test_a_policy_of_ones_own_has_one_opinion_beside_the_modes():
    class Mine:
        def evaluate(self, question: PolicyQuestion) -> Evaluation:
            return opinion("allow", "mine", "I say so.")

    with rig(policy=Mine()) as r:
        session = begin(r)
        write(r, "a.txt")
        assert sources(r, session) == [ASK, opinion("allow", "mine", "I say so.")]


# --- the mode that must be enabled ---------------------------------------------------------------


def closed_to_yolo(r: Rig) -> None:
    """Open the store again with an engine whose operator has not enabled yolo."""
    r.engine._actions._permits = Permits()


@pytest.mark.parametrize("doing", ["create", "start", "resume", "fork"])
def test_yolo_is_refused_wherever_it_would_begin_unless_the_operator_enabled_it(doing: str):
    with rig() as r:
        session = r.open("yolo")
        closed_to_yolo(r)
        config = SessionConfig(runtime="fake", workspace="/workspace", permission_mode="yolo")
        work = {
            "create": lambda: create_session(r.engine, config),
            "start": lambda: session.start("Go"),
            "resume": lambda: session.resume(),
            "fork": lambda: session.fork(),
        }[doing]
        with pytest.raises(Forbidden, match="allow_yolo=True"):
            r.get(work())
        assert r.story(session) == ["session.created"]


@pytest.mark.parametrize(
    ("mode", "own", "end"),
    [
        ("yolo", "allow", ev.ToolCallApproved),
        ("yolo", "deny", ev.ToolCallDenied),
        ("auto", "allow", None),
        ("yolo", "ask", None),
    ],
)
def test_what_the_runtimes_own_policy_says_takes_part_and_can_only_be_stricter(mode: Any, own: Any, end: Any):
    with ruled() as r:
        session = begin(r, mode)
        announced = call("fake.write", {"path": "a.txt"}, "c1")
        r.emit(msgspec.structs.replace(announced, opinion=own))
        spoken = [p for p in r.all(session, ev.ToolCallPolicyEvaluated) if p.source == "runtime"]
        assert [(p.result, p.rule) for p in spoken] == [(own, "runtime:policy")]
        if end is None:  # somebody is asked
            assert [row.tool for row in r.get(r.sdk.approvals())] == ["fake.write"]
        else:
            r.one(session, end)
