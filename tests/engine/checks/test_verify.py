"""`verify`: healthy logs of many shapes pass; each broken one is rejected, naming the invariant and the place."""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.counts import COUNTS
from tests.engine.acting import follow, live_session, resume, start
from tests.engine.checks.broken_logs import BROKEN, OTHER_HASH, RAW, Broken, changed, find, frames, renumber
from tests.engine.checks.healthy_logs import (
    EDIT,
    HEALTHY,
    PERSON,
    READ,
    Rig,
    Story,
    ended,
    until,
    wait_for,
)

from codesdk.contract.codec import decode, encode
from codesdk.contract.errors import Conflict, NotFound
from codesdk.contract.events import Event
from codesdk.contract.messages import user
from codesdk.contract.records import ApprovalRow, MessageRow, SessionRow, StoredFrame, TaskRow
from codesdk.contract.tools import Grant
from codesdk.engine.checks import verify as invariants
from codesdk.engine.checks.verify import Checker, Finding, verify_session
from codesdk.engine.log.feed import PAGE_EVENTS
from codesdk.engine.log.fold import fold
from codesdk.engine.log.state import decode_state, encode_state
from codesdk.store.rows import pack, unpack

GRANT = Grant(tool="workspace.edit", rule="mode:ask", by=PERSON, granted_at="2026-01-01T00:00:00.000Z")
NAMES = [story.__name__ for story in HEALTHY]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Story]:
    """Every healthy story, played once."""

    async def play() -> dict[str, Story]:
        return {tell.__name__: await tell(tmp_path_factory.mktemp(tell.__name__)) for tell in HEALTHY}

    return asyncio.run(play())


def check(session_id: str, stored: list[StoredFrame], *, running: bool = False) -> list[Finding]:
    checker = Checker(session_id)
    findings = [finding for frame in stored for finding in checker.take(frame)]
    return findings + checker.finish(running=running)


# --- the log alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_healthy_log_has_no_findings(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    assert check(story.session_id, frames(story.events)) == []


@pytest.mark.parametrize("broken", BROKEN, ids=[f"{b.invariant}-{b.story}-{b.fault}" for b in BROKEN])
def test_a_broken_log_is_rejected_by_the_invariant_at_the_place(
    stories: dict[str, Story], broken: Broken
) -> None:
    story = stories[broken.story]
    events = list(story.events)
    place = broken.edit(events)
    findings = check(story.session_id, frames(renumber(events)))
    assert {finding.invariant for finding in findings} == {broken.invariant}, findings
    assert findings[0].seq == (None if place is None else place + 1), findings


def test_every_invariant_has_a_broken_log() -> None:
    assert {broken.invariant for broken in BROKEN} == set(range(1, 10))


@pytest.mark.parametrize(("fault", "edit"), RAW, ids=[fault for fault, _ in RAW])
def test_a_log_with_wrong_numbers_breaks_invariant_2_alone(
    stories: dict[str, Story], fault: str, edit: Callable[[list[Event]], int]
) -> None:
    story = stories["busy"]
    events = list(story.events)
    seq = edit(events)
    findings = check(story.session_id, frames(events))
    assert [(finding.seq, finding.invariant) for finding in findings] == [(seq, 2)]


def test_a_frame_must_hold_the_event_of_its_seq(stories: dict[str, Story]) -> None:
    story = stories["busy"]
    stored = frames(story.events)
    stored[4] = StoredFrame(seq=5, data=encode(changed(story.events[4], seq=7)))
    assert [(f.seq, f.invariant) for f in check(story.session_id, stored)] == [(5, 2)]


def test_an_empty_log_breaks_invariant_2() -> None:
    assert [finding.invariant for finding in check("ses_x", [])] == [2]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["marked", "cut"])
def test_damage_of_any_frame_is_one_finding_and_blames_nobody_else(
    stories: dict[str, Story], name: str, damage: str
) -> None:
    story = stories[name]
    whole = frames(story.events)
    for place, frame in enumerate(whole):
        stored = list(whole)
        stored[place] = (
            msgspec.structs.replace(frame, damage="crc")
            if damage == "marked"
            else msgspec.structs.replace(frame, data=frame.data[:-2])
        )
        findings = check(story.session_id, stored)
        assert [(f.seq, f.invariant) for f in findings] == [(frame.seq, None)], findings


@pytest.mark.parametrize("name", NAMES)
def test_a_gap_anywhere_is_one_finding(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    whole = frames(story.events)
    for place in range(len(whole) - 1):
        stored = whole[:place] + whole[place + 1 :]
        findings = check(story.session_id, stored)
        assert [(f.seq, f.invariant) for f in findings] == [(place + 2, 2)], findings


def test_checking_goes_on_after_damage(stories: dict[str, Story]) -> None:
    story = stories["busy"]
    events = list(story.events)
    place = find(events, "task.completed", 2)
    events[place] = changed(events[place], text="invented")
    stored = frames(events)
    stored[4] = msgspec.structs.replace(stored[4], damage="crc")
    assert [(f.seq, f.invariant) for f in check(story.session_id, stored)] == [(5, None), (place + 1, 9)]


LOUD = {
    "session.created",
    "session.recovered",
    "task.started",
    "task.stop_requested",
    "tool.call.requested",
    "tool.call.approved",
    "tool.call.denied",
    "tool.call.started",
    "tool.call.completed",
    "approval.requested",
    "approval.answered",
    "approval.carried",
    "task.completed",
    "task.failed",
    "task.stopped",
}
"""The types of which none can be left out without a trace, however the rest is numbered."""


@pytest.mark.parametrize("name", NAMES)
def test_no_decision_and_no_end_can_vanish(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    for place, event in enumerate(story.events):
        if event.type in LOUD:
            rest = renumber(story.events[:place] + story.events[place + 1 :])
            refused = name == "refused" and event.type == "approval.answered"
            assert check(story.session_id, frames(rest)) or refused, event


@pytest.mark.parametrize("name", NAMES)
def test_no_decision_and_no_end_can_come_twice(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    for place, event in enumerate(story.events):
        if event.type in LOUD:
            rest = renumber([*story.events[: place + 1], event, *story.events[place + 1 :]])
            assert check(story.session_id, frames(rest)), event


@pytest.mark.parametrize("name", NAMES)
def test_a_live_log_may_end_anywhere(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    for size in range(1, len(story.events)):
        assert check(story.session_id, frames(story.events[:size]), running=True) == []


def test_events_of_a_later_version_are_passed_over(stories: dict[str, Story]) -> None:
    story = stories["busy"]
    dream = {"type": "model.dreamt", "payload": {"of": "sheep"}}
    stranger = decode(msgspec.json.encode(msgspec.json.decode(encode(story.events[5])) | dream))
    newer = msgspec.structs.replace(story.events[6], schema_version=2)
    events = renumber([*story.events[:6], stranger, newer, *story.events[7:]])
    assert check(story.session_id, frames(events)) == []


def test_a_finding_is_a_sentence_that_names_the_call(stories: dict[str, Story]) -> None:
    story = stories["busy"]
    events = list(story.events)
    approved = events.pop(find(events, "tool.call.approved"))
    (finding,) = check(story.session_id, frames(renumber(events)))
    call = approved.payload.tool_call_id
    assert finding.message == f"tool.call.started for {call}#1, which was never approved"


def test_what_is_remembered_does_not_grow_with_the_log(stories: dict[str, Story]) -> None:
    story = stories["failed"]
    delta = find(story.events, "model.output.delta")
    checker = Checker(story.session_id)
    for event in story.events[: delta + 1]:
        checker.take(StoredFrame(seq=event.seq, data=encode(event)))
    before = len(_memory(checker))
    for seq in range(delta + 2, 5000):
        event = msgspec.structs.replace(story.events[delta], seq=seq)
        assert checker.take(StoredFrame(seq=seq, data=encode(event))) == []
    assert len(_memory(checker)) <= before + 8  # a few more digits


def _memory(checker: Checker) -> str:
    task = checker._task
    return repr([task, checker._queue, checker._ended, checker._calls.owed, checker._last])


# --- the rows and the artifacts ----------------------------------------------------------------------


@pytest.fixture
def story(tmp_path: Path, request: pytest.FixtureRequest) -> Story:
    """A story of its own, to be tampered with."""
    tell = {story.__name__: story for story in HEALTHY}[request.param]

    async def play() -> Story:
        return await tell(tmp_path)

    return asyncio.run(play())


def verify(story: Story, **options: Any) -> list[Finding]:
    return asyncio.run(verify_session(story.log, story.blobs, story.session_id, **options))


def store(story: Story, place: int, event: Event) -> None:
    """Put another event into the stored log."""
    cursor = story.log._sessions[story.session_id].cursors[place]
    stored = story.log._frames
    index = next(i for i, frame in enumerate(stored) if frame.cursor == cursor)
    stored[index] = msgspec.structs.replace(stored[index], data=encode(event))


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_session_has_no_findings(stories: dict[str, Story], name: str) -> None:
    assert verify(stories[name]) == []


def test_a_session_that_is_not_there_is_not_found(stories: dict[str, Story]) -> None:
    story = stories["busy"]
    with pytest.raises(NotFound):
        asyncio.run(verify_session(story.log, story.blobs, "ses_x"))


def lose_artifact_row(story: Story) -> int:
    event = story.events[find(story.events, "model.input")]
    del story.log._artifacts[event.payload.input_ref.artifact_id]
    return event.seq


def change_artifact_row(story: Story) -> int:
    event = story.events[find(story.events, "model.input")]
    name = event.payload.input_ref.artifact_id
    row = story.log._artifacts[name]
    ref = msgspec.structs.replace(row.ref, size_bytes=1)
    story.log._artifacts[name] = msgspec.structs.replace(row, ref=ref)
    return event.seq


def lose_blob(story: Story) -> int:
    event = story.events[find(story.events, "model.input")]
    del story.blobs._blobs[event.payload.input_ref.content_hash]
    return event.seq


def change_blob(story: Story) -> int:
    place = next(i for i, e in enumerate(story.events) if e.runtime.raw_ref is not None)
    ref = story.events[place].runtime.raw_ref
    assert ref is not None
    story.blobs._blobs[ref.content_hash] = (b"x" * ref.size_bytes, 0.0)
    return story.events[place].seq


def lose_change(story: Story) -> int:
    place = next(
        i for i, e in enumerate(story.events) if e.type == "tool.call.completed" and e.payload.changes
    )
    ref = story.events[place].payload.changes[0].diff_ref
    del story.blobs._blobs[ref.content_hash]
    return story.events[place].seq


def state_another_input_hash(story: Story) -> int:
    place = next(
        i
        for i, e in enumerate(story.events)
        if e.type == "tool.call.requested" and e.payload.input_ref is not None
    )
    store(story, place, changed(story.events[place], input_hash=OTHER_HASH))
    return story.events[place].seq


def carry_another_input(story: Story) -> int:
    place = find(story.events, "approval.carried")
    other = story.events[find(story.events, "model.input")].payload.input_ref
    store(story, place, changed(story.events[place], input_ref=other))
    return story.events[place].seq


def state_another_model_input(story: Story) -> int:
    place = find(story.events, "model.input")
    store(story, place, changed(story.events[place], input_hash=OTHER_HASH))
    return story.events[place].seq


def offer_other_tools(story: Story) -> int:
    place = find(story.events, "model.input")
    store(story, place, changed(story.events[place], tool_manifest=[]))
    return story.events[place].seq


def change_message(story: Story) -> int:
    messages = story.log._sessions[story.session_id].messages
    row = unpack(MessageRow, messages[1])
    messages[1] = pack(msgspec.structs.replace(row, message=user("forged")))
    return row.seq


def break_chain(story: Story) -> int:
    messages = story.log._sessions[story.session_id].messages
    row = unpack(MessageRow, messages[1])
    messages[1] = pack(msgspec.structs.replace(row, chain=OTHER_HASH))
    return row.seq


def lose_message(story: Story) -> int:
    messages = story.log._sessions[story.session_id].messages
    return unpack(MessageRow, messages.pop(1)).seq


def add_message(story: Story) -> None:
    messages = story.log._sessions[story.session_id].messages
    row = unpack(MessageRow, messages[0])
    messages[len(messages)] = pack(msgspec.structs.replace(row, index=len(messages)))


def change_task(story: Story) -> int:
    place = find(story.events, "task.completed")
    task_id = story.events[place].trace.task_id
    assert task_id is not None
    owner, data = story.log._tasks["local", task_id]
    row = msgspec.structs.replace(unpack(TaskRow, data), state="failed")
    story.log._tasks["local", task_id] = (owner, pack(row))
    return story.events[place].seq


def lose_waiting_task(story: Story) -> None:
    task_id = story.events[find(story.events, "task.queued")].payload.task_id
    del story.log._tasks["local", task_id]


def add_task(story: Story) -> None:
    row = TaskRow(task_id="task_x", session_id=story.session_id, state="queued", created_at="")
    story.log._tasks["local", "task_x"] = (story.session_id, pack(row))


def change_session(story: Story) -> None:
    kept = story.log._sessions[story.session_id]
    kept.row = pack(msgspec.structs.replace(unpack(SessionRow, kept.row), queued=7))


def change_snapshot(story: Story) -> int:
    kept = story.log._sessions[story.session_id]
    assert kept.snapshot is not None
    state = msgspec.structs.replace(decode_state(kept.snapshot.state), grants=[GRANT])
    kept.snapshot = msgspec.structs.replace(kept.snapshot, state=encode_state(state))
    return kept.snapshot.seq


def snapshot_of_the_future(story: Story) -> None:
    kept = story.log._sessions[story.session_id]
    assert kept.snapshot is not None
    kept.snapshot = msgspec.structs.replace(kept.snapshot, seq=10_000)


def lose_approval(story: Story) -> None:
    story.log._approvals.clear()


def add_approval(story: Story) -> None:
    name, (owner, data) = next(iter(story.log._approvals.items()))
    row = msgspec.structs.replace(unpack(ApprovalRow, data), state="waiting")
    story.log._approvals[name] = (owner, pack(row))


def change_forked_message(story: Story) -> int:
    change_message(story)
    return 1


def fork_from_nonsense(story: Story) -> int:
    other = story.events[find(story.events, "model.input")].payload.input_ref
    parent = msgspec.structs.replace(story.events[0].payload.parent, transcript_ref=other)
    store(story, 0, changed(story.events[0], parent=parent))
    return 1


def fork_from_another_chain(story: Story) -> int:
    parent = msgspec.structs.replace(story.events[0].payload.parent, messages=99)
    store(story, 0, changed(story.events[0], parent=parent))
    return 1


TAMPERED: list[tuple[int, str, Callable[[Story], int | None]]] = [
    (1, "busy", lose_artifact_row),
    (1, "busy", change_artifact_row),
    (1, "busy", lose_blob),
    (1, "busy", change_blob),
    (1, "busy", lose_change),
    (5, "busy", state_another_input_hash),
    (8, "interrupted", carry_another_input),
    (9, "busy", state_another_model_input),
    (9, "busy", offer_other_tools),
    (9, "busy", change_message),
    (9, "busy", break_chain),
    (9, "busy", lose_message),
    (9, "busy", add_message),
    (9, "busy", change_task),
    (9, "interrupted", lose_waiting_task),
    (9, "busy", add_task),
    (9, "busy", change_session),
    (9, "busy", change_snapshot),
    (9, "busy", snapshot_of_the_future),
    (9, "interrupted", lose_approval),
    (9, "busy", add_approval),
    (9, "forked", change_forked_message),
    (9, "forked", fork_from_another_chain),
    (9, "forked", fork_from_nonsense),
]


@pytest.mark.parametrize(
    ("law", "story", "tamper"), TAMPERED, ids=[t[2].__name__ for t in TAMPERED], indirect=["story"]
)
@pytest.mark.slow
def test_a_tampered_store_is_rejected_by_the_invariant_at_the_place(
    law: int, story: Story, tamper: Callable[[Story], int | None]
) -> None:
    seq = tamper(story)
    findings = verify(story)
    assert (findings[0].invariant, findings[0].seq) == (law, seq), findings


@pytest.mark.parametrize("story", ["busy"], indirect=True)
def test_a_damaged_log_is_not_compared_with_its_rows(story: Story) -> None:
    place = find(story.events, "tool.call.approved")
    stored = story.log._frames
    stored[place] = msgspec.structs.replace(stored[place], damage="crc")
    assert [(f.seq, f.invariant) for f in verify(story)] == [(place + 1, None)]


def test_an_event_that_cannot_be_folded_is_a_finding_and_no_crash(
    stories: dict[str, Story], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(state: Any, event: Event, changes: Any) -> None:
        if event.seq == 3:
            raise ValueError("no")
        fold(state, event, changes)

    monkeypatch.setattr(invariants, "fold", refuse)
    finding = verify(stories["stopped"])[0]
    assert (finding.seq, finding.invariant) == (3, 9)


@pytest.mark.anyio
async def test_a_session_is_verified_while_its_task_runs(tmp_path: Path) -> None:
    rig = Rig([[{"text": "one"}, wait_for("a", "gate.read"), EDIT], [{"text": "two"}]], tmp_path)
    session = await rig.open()
    await start(rig.engine, session, [user("go")])
    await until(session, "approval.requested")
    live = await verify_session(rig.log, rig.blobs, session.session_id, running=True)
    dead = await verify_session(rig.log, rig.blobs, session.session_id)
    await rig.engine.close()
    assert (live, [(finding.seq, finding.invariant) for finding in dead]) == ([], [(None, 3)])


@pytest.mark.anyio
async def test_a_long_log_is_verified_page_by_page(tmp_path: Path) -> None:
    rig = Rig([[{"burst": {"count": 3 * PAGE_EVENTS}}, READ], [{"text": "done"}]], tmp_path)
    session = await rig.open("yolo")
    await start(rig.engine, session, [user("go")])
    await ended(session)
    findings = await verify_session(rig.log, rig.blobs, session.session_id)
    await rig.engine.close()
    assert findings == []


# --- any script, any answers, a stop or a crash anywhere ---------------------------------------------

STEPS = st.sampled_from(
    [
        {"text": ["a", "b"]},
        {"reasoning": "hm"},
        {"retract": "again"},
        {"malformed": "item"},
        {"duplicate_ids": "call"},
        {"duplicate_ids": "message"},
        READ,
        EDIT,
        wait_for("open"),
        wait_for("shut", "gate.read"),
        {"call": {"tool": "no.such"}},
    ]
)
TURNS = st.lists(st.lists(STEPS, max_size=5), min_size=1, max_size=3)
ANSWERS = st.lists(
    st.sampled_from([("approve", "once"), ("approve", "session"), ("deny", "once")]), max_size=4
)
BREAK = st.none() | st.tuples(st.sampled_from(["stop", "crash"]), st.integers(2, 40))


class Play:
    """Answers what is asked, and breaks in when it is time."""

    def __init__(self, rig: Rig, session: Any, answers: list[Any], seq: int) -> None:
        self.rig = rig
        self.session = session
        self.answers = answers
        self.seq = seq

    async def on(self, event: Event) -> bool:
        """Return whether it is time for the break."""
        if event.type == "approval.requested" and self.answers:
            decision, scope = self.answers.pop(0)
            with contextlib.suppress(Conflict):  # the time to answer may be over
                await self.session.answer(event.payload.tool_call_id, decision, by=PERSON, scope=scope)
        return event.seq >= self.seq


async def quiet(session: Any) -> None:
    """Wait until nothing runs and nothing waits to run."""
    async for batch in follow(session, 0):
        state = session.state
        if batch[-1].event.seq == state.seq and state.task is None and not state.queue:
            return


async def play(
    turns: list[Any], answers: list[Any], cut: tuple[str, int] | None, path: Path
) -> list[Finding]:
    rig = Rig([*turns, [{"text": "end"}]], path)
    rig.gate("open").set()
    session = await rig.open(approval_timeout_s=0.02, input_inline_bytes=20)
    await start(rig.engine, session, [user("go")])
    await start(rig.engine, session, [user("go on")])
    played = Play(rig, session, answers, cut[1] if cut else 10_000)
    asyncio.get_running_loop().call_later(0.2, rig.gate("shut").set)
    over = 0
    async for batch in follow(session, 0):
        now = [await played.on(item.event) for item in batch]
        over += sum(item.event.type in ("task.completed", "task.failed", "task.stopped") for item in batch)
        if over == 2 or any(now):
            break
    if over < 2 and cut is not None and cut[0] == "stop":
        if session.state.task is not None:
            await session.stop(None, PERSON, "enough")
        await ended(session, 2)
    elif over < 2:
        await rig.crash()
        rig = Rig([*turns, [{"text": "end"}], [{"text": "end"}]], path, before=rig)
        await rig.engine.open()
        session = await live_session(rig.engine, session.session_id)
        for carried in list(session.state.carried):
            await session.answer(carried.tool_call_id, "approve", by=PERSON)
        rig.gate("open").set()
        rig.gate("shut").set()
        if session.state.interrupted_task or session.state.queue:
            await resume(rig.engine, session)
            await quiet(session)
    findings = await verify_session(rig.log, rig.blobs, session.session_id)
    await rig.engine.close()
    return findings


@settings(max_examples=COUNTS.examples // 4)
@given(turns=TURNS, answers=ANSWERS, cut=BREAK)
def test_whatever_the_engine_writes_keeps_the_invariants(
    turns: list[Any], answers: list[Any], cut: tuple[str, int] | None
) -> None:
    with tempfile.TemporaryDirectory() as path:
        assert asyncio.run(play(turns, answers, cut, Path(path))) == []
