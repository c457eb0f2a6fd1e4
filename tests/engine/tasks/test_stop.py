"""A stop at every moment of a task: nothing new begins, everything open is closed, and the task ends stopped."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.engine.rig import APPROVED, ASKED, BEGUN, DENIED, NO_COST, RAN, USER, Rig, SlowStart, rig, texts

from codesdk import Conflict, Forbidden, NotFound, Session, Task
from codesdk.contract import events as ev
from codesdk.contract.actions import Caller, StopTask
from codesdk.contract.messages import Text
from codesdk.contract.ports import ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import RuntimeItem, ToolReply
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, delta, done, message

STOPPED = ev.TaskStopped(reason="enough", by=USER, usage=NO_COST, duration_ms=0)
ASKED_TO = ["task.stop_requested"]
END = ["task.stopped"]
NOT_RUN = "Not run: the task was stopped."


async def polite(task: FakeTask) -> AsyncIterator[RuntimeItem]:
    """Say what the test emits, and end when asked to stop."""
    told = task._told()
    coming = asyncio.ensure_future(anext(told))
    stopping = asyncio.ensure_future(task.until(lambda: task.stopped is not None))
    while True:
        await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            coming.cancel()
            await asyncio.wait([coming])
            yield done("stopped")
            return
        yield coming.result()
        coming = asyncio.ensure_future(anext(told))


def begun(r: Rig, *items: Any, mode: Any = "ask", **settings: Any) -> tuple[Session, Task]:
    session = r.open(mode, **settings)
    task = r.start(session)
    if items:
        r.emit(*items)
    return session, task


def stop(r: Rig, session: Session) -> None:
    """Stop without letting any time pass: whoever takes part ends at once."""
    r.get(session.stop("enough"))


def test_a_stop_before_the_runtime_has_started_is_waited_out_and_the_late_runtime_is_closed():
    with rig(runtime=SlowStart()) as r:
        session, task = begun(r)
        stop(r, session)
        assert r.story(session, task) == [*BEGUN, *ASKED_TO]
        r.runtime.gate.set()
        r.settle()
        assert r.story(session, task) == [*BEGUN, *ASKED_TO, *END]
        assert r.ended(session) == [STOPPED]
        assert r.play.closed


def test_a_stop_before_the_runtime_has_started_does_not_wait_for_it_forever():
    with rig(runtime=SlowStart()) as r:
        session, task = begun(r, stop_grace_s=2.0)
        stop(r, session)
        r.pass_time(2.1)
        assert r.story(session, task) == [*BEGUN, *ASKED_TO, *END]
        assert r.runtime.tasks == []


def test_a_stop_the_moment_a_task_is_started_ends_it_without_the_runtime():
    with rig() as r:
        session = r.open()
        live = r.session(session.id)
        r.do(session.start("Go"), turns=0)
        while live.state.task is None:
            r.loop.turn()
        stop(r, session)
        r.pass_time(10)
        assert r.ended(session) == [STOPPED]


def test_a_stop_in_mid_stream_keeps_what_was_said_as_partial():
    with rig(runtime=FakeRuntime(polite)) as r:
        session, task = begun(r, message("Whole."), delta("half ", "m2"), delta("a sen", "m2"))
        stop(r, session)
        assert r.play.stopped == "enough"
        assert r.story(session, task) == [
            *BEGUN,
            "model.output.completed",
            "model.output.delta",
            *ASKED_TO,
            "model.output.completed",
            *END,
        ]
        assert r.all(session, ev.OutputCompleted)[1] == ev.OutputCompleted(
            message_id="m2", content=[Text(text="half a sen")], partial=True
        )
        assert r.ended(session) == [STOPPED]
        result = r.get(task.result())
        assert (result.state, result.stop_reason) == ("stopped", "enough")
        assert texts(r.get(session.transcript()))[1:] == [
            ("assistant", "Whole."),
            ("assistant", "half a sen"),
        ]


def test_a_stop_while_a_question_waits_denies_the_call():
    with rig(runtime=FakeRuntime(polite)) as r:
        session, task = begun(r, call("fake.write"))
        stop(r, session)
        assert r.story(session, task) == [*BEGUN, *ASKED, *ASKED_TO, *DENIED, *END]
        assert r.one(session, ev.ApprovalAnswered).by.kind == "engine"
        assert r.get(r.sdk.approvals()) == []
        assert (r.play.replies, r.tools.runs) == ({"c1": "the task was stopped"}, [])


def test_what_a_stop_is_told_to_deny_is_denied_by_who_stops_and_what_else_waits_by_the_engine():
    with rig(runtime=FakeRuntime(polite)) as r:
        session, task = begun(r, call("fake.write", call_id="c1"), call("fake.write", call_id="c2"))
        shown, other = r.get(session.approvals())
        settled = "apr_of_somebody_who_was_faster"
        action = StopTask(session_id=session.id, reason="enough", denies=[shown.approval_id, settled])
        r.get(session.service.execute(action))
        assert [
            (e.approval_id, e.decision, e.by.kind, e.reason) for e in r.all(session, ev.ApprovalAnswered)
        ] == [
            (shown.approval_id, "deny", "user", "enough"),
            (other.approval_id, "deny", "engine", "the task was stopped"),
        ]
        # The answer comes before the stop, and yet nothing happened between them.
        assert r.story(session, task)[-1 - 2 * len(DENIED) - 1 :] == [*DENIED, *ASKED_TO, *DENIED, *END]
        assert (r.play.replies, r.tools.runs) == ({"c1": "enough", "c2": "the task was stopped"}, [])


def test_whoever_may_not_answer_cannot_deny_with_a_stop():
    with rig(runtime=FakeRuntime(polite)) as r:
        session, task = begun(r, call("fake.write"))
        (row,) = r.get(session.approvals())
        action = StopTask(session_id=session.id, denies=[row.approval_id])
        worker = Caller(scopes=frozenset({"run"}))
        assert r.refused(r.engine.execute(action, worker), Forbidden) == "FORBIDDEN"
        assert r.story(session, task) == [*BEGUN, *ASKED]
        stop(r, session)


def test_a_stop_while_a_tool_runs_cancels_it_and_notes_its_end():
    with rig(runtime=FakeRuntime(polite)) as r:
        r.tools.hold()
        session, task = begun(r, call("fake.write"), mode="yolo")
        r.tools.runs[0].say("so far")
        r.settle()
        stop(r, session)
        assert r.tools.runs[0].cancelled
        assert r.story(session, task)[-6:] == [
            RAN[0],
            "tool.output.delta",
            *ASKED_TO,
            "tool.output.completed",
            RAN[1],
            *END,
        ]
        completed = r.one(session, ev.ToolCallCompleted)
        said = "Cancelled: the task was stopped while this ran."
        assert (completed.is_error, completed.outcome, completed.result_preview) == (True, "known", said)
        assert r.play.replies == {"c1": ToolReply(result=said, is_error=True)}


class Thorough(FakeTools):
    """Tools that finish what they began when they are cancelled."""

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        try:
            return await super().run(call, output)
        except asyncio.CancelledError:
            return ToolRun(result="finished all the same")


def test_a_tool_that_completes_although_it_is_cancelled_has_its_result_kept():
    with rig(runtime=FakeRuntime(polite), tools=Thorough()) as r:
        r.tools.hold()
        session, _ = begun(r, call("fake.write"), mode="yolo")
        stop(r, session)
        completed = r.one(session, ev.ToolCallCompleted)
        assert (completed.is_error, completed.result_preview) == (False, "finished all the same")
        assert r.ended(session) == [msgspec.structs.replace(STOPPED, work=ev.WorkTotals(calls=1))]


def test_an_approved_call_that_a_stop_overtakes_is_closed_without_having_run():
    with rig(runtime=FakeRuntime(polite)) as r:
        r.tools.hold()
        session, _ = begun(r, call("fake.write", {"n": 1}, "c1"), call("fake.write", {"n": 2}, "c2"))
        r.get(session.approve(r.call(session, "c1")))
        r.get(session.approve(r.call(session, "c2")))
        at = r.last(session).seq
        stop(r, session)
        assert r.story(session, after=at) == [*ASKED_TO, *RAN, RAN[1], *END]
        ends = r.all(session, ev.ToolCallCompleted)
        assert [(p.runtime_tool_call_id, p.is_error, p.outcome) for p in ends] == [
            ("c2", True, "known"),
            ("c1", True, "known"),
        ]
        assert ends[0].result_preview == NOT_RUN
        assert [run.input for run in r.tools.invocations] == [{"n": 1}]


def test_a_stop_between_the_start_of_a_call_and_its_run_keeps_it_from_running():
    with rig(runtime=FakeRuntime(polite)) as r:
        session, _ = begun(r)
        live = r.session(session.id)
        r.play.emit(call("fake.write"))
        while not (live.state.task and live.state.task.calls):
            r.loop.turn()
        (opened,) = live.state.task.calls.values()
        r.do(session.approve(opened.identity.tool_call_id), turns=0)
        while opened.phase != "running":
            r.loop.turn()
        stop(r, session)
        assert r.tools.runs == []
        assert r.one(session, ev.ToolCallCompleted).result_preview == NOT_RUN


@pytest.mark.parametrize(
    "steps",
    [[{"text": "hm"}, {"stall": "closed"}], [{"text": "hm"}, {"ignore_stop": True}, {"delay_s": 1000}]],
)
def test_a_runtime_that_never_answers_a_stop_is_left_behind_after_the_grace_period(steps: list[Any]):
    with rig([steps, [{"text": "next"}]]) as r:
        session, task = begun(r, mode="yolo", stop_grace_s=2.0)
        stop(r, session)
        r.pass_time(1.9)
        assert r.ended(session) == []
        r.pass_time(0.2)
        assert r.ended(session) == [STOPPED]
        assert r.story(session, task) == [
            *BEGUN,
            "model.output.delta",
            *ASKED_TO,
            "model.output.completed",
            *END,
        ]
        assert r.get(r.start(session, "Next").result()).text == "next"


def test_what_comes_after_a_stop_is_kept_but_begins_nothing():
    script: list[Any] = [
        [{"text": "hm "}, {"events_after_stop": 3}, {"stall": "stopped"}],
        [{"text": "next"}],
    ]
    with rig(script) as r:
        session, task = begun(r, mode="yolo")
        stop(r, session)
        assert r.story(session, task) == [
            *BEGUN,
            "model.output.delta",
            *ASKED_TO,
            "model.output.delta",
            "model.output.completed",
            *END,
        ]
        assert len(r.all(session, ev.OutputDelta)) == 4
        assert r.one(session, ev.OutputCompleted).content == [Text(text="hm "), Text(text="late late late ")]
        assert r.get(r.start(session, "Next").result()).text == "next"


def test_a_call_that_is_announced_after_a_stop_is_denied_at_once():
    with rig() as r:
        session, task = begun(r, mode="yolo")
        stop(r, session)
        r.emit(call("fake.read"), message("Whole."), done())
        assert r.story(session, task) == [
            *BEGUN,
            *ASKED_TO,
            "tool.call.requested",
            "tool.call.denied",
            "model.output.completed",
            *END,
        ]
        assert (r.play.replies, r.tools.runs) == ({"c1": "the task was stopped"}, [])
        [ended] = r.ended(session)
        assert (ended.work.calls, ended.work.denied) == (1, 1)
        assert [(denial.name, denial.reason) for denial in ended.work.denials] == [
            ("fake.read", "the task was stopped")
        ]


def test_a_stop_wins_over_the_error_of_a_runtime_that_it_upsets():
    with rig() as r:
        session, _ = begun(r)
        stop(r, session)
        r.emit(RuntimeError("interrupted"))
        assert r.ended(session) == [STOPPED]


def test_stopping_twice_is_stopping_once():
    with rig() as r:
        session, task = begun(r)
        r.do(session.stop("enough"), turns=0)
        r.do(session.stop("really"))
        r.get(session.stop("at last"))
        r.emit(done())
        r.get(session.stop("again", task_id=task.id))
        assert r.story(session, task) == [*BEGUN, *ASKED_TO, *END]
        assert r.ended(session) == [STOPPED]


def test_only_what_runs_or_waits_here_can_be_stopped():
    with rig() as r:
        session, other = r.open(), r.open()
        assert r.refused(session.stop(), Conflict) == "CONFLICT"
        assert r.refused(session.stop(task_id="task_none"), NotFound) == "NOT_FOUND"
        theirs = r.start(other)
        assert r.refused(session.stop(task_id=theirs.id), NotFound) == "NOT_FOUND"
        assert r.ended(other) == []


class Stubborn(FakeTools):
    """Tools that cannot be cancelled."""

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        running = asyncio.ensure_future(super().run(call, output))
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                if running.done():
                    raise


def test_a_tool_that_ignores_cancellation_does_not_hold_up_the_stop():
    with rig(runtime=FakeRuntime(polite), tools=Stubborn()) as r:
        r.tools.hold()
        session, task = begun(r, call("fake.write"), mode="yolo", stop_grace_s=2.0)
        stop(r, session)
        assert r.ended(session) == []
        r.pass_time(10)
        assert r.story(session, task) == [*BEGUN, *ASKED[:2], APPROVED[-1], RAN[0], *ASKED_TO, RAN[1], *END]
        completed = r.one(session, ev.ToolCallCompleted)
        assert (completed.is_error, completed.outcome) == (True, "unknown")
        before = r.story(session)
        r.tools.runs[0].say("still here")
        r.tools.release()
        r.settle()
        assert r.story(session) == before
        again = r.start(session, "Again")
        r.emit(call("fake.write", {}, "c2", "m2"))
        r.settle()
        assert [run.task_id for run in r.tools.invocations] == [task.id, again.id]
