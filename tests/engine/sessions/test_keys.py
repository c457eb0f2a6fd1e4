"""Idempotency keys: the same request under the same key is carried out once, however often and whenever it comes."""

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from tests.engine.acting import create_session
from tests.engine.rig import Rig, rig

from codesdk import Busy, Conflict, InvalidRequest, NotFound, SessionSettings, StorageFailure
from codesdk.contract import events as ev
from codesdk.contract.actions import EquipSession
from codesdk.contract.messages import user
from codesdk.contract.settings import SessionConfig
from codesdk.contract.validation import LONG_BYTES
from codesdk.engine.sessions import actions, keys
from codesdk.engine.sessions.actions import _said
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import delta, done


def config(**more: Any) -> SessionConfig:
    return SessionConfig(runtime="fake", workspace="/workspace", **more)


def create(r: Rig, key: str | None, **more: Any) -> str:
    return r.get(create_session(r.engine, config(**more), key=key)).session_id


@pytest.mark.parametrize("life", ["the same engine", "a reopened one", "one after a crash"])
def test_the_same_request_under_the_same_key_gets_the_first_answer(life: str):
    with rig() as r:
        first = create(r, "k")
        session = r.handle(first)
        task = r.start(session, "Go", idempotency_key="k")
        own = r.start(session, "More", task_id="task_mine", idempotency_key="k2")
        if life == "a reopened one":
            r.reopen()
        elif life == "one after a crash":
            r.crash()
        session = r.handle(first)
        before = r.frames(first)
        assert create(r, "k") == first
        assert r.start(session, "Go", idempotency_key="k").id == task.id
        assert r.start(session, "More", task_id="task_mine", idempotency_key="k2").id == own.id == "task_mine"
        assert r.frames(first) == before
        assert [row.session_id for row in r.get(r.sdk.sessions())] == [first]


def test_another_request_under_the_same_key_is_a_conflict():
    with rig() as r:
        session = r.handle(create(r, "k"))
        for more in ({"title": "other"}, {"settings": SessionSettings(raw_capture=False)}):
            work = create_session(r.engine, config(**more), key="k")
            assert r.refused(work, Conflict) == "CONFLICT"
        r.start(session, "Go", idempotency_key="k")
        other = r.open()
        for work in (
            session.start("Stop", idempotency_key="k"),
            session.start("Go", on_busy="reject", idempotency_key="k"),
            session.start("Go", task_id="task_mine", idempotency_key="k"),
            other.start("Go", idempotency_key="k"),
        ):
            assert r.refused(work, Conflict) == "CONFLICT"
        assert (len(r.all(session, ev.TaskStarted)), r.all(session, ev.TaskQueued)) == (1, [])


def test_requests_under_one_key_that_come_at_once_are_one_task():
    with rig() as r:
        session = r.open()
        same = [r.loop.create_task(session.start("Go", idempotency_key="k")) for _ in range(5)]
        other = r.loop.create_task(session.start("Stop", idempotency_key="k"))
        r.settle()
        assert len({task.result().id for task in same}) == 1
        assert isinstance(other.exception(), Conflict)
        assert (len(r.all(session, ev.TaskStarted)), r.all(session, ev.TaskQueued)) == (1, [])


def test_creations_under_one_key_that_come_at_once_are_one_session():
    with rig() as r:
        made = [r.loop.create_task(create_session(r.engine, config(), key="k")) for _ in range(5)]
        r.settle()
        assert len({task.result().session_id for task in made}) == 1
        assert len(r.get(r.sdk.sessions())) == 1


class HeldLog(MemoryLog):
    """A log that commits nothing while its gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, *args: Any, **options: Any) -> None:
        await self.gate.wait()
        await super().append(*args, **options)


@pytest.mark.parametrize("turns", range(8))
def test_a_caller_that_goes_away_half_way_does_not_make_the_next_one_do_it_again(turns: int):
    log = HeldLog()
    with rig(log=log) as r:
        session = r.open()
        log.gate.clear()
        gone = r.do(session.start("Go", idempotency_key="k"), turns=turns)
        gone.cancel()
        asking = r.do(session.start("Go", idempotency_key="k"))
        log.gate.set()
        r.settle()
        task = asking.result()
        assert (len(r.all(session, ev.TaskStarted)), r.all(session, ev.TaskQueued)) == (1, [])
        assert r.events(session.id)[1].trace.task_id == task.id


def test_steering_under_a_key_happens_once():
    with rig() as r:
        session = r.open()
        task = r.start(session)
        r.emit(delta("Where to?"))
        for _ in range(3):
            assert r.start(session, "left", on_busy="steer", idempotency_key="k").id == task.id
        assert r.play.steered == [user("left")]
        assert len(r.all(session, ev.TaskSteered)) == 1


@pytest.mark.parametrize("what", ["a stop after the end", "a second stop", "a second close"])
def test_a_key_is_kept_when_there_was_nothing_left_to_do(what: str):
    with rig() as r:
        session = r.open()
        task = r.start(session)
        if what == "a stop after the end":
            r.emit(done())
        elif what == "a second stop":
            r.get(session.stop())
        else:
            r.emit(done())
            r.get(session.close())

        def ask(reason: str) -> Any:
            if what == "a second close":
                return r.handle(session).close(reason, idempotency_key="k")
            return r.handle(session).stop(reason, task_id=task.id, idempotency_key="k")

        before = r.frames(session.id)
        r.get(ask("enough"))
        assert r.refused(ask("more than enough"), Conflict) == "CONFLICT"
        r.get(ask("enough"))
        assert r.frames(session.id) == before
        r.crash()
        assert r.refused(ask("more than enough"), Conflict) == "CONFLICT"


def test_a_close_that_a_crash_cut_short_is_carried_out_when_it_is_repeated():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.do(session.close("enough", idempotency_key="k"))
        r.settle()
        assert (len(r.all(session, ev.TaskStopRequested)), r.all(session, ev.SessionClosed)) == (1, [])
        r.crash()
        session = r.handle(session)
        r.start(session, "Go on")
        closing = r.do(session.close("enough", idempotency_key="k"))
        r.settle()
        r.emit(done())
        assert closing.result() is None
        assert [stop.reason for stop in r.all(session, ev.TaskStopRequested)] == ["enough", "enough"]
        assert [close.reason for close in r.all(session, ev.SessionClosed)] == ["enough"]


PLACES = {
    "the task": "codesdk.engine.sessions.queue.TaskRun",
    "its key": "codesdk.engine.log.recorder.Recorder._answered",
    "the batch": "codesdk.engine.log.recorder.Recorder._snapshot",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_request_that_fails_half_way_leaves_nothing_that_its_repetition_would_double(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    """There may be no memory left after the event was written and before its key was."""
    with rig() as r:
        session = r.open()
        with monkeypatch.context() as scarce:
            scarce.setattr(PLACES[place], Mock(side_effect=MemoryError))
            with pytest.raises(StorageFailure if place == "the batch" else MemoryError):
                r.get(session.start("Go", idempotency_key="k"))
        assert [event.type for event in r.events(session.id)] == ["session.created"]
        session = r.handle(session)
        task = r.start(session, "Go", idempotency_key="k")
        assert r.start(session, "Go", idempotency_key="k").id == task.id
        r.emit(done())
        assert (len(r.all(session, ev.TaskStarted)), r.all(session, ev.TaskQueued)) == (1, [])
        assert r.engine._registry.slots.running == 0


def test_a_key_is_not_kept_when_the_call_failed():
    with rig() as r:
        session = r.open()
        r.start(session)
        work = session.start("Now", on_busy="reject", idempotency_key="k")
        assert r.refused(work, Busy) == "SESSION_BUSY"
        bad = session.start([], idempotency_key="k")
        assert r.refused(bad, InvalidRequest) == "INVALID_REQUEST"
        r.emit(done())
        task = r.start(session, "Something else", idempotency_key="k")
        assert r.all(session, ev.TaskStarted)[-1].messages == [user("Something else")]
        assert r.get(session.task_info(task.id)).state == "running"


def test_a_key_is_not_kept_when_its_effect_could_not_be_stored():
    with rig() as r:
        session = r.open()
        r.flaky.appends = 0
        assert r.refused(session.start("Go", idempotency_key="k"), StorageFailure) == "STORAGE_FAILED"
        task = r.start(session, "Go", idempotency_key="k")
        assert [event.trace.task_id for event in r.events(session.id)[1:]] == [task.id] * 2
        r.flaky.appends = 0
        assert r.refused(create_session(r.engine, config(), key="k"), StorageFailure) == "STORAGE_FAILED"
        assert create(r, "k") in [row.session_id for row in r.get(r.sdk.sessions())]


def test_a_key_goes_with_its_session():
    with rig() as r:
        first = create(r, "k")
        r.get(r.sdk.delete_session(first))
        assert create(r, "k", title="other") != first


def test_a_session_is_deleted_once_under_a_key_while_the_process_runs():
    with rig() as r:
        first, second = create(r, None), create(r, None)
        r.get(r.handle(first).delete(idempotency_key="k"))
        r.get(r.sdk.delete_session(first, idempotency_key="k"))
        assert r.refused(r.sdk.delete_session(first), NotFound) == "NOT_FOUND"
        assert r.refused(r.sdk.delete_session(second, idempotency_key="k"), Conflict) == "CONFLICT"
        r.reopen()
        assert r.refused(r.sdk.delete_session(first, idempotency_key="k"), NotFound) == "NOT_FOUND"


def test_keys_of_different_principals_have_nothing_to_do_with_each_other():
    with rig() as r:
        mine = create(r, "k")
        theirs = r.get(create_session(r.engine, config(title="other"), principal="ann", key="k"))
        assert theirs.session_id != mine
        rows = r.get(r.sdk.as_principal("ann").sessions())
        assert [row.session_id for row in rows] == [theirs.session_id]


def test_no_hash_of_a_secret_is_stored_with_a_key():
    def said(password: str, word: str) -> object:
        server = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"authorization": password}}
        action = EquipSession(session_id="ses_1", secrets=[word], mcp_servers={"docs": server})
        return _said(action)

    assert said("one", "first") == said("other", "second")
    assert _said(EquipSession(session_id="ses_1", mcp_servers={"docs": {}})) != _said(
        EquipSession(session_id="ses_1", mcp_servers={"files": {}})
    )


@pytest.mark.parametrize("is_long", [True, False])
def test_a_long_request_is_checked_and_hashed_beside_the_event_loop(
    is_long: bool, monkeypatch: pytest.MonkeyPatch
):
    beside: dict[str, bool] = {}

    def watch(module: Any, name: str) -> None:
        work = getattr(module, name)

        def watched(value: Any) -> Any:
            beside[name] = threading.current_thread() is not threading.main_thread()
            return work(value)

        monkeypatch.setattr(module, name, watched)

    with rig() as r:
        session = r.open()
        watch(actions, "checked")
        watch(keys, "hash_json")
        text = "x" * (LONG_BYTES if is_long else 10)
        task = r.start(session, text, idempotency_key="k")
        assert beside == {"checked": is_long, "hash_json": is_long}
        assert r.start(session, text, idempotency_key="k").id == task.id
