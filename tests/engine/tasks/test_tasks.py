"""Tasks: how they start, wait, are steered, stop and end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.engine.acting import close_session, create_session, follow, resume, start
from tests.engine.world import PERSON, World, payloads, world

from codesdk.contract.errors import Busy, Conflict, ErrorInfo, InvalidRequest, NotFound
from codesdk.contract.events import (
    ModelInput,
    OutputCompleted,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskStarted,
    TaskSteered,
    TaskStopped,
    TaskStopRequested,
    UsageReported,
    UsageTotals,
)
from codesdk.contract.messages import Message, Text, user
from codesdk.contract.records import TaskRow
from codesdk.contract.runtime import Draft, Failed, RuntimeItem
from codesdk.contract.settings import Limits, SessionConfig, SessionSettings
from codesdk.testing.fakes import FAKE_CAPABILITIES, FakeRuntime, FakeTask, call, delta, done, message


def task(w: World, task_id: str) -> TaskRow:
    row = w.get(w.log.task(task_id, "local"))
    assert row is not None
    return row


def test_a_task_starts_and_ends_with_its_own_events(w: World):
    session = w.create()
    task_id = w.start(session, "Say hello")
    w.emit(delta("Hel"), delta("lo"), message("Hello"), done())
    assert w.types(session, task_id) == [
        "task.started",
        "model.input",
        "model.output.delta",
        "model.output.delta",
        "model.output.completed",
        "task.completed",
    ]
    events = w.events(session)
    assert events[1].payload == TaskStarted(messages=[user("Say hello")], runtime_config={}, executed=True)
    end = events[-1]
    assert end.payload == TaskCompleted(
        text="Hello",
        stop_reason="end_turn",
        usage=UsageTotals(),
        duration_ms=getattr(end.payload, "duration_ms", -1),
    )
    assert task(w, task_id) == TaskRow(
        task_id=task_id,
        session_id=session,
        state="completed",
        created_at=events[1].time,
        started_seq=2,
        ended_seq=7,
        ended_at=end.time,
    )


def test_waiting_tasks_run_one_after_the_other_in_their_order(w: World):
    session = w.create()
    tasks = [w.start(session, text) for text in ("first", "second", "third")]
    assert [task(w, name).state for name in tasks] == ["running", "queued", "queued"]
    for _ in tasks:
        w.emit(done())
    started = [event for event in w.events(session) if event.type == "task.started"]
    assert [event.trace.task_id for event in started] == tasks
    assert [given.input.messages[-1] for given in w.runtime.tasks] == [
        user("first"),
        user("second"),
        user("third"),
    ]
    assert payloads(w.events(session), TaskQueued) == [
        TaskQueued(task_id=tasks[1], messages=[user("second")]),
        TaskQueued(task_id=tasks[2], messages=[user("third")]),
    ]


def test_a_queued_task_has_no_event_of_its_own_before_it_starts(w: World):
    session = w.create()
    w.start(session)
    waiting = w.start(session)
    assert w.types(session, waiting) == []


def test_a_busy_session_refuses_a_task_that_would_not_wait(w: World):
    session = w.create()
    running = w.start(session)
    with pytest.raises(Busy, match=running) as caught:
        w.start(session, on_busy="reject")
    assert caught.value.code == "SESSION_BUSY"
    assert caught.value.retryable


def test_a_full_queue_refuses_more():
    with world(limits=Limits(max_queue=1)) as w:
        session = w.create()
        w.start(session)
        w.start(session)
        with pytest.raises(Busy) as caught:
            w.start(session)
        assert caught.value.code == "QUEUE_FULL"
        w.check_all()


def test_tasks_over_the_limit_wait_for_room_in_the_order_they_came():
    with world(limits=Limits(max_tasks=1)) as w:
        sessions = [w.create() for _ in range(3)]
        tasks = [w.start(session) for session in sessions]
        assert [task(w, name).state for name in tasks] == ["running", "queued", "queued"]
        w.emit(done())
        assert [task(w, name).state for name in tasks] == ["completed", "running", "queued"]
        w.emit(done())
        w.emit(done())
        assert [task(w, name).state for name in tasks] == ["completed", "completed", "completed"]
        w.check_all()


def test_a_session_that_no_longer_wants_the_free_slot_passes_it_on():
    with world(limits=Limits(max_tasks=1)) as w:
        first, second, third = (w.create() for _ in range(3))
        w.start(first)
        dropped = w.start(second)
        waiting = w.start(third)
        w.stop(second, task_id=dropped)
        w.emit(done())
        assert task(w, waiting).state == "running"
        w.check_all()


def test_a_runtime_may_have_its_own_limit():
    with world(limits=Limits(max_tasks=5, max_tasks_per_runtime=1)) as w:
        first, second = w.create(), w.create()
        w.start(first)
        with pytest.raises(Busy):
            w.start(second, on_busy="reject")
        assert task(w, w.start(second)).state == "queued"
        w.check_all()


def test_sessions_over_the_limit_are_refused_until_one_is_closed():
    with world(limits=Limits(max_sessions=1)) as w:
        session = w.create()
        with pytest.raises(Busy) as caught:
            w.create()
        assert caught.value.code == "OVERLOADED"
        w.get(close_session(w.engine, session, "done"))
        w.create()
        w.check_all()


def test_steering_reaches_the_runtime_and_the_transcript(w: World):
    session = w.create()
    running = w.start(session)
    assert w.start(session, "rather this", on_busy="steer") == running
    assert w.runtime.tasks[-1].steered == [user("rather this")]
    w.emit(done())
    assert payloads(w.events(session), TaskSteered) == [TaskSteered(messages=[user("rather this")])]
    assert [row.message for row in w.get(w.log.messages(session, before=None, limit=9))] == [
        user("go"),
        user("rather this"),
    ]


def test_steering_an_idle_session_starts_a_task(w: World):
    session = w.create()
    assert task(w, w.start(session, on_busy="steer")).state == "running"


def test_a_runtime_that_cannot_be_steered_says_so():
    capabilities = msgspec.structs.replace(FAKE_CAPABILITIES, supports_steer=False)
    with world(runtime=FakeRuntime(capabilities=capabilities)) as w:
        session = w.create()
        w.start(session)
        with pytest.raises(InvalidRequest, match="cannot be steered"):
            w.start(session, on_busy="steer")
        w.check_all()


def test_input_that_comes_before_the_runtime_has_started_is_handed_over_exactly_once(w: World):
    session = w.create()
    live = w.session(session)
    for turns in range(12):
        w.do(start(w.engine, live, [user("go")]), turns)
        if live.state.task is None:
            w.settle()
        w.do(live.steer([user("more")]))
        given = w.runtime.tasks[-1]
        assert [*given.input.messages, *given.steered][-2:] == [user("go"), user("more")]
        w.emit(done())


def test_a_task_that_is_ending_takes_no_more_input(w: World):
    session = w.create()
    w.start(session)
    w.stop(session)
    with pytest.raises(Conflict):
        w.get(w.session(session).steer([user("more")]))


def test_an_idle_session_cannot_be_steered(w: World):
    session = w.create()
    with pytest.raises(Conflict):
        w.get(w.session(session).steer([user("more")]))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message(role="user", content=[])],
        [Message(role="assistant", content=[Text(text="I never said that")])],
        [Message(role="system", content=[Text(text="obey")])],
        [user("\ud800")],
    ],
)
def test_a_task_takes_only_whole_user_messages(w: World, messages: list[Message]):
    session = w.create()
    with pytest.raises(InvalidRequest):
        w.get(start(w.engine, w.session(session), messages))
    assert w.types(session) == ["session.created"]


def test_messages_may_not_be_larger_than_the_limit():
    with world(limits=Limits(max_message_bytes=1000)) as w:
        session = w.create()
        with pytest.raises(InvalidRequest, match="1,000"):
            w.start(session, "x" * 2000)
        w.check_all()


def test_a_closed_session_takes_no_task(w: World):
    session = w.create()
    w.get(close_session(w.engine, session, "done"))
    with pytest.raises(Conflict, match="closed"):
        w.start(session)
    assert w.types(session) == ["session.created", "session.closed"]


def test_a_client_may_bring_its_own_task_id_once(w: World):
    session = w.create()
    assert w.start(session, task_id="task_mine") == "task_mine"
    with pytest.raises(Conflict, match="task_mine"):
        w.start(session, task_id="task_mine")
    with pytest.raises(InvalidRequest):
        w.start(session, task_id="mine")


def test_two_tasks_of_one_id_that_come_at_once_are_one_task_and_one_conflict(w: World):
    session = w.create()
    live = w.session(session)
    calls = [w.loop.create_task(start(w.engine, live, [user("go")], task_id="task_mine")) for _ in range(2)]
    w.settle()
    assert sorted(type(made.exception()).__name__ for made in calls) == ["Conflict", "NoneType"]


# --- idempotency keys ----------------------------------------------------------------------------


def test_the_same_request_under_the_same_key_is_carried_out_once(w: World):
    session = w.create()
    first = w.start(session, key="k", task_id="task_mine")
    assert w.start(session, key="k", task_id="task_mine") == first
    assert w.types(session).count("task.started") == 1


def test_another_request_under_the_same_key_is_a_conflict(w: World):
    session = w.create()
    w.start(session, "one", key="k")
    with pytest.raises(Conflict, match="used for another request"):
        w.start(session, "two", key="k")


def test_requests_under_one_key_that_come_at_once_get_one_answer(w: World):
    session = w.create()
    live = w.session(session)
    calls = [w.loop.create_task(start(w.engine, live, [user("go")], key="k")) for _ in range(3)]
    w.settle()
    assert len({made.result() for made in calls}) == 1
    assert w.types(session).count("task.started") == 1


def test_steering_under_a_key_is_done_once(w: World):
    session = w.create()
    running = w.start(session)
    for _ in range(2):
        assert w.start(session, "rather this", on_busy="steer", key="k") == running
    assert w.runtime.tasks[-1].steered == [user("rather this")]


def test_a_key_outlives_the_process(w: World):
    session = w.create()
    first = w.start(session, key="k")
    w.crash()
    assert w.start(session, key="k") == first


def test_a_refused_request_leaves_its_key_free():
    with world(limits=Limits(max_queue=0)) as w:
        session = w.create()
        w.start(session)
        with pytest.raises(Busy):
            w.start(session, "later", key="k")
        w.emit(message("done"), done())
        again = w.start(session, "later", key="k")
        assert task(w, again).state == "running"
        w.check_all()


def test_a_session_is_created_once_per_key(w: World):
    assert w.create() != w.create()
    config = SessionConfig(runtime="fake", workspace="/w")
    first = w.get(create_session(w.engine, config, key="k"))
    assert w.get(create_session(w.engine, config, key="k")).session_id == first.session_id
    with pytest.raises(Conflict):
        w.get(create_session(w.engine, msgspec.structs.replace(config, title="other"), key="k"))


# --- stop ----------------------------------------------------------------------------------------


def ending(w: World, session: str) -> Any:
    return w.events(session)[-1].payload


def test_a_stop_before_the_runtime_has_started_ends_the_task():
    class Slow(FakeRuntime):
        async def start_task(self, host: Any, task: Any) -> Any:
            await asyncio.get_running_loop().create_future()

    with world(runtime=Slow()) as w:
        session = w.create()
        w.start(session)
        w.stop(session)
        assert w.session(session).state.task is not None
        w.pass_time(6)
        end = ending(w, session)
        assert end == TaskStopped(
            reason="enough", by=PERSON, usage=UsageTotals(), duration_ms=end.duration_ms
        )
        w.check_all()


def test_a_stop_in_mid_stream_keeps_what_was_said_as_partial(w: World):
    session = w.create()
    w.start(session)
    w.emit(delta("Hel"), delta("lo"))
    w.stop(session)
    assert w.runtime.tasks[-1].stopped == "enough"
    w.emit(done())
    events = w.events(session)
    assert [event.payload for event in events[-2:]] == [
        OutputCompleted(message_id="m1", content=[Text(text="Hello")], partial=True),
        TaskStopped(
            reason="enough",
            by=PERSON,
            usage=UsageTotals(),
            duration_ms=getattr(events[-1].payload, "duration_ms", -1),
        ),
    ]


def test_a_runtime_that_never_answers_a_stop_is_left_behind(w: World):
    session = w.create(settings=SessionSettings(stop_grace_s=3))
    w.start(session)
    w.emit(delta("and on"))
    w.stop(session)
    w.pass_time(2.9)
    assert w.session(session).state.task is not None
    w.pass_time(0.2)
    assert isinstance(ending(w, session), TaskStopped)
    assert w.runtime.tasks[-1].closed


def test_what_a_runtime_says_after_a_stop_still_belongs_to_the_task_until_it_ends(w: World):
    session = w.create()
    task_id = w.start(session)
    w.stop(session)
    w.emit(delta("late"), done())
    assert w.types(session, task_id)[-4:] == [
        "task.stop_requested",
        "model.output.delta",
        "model.output.completed",
        "task.stopped",
    ]


def test_a_stream_that_swallows_its_cancellation_does_not_speak_in_the_next_task():
    async def undead(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        while not task.closed:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                yield delta("I live")

    with world(runtime=FakeRuntime(undead)) as w:
        session = w.create()
        first = w.start(session)
        w.stop(session)
        second = w.start(session)
        w.pass_time(20)
        assert w.types(session, first)[-1] == "task.stopped"
        assert w.types(session, second) == ["task.started", "model.input"]
        w.check_all()


def test_stopping_twice_is_stopping_once(w: World):
    session = w.create()
    w.start(session)
    w.stop(session, "first")
    w.stop(session, "second")
    w.emit(done())
    assert [asked.reason for asked in payloads(w.events(session), TaskStopRequested)] == ["first"]
    assert ending(w, session).reason == "first"


def test_a_waiting_task_that_is_stopped_never_runs_and_disturbs_nobody(w: World):
    session = w.create()
    running = w.start(session)
    w.emit(delta("working"))
    waiting = w.start(session, "later")
    w.stop(session, task_id=waiting)
    assert w.types(session, waiting) == ["task.started", "task.stopped"]
    assert not payloads(w.events(session), TaskStarted)[-1].executed
    w.emit(message("worked"), done())
    assert w.types(session, running)[-1] == "task.completed"
    assert [row.message.content for row in w.get(w.log.messages(session, before=None, limit=9))] == [
        [Text(text="go")],
        [Text(text="worked")],
    ]


def test_nothing_to_stop_is_a_conflict_and_an_unknown_task_is_not_found(w: World):
    session = w.create()
    with pytest.raises(Conflict):
        w.stop(session)
    with pytest.raises(NotFound):
        w.stop(session, task_id="task_unknown")


def test_stopping_a_task_that_is_over_changes_nothing(w: World):
    session = w.create()
    over = w.start(session)
    w.emit(done())
    before = w.types(session)
    w.stop(session, task_id=over)
    assert w.types(session) == before


def test_a_task_started_the_moment_the_last_one_ended_can_be_stopped(w: World):
    session = w.create()
    first = w.start(session)
    live = w.session(session)

    async def start_next() -> str:
        async for batch in follow(live, 0):
            if any(item.event.type == "task.completed" for item in batch):
                return await start(w.engine, live, [user("next")])
        return ""

    next_task = w.loop.create_task(start_next())
    w.settle()
    w.emit(done())
    assert next_task.done()
    w.stop(session, task_id=next_task.result())
    w.emit(done())
    assert w.types(session, first)[-1] == "task.completed"
    assert w.types(session, next_task.result())[-1] == "task.stopped"


# --- ends ----------------------------------------------------------------------------------------


def test_usage_is_summed_and_an_unknown_cost_makes_the_sum_unknown(w: World):
    session = w.create()

    def used(cost: float | None) -> Draft:
        return Draft(
            UsageReported(
                model="m",
                input=10,
                output=2,
                cache_read=1,
                cache_write=0,
                reasoning=0,
                cost_usd=cost,
                source="runtime",
            )
        )

    w.start(session)
    w.emit(used(0.5), used(0.25), done())
    assert ending(w, session).usage == UsageTotals(input=20, output=4, cache_read=2, cost_usd=0.75)
    w.start(session)
    w.emit(used(0.5), used(None), done())
    assert ending(w, session).usage == UsageTotals(input=20, output=4, cache_read=2, cost_usd=None)


def test_the_runtimes_own_error_is_the_tasks(w: World):
    session = w.create()
    w.start(session)
    error = ErrorInfo(code="MODEL_ERROR", message="No more.", retryable=True, runtime="fake")
    w.emit(Failed(error=error))
    end = ending(w, session)
    assert end == TaskFailed(error=error, usage=UsageTotals(), duration_ms=end.duration_ms)


def test_a_stop_wins_over_an_error_that_comes_after_it(w: World):
    session = w.create()
    w.start(session)
    w.stop(session)
    w.emit(Failed(error=ErrorInfo(code="MODEL_ERROR", message="Aborted.", retryable=False)))
    assert isinstance(ending(w, session), TaskStopped)


def test_closing_the_engine_stops_what_runs_and_keeps_what_waits(w: World):
    session = w.create()
    running, waiting = w.start(session), w.start(session)
    w.reopen()
    assert [task(w, name).state for name in (running, waiting)] == ["stopped", "queued"]
    assert w.get(resume(w.engine, w.session(session))) == waiting
    w.emit(done())
    assert task(w, waiting).state == "completed"


def test_an_engine_that_is_closing_takes_nothing_new(w: World):
    session = w.create()
    w.start(session)
    closing = w.do(w.engine.close())
    with pytest.raises(Busy, match="shutting down"):
        w.start(session)
    with pytest.raises(Busy, match="shutting down"):
        w.create()
    w.pass_time(10)
    assert closing.done()
    w.reopen()


def test_a_waiting_task_outlives_a_crash_and_is_run_by_a_resume(w: World):
    session = w.create()
    interrupted, waiting = w.start(session, "one"), w.start(session, "two")
    w.crash()
    assert [task(w, name).state for name in (interrupted, waiting)] == ["failed", "queued"]
    resumed = w.get(resume(w.engine, w.session(session)))
    w.emit(done())
    w.emit(done())
    assert [event.trace.task_id for event in w.events(session) if event.type == "task.started"] == [
        interrupted,
        resumed,
        waiting,
    ]


def test_a_session_that_was_not_interrupted_has_nothing_to_resume(w: World):
    session = w.create()
    with pytest.raises(Conflict, match="not interrupted"):
        w.get(resume(w.engine, w.session(session)))
    w.start(session)
    with pytest.raises(Busy):
        w.get(resume(w.engine, w.session(session)))


def test_a_session_may_be_closed_by_many_at_once(w: World):
    session = w.create()
    w.start(session)
    calls = [w.loop.create_task(close_session(w.engine, session, "done")) for _ in range(3)]
    w.pass_time(10)
    assert [made.result() for made in calls] == [None, None, None]
    assert w.types(session).count("session.closed") == 1
    assert w.runtime.closed_sessions[0] == session


def test_what_comes_while_a_session_closes_is_refused(w: World):
    session = w.create()
    w.start(session)
    live = w.session(session)
    w.do(close_session(w.engine, session, "done"))
    with pytest.raises(Conflict):
        w.get(start(w.engine, live, [user("more")]))
    w.pass_time(10)
    assert w.types(session)[-1] == "session.closed"


def test_a_compiled_input_names_what_the_runtime_was_given(w: World):
    session = w.create(settings=SessionSettings(runtime_config={"effort": "low"}))
    w.start(session)
    (given,) = payloads(w.events(session), ModelInput)
    assert given.runtime_config == {"effort": "low"}
    assert [entry.name for entry in given.tool_manifest] == ["fake.read", "fake.write"]
    assert w.runtime.tasks[-1].input.messages == [user("go")]
    w.emit(call("fake.read"), done())
    w.pass_time(1000)
