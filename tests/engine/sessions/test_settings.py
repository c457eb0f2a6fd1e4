"""Settings that change in a session that exists: what can, from when on it holds, and what is refused by name."""

from typing import Any

import msgspec
import pytest
from tests.engine.acting import change_settings, fork_session, live_session
from tests.engine.rig import USER, Rig, rig
from tests.engine.world import payloads

from codesdk import Forbidden, InvalidRequest, Session
from codesdk.contract import events as ev
from codesdk.contract.settings import Budget, Budgets, SettingsChange, merge_values
from codesdk.engine.log.recorder import DURABLE_TYPES
from codesdk.engine.permits import Permits
from codesdk.redaction import Redactor
from codesdk.store.audit.entries import entry_of
from codesdk.testing.fakes import call, done, message

ALL = SettingsChange(
    title="Another title",
    model="another-model",
    permission_mode="auto",
    budgets=Budgets(task=Budget(requests=3)),
    approval_timeout_s=1.5,
    stop_grace_s=2.0,
    end_grace_s=3.0,
    start_timeout_s=4.0,
    idle_timeout_s=5.0,
    values={"ticket": 12, "tags": ["a", None]},
)


def change(r: Rig, session: Session, **fields: Any) -> None:
    live = r.get(live_session(r.engine, session.id))
    r.get(change_settings(r.engine, live, SettingsChange.of(fields), USER))


def test_each_setting_that_can_change_does_and_the_event_has_the_changed_ones_only():
    with rig() as r:
        session = r.open()
        live = r.get(live_session(r.engine, session.id))
        r.get(live.change_settings(ALL, USER))
        stored = msgspec.json.decode(msgspec.json.encode(r.last(session).payload))
        assert stored == msgspec.to_builtins(ALL) | {"by": {"kind": "user"}}
        state, row = live.state, r.get(session.info())
        assert (row.title, row.model, row.permission_mode) == ("Another title", "another-model", "auto")
        assert state.config.budgets == ALL.budgets
        assert state.values == ALL.values
        for name in (
            "approval_timeout_s",
            "stop_grace_s",
            "end_grace_s",
            "start_timeout_s",
            "idle_timeout_s",
        ):
            assert state.config.settings[name] == getattr(live.scope.settings, name) == getattr(ALL, name)
        change(r, session, title=None, budgets=None)
        assert msgspec.to_builtins(r.last(session).payload) == {
            "title": None,
            "budgets": None,
            "by": {"kind": "user"},
        }
        assert (r.get(session.info()).title, live.state.config.budgets) == (None, None)
        assert live.state.config.permission_mode == "auto"


def test_what_was_changed_holds_after_a_crash_and_in_a_fork():
    with rig() as r:
        session = r.open()
        change(r, session, **msgspec.to_builtins(ALL))
        r.crash()
        session = r.handle(session)
        live = r.get(live_session(r.engine, session.id))
        assert (live.scope.settings.idle_timeout_s, live.state.values) == (5.0, ALL.values)
        fork = r.get(fork_session(r.engine, session.id))
        assert (fork.state.config.title, fork.state.model) == ("Another title", "another-model")
        assert (fork.state.config.permission_mode, fork.state.values) == ("auto", {})


def test_the_mode_holds_for_the_calls_that_are_requested_from_then_on():
    with rig() as r:
        session = r.open("ask")
        r.start(session)
        r.emit(call("fake.read", {}, "c1"))
        change(r, session, permission_mode="auto")
        assert r.last(session).trace.task_id is None
        r.emit(call("fake.read", {}, "c2"))
        assert [p.tool_call_id for p in r.all(session, ev.ToolCallCompleted)] == [r.call(session, "c2")]
        r.get(session.approve(r.call(session, "c1")))
        modes = {
            p.tool_call_id: p.policy_snapshot.permission_mode for p in r.all(session, ev.ToolCallApproved)
        }
        assert modes == {r.call(session, "c1"): "ask", r.call(session, "c2"): "auto"}
        r.emit(done())


def test_the_model_is_given_to_the_runtime_with_the_next_task():
    with rig() as r:
        session = r.open(model="first")
        r.start(session, "one")
        change(r, session, model="second")
        r.emit(message("still the first"), done())
        assert r.get(session.info()).model == "second"
        assert {event.runtime.model for event in r.events(session.id)} == {"first"}
        r.start(session, "two")
        assert r.play.input.model == "second"
        r.emit(message("now the second"), done())
        assert r.last(session).runtime.model == "second"
        assert r.get(session.info()).model == "second"


def test_a_task_that_never_runs_takes_no_model():
    with rig() as r:
        session = r.open(model="first")
        r.start(session, "one")
        waiting = r.start(session, "two")
        change(r, session, model="second")
        r.get(waiting.stop("not needed"))
        r.emit(done())
        assert {event.runtime.model for event in r.events(session.id)} == {"first"}
        r.start(session, "three")
        assert r.play.input.model == "second"
        r.emit(done())


def test_a_time_limit_holds_at_once():
    with rig() as r:
        session = r.open()
        change(r, session, approval_timeout_s=0)
        r.start(session)
        r.emit(call("fake.write", {"path": "a"}, "c1"))
        assert r.one(session, ev.ApprovalAnswered).reason == "Nobody answered within 0 s."
        r.emit(done())


def test_values_are_merged_key_by_key():
    assert merge_values({"a": 1, "b": {"c": 2}}, {"b": {"d": None}, "a": None, "e": 0}) == {
        "b": {"d": None},
        "e": 0,
    }
    with rig() as r:
        session = r.open()
        live = r.get(live_session(r.engine, session.id))
        change(r, session, values={"a": 1, "b": 2})
        change(r, session, values={"a": None, "c": [3]})
        assert live.state.values == {"b": 2, "c": [3]}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, r"There is nothing to change\. Name at least one setting\."),
        (
            {"workspace": "/"},
            r"^workspace cannot be changed in an existing session\. These can: title, model, ",
        ),
        ({"runtime": "x", "raw_capture": False}, r"^runtime, raw_capture cannot be changed"),
        ({"model": None}, r"The settings cannot be changed like this: Expected `str`, got `null`"),
        ({"permission_mode": "root"}, r"Invalid enum value 'root' - at `\$\.permission_mode`"),
        ({"idle_timeout_s": -1}, r"Expected `float` >= 0\.0 - at `\$\.idle_timeout_s`"),
        ({"idle_timeout_s": float("inf")}, r"at `\$\.idle_timeout_s`"),
        ({"budgets": {"task": {"requests": "many"}}}, r"at `\$\.budgets\.task\.requests`"),
        ({"values": {"k": "x" * 70_000}}, r"The values of one change may have 65,536 bytes"),
        ({"values": {"k": nested(101)}}, r"may be nested 100 levels deep"),
        ({"values": {"k": object()}}, r"values\.… holds a value of the type object"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_is_written(fields: dict[str, Any], problem: str):
    with rig() as r:
        session = r.open()
        at = r.last(session).seq
        with pytest.raises(InvalidRequest, match=problem):
            change(r, session, **fields)
        assert r.last(session).seq == at


def test_values_are_measured_before_they_are_searched_for_secrets(monkeypatch: pytest.MonkeyPatch):
    with rig() as r:
        session = r.open()
        monkeypatch.setattr(Redactor, "value", lambda *_: pytest.fail("they were searched"))
        with pytest.raises(InvalidRequest, match="65,536 bytes"):
            change(r, session, values={"k": [[]] * 30_000})
        monkeypatch.undo()


def test_all_values_together_are_bounded():
    with rig() as r:
        session = r.open()
        for number in range(4):
            change(r, session, values={f"k{number}": "x" * 60_000})
        with pytest.raises(InvalidRequest, match=r"The values of a session may have 262,144 bytes"):
            change(r, session, values={"k4": "x" * 60_000})
        change(r, session, values={"k0": None, "k4": "x" * 60_000})


def test_yolo_must_be_allowed_where_the_engine_is_opened():
    with rig() as r:
        session = r.open("ask")
        r.engine._actions._permits = Permits()
        with pytest.raises(Forbidden, match="yolo"):
            change(r, session, permission_mode="yolo")
        assert r.get(session.info()).permission_mode == "ask"


def test_who_changed_what_is_on_record_and_survives_a_power_cut():
    with rig() as r:
        session = r.open()
        change(r, session, permission_mode="auto", values={"b": "private", "a": 1})
        entry = entry_of(r.last(session))
        assert entry is not None
        assert (entry.action, entry.who.kind) == ("session.set", "user")
        assert entry.what["changed"] == {"permission_mode": "auto", "values": ["a", "b"]}
        assert "session.settings_changed" in DURABLE_TYPES


def test_secrets_stay_out_of_changed_settings():
    with rig() as r:
        session = r.open(secrets=("hunter2",))
        change(r, session, title="hunter2", values={"hunter2": ["hunter2"]})
        (changed,) = payloads(r.events(session.id), ev.SettingsChanged)
        assert (changed.title, changed.values) == ("[redacted]", {"[redacted]": ["[redacted]"]})
