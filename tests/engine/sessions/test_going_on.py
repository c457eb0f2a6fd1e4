"""Sessions that say `on_interrupt: resume`: what a crash or a shutdown interrupts goes on without anyone asking."""

from typing import Any, ClassVar

import pytest
from tests.engine.rig import ENGINE, Rig, rig, texts

from codesdk import Busy, Conflict, Limits, Session
from codesdk.contract import events as ev
from codesdk.contract.actions import Equipment
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.settings import Budget, Budgets
from codesdk.engine.models.limits import Standing
from codesdk.engine.sessions.going_on import MAX_BACKOFF_S, backoff_s
from codesdk.testing.fakes import FakeRuntime, FakeTools, call, delta, done, message
from codesdk.tools import builtin_registry

RESUMED = ["session.resumed", "task.started", "model.input"]


def begun(r: Rig, *items: Any, mode: Any = "ask", **settings: Any) -> Session:
    session = r.open(mode, on_interrupt="resume", **settings)
    r.start(session)
    r.emit(*items)
    return session


def crash(r: Rig, session: Session, passing_s: float = 0.0) -> Session:
    r.crash()
    r.pass_time(passing_s)
    return r.handle(session)


def resumes(r: Rig, session: Session) -> list[ev.Resumes | None]:
    return [started.resumes for started in r.all(session, ev.TaskStarted)]


def row(r: Rig, session: Session) -> bool:
    return r.get(session.info()).goes_on


def test_an_interrupted_task_goes_on_by_itself_and_the_log_says_who_did_it():
    with rig() as r:
        session = begun(r, delta("Half"))
        first = r.get(session.tasks())[0].task_id
        session = crash(r, session)
        assert resumes(r, session) == [None, ev.Resumes(task_id=first, by=ENGINE, attempt=1)]
        r.emit(message("Whole."), done())
        assert r.get(session.tasks())[0].state == "completed"
        assert not row(r, session)


def test_without_the_setting_it_waits_as_before_and_the_setting_can_be_changed_later():
    with rig() as r:
        session = r.open()
        r.start(session)
        session = crash(r, session, 1_000.0)
        assert resumes(r, session) == [None]
        r.get(session.set(on_interrupt="resume"))
        r.pass_time(0)
        assert len(resumes(r, session)) == 2
        r.emit(done())


def test_a_task_that_crashes_each_time_stops_after_the_bound_and_a_person_begins_again():
    with rig() as r:
        session = begun(r, max_resumes=2, resume_backoff_s=10.0)
        session = crash(r, session)
        assert len(resumes(r, session)) == 2
        session = crash(r, session, 9.9)
        assert len(resumes(r, session)) == 2  # it waits
        r.pass_time(0.2)
        assert [one.attempt for one in resumes(r, session) if one] == [1, 2]
        session = crash(r, session)
        given_up = r.one(session, ev.SessionNotResumed)
        assert (given_up.cause, given_up.attempts) == ("attempts", 2)
        assert given_up.message == (
            "It continued by itself 2 times in a row and was interrupted each time. Look at why, then resume it."
        )
        assert not row(r, session)
        session = crash(r, session, 1_000.0)  # said once, not at each start
        assert len(r.all(session, ev.SessionNotResumed)) == 1
        r.get(session.resume())
        session = crash(r, session)
        assert resumes(r, session)[-1] == ev.Resumes(
            task_id=r.get(session.tasks())[1].task_id, by=ENGINE, attempt=1
        )
        r.emit(done())


def test_a_crash_while_it_waits_to_go_on_loses_nothing():
    with rig() as r:
        session = begun(r, resume_backoff_s=10.0)
        session = crash(r, crash(r, session))  # the second waits for its backoff
        session = crash(r, session, 5.0)
        assert row(r, session)
        r.pass_time(6)
        assert [one.attempt for one in resumes(r, session) if one] == [1, 2]
        r.emit(done())


def test_carried_questions_are_waited_for_and_the_last_answer_sets_it_going():
    with rig(tools=FakeTools()) as r:
        session = begun(r, call("fake.write", call_id="c1"), call("fake.write", call_id="c2"))
        one, two = r.call(session, "c1"), r.call(session, "c2")
        session = crash(r, session, 10_000.0)
        assert len(resumes(r, session)) == 1
        r.get(session.approve(one))
        session = crash(r, session)  # still one to answer
        assert len(resumes(r, session)) == 1
        r.get(session.deny(two))
        r.pass_time(0)
        assert len(resumes(r, session)) == 2
        assert [run.tool_call_id for run in r.tools.invocations] == [one]
        r.emit(done())
        assert len(r.tools.runs) == 1


def test_a_carried_question_with_text_is_waited_for_too():
    with rig(tools=builtin_registry()) as r:
        session = begun(r, call("user.ask", {"question": "Which?"}))
        session = crash(r, session, 10_000.0)
        (asked,) = r.get(session.approvals())
        assert len(resumes(r, session)) == 1
        r.get(session.answer(asked.approval_id, "That one"))
        r.pass_time(0)
        assert r.one(session, ev.ToolCallCompleted).result_preview == "That one"
        r.emit(done())


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_used_up_budget_is_waited_for_and_goes_on_only_if_it_is_raised(decision: str):
    from tests.engine.acting import create_session

    from codesdk.contract.settings import SessionConfig, SessionSettings

    with rig() as r:
        config = SessionConfig(
            runtime="fake",
            workspace="/workspace",
            budgets=Budgets(task=Budget(tokens=10)),
            settings=SessionSettings(on_interrupt="resume"),
        )
        session = r.handle(r.get(create_session(r.engine, config)).session_id)
        r.start(session)
        r.loop.call_soon(r.session(session.id).queue.give_up, *over())
        r.pass_time(100)
        assert r.one(session, ev.TaskFailed).error.code == "BUDGET_EXCEEDED"
        session = crash(r, session, 1_000.0)
        assert len(resumes(r, session)) == 1
        (question,) = r.get(session.approvals())
        r.get((session.approve if decision == "approve" else session.deny)(question.approval_id))
        r.pass_time(1_000)
        assert len(resumes(r, session)) == (2 if decision == "approve" else 1)
        if decision == "approve":
            r.emit(done())


def over() -> tuple[ErrorInfo, Standing]:
    """Return why a task ends whose budget is used up, as its model requests would find out."""
    standing = Standing(level="task", what="tokens", used=20, limit=10)
    return standing.error, standing


def test_a_person_who_resumes_at_the_same_moment_and_the_engine_have_one_winner():
    with rig() as r:
        session = begun(r)
        r.crash()
        session = r.handle(session)
        person = r.loop.create_task(session.resume())
        r.pass_time(0)
        assert person.done()
        assert person.exception() is None or isinstance(person.exception(), (Busy, Conflict))
        assert len(resumes(r, session)) == 2
        r.emit(done())
        assert [task.state for task in r.get(session.tasks())] == ["completed", "failed"]


def test_a_shutdown_interrupts_and_the_next_start_goes_on_without_counting_it():
    with rig(tools=FakeTools()) as r:
        session = begun(r, call("fake.write"), max_resumes=1, stop_grace_s=1.0)
        asked = r.call(session)
        for _ in range(3):
            r.reopen()
            r.pass_time(0)
            session = r.handle(session)
            assert r.all(session, ev.SessionRecovered)[-1].cause == "SHUTDOWN"
            assert len(r.get(session.approvals())) == 1  # carried, not denied
            if len(resumes(r, session)) == 1:
                r.get(session.approve(asked))
                r.pass_time(0)
                break
        assert [run.tool_call_id for run in r.tools.invocations] == [asked]
        r.reopen()
        r.pass_time(0)
        session = r.handle(session)
        assert [one.attempt for one in resumes(r, session) if one] == [1, 1]
        r.emit(done())
        assert len(r.tools.runs) == 1


def test_a_shutdown_while_a_tool_runs_records_its_end_and_a_stop_is_final():
    with rig(tools=FakeTools()) as r:
        r.tools.hold()
        session = begun(r, call("fake.write"), mode="yolo", stop_grace_s=1.0)
        r.reopen()
        r.pass_time(0)
        session = r.handle(session)
        ended = r.one(session, ev.ToolCallCompleted)
        assert (ended.is_error, ended.outcome) == (True, "known")
        assert len(resumes(r, session)) == 2
        r.do(session.stop("enough"))
        r.emit(done())
        session = crash(r, session, 1_000.0)
        assert len(resumes(r, session)) == 2
        assert len(r.tools.runs) == 1


def test_without_its_equipment_it_does_not_go_on_alone_and_says_what_is_missing():
    with rig() as r:
        session = r.open(on_interrupt="resume", secrets=("a-secret-of-the-session",))
        r.start(session)
        r._wait(r.equipment.forget(session.id))
        session = crash(r, session)
        said = r.one(session, ev.SessionNotResumed)
        assert (said.cause, said.missing) == ("equipment", ["secrets"])
        assert said.message.startswith(
            f"What session {session.id} was equipped with is missing or damaged: secrets."
        )
        assert len(resumes(r, session)) == 1
        r.get(r.sdk.session(session.id, secrets=["a-secret-of-the-session"]))
        r.get(session.resume())
        r.emit(done())


class Gateway:
    """A gateway that knows whether it has what sessions play, and plays nothing."""

    has_it = True

    def plays(self, session_id: str) -> bool:
        return self.has_it

    def access(self, payer: Any, mode: Any) -> dict[Any, Any]:
        return {}


@pytest.mark.parametrize(("mode", "missing"), [("scripted", "script"), ("replay", "recording")])
def test_without_what_it_plays_and_nobody_sealed_it_does_not_go_on_alone_either(mode: Any, missing: str):
    gateway = Gateway()
    runtime = FakeRuntime(capabilities=Capabilities(input_capture="exact"))
    with rig(runtime=runtime, models=gateway) as r:
        session = begun(r, gateway=mode)
        gateway.has_it = False  # it was kept by the process that has died
        session = crash(r, session)
        said = r.one(session, ev.SessionNotResumed)
        assert (said.cause, said.missing) == ("equipment", [missing])
        assert said.message.startswith(
            f"Session {session.id} plays a {missing} in place of a provider's model"
        )
        assert (len(resumes(r, session)), row(r, session)) == (1, False)
        assert r.refused(session.resume(), Conflict) == "CONFLICT"
        gateway.has_it = True
        r.get(session.resume())
        r.emit(done())


class Unreachable:
    """Equips sessions with a server that does not answer, so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def prepare(self, equipment: Equipment, *, principal: str) -> Any:
        from codesdk.contract.errors import CodeSDKError

        if self.times:
            self.times -= 1
            raise CodeSDKError("The MCP server x cannot be used.", code="TOOL_FAILED", retryable=True)
        return Nothing()


class Nothing:
    settings: ClassVar[dict[str, Any]] = {}
    secrets: tuple[str, ...] = ()

    async def attach(self, session_id: str, *, turn: int | None = None) -> None:
        return None


@pytest.mark.parametrize("times", [1, 99])
def test_what_may_work_later_is_tried_again_within_the_bound(times: int):
    equipper = Unreachable(0)
    with rig(equipper=equipper) as r:
        session = r.open(on_interrupt="resume", max_resumes=3, resume_backoff_s=10.0)
        r._wait(r.equipment.save(session.id, sealed(session.id)))
        r.start(session)
        equipper.times = times
        session = crash(r, session, 100.0)
        if times == 1:
            assert len(resumes(r, session)) == 2
            r.emit(done())
        else:
            assert r.one(session, ev.SessionNotResumed).cause == "refused"
            assert equipper.times == 99 - 3


def sealed(session_id: str) -> bytes:
    import asyncio

    from codesdk.engine.sessions.sealing import seal
    from codesdk.store.equipment import MemoryEquipment

    async def made() -> bytes:
        store = MemoryEquipment()
        await seal(store, session_id, Equipment(script={"turns": []}))
        return await store.load(session_id) or b""

    return asyncio.run(made())


def test_more_sessions_than_slots_go_on_one_after_the_other_and_queued_tasks_follow():
    with rig() as r:
        sessions = [begun(r) for _ in range(3)]
        r.start(sessions[0], "More")
        r.limits = Limits(max_tasks=1)
        r.crash()
        for _ in range(4):
            r.pass_time(0)
            r.emit(done())
        r.pass_time(0)
        states = [[task.state for task in r.get(r.handle(session).tasks())] for session in sessions]
        assert states == [
            ["completed", "completed", "failed"],
            ["completed", "failed"],
            ["completed", "failed"],
        ]


def test_a_task_that_was_only_queued_starts_by_itself_too():
    with rig(limits=Limits(max_tasks=1)) as r:
        r.start(r.open())
        session = r.open(on_interrupt="resume")
        r.start(session, "Later")
        session = crash(r, session)
        assert texts(r.play.input.messages) == [("user", "Later")]
        r.emit(done())
        assert [task.state for task in r.get(session.tasks())] == ["completed"]


def test_an_engine_that_only_passes_by_goes_on_with_nothing():
    with rig() as r:
        session = begun(r)
        r._wait(r.engine._going_on.close())
        r.engine._registry.on_loaded = lambda live: None
        r.lifeline.cut()
        r.goes_on = False
        session = crash(r, session, 1_000.0)
        assert len(resumes(r, session)) == 1
        assert row(r, session)
        r.goes_on = True
        session = crash(r, session)
        assert len(resumes(r, session)) == 2
        r.emit(done())


def test_the_backoff_doubles_up_to_a_limit():
    assert [backoff_s(1.0, attempt) for attempt in range(1, 6)] == [0, 1, 2, 4, 8]
    assert backoff_s(1.0, 1_000) == MAX_BACKOFF_S


def test_the_conversation_goes_on_from_what_was_said():
    with rig() as r:
        session = begun(r, message("So far.", "m1"))
        crash(r, session)
        assert texts(r.play.input.messages) == [("user", "Go"), ("assistant", "So far.")]
        r.emit(done())
