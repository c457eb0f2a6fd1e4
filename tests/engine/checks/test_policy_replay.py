"""Another policy on a stored log: which past calls it would have decided otherwise, and where that is not sure."""

from typing import Any

import msgspec
from tests.engine.rig import Rig, rig

from codesdk import Session
from codesdk.contract.tools import Evaluation, Subjects
from codesdk.engine.checks.policy_replay import ReplayedDecision, replay_policy
from codesdk.policy import RulePolicy
from codesdk.policy.decision import grant_opinion
from codesdk.policy.modes import judge_mode
from codesdk.policy.rules import Rule
from codesdk.store.blobs import MemoryBlobs
from codesdk.testing.fakes import WRITE, FakeTools, call, done

ASK = judge_mode("ask", "write")
NO_ENV = RulePolicy([Rule(id="no-env", result="deny", path="**/.env", reason="no")])
DENY = Evaluation(source="codesdk", result="deny", rule="no-env", reason="no")


class PathTools(FakeTools):
    """Fakes that say which path a call touches."""

    def subjects(self, name: str, arguments: Any) -> Subjects:
        return Subjects(paths=[arguments["path"]])


def replayed(r: Rig, session: Session, policy: RulePolicy, tools: Any = None) -> list[ReplayedDecision]:
    return r.get(replay_policy(r.log, r.blobs, session.id, policy, tools or PathTools()))


def write(r: Rig, path: str, call_id: str = "c1") -> None:
    r.emit(call("fake.write", {"path": path}, call_id))


def test_calls_are_decided_again_whoever_answered_them():
    with rig(tools=PathTools()) as r:
        session = r.open()
        r.start(session)
        write(r, ".env")
        r.get(session.approve(r.call(session)))
        write(r, "b.txt", "c2")
        r.get(session.deny(r.call(session, "c2"), "no"))
        r.emit(done())
        asked = [event.seq for event in r.events(session.id) if event.type == "approval.requested"]
        first, second = replayed(r, session, NO_ENV)
        assert first == ReplayedDecision(
            seq=asked[0],
            tool_call_id=r.call(session),
            attempt=1,
            tool="fake.write",
            summary='fake.write {"path":".env"}',
            before=ASK,
            after=DENY,
        )
        assert (first.differs, second.differs, second.seq, second.before, second.after) == (
            True,
            False,
            asked[1],
            ASK,
            ASK,
        )


def test_a_grant_of_then_counts_as_it_did_unless_another_rule_asks():
    with rig(tools=PathTools()) as r:
        session = r.open()
        r.start(session)
        write(r, "a.txt")
        r.get(session.approve(r.call(session), scope="session"))
        write(r, "b.txt", "c2")
        r.emit(done())
        granted = grant_opinion("mode:ask")
        _, second = replayed(r, session, RulePolicy([]))
        assert (second.before, second.after, second.differs) == (granted, granted, False)
        _, second = replayed(r, session, RulePolicy([Rule(id="careful", result="ask", tool="fake.*")]))
        assert (second.before, second.after.rule, second.differs) == (granted, "careful", True)


def test_a_call_that_no_policy_could_have_let_run_is_left_out():
    with rig(tools=PathTools()) as r:
        session = r.open()
        r.start(session)
        r.emit(call("no.such.tool", {}, "c1"), call("fake.write", {"invalid": "so"}, "c2"), done())
        assert replayed(r, session, NO_ENV) == []


def test_a_denial_because_nobody_could_be_asked_was_a_question():
    with rig(tools=PathTools()) as r:
        session = r.open(interaction_mode="non_interactive")
        r.start(session)
        write(r, "a.txt")
        r.emit(done())
        (one,) = replayed(r, session, RulePolicy([]))
        assert (one.before, one.after, one.differs) == (ASK, ASK, False)


def test_what_cannot_be_known_any_more_is_unsure_where_it_matters():
    with rig(tools=PathTools(), secrets=("hunter2",)) as r:
        session = r.open("yolo", input_inline_bytes=30)
        r.start(session)
        write(r, "hunter2/.env")
        write(r, "a/long/way/to/go/before/the/end", "c2")
        r.emit(done())

        def doubts(policy: RulePolicy, tools: Any = None) -> list[str | None]:
            return [one.unsure for one in replayed(r, session, policy, tools)]

        redacted = "its input is stored without the secrets that were in it"
        assert doubts(NO_ENV) == [redacted, None]
        assert [one.after.rule for one in replayed(r, session, NO_ENV)] == ["no-env", "mode:yolo"]
        assert doubts(RulePolicy([Rule(id="all", result="deny")])) == [None, None]
        stranger = "the tool fake.write is not known here, nor what it touches"
        others = PathTools(msgspec.structs.replace(WRITE, name="other.write"))
        assert doubts(NO_ENV, others) == [stranger, stranger]
        assert doubts(RulePolicy([Rule(id="fakes", result="deny", tool="fake.*")]), others) == [None, None]


def test_an_input_that_is_gone_is_unsure():
    with rig(tools=PathTools()) as r:
        session = r.open("yolo", input_inline_bytes=10)
        r.start(session)
        write(r, "some/where/.env")
        r.emit(done())
        assert [(one.after, one.unsure) for one in replayed(r, session, NO_ENV)] == [(DENY, None)]
        nothing = MemoryBlobs()
        (one,) = r.get(replay_policy(r.log, nothing, session.id, NO_ENV, PathTools()))
        assert (one.after.rule, one.unsure) == ("mode:yolo", "its stored input cannot be read")
