"""A clock that is set forward and back: times stay in order, a setback is recorded once, and nothing ages by it."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.engine.rig import Rig, rig

from codesdk import Session
from codesdk.contract import events as ev
from codesdk.contract.codec import encode
from codesdk.contract.records import StoredFrame
from codesdk.contract.runtime import Draft
from codesdk.engine.checks.rules_log import Checker
from codesdk.engine.log.clock import MAX_LAG_S, SystemStamper, iso, millis
from codesdk.store import MemoryBlobs, age
from codesdk.testing.fakes import FrozenStamper, call, done, message

NOW = "2026-01-01T00:00:00.000Z"
CENTURY_S = 100 * 365 * 86_400


class Clock(FrozenStamper):
    """A clock that a test sets."""

    def __init__(self) -> None:
        super().__init__(NOW)

    def set(self, seconds: float) -> None:
        """Set the clock forward, or back if negative."""
        self._time_ms += int(seconds * 1000)


def times(r: Rig, session: Session) -> list[str]:
    return [event.time for event in r.events(session.id)]


def jumps(r: Rig, session: Session) -> list[ev.ClockChanged]:
    return r.all(session, ev.ClockChanged)


def test_after_a_jump_forward_and_back_the_time_is_true_again_and_the_jump_is_recorded_once():
    clock = Clock()
    with rig(stamper=clock) as r:  # which verifies and replays every log when it is left
        session = r.open()
        r.start(session)
        clock.set(CENTURY_S)
        r.emit(message("In the future.", "m1"))
        future = times(r, session)[-1]
        clock.set(-CENTURY_S)
        r.emit(message("Back.", "m2"), message("Still here.", "m3"))
        r.emit(done())
        (jump,) = jumps(r, session)
        at = next(event for event in r.events(session.id) if event.payload == jump)
        assert (jump.before, jump.after, at.trace.task_id) == (future, at.time, None)
        assert future > "2125"
        assert at.time < "2026-01-02"
        assert times(r, session)[at.seq - 1 :] == sorted(times(r, session)[at.seq - 1 :])
        assert r.ended(session)[0].duration_ms < 1000


def test_a_clock_that_is_a_little_behind_is_waited_for():
    clock = Clock()
    with rig(stamper=clock) as r:
        session = r.open()
        r.start(session)
        clock.set(-MAX_LAG_S)
        r.emit(call("fake.write"))
        r.get(session.approve(r.call(session)))
        r.emit(done())
        assert jumps(r, session) == []
        assert times(r, session) == sorted(times(r, session))


def test_a_clock_set_back_between_two_processes_is_recorded_by_the_second():
    clock = Clock()
    with rig(stamper=clock) as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write"))
        last = times(r, session)[-1]
        clock.set(-3600)
        r.crash()
        assert [jump.before for jump in jumps(r, session)] == [last]
        assert r.one(session, ev.SessionRecovered).cause == "INTERRUPTED"


def test_a_setback_in_the_middle_of_what_is_written_together_is_replayed():
    """Each look at the clock sets it back again: between any two events that belong together."""

    class Falling(Clock):
        def now(self) -> str:
            self.set(-2 * MAX_LAG_S)
            return super().now()

    with rig(stamper=Falling()) as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write", {}, "c1"), call("fake.read", {}, "c2"))
        r.get(session.approve(r.call(session, "c1")))
        waiting = r.start(session)
        r.get(waiting.stop())  # before it ran: its start and its stop stand together
        r.emit(message("Done."), done())
        assert len(jumps(r, session)) > 10


def test_a_question_neither_expires_nor_stays_for_ever_because_the_clock_is_set():
    clock = Clock()
    with rig(stamper=clock) as r:
        session = r.open(approval_timeout_s=300)
        r.start(session)
        r.emit(call("fake.write"))
        clock.set(CENTURY_S)
        r.pass_time(299)
        assert r.all(session, ev.ToolCallDenied) == []
        clock.set(-CENTURY_S)
        r.pass_time(2)
        assert "Nobody answered within 300 s" in r.one(session, ev.ToolCallDenied).reason
        r.emit(done())


def test_a_runtime_cannot_draft_a_clock_that_was_set_back():
    with rig() as r:
        session = r.open()
        r.start(session)
        forged: Any = ev.ClockChanged(before="2200-01-01T00:00:00.000Z", after=NOW)
        r.emit(Draft(forged))
        assert r.one(session, ev.RuntimeNotice).message.endswith("may not draft session.clock_changed.")
        r.emit(done())


# --- verify --------------------------------------------------------------------------------------


def findings(*events: tuple[str, Any]) -> list[str]:
    """Return what verify finds in a session with these events after its creation: times and payloads."""
    with rig() as r:
        session = r.open()
        first = r.events(session.id)[0]
    checker, found = Checker(session.id), list[str]()
    for seq, (at, payload) in enumerate([(NOW, first.payload), *events], 1):
        make: Any = ev.EVENT_OF[type(payload)]
        made = make(
            schema_version=1, seq=seq, time=at, trace=first.trace, runtime=first.runtime, payload=payload
        )
        found += [finding.message for finding in checker.take(StoredFrame(seq=seq, data=encode(made)))]
    return found


NOTICE = ev.RuntimeNotice(kind="warning", message="Hm.", details={})
BEFORE = "2025-12-31T23:00:00.000Z"
WRONG = "session.clock_changed does not say how the clock was set back"


def test_verify_accepts_a_setback_that_is_recorded():
    assert findings((BEFORE, ev.ClockChanged(before=NOW, after=BEFORE)), (BEFORE, NOTICE)) == []


@pytest.mark.parametrize(
    ("at", "before", "after"),
    [
        (BEFORE, "2026-01-01T00:00:00.001Z", BEFORE),  # not the time of the last event
        (BEFORE, NOW, "2025-12-31T22:00:00.000Z"),  # not its own
        (iso(millis(NOW) - MAX_LAG_S * 1000), NOW, iso(millis(NOW) - MAX_LAG_S * 1000)),  # too little
        (NOW, NOW, NOW),
        ("2026-01-01T01:00:00.000Z", NOW, "2026-01-01T01:00:00.000Z"),  # forward
    ],
)
def test_verify_accepts_no_other_setback(at: str, before: str, after: str):
    assert findings((at, ev.ClockChanged(before=before, after=after))) == [WRONG]


def test_verify_finds_a_time_that_goes_back_without_a_record_also_outside_of_tasks():
    assert findings((BEFORE, NOTICE)) == ["runtime.notice has a time before that of the event it follows"]


# --- what else looks at the clock ------------------------------------------------------------------


class Machine:
    """The machine's clocks, as a test sets them."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        self._time, self._time_ns = time.time, time.time_ns

    def time(self) -> float:
        return self._time() + self.offset_s

    def time_ns(self) -> int:
        return self._time_ns() + int(self.offset_s * 1e9)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "time", made.time)
    monkeypatch.setattr(time, "time_ns", made.time_ns)
    return made


def test_ids_are_unique_and_sort_by_the_true_time_after_a_jump(machine: Machine):
    stamper = SystemStamper()
    first = [stamper.mint("ses") for _ in range(100)]
    machine.offset_s = CENTURY_S
    future = [stamper.mint("ses") for _ in range(100)]
    machine.offset_s = 1
    last = [stamper.mint("ses") for _ in range(100)]
    assert len({*first, *future, *last}) == 300
    assert [*first, *last] == sorted([*first, *last])
    assert stamper.now() < "2100"


def test_a_jump_forward_makes_nothing_old(machine: Machine):
    before = age.age_time()
    machine.offset_s = CENTURY_S
    assert before <= age.age_time() < before + 3600
    machine.offset_s = -CENTURY_S
    assert age.age_time() < before


async def test_a_jump_forward_removes_no_blob_that_is_about_to_be_used(machine: Machine, tmp_path: Path):
    async def nothing_is_used(_: Any) -> set[str]:
        return set()

    blobs = MemoryBlobs()
    name = await blobs.put(b"x")
    machine.offset_s = CENTURY_S
    assert (await blobs.sweep(nothing_is_used, 3600), await blobs.has(name)) == (0, True)
