"""The transcript: what messages a task leaves, in what order, and what of them the next task is given."""

from typing import Any

import msgspec
import pytest
from tests.engine.acting import start
from tests.engine.world import World, payloads, world

from codesdk.contract.events import (
    ContextWindow,
    ModelInput,
    Omission,
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    TaskFailed,
)
from codesdk.contract.ids import artifact_id
from codesdk.contract.messages import ArtifactBlock, Message, Reasoning, Text, ToolResult, ToolUse, user
from codesdk.contract.runtime import Draft, ToolAnnouncement
from codesdk.contract.settings import SessionSettings
from codesdk.testing.fakes import FakeTools, call, delta, done, message


def transcript(w: World, session: str) -> list[Message]:
    return w.get(w.engine.archive.transcript(session))


def shape(messages: list[Message]) -> list[tuple[str, list[str]]]:
    """Roles, and blocks as their text, the name of a call or the result of one."""
    return [(each.role, [_show(block) for block in each.content]) for each in messages]


def _show(block: Any) -> str:
    if isinstance(block, ToolUse):
        return f"call {block.name}"
    if isinstance(block, ToolResult):
        return f"result {block.result}"
    return getattr(block, "text", None) or block.code


def announce(name: str, call_id: str, index: int | None, message_id: str | None = "m1") -> ToolAnnouncement:
    return ToolAnnouncement(
        name=name, input={}, runtime_tool_call_id=call_id, message_id=message_id, index=index
    )


def test_a_message_comes_with_its_calls_in_the_order_of_their_places_not_of_their_events(w: World):
    session = w.create(permission_mode="yolo")
    w.start(session, "look")
    w.emit(
        announce("fake.write", "c2", 2),
        announce("fake.read", "c1", 1),
        Draft(OutputCompleted(message_id="m1", content=[Text(text="I look.")])),
        message("Seen.", "m2"),
        done(),
    )
    assert shape(transcript(w, session)) == [
        ("user", ["look"]),
        ("assistant", ["I look.", "call fake.read", "call fake.write"]),
        ("tool", ["result ok", "result ok"]),
        ("assistant", ["Seen."]),
    ]


def test_a_call_may_stand_between_two_texts(w: World):
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(
        announce("fake.read", "c1", 1),
        Draft(OutputCompleted(message_id="m1", content=[Text(text="before"), Text(text="after")])),
        done(),
    )
    assert shape(transcript(w, session))[1] == ("assistant", ["before", "call fake.read", "after"])


def test_results_that_come_in_another_order_are_put_in_the_order_of_the_calls(w: World):
    w.tools.hold()
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(announce("fake.read", "c1", 0), announce("fake.read", "c2", 1), message("two reads"))
    w.tools.runs[1].finish("second")
    w.settle()
    w.tools.runs[0].finish("first")
    w.emit(done())
    assert shape(transcript(w, session))[-1] == ("tool", ["result first", "result second"])


def test_a_call_without_a_message_stands_for_itself(w: World):
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(announce("fake.read", "c1", None, None), message("done"), done())
    assert shape(transcript(w, session))[1:] == [
        ("assistant", ["call fake.read"]),
        ("tool", ["result ok"]),
        ("assistant", ["done"]),
    ]


def test_a_denial_is_what_the_transcript_has_for_a_result(w: World):
    session = w.create()
    w.start(session)
    w.emit(call("fake.write"), message("may I?"))
    w.answer(session, "deny", reason="Rather not.")
    w.emit(done())
    (result,) = transcript(w, session)[-1].content
    assert isinstance(result, ToolResult)
    assert (result.result, result.is_error) == ("Rather not.", True)


def test_what_was_taken_back_is_not_in_the_transcript(w: World):
    session = w.create()
    w.start(session)
    w.emit(
        delta("wrong", "m1", "b1"),
        Draft(OutputRetracted(block_ids=["b1"], reason="the stream broke")),
        delta("right", "m1", "b2"),
        RuntimeError("gone"),
    )
    assert shape(transcript(w, session)) == [("user", ["go"]), ("assistant", ["right"])]


def test_reasoning_is_kept_but_not_sent(w: World):
    session = w.create()
    w.start(session)
    thought = OutputCompleted(message_id="m1", content=[Reasoning(text="hmm"), Text(text="yes")])
    w.emit(Draft(thought), done())
    w.start(session, "and now?")
    assert transcript(w, session)[1].content == [Reasoning(text="hmm"), Text(text="yes")]
    assert shape(w.runtime.tasks[-1].input.messages) == [
        ("user", ["go"]),
        ("assistant", ["yes"]),
        ("user", ["and now?"]),
    ]


def test_half_a_thought_stays_a_thought(w: World):
    session = w.create()
    w.start(session)
    thinking = OutputDelta(kind="reasoning_delta", block_id="b0", message_id="m1", delta="hm")
    w.emit(Draft(thinking), delta("ye"), RuntimeError("gone"))
    assert transcript(w, session)[1].content == [Reasoning(text="hm"), Text(text="ye")]


def test_the_next_task_is_given_everything_as_long_as_it_fits(w: World):
    session = w.create()
    for number in range(3):
        w.start(session, f"question {number}")
        w.emit(message(f"answer {number}"), done())
    assert shape(w.runtime.tasks[-1].input.messages) == [
        ("user", ["question 0"]),
        ("assistant", ["answer 0"]),
        ("user", ["question 1"]),
        ("assistant", ["answer 1"]),
        ("user", ["question 2"]),
    ]
    assert w.runtime.tasks[-1].input.model_messages == 2


@pytest.mark.parametrize("crash", [False, True])
def test_over_the_budget_the_oldest_go_up_to_a_users_message_and_the_input_says_so(crash: bool):
    with world() as w:
        session = w.create(settings=SessionSettings(context_budget_tokens=80))
        for number in range(3):
            w.start(session, f"question {number}")
            w.emit(message(f"answer {number}"), done())
        if crash:
            w.crash()
        w.start(session, "question 3")
        given = w.runtime.tasks[-1].input.messages
        window = payloads(w.events(session), ModelInput)[-1].context_window
        assert shape(given) == [
            ("user", ["question 2"]),
            ("assistant", ["answer 2"]),
            ("user", ["question 3"]),
        ]
        assert window == ContextWindow(
            strategy="window",
            budget_tokens=80,
            estimated_tokens=window.estimated_tokens,
            omitted=[Omission(first=0, last=3, reason="over the context budget")],
            replaced=[],
        )
        w.check_all()


def test_a_task_whose_own_messages_do_not_fit_fails_and_the_next_one_can_run(w: World):
    session = w.create(settings=SessionSettings(context_budget_tokens=50))
    w.start(session, "x" * 1000)
    end = w.events(session)[-1].payload
    assert isinstance(end, TaskFailed)
    assert (end.error.code, end.error.retryable) == ("CONTEXT_TOO_LARGE", False)
    assert w.runtime.tasks == []
    w.start(session, "short")
    assert shape(w.runtime.tasks[-1].input.messages) == [("user", ["short"])]


def test_a_large_result_is_handed_to_the_next_task_as_a_preview():
    tools = FakeTools()
    tools.give("fake.read", "x" * 5000)
    with world(tools=tools) as w:
        session = w.create(permission_mode="yolo", settings=SessionSettings(result_inline_bytes=100))
        w.start(session)
        w.emit(call("fake.read"), message("read"), done())
        w.start(session, "again")
        given = w.runtime.tasks[-1].input.messages
        (result,) = given[2].content
        assert isinstance(result, ToolResult)
        assert len(result.result) < 3000
        (replaced,) = payloads(w.events(session), ModelInput)[-1].context_window.replaced
        assert replaced.content_hash == result.result_ref.content_hash  # type: ignore[union-attr]
        w.check_all()


def test_each_message_continues_the_chain_and_two_sessions_with_the_same_words_have_the_same_chain(w: World):
    chains: list[list[str]] = []
    for _ in range(2):
        session = w.create()
        w.start(session)
        w.emit(message("hello"), done())
        chains.append([row.chain for row in w.get(w.log.messages(session, before=None, limit=9))])
    assert chains[0] == chains[1]
    assert len(set(chains[0])) == 2


def test_messages_are_stored_while_the_task_still_runs(w: World):
    session = w.create(permission_mode="yolo")
    w.start(session)
    w.emit(call("fake.read"), message("reading"))
    w.emit(delta("and then", "m2"), message("and then", "m2"))
    assert shape(transcript(w, session)) == [
        ("user", ["go"]),
        ("assistant", ["reading", "call fake.read"]),
        ("tool", ["result ok"]),
    ]
    w.emit(done())
    assert shape(transcript(w, session))[-1] == ("assistant", ["and then"])


def test_an_attachment_goes_along_by_reference(w: World):
    session = w.create()
    ref = w.get(w.engine.put_artifact(b"pixels", "image/png", "shot.png"))
    block = ArtifactBlock(
        artifact_id=ref.artifact_id, content_hash=ref.content_hash, content_type="image/png", name="shot.png"
    )
    shown = Message(role="user", content=[Text(text="see"), block])
    w.get(start(w.engine, w.session(session), [shown]))
    own = msgspec.structs.replace(
        block, artifact_id=artifact_id(session, ref.content_hash, "image/png", "shot.png")
    )
    shown = Message(role="user", content=[Text(text="see"), own])
    assert w.runtime.tasks[-1].input.messages == [shown]
    assert user("see") != shown
