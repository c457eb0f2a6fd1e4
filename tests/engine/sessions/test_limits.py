"""How much an engine takes on: over a limit a call is refused or waits its turn, in the order they came."""

from tests.engine.rig import Rig, rig

from codesdk import Busy, Conflict, Session, StorageFailure, Task
from codesdk.contract import events as ev
from codesdk.contract.settings import Limits
from codesdk.engine.sessions.queue import MOST_WAITING
from codesdk.engine.sessions.registry import RETRY_S
from codesdk.testing.fakes import FakeRuntime, delta, done


def states(r: Rig, *tasks: Task) -> list[str]:
    return [r.get(r.sdk.archive.task(task.id)).state for task in tasks]


def running(r: Rig) -> list[str]:
    """Return the sessions whose tasks the runtime was given, in that order."""
    return [task.input.session_id for task in r.runtime.tasks]


def finish(r: Rig, session: Session) -> None:
    """End the running task of a session."""
    [t for t in r.runtime.tasks if t.input.session_id == session.id][-1].emit(done())
    r.settle()


def test_open_sessions_are_limited_and_those_that_are_closed_or_deleted_do_not_count():
    with rig(limits=Limits(max_sessions=2)) as r:
        first, second = r.open(), r.open()

        def refused() -> bool:
            return r.refused(second.fork(), Busy) == "OVERLOADED"

        assert refused()
        r.get(first.close())
        r.get(first.close())
        third = r.open()
        assert refused()
        r.get(r.sdk.delete_session(first.id))
        assert refused(), "it was closed, so it did not count"
        r.get(r.sdk.delete_session(third.id))
        r.open()
        assert refused()
        r.reopen()
        second = r.handle(second)
        assert refused()


def test_creations_that_fail_do_not_count():
    with rig(limits=Limits(max_sessions=1)) as r:
        for _ in range(3):
            r.flaky.appends = 0
            try:
                r.open()
            except StorageFailure:
                continue
        r.open()
        assert len(r.get(r.sdk.sessions())) == 1


def test_tasks_over_the_limit_wait_and_sessions_get_a_free_slot_in_the_order_they_came():
    with rig(limits=Limits(max_tasks=1)) as r:
        one, two, three = r.open(), r.open(), r.open()
        first = r.start(one, "1")
        again = r.start(one, "1 again")
        late = r.start(three, "3")
        later = r.start(two, "2")
        assert states(r, first, again, late, later) == ["running", "queued", "queued", "queued"]
        assert r.refused(two.start("now", on_busy="reject"), Busy) == "OVERLOADED"
        finish(r, one)
        assert running(r) == [one.id, three.id], "who has had a turn waits behind those who have not"
        finish(r, three)
        finish(r, two)
        assert running(r) == [one.id, three.id, two.id, one.id]
        assert states(r, first, again, late, later) == ["completed", "running", "completed", "completed"]


def test_a_second_slot_is_used_as_soon_as_it_is_free():
    with rig(limits=Limits(max_tasks=2)) as r:
        sessions = [r.open() for _ in range(4)]
        for session in sessions:
            r.start(session)
        assert running(r) == [session.id for session in sessions[:2]]
        finish(r, sessions[1])
        assert running(r) == [session.id for session in sessions[:3]]
        finish(r, sessions[0])
        assert running(r) == [session.id for session in sessions]


def test_each_runtime_has_a_limit_of_its_own_and_does_not_hold_up_the_others():
    slow, quick = FakeRuntime(name="slow"), FakeRuntime(name="quick")
    with rig(runtimes=[slow, quick], limits=Limits(max_tasks=3, max_tasks_per_runtime=1)) as r:
        mine = [r.open(runtime="slow") for _ in range(2)]
        theirs = [r.open(runtime="quick") for _ in range(2)]
        tasks = [r.start(session) for session in (*mine, *theirs)]
        assert states(r, *tasks) == ["running", "queued", "running", "queued"]
        quick.tasks[0].emit(done())
        r.settle()
        assert states(r, *tasks) == ["running", "queued", "completed", "running"]
        slow.tasks[0].emit(done())
        r.settle()
        assert states(r, *tasks) == ["completed", "running", "completed", "running"]


def test_a_full_queue_refuses_more_until_one_has_run():
    with rig(limits=Limits(max_queue=2)) as r:
        session = r.open()
        for _ in range(3):
            r.start(session)
        before = r.story(session)
        assert r.refused(session.start("one too many"), Busy) == "QUEUE_FULL"
        assert r.story(session) == before
        r.emit(done())
        r.start(session)
        assert r.refused(session.start("one too many"), Busy) == "QUEUE_FULL"


def test_a_session_that_no_longer_wants_its_turn_passes_it_on():
    with rig(limits=Limits(max_tasks=1)) as r:
        one, two, three = r.open(), r.open(), r.open()
        r.start(one)
        unwanted, wanted = r.start(two), r.start(three)
        r.get(two.stop(task_id=unwanted.id))
        finish(r, one)
        assert states(r, unwanted, wanted) == ["stopped", "running"]


def test_a_session_that_lost_its_log_while_it_waited_still_gets_its_turn():
    with rig(limits=Limits(max_tasks=1)) as r:
        one, two = r.open(), r.open()
        r.start(one)
        waiting = r.start(two)
        r.flaky.appends = 0
        assert r.refused(two.start("lost"), StorageFailure) == "STORAGE_FAILED"
        last = r.start(two, "kept")
        finish(r, one)
        assert states(r, waiting, last) == ["running", "queued"]


def test_a_task_that_ends_badly_gives_its_slot_back():
    with rig(limits=Limits(max_tasks=1)) as r:
        one, two, three = r.open(), r.open(), r.open()
        tasks = [r.start(session) for session in (one, two, three)]
        r.emit(RuntimeError("crashed"))
        assert states(r, *tasks) == ["failed", "running", "queued"]
        r.flaky.appends = 0
        r.emit(delta("lost"))
        r.settle()
        assert running(r) == [one.id, two.id, three.id]
        r.pass_time(RETRY_S)
        assert [end.error.code for end in r.ended(two)] == ["STORAGE_FAILED"]


def test_resume_needs_a_slot_too():
    with rig(limits=Limits(max_tasks=1)) as r:
        one, two = r.open(), r.open()
        r.start(one)
        r.crash()
        one, two = r.handle(one), r.handle(two)
        r.start(two)
        before = r.story(one)
        assert r.refused(one.resume(), Busy) == "OVERLOADED"
        assert r.story(one) == before
        finish(r, two)
        r.get(one.resume())
        assert running(r)[-1] == one.id
        assert r.refused(one.resume(), Busy) == "SESSION_BUSY"
        finish(r, one)
        assert r.refused(one.resume(), Conflict) == "CONFLICT"
        assert len(r.all(one, ev.SessionResumed)) == 1


def test_the_messages_that_wait_in_a_session_are_bounded_together():
    with rig(limits=Limits(max_message_bytes=1_000)) as r:
        session = r.open()
        for _ in range(1 + MOST_WAITING):
            r.start(session, "x" * 900)
        before = r.story(session)
        assert r.refused(session.start("x" * 900), Busy) == "QUEUE_FULL"
        assert r.story(session) == before
        r.emit(done())
        r.start(session, "x" * 900)
        assert r.refused(session.start("x" * 900), Busy) == "QUEUE_FULL"
