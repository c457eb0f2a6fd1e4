"""The loop against a model with faults at every point, and tools of every kind: whatever happens, and whenever it is given up.

No text is lost, no call runs twice, no event is missing its counterpart, and there is one end.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from tests.counts import COUNTS
from tests.minicode.playing import PlannedModel, PlannedTools, Try, broken, play, too_long, turn_of

from codesdk.contract.messages import Message, Reasoning, Text, ToolResult, ToolUse, text_of, user
from codesdk.minicode.agent import INTERRUPTED, Turn
from codesdk.minicode.types import (
    Abort,
    ContextEvent,
    Finish,
    ReasoningDelta,
    Retracted,
    StepFinish,
    TextDelta,
    ToolCallEvent,
    ToolErrorEvent,
    ToolResultEvent,
    TurnError,
    TurnEvent,
)

pytestmark = pytest.mark.slow
LARGE = "A long output. " * 150
ENDS = (Finish, Abort, TurnError)
pieces = st.lists(st.sampled_from(["a", "bc", " ", "é", "\n"]), max_size=4)
tries = st.builds(
    Try,
    pieces=pieces,
    fault=st.sampled_from([None, None, broken(), broken(retryable=False), broken(0.0), too_long()]),
    cut=st.booleans(),
    calls=st.lists(st.sampled_from(["read", "refuse", "raise", "cancelled"]), max_size=3),
    thought=st.sampled_from(["", "hm"]),
)


@settings(max_examples=5 * COUNTS.examples)
@given(
    plan=st.lists(tries, max_size=6),
    abort_at=st.one_of(st.none(), st.integers(1, 30)),
    abort_after=st.one_of(st.none(), st.integers(0, 60)),
    steer_at=st.one_of(st.none(), st.integers(1, 12)),
    retries=st.integers(0, 3),
    max_steps=st.integers(1, 4),
    window=st.sampled_from([1, 60, 150, 400, 2_000, 100_000]),
    past_turns=st.integers(0, 4),
)
def test_whatever_happens_nothing_is_lost_and_nothing_happens_twice(
    plan: list[Try],
    abort_at: int | None,
    abort_after: int | None,
    steer_at: int | None,
    retries: int,
    max_steps: int,
    window: int,
    past_turns: int,
):
    """It is given up after an event, or after so many rounds of the event loop: wherever it is then."""
    asyncio.run(_check(plan, abort_at, abort_after, steer_at, retries, max_steps, window, past_turns))


CALLS = Try(["c"], calls=["read", "refuse", "raise", "cancelled", "read"])
PLANS: dict[str, list[Try]] = {
    "text": [Try(["a", "b", "c"], thought="hm"), Try(["d"])],
    "a fault in the middle": [Try(["a", "b"], broken(0.0), thought="hm"), Try(["c"], cut=True), Try(["d"])],
    "calls": [CALLS, CALLS, Try(["d"])],
    "faults and calls": [Try(["a"], broken()), CALLS, Try(["b"], broken(0.0)), CALLS, Try(["d"])],
    "a fault that stays": [Try(["a"], broken(retryable=False))],
    "too long": [CALLS, Try(["a"], too_long(), thought="hm"), CALLS, Try([], too_long()), Try(["d"])],
    "always too long": [CALLS, *[Try(["a"], too_long())] * 12],
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_wherever_it_is_given_up_nothing_is_lost_and_nothing_happens_twice(plan: list[Try]):
    """After each event and after each round of the event loop, one by one, until it has ended before."""
    for point in range(1, 60):
        asyncio.run(_check(plan, point, None, None, retries=2, max_steps=4, past_turns=3))
        asyncio.run(_check(plan, None, point, None, retries=2, max_steps=4, past_turns=3))
        asyncio.run(_check(plan, None, None, point, retries=2, max_steps=4, window=400))


def test_calls_that_wait_for_ever_have_an_end_whenever_they_are_given_up():
    plan = [Try(["a"], calls=["read", "wait", "wait"]), Try(["d"])]
    for rounds in range(40):
        asyncio.run(_check(plan, None, rounds, None, retries=2, max_steps=4))


async def _check(
    plan: list[Try],
    abort_at: int | None,
    abort_after: int | None,
    steer_at: int | None,
    retries: int,
    max_steps: int,
    window: int = 100_000,
    past_turns: int = 0,
) -> None:
    model, tools = PlannedModel(*plan), PlannedTools(given=LARGE)
    said = [*_past(past_turns), user("Go.")]
    turn = turn_of(model, tools, *said, retries=retries, max_steps=max_steps, context_tokens=window)
    seen = 0
    steered = False

    def act() -> None:
        nonlocal steered
        if seen == steer_at:
            steered = turn.steer([user("Left.")])
        if seen == abort_at:
            turn.abort("enough")

    async def give_up(rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)
        turn.abort("enough")

    giving_up = None if abort_after is None else asyncio.create_task(give_up(abort_after))
    events: list[TurnEvent] = []
    async for event in turn.events():
        events.append(event)
        seen += 1
        act()
    if giving_up is not None:
        await giving_up
    _one_end(events)
    assert turn._events.empty(), "nothing was said after its end"
    _every_call_once(events, tools)
    _text_is_kept(events, turn)
    _is_a_transcript(turn.added)
    _whatever_is_left_out_is_told([*said, *turn.added], model, events)
    assert model.open == 0
    assert (user("Left.") in turn.added) == steered
    used = [event.usage for event in events if isinstance(event, StepFinish)]
    assert turn.usage.input == sum(one.input for one in used)


def _past(turns: int) -> list[Message]:
    """Return a conversation before the turn, with a large output in each of its turns."""
    found: list[Message] = []
    for number in range(turns):
        call = ToolUse(tool_call_id=f"past{number}", name="read", input={})
        result = ToolResult(tool_call_id=call.tool_call_id, result=LARGE)
        found += [
            user(f"Question {number}."),
            Message(role="assistant", content=[call], message_id=f"p{number}"),
            Message(role="tool", content=[result], message_id=f"p{number}"),
        ]
    return found


def _name(message: Message) -> str:
    """Return what a message can be told by, whether or not its outputs are whole."""
    return f"{message.role} {message.message_id or text_of(message.content)}"


def _whatever_is_left_out_is_told(whole: list[Message], model: PlannedModel, events: list[TurnEvent]) -> None:
    """Check each request: a conversation in order, with the turn's message, that lacks only what was said to be left out."""
    results = [block for message in whole for block in message.content if isinstance(block, ToolResult)]
    outputs = {block.tool_call_id: block.result for block in results}
    told = [event for event in events if isinstance(event, ContextEvent)]
    previews = Counter(call_id for event in told for call_id in event.replaced)
    assert all(times == 1 for times in previews.values())
    missing: set[str] = set()
    before = {_name(message) for message in whole[: whole.index(user("Go.")) + 1]}
    for request in model.requests:
        sent = [_name(message) for message in request.messages]
        assert _name(user("Go.")) in sent
        places = iter([_name(message) for message in whole])
        assert all(name in places for name in sent), "in order, and nothing twice"
        _is_a_transcript(request.messages)
        missing |= before - set(sent)
        assert not missing & set(sent), "what is left out stays left out"
        before = set(sent)
        for block in (block for message in request.messages for block in message.content):
            if isinstance(block, ToolResult) and block.result != outputs[block.tool_call_id]:
                assert block.tool_call_id in previews
    omitted = sum(event.omitted for event in told)
    assert len(missing) <= omitted  # more if it was given up before the request that lacks them
    if not isinstance(events[-1], Abort):
        assert len(missing) == omitted


def _one_end(events: list[TurnEvent]) -> None:
    assert [isinstance(event, ENDS) for event in events] == [False] * (len(events) - 1) + [True]


def _every_call_once(events: list[TurnEvent], tools: PlannedTools) -> None:
    announced = Counter(event.call.id for event in events if isinstance(event, ToolCallEvent))
    ended = Counter(event.call_id for event in events if isinstance(event, ToolResultEvent | ToolErrorEvent))
    ran = Counter(call.id for call in tools.ran)
    assert ended == announced
    assert all(times == 1 for times in (*announced.values(), *ran.values()))
    assert set(ran) <= set(announced)


def _text_is_kept(events: list[TurnEvent], turn: Turn) -> None:
    streamed: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            streamed[event.block_id] = streamed.get(event.block_id, "") + event.text
        elif isinstance(event, Retracted):
            for block_id in event.block_ids:
                del streamed[block_id]
    kept = [
        block.text
        for message in turn.added
        if message.role == "assistant"
        for block in message.content
        if isinstance(block, Text | Reasoning) and block.text
    ]
    assert kept == [text for text in streamed.values() if text]


def _is_a_transcript(messages: Sequence[Message]) -> None:
    """Check that every call is answered, in the message that follows it, and nothing else is."""
    for message, following in pairwise([user(""), *messages, user("")]):
        calls = [block.tool_call_id for block in message.content if isinstance(block, ToolUse)]
        answered = [b.tool_call_id for b in following.content if isinstance(b, ToolResult)]
        assert answered == calls


@given(plan=st.lists(tries, max_size=4))
def test_an_aborted_turn_says_so_in_its_transcript(plan: list[Try]):
    async def check() -> None:
        turn = turn_of(PlannedModel(*plan, Try(["x"], calls=["wait"])), retries=10)
        events = await play(turn, at=1, act=lambda: turn.abort("enough"))
        if isinstance(events[-1], Abort):
            assert turn.added[-1] == user(INTERRUPTED)

    asyncio.run(check())
