"""Sessions as wholes: what is never stored, who sees what, and what one session may do to another."""

from typing import Any

import msgspec
import pytest
from tests.engine.acting import close_session, create_session, delete, fork_session, live_session, start
from tests.engine.world import PERSON, World, payloads, world

from codesdk.contract.errors import Conflict, ErrorInfo, InvalidRequest, NotFound
from codesdk.contract.events import (
    ModelInput,
    OutputCompleted,
    OutputDelta,
    RuntimeNotice,
    SessionCreated,
    ToolCallRequested,
)
from codesdk.contract.messages import Reasoning, Text, user
from codesdk.contract.ports import FileChange, ToolRun
from codesdk.contract.runtime import Draft, Failed, Finished
from codesdk.contract.settings import SessionConfig, SessionSettings
from codesdk.engine.tasks.validation import MAX_OPTIONS_BYTES
from codesdk.redaction.redactor import MARKER
from codesdk.testing.fakes import FakeTools, call, delta, done, message

CANARY = "canary-4f1d-tweet"


def everything(w: World) -> bytes:
    """All bytes that an engine has stored: frames, rows and blobs."""
    log: Any = w.log
    parts: list[bytes] = [frame.data for frame in log._frames]
    for session in log._sessions.values():
        parts += [
            session.row,
            *session.messages.values(),
            session.snapshot.state if session.snapshot else b"",
        ]
    for rows in (log._tasks, log._approvals):
        parts += [data for _, data in rows.values()]
    parts += [msgspec.json.encode([*key, *row]) for key, row in log._keys.items()]
    parts += [msgspec.json.encode(row) for row in log._artifacts.values()]
    parts += [data for data, _ in w.blobs._blobs.values()]
    return b"\n".join(parts)


def test_a_secret_appears_nowhere_whatever_way_it_comes():
    tools = FakeTools()
    tools.give(
        "fake.read",
        ToolRun(result={"found": [CANARY]}, changes=[FileChange(path=f"{CANARY}.txt", diff=f"+{CANARY}")]),
    )
    tools.give("fake.write", RuntimeError(f"cannot write {CANARY}"))
    small = SessionSettings(
        raw_inline_bytes=64,
        input_inline_bytes=64,
        result_inline_bytes=16,
        runtime_config={"token": CANARY, CANARY: 1},
    )
    with world(tools=tools, secrets=(CANARY,)) as w:
        session = w.create(title=f"on {CANARY}", permission_mode="ask", settings=small)
        w.start(session, f"my key is {CANARY}")
        w.emit(
            *[delta(letter) for letter in f"so {CANARY}!"],
            Draft(
                OutputDelta(kind="reasoning_delta", block_id="r", message_id="m1", delta=CANARY),
                {"raw": CANARY},
            ),
            Draft(
                OutputCompleted(message_id="m1", content=[Text(text=CANARY), Reasoning(text=CANARY)]),
                {"raw": [CANARY] * 9},
            ),
            Draft(RuntimeNotice(kind="odd", message=CANARY, details={CANARY: CANARY})),
            {"garbage": CANARY},
            call("fake.read", {"q": CANARY}, "c1", "m2"),
            call("fake.write", {"q": [CANARY] * 9}, "c2", "m2"),
            call("fake.read", {"invalid": f"not {CANARY}"}, "c3", "m2"),
            call(CANARY, {}, "c4", "m2"),
        )
        w.answer(session, "approve", reason=f"as {CANARY}")
        w.answer(session, "approve", reason=f"as {CANARY}")
        w.get(w.session(session).steer([user(f"and {CANARY}")]))
        w.emit(
            Failed(error=ErrorInfo(code="MODEL_ERROR", message=CANARY, retryable=True, details={"k": CANARY}))
        )
        w.start(session, "next")
        w.emit(delta("half " + CANARY[:8], "m3"))
        w.stop(session, f"enough {CANARY}")
        w.emit(Finished(stop_reason=CANARY))
        fork = w.get(fork_session(w.engine, session, title=f"fork of {CANARY}"))
        w.get(w.engine.put_artifact(CANARY.encode(), "text/plain", "note"))
        w.get(close_session(w.engine, fork.session_id, f"bye {CANARY}"))
        assert tools.invocations[0].input == {"q": CANARY}
        found = everything(w)
        assert MARKER.encode() in found
        assert CANARY.encode() not in found
        w.check_all()


def test_a_secret_split_over_deltas_is_taken_out_and_nothing_else_is_lost():
    with world(secrets=(CANARY,)) as w:
        session = w.create()
        w.start(session)
        text = f"one canary, {CANARY}, and another canary-4f1"
        w.emit(*[delta(letter) for letter in text], message(text), done())
        said = "".join(payload.delta for payload in payloads(w.events(session), OutputDelta))
        assert said == f"one canary, {MARKER}, and another canary-4f1"
        w.check_all()


def test_a_sessions_own_secrets_are_taken_out_of_that_session_only(w: World):
    config = SessionConfig(runtime="fake", workspace="/w")
    guarded = w.get(create_session(w.engine, config, secrets=(CANARY,))).session_id
    plain = w.create()
    for session in (guarded, plain):
        w.start(session, f"say {CANARY}")
    assert w.get(w.engine.archive.transcript(guarded)) == [user(f"say {MARKER}")]
    assert w.get(w.engine.archive.transcript(plain)) == [user(f"say {CANARY}")]


def test_a_redacted_input_says_so_and_its_hash_is_that_of_what_is_stored():
    with world(secrets=(CANARY,)) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(call("fake.read", {"q": CANARY}, "c1"), call("fake.read", {"q": "plain"}, "c2"), done())
        asked = payloads(w.events(session), ToolCallRequested)
        assert [(each.input, each.input_redacted) for each in asked] == [
            ({"q": MARKER}, True),
            ({"q": "plain"}, False),
        ]
        w.check_all()


def test_raw_messages_are_kept_small_ones_inline_large_ones_as_artifacts_or_not_at_all(w: World):
    small, large = {"a": 1}, {"a": "x" * 100}
    for capture, expected in (
        (True, [(small, False), (None, True)]),
        (False, [(None, False), (None, False)]),
    ):
        session = w.create(settings=SessionSettings(raw_inline_bytes=50, raw_capture=capture))
        w.start(session)
        w.emit(Draft(delta("one ").payload, small), Draft(delta("two ").payload, large), done())
        deltas = [event for event in w.events(session) if event.type == "model.output.delta"]
        assert [(event.runtime.raw, event.runtime.raw_ref is not None) for event in deltas] == expected
        for event in deltas:
            if event.runtime.raw_ref is not None:
                data = w.get(w.engine.archive.read_artifact(event.runtime.raw_ref.artifact_id))[1]
                assert msgspec.json.decode(data) == large


def test_the_raw_message_of_a_delta_is_kept_although_its_text_is_held_back():
    with world(secrets=(CANARY,)) as w:
        session = w.create()
        w.start(session)
        w.emit(Draft(delta("cana").payload, {"n": 1}), Draft(delta("l ").payload, {"n": 2}), done())
        deltas = [event for event in w.events(session) if event.type == "model.output.delta"]
        assert [(event.payload.delta, event.runtime.raw) for event in deltas] == [
            ("", {"n": 1}),
            ("canal ", {"n": 2}),
        ]
        w.check_all()


def test_another_principals_session_is_not_there(w: World):
    config = SessionConfig(runtime="fake", workspace="/w")
    theirs = w.get(create_session(w.engine, config, principal="alice")).session_id
    mine = w.create()
    for look in (
        lambda: w.engine.feed(theirs),
        lambda: fork_session(w.engine, theirs),
        lambda: delete(w.engine, theirs),
        lambda: close_session(w.engine, theirs, "x"),
        lambda: w.engine.archive.session(theirs),
        lambda: w.engine.archive.transcript(theirs),
    ):
        with pytest.raises(NotFound):
            w.get(look())
    assert [row.session_id for row in w.get(w.engine.archive.sessions())] == [mine]
    live = w.get(live_session(w.engine, theirs))
    w.get(start(w.engine, live, [user("go")]))
    assert {event.trace.user_id for event in w.events(theirs)} == {"alice"}


def test_a_running_session_cannot_be_deleted_and_a_deleted_one_leaves_its_neighbours_alone(w: World):
    session, other = w.create(), w.create()
    w.start(session)
    with pytest.raises(Conflict, match="running"):
        w.get(delete(w.engine, session))
    w.emit(done())
    w.get(delete(w.engine, session))
    assert w.runtime.closed_sessions == [session]
    with pytest.raises(NotFound):
        w.session(session)
    w.start(other)
    assert w.types(other)[:2] == ["session.created", "task.started"]


def test_what_a_session_is_told_stays_what_it_was_told_when_it_is_opened_again(w: World):
    settings = SessionSettings(approval_timeout_s=7, runtime_config={"effort": "low"})
    session = w.create(title="Mine", model="m-1", permission_mode="auto", settings=settings)
    w.crash()
    created = w.session(session).state.config
    assert isinstance(created, SessionCreated)
    assert (created.title, created.model, created.permission_mode) == ("Mine", "m-1", "auto")
    assert w.session(session).scope.settings == settings
    w.start(session)
    assert w.runtime.tasks[-1].input.model == "m-1"
    assert payloads(w.events(session), ModelInput)[-1].runtime_config == {"effort": "low"}


@pytest.mark.parametrize(
    "config",
    [
        {"title": "\ud800"},
        {"settings": SessionSettings(runtime_config={"k": object()})},
        {"settings": SessionSettings(runtime_config={"k": "x" * 9_000_000})},
    ],
)
def test_a_session_that_could_not_be_written_down_is_refused(w: World, config: dict[str, Any]):
    with pytest.raises(InvalidRequest):
        w.create(**config)
    assert w.get(w.engine.archive.sessions()) == []


def test_options_of_a_runtime_have_a_largest_size():
    with world() as w:
        most = {"k": "x" * (MAX_OPTIONS_BYTES - len('{"k":""}'))}
        w.create(settings=SessionSettings(runtime_config=most))
        with pytest.raises(InvalidRequest, match=r"The runtime_config may have 262,144 bytes, not 262,145"):
            w.create(settings=SessionSettings(runtime_config={"k": most["k"] + "x"}))
        assert len(w.get(w.engine.archive.sessions())) == 1


def test_grants_are_a_sessions_own_and_outlive_the_process(w: World):
    session, other = w.create(), w.create()
    w.start(session)
    w.emit(call("fake.write"))
    w.answer(session, "approve", scope="session", by=PERSON)
    w.emit(done())
    w.crash()
    for each, waits in ((session, 0), (other, 1)):
        w.start(each)
        w.emit(call("fake.write"))
        assert len(w.waiting(each)) == waits
        w.stop(each)
        w.emit(done())
