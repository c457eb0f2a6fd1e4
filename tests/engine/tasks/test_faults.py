"""What goes wrong: runtimes that crash, stall, lie or misbehave, tools and policies that break, disks that are full."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.engine.acting import follow, resume
from tests.engine.world import World, payloads, world

from codesdk.contract.errors import CodeSDKError, ErrorInfo, NotFound, StorageFailure, TaskFailure
from codesdk.contract.events import (
    FilesUndone,
    GrantRevoked,
    OutputCompleted,
    OutputDelta,
    RuntimeNotice,
    SessionRecovered,
    TaskCompleted,
    TaskFailed,
    TaskStopped,
    TaskStopRequested,
    ToolCallCompleted,
    ToolCallDenied,
    UsageReported,
)
from codesdk.contract.messages import Text, user
from codesdk.contract.ports import PolicyQuestion, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    RuntimeItem,
    ToolAnnouncement,
)
from codesdk.contract.settings import Limits, SessionSettings
from codesdk.contract.tools import Actor, Evaluation
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, delta, done, message

PERSON = Actor(kind="user", id="somebody")


def scripted(*steps: Any) -> ScriptedRuntime:
    return ScriptedRuntime(parse_object({"turns": [{"steps": list(steps)}], "loop": True}, "test"))


def ending(w: World, session: str) -> Any:
    return [event for event in w.events(session) if event.trace.task_id][-1].payload


def error(w: World, session: str) -> ErrorInfo:
    end = ending(w, session)
    assert isinstance(end, TaskFailed)
    return end.error


def notices(w: World, session: str) -> list[tuple[str, str]]:
    return [(notice.kind, notice.message) for notice in payloads(w.events(session), RuntimeNotice)]


# --- runtimes that break -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"crash": "raise"}, "RuntimeError: The script made the runtime crash here"),
        ({"crash": "end"}, "its stream ended without saying how the task went"),
    ],
)
def test_a_runtime_that_breaks_off_fails_its_task_and_keeps_what_it_said(step: Any, said: str):
    with world(runtime=scripted({"text": "Half a sen"}, step)) as w:
        session = w.create()
        task_id = w.start(session)
        assert error(w, session) == ErrorInfo(
            code="RUNTIME_CRASHED",
            message=f"The runtime scripted broke off: {said}. The task can be tried again.",
            retryable=True,
            runtime="scripted",
        )
        assert w.types(session, task_id)[-2:] == ["model.output.completed", "task.failed"]
        assert payloads(w.events(session), OutputCompleted)[-1].partial
        w.check_all()


def test_a_runtime_that_reports_an_error_fails_its_task_with_it():
    with world(
        runtime=scripted({"fail": {"code": "RATE_LIMITED", "message": "Slow down.", "retryable": True}})
    ) as w:
        session = w.create()
        w.start(session)
        assert error(w, session) == ErrorInfo(
            code="RATE_LIMITED", message="Slow down.", retryable=True, runtime="scripted"
        )
        w.check_all()


def test_silence_ends_the_task_after_the_idle_time():
    with world(runtime=scripted({"text": "hm"}, {"stall": "closed"})) as w:
        session = w.create(settings=SessionSettings(idle_timeout_s=30))
        w.start(session)
        w.pass_time(29)
        assert w.session(session).state.task is not None
        w.pass_time(2)
        assert (error(w, session).code, error(w, session).retryable) == ("TIMEOUT", True)
        w.check_all()


def test_waiting_for_a_person_is_not_silence(w: World):
    session = w.create(settings=SessionSettings(idle_timeout_s=30, approval_timeout_s=1000))
    w.start(session)
    w.emit(call("fake.write"))
    w.pass_time(500)
    assert w.session(session).state.task is not None


def test_garbage_is_noted_and_the_task_goes_on():
    with world(
        runtime=scripted({"malformed": "item"}, {"malformed": "payload"}, {"text": "still here"})
    ) as w:
        session = w.create()
        w.start(session)
        assert [kind for kind, _ in notices(w, session)] == ["unknown_frame", "unknown_frame"]
        assert ending(w, session).text == "still here"
        w.check_all()


def test_a_message_that_is_completed_twice_counts_once():
    with world(runtime=scripted({"text": "once"}, {"duplicate_ids": "message"})) as w:
        session = w.create()
        w.start(session)
        assert [kind for kind, _ in notices(w, session)] == ["violation"]
        assert len(payloads(w.events(session), OutputCompleted)) == 1
        w.check_all()


def test_a_runtime_that_plays_on_after_a_stop_is_cut_off():
    with world(runtime=scripted({"ignore_stop": True}, {"text": "la"}, {"stall": "closed"})) as w:
        session = w.create()
        w.start(session)
        w.stop(session)
        w.pass_time(6)
        assert isinstance(ending(w, session), TaskStopped)
        w.check_all()


def test_a_runtime_that_does_not_start_in_time_is_unavailable():
    class Slow(FakeRuntime):
        async def start_task(self, host: Any, task: Any) -> Any:
            await asyncio.get_running_loop().create_future()

    with world(runtime=Slow()) as w:
        session = w.create(settings=SessionSettings(start_timeout_s=7))
        w.start(session)
        w.pass_time(8)
        assert error(w, session) == ErrorInfo(
            code="RUNTIME_UNAVAILABLE",
            message="The runtime fake did not start within 7 s.",
            retryable=True,
            runtime="fake",
        )
        w.check_all()


def test_a_runtime_that_cannot_start_says_why():
    class Missing(FakeRuntime):
        async def start_task(self, host: Any, task: Any) -> Any:
            raise CodeSDKError("Install it first.", code="RUNTIME_UNAVAILABLE")

    with world(runtime=Missing()) as w:
        session = w.create()
        w.start(session)
        assert error(w, session) == ErrorInfo(
            code="RUNTIME_UNAVAILABLE", message="Install it first.", retryable=False
        )
        w.check_all()


class Rude(FakeTask):
    """A task whose methods raise at once, not when they are awaited."""

    rude: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "rude"):

            def refuse(*args: Any) -> Any:
                raise RuntimeError(f"no {name}")

            return refuse
        return super().__getattribute__(name)


class RudeRuntime(FakeRuntime):
    def __init__(self, *methods: str) -> None:
        super().__init__()
        self._methods = frozenset(methods)

    async def start_task(self, host: Any, task: Any) -> FakeTask:
        made = Rude(host, task, None)
        made.rude = self._methods
        self.tasks.append(made)
        return made


def test_a_runtime_whose_stop_and_close_raise_is_still_stopped():
    with world(runtime=RudeRuntime("stop", "close")) as w:
        session = w.create()
        w.start(session)
        w.emit(delta("on and on"))
        w.stop(session)
        w.pass_time(6)
        assert isinstance(ending(w, session), TaskStopped)
        w.check_all()


def test_a_runtime_that_has_no_stream_fails_its_task():
    with world(runtime=RudeRuntime("events")) as w:
        session = w.create()
        w.start(session)
        assert error(w, session).message == (
            "The runtime fake broke off: RuntimeError: no events. The task can be tried again."
        )
        w.check_all()


@pytest.mark.parametrize("method", ["send_tool_result", "send_tool_denied"])
def test_a_runtime_that_takes_no_result_fails_its_task(method: str):
    with world(runtime=RudeRuntime(method)) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(call("fake.read" if method == "send_tool_result" else "nobody.knows"))
        assert error(w, session).code == "RUNTIME_CRASHED"
        assert f"no {method}" in error(w, session).message
        w.check_all()


def test_a_runtime_that_does_not_take_input_tells_the_caller_and_plays_on():
    with world(runtime=RudeRuntime("steer")) as w:
        session = w.create()
        w.start(session)
        with pytest.raises(TaskFailure, match="did not take the input") as caught:
            w.get(w.session(session).steer([user("more")]))
        assert caught.value.code == "RUNTIME_PROTOCOL"
        w.emit(done())
        assert isinstance(ending(w, session), TaskCompleted)
        w.check_all()


@pytest.mark.parametrize(
    "item",
    [
        Finished(stop_reason=None),  # type: ignore[arg-type]
        Failed(error="it broke"),  # type: ignore[arg-type]
        Failed(error=ErrorInfo(code="NO_SUCH_CODE", message="x", retryable=False)),  # type: ignore[arg-type]
        Failed(error=ErrorInfo(code="MODEL_ERROR", message="x", retryable=False, raw=object())),
    ],
)
def test_a_last_word_that_cannot_be_read_is_a_crash(w: World, item: RuntimeItem):
    session = w.create()
    w.start(session)
    w.emit(item)
    assert error(w, session).code == "RUNTIME_CRASHED"


@pytest.mark.parametrize(
    "item",
    [
        None,
        {"type": "text"},
        Draft(None),  # type: ignore[arg-type]
        Draft(TaskStopped),  # type: ignore[arg-type]
        Draft(OutputDelta(kind=["x"], block_id="b", message_id="m", delta="x")),  # type: ignore[arg-type]
        Draft(OutputDelta(kind="text_delta", block_id="\ud800", message_id="m", delta="x")),
        Draft(OutputCompleted(message_id=5, content=[])),  # type: ignore[arg-type]
        Draft(TaskStopRequested(reason="stop", by=PERSON)),  # type: ignore[arg-type]
        Draft(SessionRecovered(task_id="t", cause="INTERRUPTED", open_calls=[])),  # type: ignore[arg-type]
        Draft(GrantRevoked(tool="fake.write", by=PERSON)),  # type: ignore[arg-type]
        Draft(FilesUndone(by=PERSON, restored=[], refused=[])),  # type: ignore[arg-type]
        Draft(RuntimeNotice(kind="odd", message="x", details={"k": object()})),
        ToolAnnouncement(name=None, input={}),  # type: ignore[arg-type]
        ToolAnnouncement(name="\ud800", input={}),
        ToolAnnouncement(name="fake.read", input={"k": object()}),
        ToolAnnouncement(name="fake.read", input={"k": 2**60}),
        Identified(model=5),  # type: ignore[arg-type]
        Identified(runtime_session_id="\ud800"),
    ],
)
def test_whatever_a_runtime_says_that_is_not_in_the_contract_is_noted_and_passed_over(w: World, item: Any):
    session = w.create()
    w.start(session)
    w.emit(item, message("and on"), done())
    assert [kind for kind, _ in notices(w, session)] == ["unknown_frame"]
    assert ending(w, session).text == "and on"


def test_half_a_character_does_not_cost_the_message(w: World):
    session = w.create()
    w.start(session)
    w.emit(delta("a\ud83d"), message("a\ud83d\ude00 b\ud83d"), done())
    (said,) = payloads(w.events(session), OutputCompleted)
    assert said.content == [Text(text="a😀 b�")]
    assert [payload.delta for payload in payloads(w.events(session), OutputDelta)] == ["a�"]


def test_a_cost_that_is_no_number_is_unknown(w: World):
    session = w.create()
    w.start(session)
    usage = UsageReported(
        model=None,
        input=1,
        output=1,
        cache_read=0,
        cache_write=0,
        reasoning=0,
        cost_usd=float("nan"),
        source="runtime",
    )
    w.emit(Draft(usage), done())
    assert ending(w, session).usage.cost_usd is None


def test_a_huge_event_is_refused_and_noted():
    with world(limits=Limits(max_event_bytes=1000)) as w:
        session = w.create()
        w.start(session)
        w.emit(delta("x" * 2000), message("short"), done())
        assert [kind for kind, _ in notices(w, session)] == ["unknown_frame"]
        assert ending(w, session).text == "short"
        w.check_all()


def test_what_a_runtime_says_when_its_task_is_over_belongs_to_no_task():
    heard: list[FakeTask] = []

    async def chatter(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        heard.append(task)
        yield message("done")
        yield done()

    with world(runtime=FakeRuntime(chatter)) as w:
        session = w.create()
        w.start(session)

        async def put() -> None:
            await heard[0].host.put_artifact(b"late", "text/plain", "late")

        w.get(put())
        last = w.events(session)[-1]
        assert (last.type, last.trace.task_id) == ("artifact.created", None)
        w.check_all()


# --- tools and policies that break ---------------------------------------------------------------


class Broken(FakeTools):
    """Tools one part of which raises."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def check(self, name: str, arguments: Any) -> str | None:
        if self._part == "check":
            raise RuntimeError("no check")
        return super().check(name, arguments)

    def environment(self, name: str) -> Any:
        if self._part == "environment":
            raise RuntimeError("no environment")
        return super().environment(name)

    async def run(self, call: ToolInvocation, output: ToolSink) -> Any:
        if self._part == "result":
            return "not a ToolRun"
        return await super().run(call, output)


@pytest.mark.parametrize("part", ["check", "environment", "result"])
def test_a_broken_tool_runner_fails_the_task_and_leaves_no_call_open(part: str):
    with world(tools=Broken(part)) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(call("fake.read"))
        w.pass_time(30)
        assert w.session(session).state.task is None or part == "result"
        w.check_all()


def test_a_broken_policy_fails_the_task_and_denies_the_call():
    class NoPolicy:
        def evaluate(self, question: PolicyQuestion) -> Evaluation:
            raise RuntimeError("no opinion")

    with world(policy=NoPolicy()) as w:
        session = w.create()
        w.start(session)
        w.emit(call("fake.read"))
        assert error(w, session).code == "INTERNAL"
        assert len(payloads(w.events(session), ToolCallDenied)) == 1
        w.check_all()


class Stubborn(FakeTools):
    """Tools that cannot be cancelled, and print for ever."""

    sinks: list[ToolSink]

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        self.sinks = [*getattr(self, "sinks", []), output]
        running = asyncio.ensure_future(super().run(call, output))
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                output("stdout", "I go on. ")
        return running.result()


def test_a_tool_that_cannot_be_cancelled_is_left_behind_with_an_unknown_outcome():
    tools = Stubborn()
    tools.hold()
    with world(tools=tools) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(call("fake.write"))
        w.stop(session)
        w.emit(done())
        w.pass_time(30)
        (completed,) = payloads(w.events(session), ToolCallCompleted)
        assert (completed.is_error, completed.outcome) == (True, "unknown")
        assert isinstance(ending(w, session), TaskStopped)
        before = w.types(session)
        w.start(session)
        for sink in tools.sinks:
            sink("stdout", "still here")
        w.settle()
        assert "tool.output.delta" not in w.types(session)[len(before) :]
        tools.release()
        w.check_all()


# --- disks ---------------------------------------------------------------------------------------


def test_when_the_log_cannot_be_written_callers_are_told_and_nothing_that_was_seen_is_lost(w: World):
    session = w.create()
    reader = w.watch(session)
    reader.pull()
    w.start(session)
    w.emit(delta("Hel"), delta("lo"))
    w.flaky.appends = 0
    failing = w.do(w.session(session).steer([user("more")]))
    assert isinstance(failing.exception(), StorageFailure)
    stored = [frame.data for frame in w.frames(session)]
    assert reader.seen == stored
    assert w.session(session).state.task is None
    assert error(w, session).code == "STORAGE_FAILED"
    assert [frame.data for frame in w.frames(session)][: len(stored)] == stored
    assert w.runtime.tasks[-1].closed
    w.get(resume(w.engine, w.session(session)))
    w.emit(done())
    reader.pull()
    w.settle()
    assert reader.seen == [frame.data for frame in w.frames(session)]


def test_a_reader_is_told_that_the_log_cannot_be_written(w: World):
    session = w.create()
    live = w.session(session)

    async def read() -> list[int]:
        return [item.event.seq async for batch in follow(live, 0) for item in batch]

    reading = w.loop.create_task(read())
    w.settle()
    w.flaky.appends = 0
    with pytest.raises(StorageFailure):
        w.start(session)
    w.settle()
    assert isinstance(reading.exception(), StorageFailure)


def test_a_session_that_could_not_be_stored_does_not_exist(w: World):
    w.flaky.appends = 0
    with pytest.raises(StorageFailure):
        w.create()
    assert w.get(w.engine.archive.sessions()) == []
    session = w.create()
    assert [row.session_id for row in w.get(w.engine.archive.sessions())] == [session]


def test_a_failing_session_spares_its_neighbours(w: World):
    first, second = w.create(), w.create()
    w.start(first)
    w.start(second)
    w.flaky.appends = 0
    w.emit(delta("lost"), back=1)
    w.emit(message("kept"), done())
    assert ending(w, second).text == "kept"
    assert w.session(first).state.interrupted_task is not None


@pytest.mark.parametrize("countdown", range(6))
def test_an_artifact_that_cannot_be_stored_fails_the_task_with_the_reason(countdown: int):
    tools = FakeTools()
    tools.give("fake.read", "x" * 200)
    with world(tools=tools) as w:
        session = w.create(
            permission_mode="yolo",
            settings=SessionSettings(input_inline_bytes=20, result_inline_bytes=20, raw_inline_bytes=20),
        )
        w.flaky.blobs = countdown
        w.start(session)
        if w.runtime.tasks:
            w.emit(
                call("fake.read", {"big": "x" * 100}),
                Draft(message("hi").payload, {"big": "x" * 100}),
                done(),
            )
        w.pass_time(60)
        end = ending(w, session)
        assert isinstance(end, TaskCompleted) or end.error.code == "STORAGE_FAILED"
        w.check_all()


def test_one_damaged_session_does_not_keep_the_others_from_opening(w: World):
    damaged, sound = w.create(), w.create()
    w.start(damaged)
    w.start(sound)
    w.log._sessions[damaged].snapshot = None  # type: ignore[attr-defined]
    frames = w.log._frames  # type: ignore[attr-defined]
    first = next(i for i, frame in enumerate(frames) if frame.session_id == damaged)
    frames[first] = msgspec.structs.replace(frames[first], damage="bad checksum")
    w.crash()
    assert w.session(sound).state.interrupted_task is not None
    with pytest.raises((StorageFailure, NotFound)):
        w.session(damaged)
    w.get(w.log.delete(damaged))
