"""A fork begins with its parent's transcript as it stood at a seq, and from then on the two know nothing of each other."""

import pytest
from tests.engine.rig import BEGUN, Rig, rig, texts

from codesdk import ArtifactBlock, InvalidRequest, Message, NotFound, Session, Text
from codesdk.contract import events as ev
from codesdk.contract.messages import ToolResult
from codesdk.contract.runtime import Draft
from codesdk.testing.fakes import call, delta, done, message

PAST = [("user", "one"), ("assistant", "eins"), ("user", "two"), ("assistant", "zwei")]


def parent_of_two_turns(r: Rig) -> Session:
    session = r.open("yolo", title="The parent")
    for asked, answered in (("one", "eins"), ("two", "zwei")):
        r.start(session, asked)
        r.emit(message(answered, answered), done())
    return session


def test_a_fork_at_the_end_has_the_whole_transcript_and_goes_on_alone():
    with rig() as r:
        session = parent_of_two_turns(r)
        before = r.frames(session.id)
        fork = r.get(session.fork())
        assert texts(r.get(fork.transcript())) == PAST
        created = r.one(fork, ev.SessionCreated)
        source = r.one(session, ev.SessionCreated)
        assert (created.parent.session_id, created.parent.seq) == (session.id, len(before))
        assert (created.parent.messages, created.parent.model_messages) == (4, 2)
        assert (created.runtime, created.settings, created.title) == ("fake", source.settings, "The parent")
        r.start(fork, "three")
        assert texts(r.play.input.messages) == [*PAST, ("user", "three")]
        assert r.play.input.model_messages == 2
        r.emit(message("drei", "drei"), done())
        assert r.frames(session.id) == before
        assert texts(r.get(session.transcript())) == PAST
        assert r.get(fork.info()).parent_session_id == session.id


@pytest.mark.parametrize(("at", "kept"), [(1, 0), (5, 2), (6, 3), (9, 4)])
def test_a_fork_at_a_past_seq_knows_nothing_of_what_came_later(at: int, kept: int):
    with rig() as r:
        session = parent_of_two_turns(r)
        assert r.story(session)[4:6] == ["task.completed", "task.started"]
        fork = r.get(session.fork(at, title="The child"))
        assert texts(r.get(fork.transcript())) == PAST[:kept]
        assert r.get(fork.info()).title == "The child"
        r.start(fork, "instead")
        assert texts(r.play.input.messages) == [*PAST[:kept], ("user", "instead")]


@pytest.mark.parametrize("at", [-1, 0, 10])
def test_a_fork_at_a_seq_that_is_not_there_is_refused(at: int):
    with rig() as r:
        session = parent_of_two_turns(r)
        assert r.refused(session.fork(at), InvalidRequest) == "INVALID_REQUEST"
        assert r.refused(r.handle("ses_none").fork(), NotFound) == "NOT_FOUND"
        assert [row.session_id for row in r.get(r.sdk.sessions())] == [session.id]


CUT = "error: Cut off: the session was forked here."
STORY = [
    *BEGUN,
    "model.output.delta",
    "tool.call.requested",
    "tool.call.policy_evaluated",
    "approval.requested",
    "approval.answered",
    "tool.call.policy_evaluated",
    "tool.call.approved",
    "tool.call.started",
]
MOMENTS = {
    "model.input": [],
    "model.output.delta": [("assistant", "so far")],
    "tool.call.requested": [
        ("assistant", "so far", "fake.write#1"),
        ("tool", "error: the task was stopped"),
    ],
    "approval.requested": [
        ("assistant", "so far", "fake.write#1"),
        ("tool", "error: the task was stopped"),
    ],
    "tool.call.approved": [
        ("assistant", "so far", "fake.write#1"),
        ("tool", "error: Not run: the task was stopped."),
    ],
    "tool.call.started": [("assistant", "so far", "fake.write#1"), ("tool", CUT)],
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_fork_inside_a_task_folds_it_as_if_it_had_been_stopped_there(moment: str):
    with rig() as r:
        r.tools.hold()
        session = r.open()
        running = r.start(session)
        r.emit(delta("so far"), call("fake.write"))
        r.get(session.approve(r.call(session)))
        assert r.story(session, running) == STORY
        at = 2 + STORY.index(moment)
        fork = r.get(session.fork(at))
        assert texts(r.get(fork.transcript())) == [("user", "Go"), *MOMENTS[moment]]
        assert r.story(session, running) == STORY, "the parent runs on"
        r.tools.release()
        r.settle()
        r.emit(message("so far, so good"), done())
        assert texts(r.get(fork.transcript())) == [("user", "Go"), *MOMENTS[moment]]
        assert [type(end) for end in r.ended(session)] == [ev.TaskCompleted]


def test_a_fork_of_a_fork_has_the_transcript_of_both():
    with rig() as r:
        session = parent_of_two_turns(r)
        child = r.get(session.fork(5))
        r.start(child, "three")
        r.emit(message("drei", "drei"), done())
        grandchild = r.get(child.fork())
        assert texts(r.get(grandchild.transcript())) == [*PAST[:2], ("user", "three"), ("assistant", "drei")]
        early = r.get(child.fork(1))
        assert texts(r.get(early.transcript())) == PAST[:2]


@pytest.mark.parametrize("reopened", [False, True])
def test_a_fork_lives_on_when_its_parent_is_deleted(reopened: bool):
    with rig() as r:
        r.tools.give("fake.read", "y" * 1000)
        session = r.open("yolo", result_inline_bytes=100)
        upload = r.get(r.sdk.put_artifact(b"notes", "text/plain", "notes.txt"))
        asked = Message(
            role="user", content=[Text(text="Read"), ArtifactBlock(artifact_id=upload.artifact_id)]
        )
        r.start(session, [asked])
        own = r.get(r.play.host.put_artifact(b"drawn", "image/png", "a.png"))
        drawn = ArtifactBlock(artifact_id=own.artifact_id, content_hash=own.content_hash)
        r.emit(call("fake.read"))
        r.emit(Draft(ev.OutputCompleted(message_id="m1", content=[Text(text="See"), drawn])), done())
        fork = r.get(session.fork())
        r.get(r.sdk.delete_session(session.id))
        r.get(r.engine.collect_garbage(0))
        if reopened:
            r.reopen()
            fork = r.handle(fork)
        r.start(fork, "Again")
        assert texts(r.play.input.messages)[0] == ("user", "Read", "ArtifactBlock: ")
        (result,) = next(m for m in r.play.input.messages if m.role == "tool").content
        assert isinstance(result, ToolResult)
        assert result.result_ref is not None
        blocks = [b for m in r.play.input.messages for b in m.content if isinstance(b, ArtifactBlock)]
        found = [block.artifact_id for block in blocks] + [result.result_ref.artifact_id]
        read = [r.get(r.play.host.read_artifact(name)) for name in found]
        assert read == [b"notes", b"drawn", b"y" * 1000]
        assert [r.get(r.sdk.read_artifact(name)) for name in found] == read


def test_a_fork_keeps_the_hashes_of_its_parents_messages():
    with rig() as r:
        r.tools.give("fake.read", "y" * 1000)
        session = r.open("yolo", result_inline_bytes=100)
        r.start(session)
        r.emit(call("fake.read"), message("Long."), done())
        fork = r.get(session.fork())
        r.start(session, "Next")
        r.start(fork, "Next")
        assert r.all(session, ev.ModelInput)[-1].input_hash == r.one(fork, ev.ModelInput).input_hash
