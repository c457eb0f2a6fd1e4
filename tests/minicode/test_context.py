"""A conversation that is too long for its model: previews first, then turns, then steps, and all of it is reported."""

import pytest

from codesdk.contract.messages import ArtifactRef, Message, Text, ToolResult, ToolUse, user
from codesdk.minicode import context as context_module
from codesdk.minicode.context import LARGE_BYTES, PREVIEW_CHARS, Context
from codesdk.minicode.types import ContextEvent


def answer(text: str, *calls: str) -> Message:
    uses = [ToolUse(tool_call_id=call, name="read", input={}) for call in calls]
    return Message(role="assistant", content=[Text(text=text), *uses])


def results(**outputs: str) -> Message:
    return Message(
        role="tool", content=[ToolResult(tool_call_id=id_, result=out) for id_, out in outputs.items()]
    )


BIG = "All work and no play. " * 400
OLD = [user("First."), answer("Reading.", "one"), results(one=BIG), answer("It says so.")]
NOW = [user("Second."), answer("Again.", "two"), results(two=BIG)]


async def test_what_fits_is_left_as_it_is():
    context = Context([*OLD, *NOW], 100_000)
    assert await context.fit() is None
    assert context.messages == [*OLD, *NOW]


async def test_large_outputs_of_older_steps_become_previews_that_name_where_the_whole_is():
    kept: list[str] = []

    async def keep(text: str) -> str:
        kept.append(text)
        return "artifact 7"

    context = Context([*OLD, *NOW], 4_300, keep)
    event = await context.fit()
    assert event == ContextEvent(replaced=["one"], omitted=0, estimated_tokens=context.tokens)
    [preview] = context.messages[2].content
    assert isinstance(preview, ToolResult)
    assert preview.result == f"{BIG[:PREVIEW_CHARS]}… ({len(BIG):,} bytes in all, kept as artifact 7)"
    assert kept == [BIG]
    assert context.messages[3:] == [OLD[3], *NOW]
    assert await context.fit() is None


async def test_an_output_that_is_kept_already_is_not_kept_twice():
    async def keep(text: str) -> str:
        raise AssertionError("it is kept")

    ref = ArtifactRef(artifact_id="a", content_hash="sha256:7", content_type="text/plain", size_bytes=9)
    old = ToolResult(tool_call_id="one", result=BIG, result_ref=ref)
    context = Context([OLD[0], OLD[1], Message(role="tool", content=[old]), *NOW], 4_300, keep)
    await context.fit()
    [preview] = context.messages[2].content
    assert isinstance(preview, ToolResult)
    assert preview.result.endswith("kept as sha256:7)")


async def test_then_the_oldest_turns_go():
    turns = [
        message for number in range(20) for message in (user(f"{number} " + "x" * 400), answer("y" * 400))
    ]
    context = Context([*turns, user("Now.")], 2_000)
    event = await context.fit()
    assert event is not None
    assert event.omitted == 41 - len(context.messages)
    assert event.omitted % 2 == 0
    assert context.messages == [*turns, user("Now.")][event.omitted :]
    assert context.tokens <= 1_400


async def test_then_the_oldest_steps_of_the_turn_but_not_what_a_person_said():
    steps = [m for n in range(10) for m in (answer("z" * 600, f"c{n}"), results(**{f"c{n}": "w" * 600}))]
    context = Context([user("Do it all."), *steps], 2_000)
    event = await context.fit()
    assert event is not None
    assert context.messages == [user("Do it all."), *steps[event.omitted :]]
    assert 0 < event.omitted < 20


async def test_the_last_step_stays_even_if_it_does_not_fit():
    context = Context([user("Go."), answer("x", "one"), results(one=BIG)], 100)
    assert await context.fit() is None
    assert len(context.messages) == 3


async def test_a_provider_that_counts_more_is_believed():
    context = Context([*OLD, *NOW], 6_000)
    context.beside("Be brief.", [])
    assert await context.fit() is None
    context.learn(context.tokens * 2)
    event = await context.fit()
    assert event is not None
    assert event.replaced == ["one"]


async def test_what_was_refused_is_made_smaller_each_time_until_nothing_can_go():
    context = Context([*OLD, *NOW], 1_000_000)
    seen: list[ContextEvent] = []
    while (event := await context.refused()) is not None:
        seen.append(event)
    assert [(event.replaced, event.omitted) for event in seen] == [(["one"], 0), ([], 4)]
    assert context.messages == NOW


async def test_small_outputs_are_never_previews():
    small = "x" * LARGE_BYTES
    context = Context([user("a"), answer("b", "one"), results(one=small), *NOW], 10)
    event = await context.fit()
    assert event is not None
    assert event.replaced == []


async def test_the_count_is_that_of_what_is_left_after_previews_and_omissions():
    context = Context([*OLD, *OLD], 1_000_000)
    context.add(*NOW)
    while await context.refused() is not None:
        assert context.tokens == Context(context.messages, 1_000_000).tokens


async def test_a_message_is_measured_once_however_many_are_left_out(monkeypatch: pytest.MonkeyPatch):
    measured: list[Message] = []
    measure = context_module._tokens
    monkeypatch.setattr(
        context_module, "_tokens", lambda message: measured.append(message) or measure(message)
    )
    turns = [message for number in range(200) for message in (user(f"Ask {number}."), answer("Yes."))]
    event = await Context([*turns, user("Now.")], 100).fit()
    assert event is not None
    assert event.omitted > 300
    assert len(measured) == len(turns) + 1
