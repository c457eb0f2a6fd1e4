"""Facts are events that the engine alone writes: whatever a runtime says changes no state and names nobody."""

from functools import partial
from typing import Any, get_args

import msgspec
import pytest
from tests.contract.examples import EVENTS
from tests.engine.acting import live_session
from tests.engine.notice_kinds import notice_kinds
from tests.engine.rig import rig

from codesdk.contract import events as ev
from codesdk.contract.runtime import Draft, DraftPayload
from codesdk.engine.log.state import decode_state, encode_state
from codesdk.store.audit.entries import RELEVANT, entry_of
from codesdk.testing.fakes import call, done

FORMER = ("stop_requested", "recovered", "grant_revoked", "undone", "settings_changed")
"""What were kinds of notices before they were facts."""
DRAFTED = get_args(DraftPayload)
FACTS = [name for name, payload in ev.EVENT_TYPES.items() if payload not in DRAFTED]
"""The types of events that only the engine writes."""
DETAILS: dict[str, Any] = {
    "by": {"kind": "user", "id": "eve"},
    "tool": "fake.write",
    "cause": "INTERRUPTED",
    "open_calls": [],
    "restored": [{"path": "a.txt", "tool_call_id": "call_1", "attempt": 1}],
    "refused": [],
    "title": "Eve's",
    "permission_mode": "yolo",
}


def test_the_kinds_are_found_wherever_a_notice_is_made():
    """By its class, by functions of the engine, of runtimes and of the channel, from a constant, a table, a condition."""
    assert {"idle", "late_event", "mode", "signal", "plan", "compaction", "warning"} <= notice_kinds()


@pytest.mark.parametrize("kind", [*FORMER, *sorted(notice_kinds()), *FACTS, "of nobody's"])
def test_a_notice_of_a_runtime_is_kept_and_changes_nothing_and_no_record_of_the_audit_comes_from_it(
    kind: str,
):
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write", {"path": "a.txt"}, "c1"))
        r.get(session.approve(r.call(session), scope="session"))
        live = r.get(live_session(r.engine, session.id))
        before = decode_state(encode_state(live.state))
        said = ev.RuntimeNotice(kind=kind, message="Eve was here.", details=DETAILS)
        r.emit(Draft(said))
        assert r.last(session).payload == said
        after = msgspec.structs.replace(before, seq=before.seq + 1, time=r.last(session).time)
        assert decode_state(encode_state(live.state)) == after
        r.emit(done())
        entries = [entry_of(event) for event in r.events(session.id)]
        assert {entry.who.id for entry in entries if entry is not None} == {None}
        assert "runtime.notice" not in RELEVANT


@pytest.mark.parametrize("name", FACTS)
def test_a_runtime_cannot_draft_a_fact(name: str):
    with rig() as r:
        session = r.open()
        r.start(session)
        live = r.get(live_session(r.engine, session.id))
        before = decode_state(encode_state(live.state))
        r.emit(Draft(EVENTS[name].payload))  # pyright: ignore[reportArgumentType]
        refused = r.last(session).payload
        assert isinstance(refused, ev.RuntimeNotice)
        assert refused.message.endswith(f"a runtime may not draft {name}.")
        after = msgspec.structs.replace(before, seq=before.seq + 1, time=r.last(session).time)
        assert decode_state(encode_state(live.state)) == after
        r.emit(done())
        assert [type(payload) for payload in r.ended(session)] == [ev.TaskCompleted]


def test_an_event_of_a_type_that_nobody_knows_yet_is_folded_checked_and_replayed():
    with rig() as r:
        session = r.open()
        live = r.get(live_session(r.engine, session.id))
        name: Any = "session.painted"
        make = partial(ev.UnknownEvent, type=name)
        live.recorder.journal.write({"colour": "blue"}, in_task=False, make=make)
        r.get(live.recorder.settle())
        stranger = r.last(session)
        assert (type(stranger), stranger.type, stranger.payload) == (
            ev.UnknownEvent,
            "session.painted",
            {"colour": "blue"},
        )
