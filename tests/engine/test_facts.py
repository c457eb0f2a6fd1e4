"""Facts are events that the engine alone writes: whatever a runtime says changes no state and names nobody."""

from functools import partial
from typing import Any

import msgspec
import pytest
from tests.engine.acting import live_session
from tests.engine.rig import rig

from codesdk.contract import events as ev
from codesdk.contract.runtime import Draft
from codesdk.contract.tools import Actor, UndoneFile
from codesdk.engine.log.state import decode_state, encode_state
from codesdk.store.audit.entries import RELEVANT, entry_of
from codesdk.testing.fakes import call, done

EVE = Actor(kind="user", id="eve")
KINDS = ("stop_requested", "recovered", "grant_revoked", "undone", "settings_changed", "retry", "violation")
OTHERS = (
    "compaction",
    "hidden_input",
    "hidden_request",
    "late_event",
    "mode",
    "native_tool",
    "subagent",
    "unknown_frame",
    "warning",
)
"""The other kinds that runtimes and the engine write."""
FACTS = (
    "task.stop_requested",
    "session.recovered",
    "grant.revoked",
    "files.undone",
    "session.settings_changed",
    "session.clock_changed",
    "session.compacted",
)
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


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS, *FACTS])
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


@pytest.mark.parametrize(
    "payload",
    [
        ev.TaskStopRequested(reason="stop", by=EVE),
        ev.SessionRecovered(task_id="task_1", cause="INTERRUPTED", open_calls=[]),
        ev.GrantRevoked(tool="fake.write", by=EVE),
        ev.SettingsChanged(by=EVE, permission_mode="yolo"),
        ev.SessionCompacted(
            by=EVE, strategy="window", reason="", first=9, previews_before=0, tokens_before=1, tokens_after=0
        ),
        ev.FilesUndone(by=EVE, restored=[UndoneFile(path="a", tool_call_id="c", attempt=1)], refused=[]),
    ],
)
def test_a_runtime_cannot_draft_a_fact(payload: Any):
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(Draft(payload))
        refused = r.last(session).payload
        assert isinstance(refused, ev.RuntimeNotice)
        assert refused.message.endswith(f"a runtime may not draft {ev.TYPE_OF[type(payload)]}.")
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
