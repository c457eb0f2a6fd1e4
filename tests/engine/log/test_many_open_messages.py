"""Thousands of messages and requests that a runtime leaves open: what ending them costs grows with their number, not
with its square."""

import pytest
from tests.engine.steps import steps_of
from tests.engine.world import payloads, world
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.contract.events import OutputCompleted, RequestCompleted, RequestStarted
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import ActiveTask, SessionState
from codesdk.testing.fakes import FrozenStamper, call, delta, done, message

FEW, MANY = 100, 400


def ending(number: int) -> int:
    """Return the steps of a task's end that leaves this many messages open."""
    with world() as w:
        session = w.create()
        w.start(session)
        w.emit(*(delta("a", f"m{n}", f"b{n}") for n in range(number)))
        steps = steps_of(lambda: w.emit(done()))
        assert len(payloads(w.events(session), OutputCompleted)) == number
        w.check_all()
        return steps


def completing(number: int) -> int:
    """Return the steps of completing this many messages, while a call of the first one waits for a person."""
    with world() as w:
        session = w.create()
        w.start(session)
        w.emit(call("fake.write", message_id="m0"), *(delta("a", f"m{n}", f"b{n}") for n in range(number)))
        steps = steps_of(lambda: w.emit(*(message("a", f"m{n}") for n in range(number))))
        assert len(payloads(w.events(session), OutputCompleted)) == number
        return steps


@pytest.mark.slow
def test_a_task_that_ends_closes_its_open_messages_in_linear_work():
    assert ending(MANY) < 1.3 * MANY / FEW * ending(FEW)


def test_messages_are_completed_in_linear_work_also_while_an_earlier_one_cannot_be_sealed():
    assert completing(MANY) < 1.3 * MANY / FEW * completing(FEW)


def test_a_request_ends_without_a_look_at_the_others():
    number = 100_000
    task = ActiveTask(task_id="task_1", started_seq=0, started_at="", created_at="")
    state = SessionState(session_id="ses_1", principal="local", task=task)
    journal = Journal(state, FrozenStamper(), lambda *_: None)
    with hang_guard():
        for n in range(number):
            journal.write(RequestStarted(request_id=f"x{n}", purpose="main"))
        for n in range(number):
            journal.write(RequestCompleted(request_id=f"never{n}", status="ok", duration_ms=1))
    assert state.seq == 2 * number
