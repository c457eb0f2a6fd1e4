"""Tool calls and stops: whatever moment a stop comes at, each call has one end, and nothing runs after it.

The life of a call without a stop is in `test_ledger`.
"""

from typing import Any

import pytest
from tests.engine.acting import resume
from tests.engine.world import PERSON, World, payloads, world

from codesdk.contract.errors import Conflict, NotFound
from codesdk.contract.events import (
    ApprovalAnswered,
    TaskCompleted,
    TaskStopped,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallRequested,
    ToolCallStarted,
)
from codesdk.contract.runtime import ToolReply
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import Actor
from codesdk.testing.fakes import FakeTools, call, done

ENGINE = Actor(kind="engine")


def ending(w: World, session: str) -> Any:
    return [event for event in w.events(session) if event.trace.task_id][-1].payload


def tool_types(w: World, session: str) -> list[str]:
    return [name for name in w.types(session) if name.startswith(("tool.", "approval."))]


@pytest.fixture
def held(w: World) -> World:
    w.tools.hold()
    return w


def test_a_stop_while_a_question_waits_denies_the_call_and_tells_the_runtime(w: World):
    session = w.create()
    w.start(session)
    w.emit(call("fake.write"))
    w.stop(session)
    w.emit(done())
    (answered,) = payloads(w.events(session), ApprovalAnswered)
    assert answered == ApprovalAnswered(
        approval_id=answered.approval_id,
        decision="deny",
        by=ENGINE,
        scope="once",
        reason="the task was stopped",
    )
    assert w.runtime.tasks[-1].replies == {"c1": "the task was stopped"}
    assert w.waiting(session) == []
    assert isinstance(ending(w, session), TaskStopped)


def test_a_stop_while_a_tool_runs_cancels_it(held: World):
    w = held
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(call("fake.write"))
    w.tools.runs[-1].say("half")
    w.stop(session)
    w.emit(done())
    assert w.tools.runs[-1].cancelled
    (completed,) = payloads(w.events(session), ToolCallCompleted)
    assert (completed.is_error, completed.outcome) == (True, "known")
    assert completed.result_preview == "Cancelled: the task was stopped while this ran."
    assert tool_types(w, session)[-4:] == [
        "tool.call.started",
        "tool.output.delta",
        "tool.output.completed",
        "tool.call.completed",
    ]


def test_a_call_that_was_approved_but_had_not_started_is_closed_without_running(held: World):
    w = held
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(call("fake.write", call_id="c1"), call("fake.write", call_id="c2"))
    assert len(w.tools.runs) == 1
    w.stop(session)
    w.emit(done())
    assert len(w.tools.runs) == 1
    assert [
        (started.runtime_tool_call_id, started.execution_env)
        for started in payloads(w.events(session), ToolCallStarted)
    ] == [("c1", "codesdk_host"), ("c2", "unknown")]
    skipped = next(
        completed
        for completed in payloads(w.events(session), ToolCallCompleted)
        if completed.runtime_tool_call_id == "c2"
    )
    assert (skipped.is_error, skipped.outcome, skipped.result_preview) == (
        True,
        "known",
        "Not run: the task was stopped.",
    )


@pytest.mark.parametrize("turns", range(12))
def test_a_stop_at_any_turn_of_a_call_leaves_it_with_one_end_and_starts_nothing_more(turns: int):
    with world() as w:
        w.tools.hold()
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.runtime.tasks[-1].emit(call("fake.write", call_id="c1"), call("fake.read", call_id="c2"))
        w.settle(turns)
        w.stop(session)
        running = len(w.tools.runs)
        w.emit(done())
        w.pass_time(10)
        assert len(w.tools.runs) == running
        assert isinstance(ending(w, session), TaskStopped)
        requested = w.types(session).count("tool.call.requested")
        ended = [
            *payloads(w.events(session), ToolCallDenied),
            *payloads(w.events(session), ToolCallCompleted),
        ]
        assert len(ended) == requested
        w.check_all()


def test_a_call_announced_after_a_stop_is_denied_at_once(w: World):
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.stop(session)
    w.emit(call("fake.read"), done())
    assert tool_types(w, session) == ["tool.call.requested", "tool.call.denied"]
    assert w.tools.runs == []


def test_an_answer_that_comes_after_the_stop_is_too_late(w: World):
    session = w.create()
    w.start(session)
    w.emit(call("fake.write"))
    (row,) = w.waiting(session)
    w.stop(session)
    with pytest.raises(Conflict, match="already denied"):
        w.get(w.session(session).answer(row.tool_call_id or "", "approve", by=PERSON))
    w.emit(done())
    with pytest.raises(NotFound):
        w.get(w.session(session).answer(row.tool_call_id or "", "approve", by=PERSON))


def test_a_good_end_waits_for_the_calls_that_still_run(held: World):
    w = held
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(call("fake.read"), done())
    assert w.session(session).state.task is not None
    w.tools.runs[-1].finish("contents")
    w.settle()
    assert isinstance(ending(w, session), TaskCompleted)
    assert payloads(w.events(session), ToolCallCompleted)[0].result_preview == "contents"


def test_a_good_end_does_not_wait_for_ever(held: World):
    w = held
    session = w.create(permission_mode="yolo", settings=SessionSettings(end_grace_s=4))
    w.start(session)
    w.emit(call("fake.read"), done())
    w.pass_time(5)
    assert isinstance(ending(w, session), TaskCompleted)
    assert w.tools.runs[-1].cancelled


def test_a_runtime_that_breaks_off_takes_its_questions_with_it(w: World):
    session = w.create()
    w.start(session)
    w.emit(call("fake.write"), RuntimeError("gone"))
    assert w.waiting(session) == []
    (denied,) = payloads(w.events(session), ToolCallDenied)
    assert denied.by == ENGINE


def test_a_carried_call_that_a_stop_overtakes_is_not_run_and_can_be_resumed_again(w: World):
    session = w.create()
    w.start(session)
    w.emit(call("fake.write", {"n": 1}, call_id="c1"), call("fake.write", {"n": 2}, call_id="c2"))
    w.crash()
    w.tools.hold()
    w.answer(session, "approve", 0)
    w.answer(session, "approve", 1)
    w.get(resume(w.engine, w.session(session)))
    assert [run.invocation.input for run in w.tools.runs] == [{"n": 1}]
    w.stop(session)
    w.pass_time(10)
    assert isinstance(ending(w, session), TaskStopped)
    w.tools.release()
    w.get(resume(w.engine, w.session(session)))
    assert [run.invocation.input for run in w.tools.runs] == [{"n": 1}, {"n": 2}]
    w.emit(done())


def test_parallel_calls_are_answered_each_on_its_own(w: World):
    session = w.create()
    w.start(session)
    w.emit(call("fake.read", call_id="c1"), call("fake.write", call_id="c2"), call("fake.read", call_id="c3"))
    assert len(w.waiting(session)) == 3
    w.answer(session, "deny", 1, reason="not that one")
    w.answer(session, "approve", 0)
    w.answer(session, "approve", 0)
    assert w.runtime.tasks[-1].replies == {
        "c1": ToolReply(result="ok", is_error=False),
        "c2": "not that one",
        "c3": ToolReply(result="ok", is_error=False),
    }
    w.emit(done())


def test_an_input_is_stored_and_hashed_as_the_json_that_it_becomes(w: World):
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(call("fake.read", {"names": {"b", "a", "c"}, "pair": (1, 2)}), done())
    (requested,) = payloads(w.events(session), ToolCallRequested)
    assert requested.input["pair"] == [1, 2]
    assert sorted(requested.input["names"]) == ["a", "b", "c"]


def test_the_tools_of_an_engine_can_be_none():
    class NoTools(FakeTools):
        def specs(self) -> Any:
            return []

    with world(tools=NoTools()) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(call("fake.read"), done())
        assert payloads(w.events(session), ToolCallDenied)[0].reason == (
            "There is no tool fake.read. On offer: none."
        )
        w.check_all()
