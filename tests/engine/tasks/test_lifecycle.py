"""Tasks from their start to their one end, whatever the runtime does, and sessions from first to last."""

import asyncio
from typing import Any

import pytest
from tests.engine.rig import BEGUN, ENGINE, NO_COST, USER, SlowStart, rig, texts

from codesdk import (
    ArtifactBlock,
    Busy,
    CodeSDKError,
    Conflict,
    ErrorInfo,
    Message,
    NotFound,
    StorageFailure,
    TaskFailure,
)
from codesdk.contract import events as ev
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.messages import user
from codesdk.contract.records import ArtifactRow
from codesdk.contract.runtime import Draft, Host, Identified, TaskInput
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import FakeRuntime, FakeTask, call, delta, done, message

SAID = ["model.output.delta", "model.output.completed"]
INTERRUPTED = ErrorInfo(
    code="INTERRUPTED",
    message="The process ended while this task ran. Resume the session to continue.",
    retryable=True,
)


def test_a_task_starts_with_its_first_event_and_ends_with_its_last():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Hi")
        r.emit(Identified(runtime_session_id="theirs", model="m-1"), delta("Hel"), delta("lo"))
        r.emit(message("Hello"), done())
        assert r.story(session) == ["session.created", *BEGUN, *SAID, "task.completed"]
        assert r.story(session, task) == [*BEGUN, *SAID, "task.completed"]
        events = r.events(session.id)
        assert [event.seq for event in events] == list(range(1, 8))
        assert events[1].payload == ev.TaskStarted(messages=[user("Hi")], runtime_config={}, executed=True)
        names = [(event.runtime.runtime_session_id, event.runtime.model) for event in events]
        assert names == [(None, None)] * 3 + [("theirs", "m-1")] * 4
        assert r.ended(session) == [
            ev.TaskCompleted(text="Hello", stop_reason="end_turn", usage=NO_COST, duration_ms=0)
        ]
        result = r.get(task.result())
        assert (result.state, result.text, result.stop_reason) == ("completed", "Hello", "end_turn")
        row = r.get(session.task_info(task.id))
        assert (row.state, row.queued_seq, row.started_seq, row.ended_seq) == ("completed", None, 2, 7)
        assert r.play.closed


# --- one at a time -------------------------------------------------------------------------------


def test_tasks_that_wait_run_in_the_order_they_came():
    with rig() as r:
        session = r.open()
        tasks = [r.start(session, text) for text in ("one", "two", "three")]
        assert [r.get(session.task_info(task.id)).state for task in tasks] == ["running", "queued", "queued"]
        for number in range(3):
            assert len(r.runtime.tasks) == number + 1
            r.emit(message(f"answer {number}"), done())
        one = [*BEGUN, "model.output.completed", "task.completed"]
        assert r.story(session) == [
            "session.created",
            *one[:2],
            "task.queued",
            "task.queued",
            *one[2:],
            *one,
            *one,
        ]
        assert [r.story(session, task) for task in tasks] == [one] * 3
        asked = [payload.messages for payload in r.all(session, ev.TaskStarted)]
        assert asked == [[user("one")], [user("two")], [user("three")]]
        assert texts(r.play.input.messages)[-1] == ("user", "three")


def test_a_busy_session_rejects_a_task_that_does_not_want_to_wait():
    with rig() as r:
        session = r.open()
        r.start(session)
        before = r.story(session)
        assert r.refused(session.start("Now!", on_busy="reject"), Busy) == "SESSION_BUSY"
        assert r.story(session) == before
        r.emit(done())
        r.start(session, "Now!", on_busy="reject")


@pytest.mark.parametrize("way", ["steer", "start"])
def test_a_running_task_is_steered(way: str):
    with rig() as r:
        session = r.open()
        task = r.start(session)
        r.emit(delta("Where to?"))
        if way == "steer":
            r.get(session.steer("left"))
        else:
            assert r.start(session, "left", on_busy="steer").id == task.id
        assert r.play.steered == [user("left")]
        r.emit(message("Left."), done())
        assert r.story(session, task) == [
            *BEGUN,
            "model.output.delta",
            "task.steered",
            "model.output.completed",
            "task.completed",
        ]
        assert ("user", "left") in texts(r.get(session.transcript()))


def test_input_that_comes_before_the_runtime_has_started_reaches_it_once():
    with rig(runtime=SlowStart()) as r:
        session = r.open()
        live = r.session(session.id)
        r.do(session.start("Go"), turns=0)
        while live.state.task is None:
            r.loop.turn()
        r.get(session.steer("first"))
        r.get(session.steer("second"))
        r.runtime.gate.set()
        r.settle()
        given = [*r.play.input.messages, *r.play.steered]
        assert given == [user("Go"), user("first"), user("second")]
        r.emit(done())
        assert r.get(session.transcript()) == given


def test_a_task_that_waits_survives_a_crash_and_is_run_by_resume():
    with rig() as r:
        session = r.open()
        first = r.start(session, "one")
        second = r.start(session, "two")
        r.emit(delta("half a"))
        r.crash()
        session = r.handle(session)
        assert r.story(session, first) == [*BEGUN, *SAID, "task.failed"]
        assert r.ended(session) == [ev.TaskFailed(error=INTERRUPTED, usage=NO_COST, duration_ms=0)]
        assert r.get(session.task_info(second.id)).state == "queued"
        with pytest.raises(TaskFailure):
            r.get(session.task(first.id).result())
        third = r.get(session.resume("go on"))
        r.emit(message("one done"), done())
        r.emit(message("two done", "m2"), done())
        assert r.story(session, third) == [*BEGUN, "model.output.completed", "task.completed"]
        resumed = r.all(session, ev.TaskStarted)[1]
        assert resumed.resumes == ev.Resumes(task_id=first.id)
        assert r.get(session.task(second.id).result()).text == "two done"
        assert texts(r.get(session.transcript())) == [
            ("user", "one"),
            ("assistant", "half a"),
            ("user", "go on"),
            ("assistant", "one done"),
            ("user", "two"),
            ("assistant", "two done"),
        ]


def test_a_task_that_waits_and_is_all_there_is_to_resume_is_resumed():
    with rig() as r:
        session = r.open()
        r.start(session, "one")
        second = r.start(session, "two")
        r.reopen()
        session = r.handle(session)
        assert r.get(session.resume()).id == second.id
        r.emit(message("two done"), done())
        assert r.get(session.task(second.id).result()).text == "two done"
        assert r.refused(session.resume(), Conflict) == "CONFLICT"


def test_a_task_that_waits_can_be_stopped_while_another_runs():
    with rig() as r:
        session = r.open()
        first, second, third = [r.start(session, text) for text in ("one", "two", "three")]
        r.emit(delta("still "))
        r.get(session.stop("not needed", task_id=second.id))
        assert r.story(session, second) == ["task.started", "task.stopped"]
        assert r.ended(session) == [
            ev.TaskStopped(reason="not needed", by=USER, usage=NO_COST, duration_ms=0)
        ]
        assert r.all(session, ev.TaskStarted)[1].executed is False
        assert r.get(session.task(second.id).result()).state == "stopped"
        assert r.get(session.info()).active_task_id == first.id
        r.emit(message("still here"), done())
        r.emit(message("last", "m3"), done())
        assert r.get(session.task(third.id).result()).text == "last"
        assert texts(r.get(session.transcript())) == [
            ("user", "one"),
            ("assistant", "still here"),
            ("user", "three"),
            ("assistant", "last"),
        ]


class SlowLookup(MemoryLog):
    """A log that finds artifacts only when its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        await self.gate.wait()
        return await super().artifact(artifact_id)


def test_a_session_is_judged_by_its_state_after_the_messages_were_looked_at():
    log = SlowLookup()
    with rig(log=log) as r:
        session = r.open()
        r.start(session)
        r.crash()
        session = r.handle(session)
        upload = r.get(r.sdk.put_artifact(b"notes", "text/plain"))
        attached = [Message(role="user", content=[ArtifactBlock(artifact_id=upload.artifact_id)])]
        resuming = r.do(session.resume(attached))
        r.start(session, "quicker")
        starting = r.do(session.start(attached))
        closing = r.do(session.close())
        r.pass_time(10)
        assert closing.done()
        log.gate.set()
        r.settle()
        assert [type(late.exception()) for late in (resuming, starting)] == [Conflict, Conflict]
        assert r.story(session)[-1] == "session.closed"
        assert len(r.all(session, ev.TaskStarted)) == 2


def test_a_resume_that_another_task_overtakes_is_refused():
    log = SlowLookup()
    with rig(log=log) as r:
        session = r.open()
        r.start(session)
        r.crash()
        session = r.handle(session)
        upload = r.get(r.sdk.put_artifact(b"notes", "text/plain"))
        attached = [Message(role="user", content=[ArtifactBlock(artifact_id=upload.artifact_id)])]
        resuming = r.do(session.resume(attached))
        r.start(session, "quicker")
        log.gate.set()
        r.settle()
        assert isinstance(resuming.exception(), Busy)
        assert len(r.all(session, ev.TaskStarted)) == 2


class Unsure(FakeRuntime):
    """Cannot say what it can do while it is not installed."""

    installed = True

    def capabilities(self) -> Capabilities:
        if not self.installed:
            raise CodeSDKError("Install it first.", code="RUNTIME_UNAVAILABLE")
        return super().capabilities()


def test_a_resume_that_fails_keeps_no_slot():
    runtime = Unsure()
    with rig(runtime=runtime) as r:
        session = r.open()
        r.start(session)
        r.crash()
        session = r.handle(session)
        runtime.installed = False
        for _ in range(3):
            assert r.refused(session.resume(), CodeSDKError) == "RUNTIME_UNAVAILABLE"
        assert r.engine.slots.running == 0
        runtime.installed = True
        r.get(session.resume())
        assert r.engine.slots.running == 1


# --- bad runtimes --------------------------------------------------------------------------------

BROKE_OFF = "The runtime scripted broke off: {}. The task can be tried again."


def failed(code: Any, text: str, retryable: bool = True, runtime: str | None = "scripted") -> ev.TaskFailed:
    error = ErrorInfo(code=code, message=text, retryable=retryable, runtime=runtime)
    return ev.TaskFailed(error=error, usage=NO_COST, duration_ms=0)


def completed(text: str) -> ev.TaskCompleted:
    return ev.TaskCompleted(text=text, stop_reason="end_turn", usage=NO_COST, duration_ms=0)


FAULTS: dict[str, tuple[list[Any], Any, list[str]]] = {
    "crash: raise": (
        [{"text": "half"}, {"crash": "raise"}],
        failed(
            "RUNTIME_CRASHED", BROKE_OFF.format("RuntimeError: The script made the runtime crash here")
        ),
        SAID,
    ),
    "crash: end": (
        [{"text": "half"}, {"crash": "end"}],
        failed(
            "RUNTIME_CRASHED", BROKE_OFF.format("its stream ended without saying how the task went")
        ),
        SAID,
    ),
    "stall": (
        [{"text": "half"}, {"stall": "stopped"}],
        failed(
            "TIMEOUT",
            "The runtime sent nothing for 5 s. Try again, or raise idle_timeout_s.",
            runtime=None,
        ),
        SAID,
    ),
    "stall: closed": (
        [{"stall": "closed"}],
        failed(
            "TIMEOUT",
            "The runtime sent nothing for 5 s. Try again, or raise idle_timeout_s.",
            runtime=None,
        ),
        [],
    ),
    "malformed: item": ([{"text": "a"}, {"malformed": "item"}], completed("a"), [SAID[0], "runtime.notice", SAID[1]]),
    "malformed: payload": (
        [{"text": "a"}, {"malformed": "payload"}],
        completed("a"),
        [SAID[0], "runtime.notice", SAID[1]],
    ),
    "duplicate_ids: message": (
        [{"text": "a"}, {"duplicate_ids": "message"}],
        completed("a"),
        [*SAID, "runtime.notice"],
    ),
    "fail": (
        [{"text": "half"}, {"fail": {"code": "MODEL_ERROR", "message": "overloaded", "retryable": True}}],
        failed("MODEL_ERROR", "overloaded"),
        SAID,
    ),
    "retract": (
        [{"text": "wrong"}, {"retract": "a broken stream"}, {"text": "right"}],
        completed("right"),
        [SAID[0], "model.output.retracted", *SAID],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_runtime_that_misbehaves_does_not_keep_its_task_from_ending_well_told(fault: str):
    steps, ending, between = FAULTS[fault]
    with rig([steps]) as r:
        session = r.open("yolo", idle_timeout_s=5.0)
        task = r.start(session)
        r.pass_time(20)
        assert r.ended(session) == [ending]
        assert r.story(session, task) == [*BEGUN, *between, ev.TYPE_OF[type(ending)]]
        texts_sent = [p.content for p in r.all(session, ev.OutputCompleted) if p.partial]
        assert len(texts_sent) == (isinstance(ending, ev.TaskFailed) and bool(between))


def test_a_session_goes_on_after_its_runtime_broke_off():
    with rig([[{"text": "half"}, {"crash": "raise"}], [{"text": "whole"}]]) as r:
        session = r.open("yolo")
        with pytest.raises(TaskFailure, match="broke off") as failure:
            r.get(r.start(session).result())
        assert (failure.value.code, failure.value.retryable) == ("RUNTIME_CRASHED", True)
        assert r.get(r.start(session, "Again").result()).text == "whole"
        assert texts(r.get(session.transcript())) == [
            ("user", "Go"),
            ("assistant", "half"),
            ("user", "Again"),
            ("assistant", "whole"),
        ]


def test_waiting_for_a_person_or_a_tool_is_not_silence_of_the_runtime():
    with rig() as r:
        r.tools.hold()
        session = r.open(idle_timeout_s=5.0)
        r.start(session)
        r.emit(call("fake.write"))
        r.pass_time(60)
        r.get(session.approve(r.call(session)))
        r.pass_time(60)
        r.tools.release()
        r.pass_time(4)
        assert r.ended(session) == []
        r.pass_time(10)
        assert [end.error.code for end in r.ended(session)] == ["TIMEOUT"]


class BadStart(FakeRuntime):
    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        if self.error is None:
            await asyncio.get_running_loop().create_future()
        assert self.error is not None
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "The runtime fake did not start within 60 s."),
        (OSError("no such program"), "The runtime fake could not be started (OSError: no such program)."),
        (TimeoutError("slow disk"), "The runtime fake could not be started (TimeoutError: slow disk)."),
        (
            TaskFailure("Install it.", code="RUNTIME_UNAVAILABLE", runtime="fake", retryable=True),
            "Install it.",
        ),
    ],
)
def test_a_runtime_that_does_not_start_is_unavailable(error: BaseException | None, said: str):
    with rig(runtime=BadStart(error)) as r:
        session = r.open()
        task = r.start(session)
        r.pass_time(61)
        assert r.ended(session) == [failed("RUNTIME_UNAVAILABLE", said, runtime="fake")]
        assert r.story(session, task) == [*BEGUN, "task.failed"]


# --- usage ---------------------------------------------------------------------------------------


def used(cost: float | None) -> Draft:
    return Draft(
        ev.UsageReported(
            model="m",
            input=3,
            output=2,
            cache_read=4,
            cache_write=5,
            reasoning=1,
            cost_usd=cost,
            source="runtime",
        )
    )


@pytest.mark.parametrize(
    ("costs", "total"),
    [([], None), ([0.25], 0.25), ([0.25, 0.5], 0.75), ([None, 0.5], None), ([0.5, None], None), ([0.0], 0.0)],
)
def test_usage_is_added_up_and_the_cost_is_unknown_when_a_part_of_it_is(costs: list[Any], total: Any):
    with rig() as r:
        session = r.open()
        task = r.start(session)
        r.emit(*map(used, costs), done())
        n = len(costs)
        assert r.get(task.result()).usage == ev.UsageTotals(
            input=3 * n, output=2 * n, cache_read=4 * n, cache_write=5 * n, reasoning=n, cost_usd=total
        )
        r.start(session)
        r.emit(used(1.0), done())
        assert r.ended(session)[-1].usage.cost_usd == 1.0


# --- the ends of engines and sessions ------------------------------------------------------------


def test_closing_the_engine_stops_what_runs_and_keeps_what_waits():
    with rig() as r:
        session, other = r.open(), r.open()
        running, waiting, last = r.start(session, "one"), r.start(session, "two"), r.start(other, "three")
        r.emit(delta("so far"))
        r.reopen()
        stopped = ev.TaskStopped(reason="CodeSDK is shutting down", by=ENGINE, usage=NO_COST, duration_ms=0)
        assert (r.ended(session), r.ended(other)) == ([stopped], [stopped])
        states = [r.get(r.sdk.archive.task(task.id)).state for task in (running, waiting, last)]
        assert states == ["stopped", "queued", "stopped"]
        assert r.runtime.closed_sessions == [session.id, other.id]
        session = r.handle(session)
        r.get(session.resume())
        r.emit(message("two done"), done())
        assert r.get(session.task(waiting.id).result()).text == "two done"


def test_an_engine_that_is_closing_takes_nothing_new():
    with rig() as r:
        session = r.open()
        r.close()
        assert r.refused(session.start("Go"), Busy) == "OVERLOADED"
        assert r.refused(session.fork(), Busy) == "OVERLOADED"


def test_a_closed_session_takes_nothing_more_but_can_be_read_and_forked():
    with rig() as r:
        session = r.open()
        running, waiting = r.start(session), r.start(session, "two")
        r.emit(delta("so far"))
        r.emit(call("fake.write"))
        closing = r.do(session.close("enough"))
        r.pass_time(10)
        assert closing.done()
        assert r.story(session)[-1] == "session.closed"
        assert [r.get(session.task(task.id).result()).stop_reason for task in (waiting, running)] == [
            "enough"
        ] * 2
        assert r.get(session.info()).status == "closed"
        before = r.story(session)
        for work in (session.start("More"), session.resume("More"), session.steer("left"), session.stop()):
            assert r.refused(work, Conflict) == "CONFLICT"
        assert r.refused(session.approve(r.call(session)), NotFound) == "NOT_FOUND"
        r.get(session.close())
        assert r.story(session) == before
        assert r.runtime.closed_sessions == [session.id]
        fork = r.get(session.fork())
        assert texts(r.get(fork.transcript()))[:2] == [
            ("user", "Go"),
            ("assistant", "so far", "fake.write#1"),
        ]


def test_closing_a_session_denies_what_a_crash_left_open():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write", {"n": 1}, "c1"), call("fake.write", {"n": 2}, "c2"))
        r.crash()
        session = r.handle(session)
        r.get(session.approve(r.call(session, "c1")))
        r.get(session.close())
        assert r.get(r.sdk.approvals()) == []
        assert r.tools.runs == []


def test_a_deleted_session_is_gone_with_all_that_was_stored_of_it():
    with rig() as r:
        session, other = r.open(), r.open()
        task = r.start(session)
        r.emit(call("fake.read", {"a": 1}))
        assert r.refused(r.sdk.delete_session(session.id), Conflict) == "CONFLICT"
        r.get(session.deny(r.call(session), "no"))
        r.emit(done())
        (artifact, *_) = r.get(r.sdk.archive.artifacts(session.id))
        seen = r.watch(session.id)
        seen.pull()
        r.settle()
        r.get(r.sdk.delete_session(session.id))
        for work in (
            r.sdk.session(session.id),
            session.transcript(),
            session.info(),
            session.task_info(task.id),
            r.sdk.read_artifact(artifact.ref.artifact_id),
            r.sdk.delete_session(session.id),
        ):
            assert r.refused(work, NotFound) == "NOT_FOUND"
        assert [row.session_id for row in r.get(r.sdk.sessions())] == [other.id]
        assert r.frames(session.id) == []
        assert r.runtime.closed_sessions == [session.id], "the runtime keeps nothing for it"


def test_a_session_that_could_not_be_created_leaves_nothing_behind():
    with rig() as r:
        r.flaky.appends = 0
        with pytest.raises(StorageFailure):
            r.open()
        assert r.get(r.sdk.sessions()) == []
        session = r.open()
        assert [row.session_id for row in r.get(r.sdk.sessions())] == [session.id]
