"""The transcript as a runtime gets it: what fits, in the order of the messages, and the record of what was left out."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.rig import Rig, rig, texts

from codesdk import ArtifactBlock, Message, NotFound, Session, Text
from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.ids import artifact_id
from codesdk.contract.messages import AssistantBlock, Opaque, Reasoning, ToolResult, ToolUse, user
from codesdk.contract.records import MessageRow, StoredFrame
from codesdk.contract.runtime import Draft, ToolAnnouncement
from codesdk.engine.log.transcript import estimate_tokens
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import FakeRuntime, call, done, message

SOURCE = str(Path(__file__).parents[3] / "src")


def turn(r: Rig, session: Session, asked: str, answered: str) -> None:
    """Play a task of one answer."""
    r.start(session, asked)
    r.emit(message(answered, f"m{r.last(session).seq}"), done())


def window(r: Rig, session: Session) -> ev.ContextWindow:
    return r.all(session, ev.ModelInput)[-1].context_window


def tokens(messages: Any) -> int:
    return sum(map(estimate_tokens, messages))


# --- what fits -----------------------------------------------------------------------------------


def test_everything_is_sent_as_long_as_it_fits():
    with rig() as r:
        session = r.open()
        turn(r, session, "one", "eins")
        r.start(session, "two")
        assert texts(r.play.input.messages) == [("user", "one"), ("assistant", "eins"), ("user", "two")]
        assert r.play.input.model_messages == 1
        assert window(r, session) == ev.ContextWindow(
            strategy="full",
            budget_tokens=100_000,
            estimated_tokens=tokens(r.play.input.messages),
            omitted=[],
            replaced=[],
        )


@pytest.mark.parametrize("life", ["the same engine", "a reopened one"])
def test_over_the_budget_whole_turns_are_left_out_from_the_oldest_on_and_it_is_said(life: str):
    with rig() as r:
        session = r.open(context_budget_tokens=200)
        for number in range(6):
            turn(r, session, f"question {number} " + "q" * 100, f"answer {number} " + "a" * 100)
        if life == "a reopened one":
            r.reopen()
            session = r.handle(session)
        r.start(session, "and now?")
        whole = r.get(session.transcript())
        sent = list(r.play.input.messages)
        assert sent == whole[-len(sent) :]
        assert [m.role for m in sent] == ["user", "assistant"] * (len(sent) // 2) + ["user"]
        assert tokens(sent) <= 200 < tokens(whole[-len(sent) - 2 :])
        last = len(whole) - len(sent) - 1
        assert window(r, session) == ev.ContextWindow(
            strategy="window",
            budget_tokens=200,
            estimated_tokens=tokens(sent),
            omitted=[ev.Omission(first=0, last=last, reason="over the context budget")],
            replaced=[],
        )
        assert r.play.input.model_messages == 6, "what was left out counts, too"


def test_new_messages_that_do_not_fit_at_all_are_refused_and_the_session_goes_on():
    with rig() as r:
        session = r.open(context_budget_tokens=100)
        r.start(session, "x" * 1000)
        (failed,) = r.ended(session)
        assert (failed.error.code, failed.error.retryable) == ("CONTEXT_TOO_LARGE", False)
        assert "compact" in failed.error.message
        assert r.runtime.tasks == []
        r.start(session, "short")
        assert texts(r.play.input.messages) == [("user", "short")]
        assert window(r, session).omitted == [ev.Omission(first=0, last=0, reason="over the context budget")]


# --- what is changed -----------------------------------------------------------------------------


def test_what_a_model_thought_is_kept_and_never_sent():
    with rig() as r:
        session = r.open()
        r.start(session)
        thought = [Reasoning(text="hm"), Text(text="Yes."), Reasoning(text="phew")]
        only: list[AssistantBlock] = [Reasoning(text="nothing to say")]
        r.emit(Draft(ev.OutputCompleted(message_id="m1", content=thought)))
        r.emit(Draft(ev.OutputCompleted(message_id="m2", content=only)), done())
        kept = [m.content for m in r.get(session.transcript())[1:]]
        assert kept == [thought, only]
        for reopened in (False, True):
            if reopened:
                r.emit(done())
                r.reopen()
            r.start(r.handle(session), "And?")
            assert texts(r.play.input.messages)[:3] == [
                ("user", "Go"),
                ("assistant", "Yes."),
                ("user", "And?"),
            ]


def test_what_a_provider_wants_back_is_given_to_the_runtime_that_wrote_it_and_to_no_other():
    other = FakeRuntime(name="other")
    with rig(runtimes=[other]) as r:
        session = r.open()
        r.start(session)
        # Whatever a runtime says of itself, the engine knows who it is.
        thought = Reasoning(text="hm", details=Opaque(runtime="another", data={"signature": "s1"}))
        bare = Reasoning(text="", details=Opaque(runtime="another", data=7))
        r.emit(Draft(ev.OutputCompleted(message_id="m1", content=[thought, Text(text="Yes.")])))
        r.emit(Draft(ev.OutputCompleted(message_id="m2", content=[bare])), done())
        own = Reasoning(text="hm", details=Opaque(runtime="fake", data={"signature": "s1"}))
        kept = [m.content for m in r.get(session.transcript())[1:]]
        assert kept == [
            [own, Text(text="Yes.")],
            [Reasoning(text="", details=Opaque(runtime="fake", data=7))],
        ]
        for reopened in (False, True):
            if reopened:
                r.emit(done())
                r.reopen()
            r.start(r.handle(session), "And?")
            assert [m.content for m in r.play.input.messages[1:3]] == kept
        r.emit(done())
        session = r.handle(session)
        r.get(session.move("other"))
        r.start(session, "And you?")
        given = other.tasks[-1].input.messages
        assert texts(given)[:3] == [("user", "Go"), ("assistant", "Yes."), ("user", "And?")]
        other.tasks[-1].emit(done())


def test_a_large_result_is_sent_as_a_preview_and_the_replacement_is_named():
    with rig() as r:
        r.tools.give("fake.read", "y" * 10_000)
        session = r.open("yolo", result_inline_bytes=1000)
        r.start(session)
        r.emit(call("fake.read"), message("Long."), done())
        r.start(session, "And?")
        completed = r.one(session, ev.ToolCallCompleted)
        (result,) = next(m for m in r.play.input.messages if m.role == "tool").content
        assert result == ToolResult(
            tool_call_id=completed.tool_call_id,
            result=completed.result_preview,
            result_ref=completed.result_ref,
        )
        assert len(completed.result_preview) < 2200
        assert window(r, session).replaced == [
            ev.Replacement(
                tool_call_id=completed.tool_call_id, content_hash=completed.result_ref.content_hash
            )
        ]
        host = r.play.host
        assert r.get(host.read_artifact(completed.result_ref.artifact_id)) == b"y" * 10_000


def test_a_runtime_reads_what_a_message_attaches_and_nothing_else():
    with rig() as r:
        session, other = r.open(), r.open()
        upload = r.get(r.sdk.put_artifact(b"picture", "image/png", "a.png"))
        block = ArtifactBlock(
            artifact_id=upload.artifact_id, content_type="text/plain", content_hash="sha256:no"
        )
        r.start(session, [Message(role="user", content=[Text(text="See"), block])])
        given = ArtifactBlock(
            artifact_id=artifact_id(session.id, upload.content_hash, "image/png", "a.png"),
            content_hash=upload.content_hash,
            content_type="image/png",
            name="a.png",
        )
        assert list(r.play.input.messages) == [Message(role="user", content=[Text(text="See"), given])]
        assert r.get(r.play.host.read_artifact(given.artifact_id)) == b"picture"
        own = r.get(r.play.host.put_artifact(b"drawn", "image/png"))
        assert r.get(r.play.host.read_artifact(own.artifact_id)) == b"drawn"
        missing = Message(role="user", content=[ArtifactBlock(artifact_id="art_none")])
        assert r.refused(session.start([missing]), NotFound) == "NOT_FOUND"
        r.start(other)
        assert r.refused(r.play.host.read_artifact(own.artifact_id), NotFound) == "NOT_FOUND"


# --- order ---------------------------------------------------------------------------------------


def announced(call_id: str, message_id: str, index: int | None) -> ToolAnnouncement:
    return ToolAnnouncement(
        name="fake.read",
        input={"id": call_id},
        runtime_tool_call_id=call_id,
        message_id=message_id,
        index=index,
    )


def test_messages_are_put_together_by_their_ids_and_their_blocks_by_index():
    with rig() as r:
        r.tools.hold()
        session = r.open("yolo")
        r.start(session)
        # The second call ends before the first, the next message begins before this one is complete.
        r.emit(announced("c2", "m1", 2), announced("c1", "m1", 1))
        r.tools.runs[0].finish("two")
        r.settle()
        r.emit(announced("c3", "m2", None))
        r.emit(Draft(ev.OutputCompleted(message_id="m1", content=[Text(text="a"), Text(text="b")])))
        r.tools.runs[2].finish("three")
        r.settle()
        r.tools.runs[1].finish("one")
        r.settle()
        r.emit(message("c", "m2"), done())
        ids = {name: r.call(session, name) for name in ("c1", "c2", "c3")}

        def use(name: str) -> ToolUse:
            return ToolUse(tool_call_id=ids[name], name="fake.read", input={"id": name})

        def said(name: str, result: str) -> ToolResult:
            return ToolResult(tool_call_id=ids[name], result=result)

        assert r.get(session.transcript()) == [
            user("Go"),
            Message(
                role="assistant",
                message_id="m1",
                content=[Text(text="a"), use("c1"), use("c2"), Text(text="b")],
            ),
            Message(role="tool", message_id="m1", content=[said("c1", "one"), said("c2", "two")]),
            Message(role="assistant", message_id="m2", content=[Text(text="c"), use("c3")]),
            Message(role="tool", message_id="m2", content=[said("c3", "three")]),
        ]


def test_a_call_that_belongs_to_no_message_is_a_message_of_its_own():
    with rig() as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(msgspec.structs.replace(announced("c1", "", None), message_id=None))
        r.emit(message("Read.", "m1"), done())
        assert texts(r.get(session.transcript())) == [
            ("user", "Go"),
            ("assistant", "fake.read#1"),
            ("tool", "result: ok"),
            ("assistant", "Read."),
        ]


# --- hashes --------------------------------------------------------------------------------------

TELL = """
import sys
sys.path[:0] = sys.argv[1:]
from tests.engine.tasks.test_context import input_hashes

print(*input_hashes())
"""


def input_hashes() -> list[str]:
    """Play a session of every kind of block and return the hashes of what the runtime was given."""
    with rig() as r:
        r.tools.give("fake.read", {"b": [1, 2.5, "é"], "a": "y" * 100})
        session = r.open("yolo", result_inline_bytes=50, runtime_config={"z": 1, "a": {"c": None, "b": True}})
        r.start(session)
        r.emit(call("fake.read", {"b": 1, "a": 2}), message("Long."), done())
        turn(r, session, "two", "zwei")
        r.start(session, "three")
        return [payload.input_hash for payload in r.all(session, ev.ModelInput)]


def test_two_processes_hash_the_same_transcript_alike():
    root = str(Path(__file__).parents[3])
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    told = subprocess.run([sys.executable, "-c", TELL, SOURCE, root], capture_output=True, text=True, env=env)
    assert (told.stdout.split(), told.stderr) == (input_hashes(), "")


def test_the_hash_covers_the_stored_manifest_and_no_id_of_an_artifact_or_path():
    with rig() as r:
        r.tools.give("fake.read", "y" * 100)
        session = r.open("yolo", result_inline_bytes=50)
        r.start(session)
        r.emit(call("fake.read"), message("Long."), done())
        r.start(session, "And?")
        given = r.all(session, ev.ModelInput)[-1]
        manifest = msgspec.json.decode(r.get(r.sdk.read_artifact(given.input_ref.artifact_id)))
        assert given.input_hash == hash_json(manifest)
        assert "art_" not in str(manifest)
        assert "/workspace" not in str(manifest)
        assert "art_" not in str([texts([m]) for m in r.get(session.transcript())])


def test_the_hash_changes_with_the_messages_the_tools_and_the_settings():
    def first_hash(text: str = "Go", **settings: Any) -> str:
        with rig() as r:
            session = r.open(**settings)
            r.start(session, text)
            return r.one(session, ev.ModelInput).input_hash

    hashes = [
        first_hash(),
        first_hash("Stop"),
        first_hash(runtime_config={"temperature": 1}),
        first_hash(context_budget_tokens=99),
    ]
    assert len(set(hashes)) == 4
    assert first_hash() == hashes[0]


# --- cost ----------------------------------------------------------------------------------------


class CountingLog(MemoryLog):
    """Counts what is read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows_read = 0
        self.frames_read = 0

    async def messages(self, session_id: str, *, before: int | None, limit: int) -> list[MessageRow]:
        rows = await super().messages(session_id, before=before, limit=limit)
        self.rows_read += len(rows)
        return rows

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        frames = await super().read(session_id, after_seq, limit)
        self.frames_read += len(frames)
        return frames


def test_a_turn_reads_no_more_than_what_is_new():
    log = CountingLog()
    with rig(log=log) as r:
        session = r.open()
        costs: list[tuple[int, int]] = []
        for number in range(30):
            before = log.rows_read, log.frames_read
            r.start(session, f"question {number}")
            r.emit(message(f"answer {number}", f"m{number}"), done())
            costs.append((log.rows_read - before[0], log.frames_read - before[1]))
        assert costs[1:] == [(2, 0)] * 29


@pytest.mark.slow
def test_a_reopened_session_reads_no_more_than_the_budget_holds():
    log = CountingLog()
    with rig(log=log) as r:
        session = r.open(context_budget_tokens=300)
        for number in range(200):
            turn(r, session, f"question {number}", f"answer {number}")
        r.reopen()
        before = log.rows_read, log.frames_read
        r.start(r.handle(session), "And?")
        assert log.rows_read - before[0] <= 64
        assert log.frames_read - before[1] == 0
