"""The loop: model, tools, retries, steering, aborts, and one end whatever happens."""

import asyncio

import pytest
from tests.minicode.playing import (
    USED,
    PlannedModel,
    PlannedTools,
    Try,
    broken,
    play,
    turn_of,
    whole,
)

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import ContentBlock, Message, Text, ToolResult, ToolUse, user
from codesdk.minicode.agent import INTERRUPTED, Turn
from codesdk.minicode.types import (
    Abort,
    ContextEvent,
    Finish,
    Retracted,
    RetryEvent,
    StepFinish,
    TextDelta,
    ToolCallEvent,
    TurnError,
    TurnEvent,
    Usage,
)


def kinds(events: list[TurnEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def said(turn: Turn) -> list[tuple[str, str]]:
    return [
        (message.role, "".join(block.text for block in message.content if isinstance(block, Text)))
        for message in turn.added
    ]


async def test_an_answer_without_calls_ends_the_turn():
    model = PlannedModel(Try(["Hel", "lo."]))
    turn = turn_of(model)
    message = Message(role="assistant", content=[Text(text="Hello.")], message_id="m0")
    assert await play(turn) == [
        TextDelta(block_id="m0.0", text="Hel"),
        TextDelta(block_id="m0.0", text="lo."),
        StepFinish(finish_reason="stop", usage=USED, message=message),
        Finish(finish_reason="stop", total_usage=USED),
    ]
    assert turn.added == [message]
    [request] = model.requests
    assert (request.instructions, request.messages) == ("Be brief.", [user("Go.")])


async def test_calls_run_and_the_model_is_told_what_they_gave():
    model, tools = (
        PlannedModel(Try(["Let me see."], calls=["read", "refuse"]), Try(["Done."])),
        PlannedTools(),
    )
    turn = turn_of(model, tools)
    events = await play(turn)
    assert kinds(events) == [
        "TextDelta",
        "StepFinish",
        "ToolCallEvent",
        "ToolCallEvent",
        "ToolResultEvent",
        "ToolErrorEvent",
        "TextDelta",
        "StepFinish",
        "Finish",
    ]
    assert [call.id for call in tools.ran] == ["m0:read0", "m0:refuse1"]
    results: list[ContentBlock] = [
        ToolResult(tool_call_id="m0:read0", result="done"),
        ToolResult(tool_call_id="m0:refuse1", result="no", is_error=True),
    ]
    assert model.requests[1].messages[1:] == [
        whole("m0", Try(["Let me see."], calls=["read", "refuse"])).message,
        Message(role="tool", content=results, message_id="m0"),
    ]
    assert events[-1] == Finish(finish_reason="stop", total_usage=Usage(input=20, output=10, cost_usd=1.0))


async def test_calls_of_one_answer_run_at_the_same_time():
    tools = PlannedTools(wanted=2)
    turn = turn_of(PlannedModel(Try(calls=["wait", "wait"])), tools)
    async for event in turn.events():
        if isinstance(event, ToolCallEvent) and event.call.index == 1:
            await tools.begun.wait()  # neither ends by itself
            turn.abort("enough")
    assert [call.id for call in tools.ran] == ["m0:wait0", "m0:wait1"]


@pytest.mark.parametrize(
    ("tool", "told"),
    [("raise", "The tool raise failed: out of order"), ("cancelled", "The tool cancelled was cancelled.")],
)
async def test_a_tool_that_fails_is_an_answer_to_the_model(tool: str, told: str):
    model = PlannedModel(Try(calls=[tool]), Try(["I see."]))
    events = await play(turn_of(model))
    assert kinds(events)[-4:] == ["ToolErrorEvent", "TextDelta", "StepFinish", "Finish"]
    assert model.requests[1].messages[-1].content == [
        ToolResult(tool_call_id=f"m0:{tool}0", result=told, is_error=True)
    ]


async def test_a_transcript_may_know_a_call_by_another_id_and_the_model_is_shown_that():
    tools = PlannedTools(rename=lambda call: f"kept-{call.index}")
    model = PlannedModel(Try(["Hm."], calls=["read"]), Try(["Done."]))
    turn = turn_of(model, tools)
    await play(turn)
    assert model.requests[1].messages[1:] == turn.added[:2]
    assert turn.added[:2] == [
        Message(
            role="assistant",
            content=[Text(text="Hm."), ToolUse(tool_call_id="kept-1", name="read", input={"n": 0})],
            message_id="m0",
        ),
        Message(role="tool", content=[ToolResult(tool_call_id="kept-1", result="done")], message_id="m0"),
    ]


async def test_what_a_broken_stream_said_is_taken_back_and_the_model_is_asked_again():
    fault = broken()
    turn = turn_of(PlannedModel(Try(["Ha"], fault), Try(["Half"], cut=True), Try(["Whole."])))
    events = await play(turn)
    assert kinds(events) == [
        *["TextDelta", "Retracted", "RetryEvent"] * 2,
        "TextDelta",
        "StepFinish",
        "Finish",
    ]
    assert [event for event in events if isinstance(event, Retracted)] == [
        Retracted(block_ids=["m0.0"], reason="The stream broke."),
        Retracted(block_ids=["m1.0"], reason="The model's answer ended before it was whole."),
    ]
    assert said(turn) == [("assistant", "Whole.")]


async def test_a_provider_is_waited_for_as_long_as_it_asks_but_not_for_ever():
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    turn = turn_of(PlannedModel(Try(fault=broken(7.5)), Try(fault=broken(3600))))
    turn._sleep = sleep
    events = await play(turn)
    assert waits == [7.5]
    assert kinds(events) == ["RetryEvent", "TurnError"]


async def test_waits_grow_and_attempts_end():
    plan = [Try(fault=broken())] * 9
    events = await play(turn_of(PlannedModel(*plan), retries=3))
    delays = [event.delay_s for event in events if isinstance(event, RetryEvent)]
    assert len(delays) == 3
    assert delays == sorted(delays)
    assert events[-1] == TurnError(error=broken().info(), total_usage=Usage(cost_usd=0.0))


async def test_what_would_fail_again_is_not_tried_again():
    model = PlannedModel(Try(["Ha"], broken(retryable=False)))
    turn = turn_of(model)
    assert kinds(await play(turn)) == ["TextDelta", "TurnError"]
    assert len(model.requests) == 1
    assert said(turn) == [("assistant", "Ha")]


async def test_an_abort_keeps_what_was_said_and_marks_the_interruption():
    model = PlannedModel(Try(["Once ", "upon ", "a time"]))
    turn = turn_of(model)
    events = await play(turn, at=2, act=lambda: turn.abort("enough"))
    assert events[-1] == Abort(reason="enough", total_usage=Usage(cost_usd=0.0))
    assert said(turn)[0][1].startswith("Once upon ")
    assert said(turn)[1:] == [("user", INTERRUPTED)]
    assert model.open == 0


async def test_an_abort_before_the_beginning_asks_nobody():
    model = PlannedModel(Try(["Hello."]))
    turn = turn_of(model)
    turn.abort("never mind")
    assert await play(turn) == [Abort(reason="never mind", total_usage=Usage(cost_usd=0.0))]
    assert model.requests == []


async def test_an_abort_in_a_tool_cancels_it_and_its_call_has_an_end():
    turn = turn_of(PlannedModel(Try(["Hm."], calls=["wait"])))
    events = await play(turn, at=3, act=lambda: turn.abort("enough"))
    assert kinds(events) == ["TextDelta", "StepFinish", "ToolCallEvent", "ToolErrorEvent", "Abort"]
    assert [message.role for message in turn.added] == ["assistant", "tool", "user"]


async def test_steering_reaches_the_model_before_its_next_step():
    model = PlannedModel(Try(["One."], calls=["read"]), Try(["Left it is."]))
    turn = turn_of(model)
    await play(turn, at=1, act=lambda: turn.steer([user("Turn left.")]))
    assert model.requests[1].messages[-1] == user("Turn left.")
    assert said(turn)[-2:] == [("user", "Turn left."), ("assistant", "Left it is.")]


async def test_steering_an_answer_that_was_to_be_the_last_gets_another_one():
    model = PlannedModel(Try(["Right."]), Try(["Left."]))
    turn = turn_of(model)
    events = await play(turn, at=1, act=lambda: turn.steer([user("Turn left.")]))
    assert said(turn) == [("assistant", "Right."), ("user", "Turn left."), ("assistant", "Left.")]
    assert isinstance(events[-1], Finish)
    assert turn.steer([user("Too late.")]) is False


async def test_a_turn_ends_after_so_many_steps_with_its_calls_answered():
    model, tools = PlannedModel(*[Try(calls=["read"])] * 5), PlannedTools()
    turn = turn_of(model, tools, max_steps=2)
    events = await play(turn)
    assert events[-1] == Finish(
        finish_reason="max_steps", total_usage=Usage(input=20, output=10, cost_usd=1.0)
    )
    assert len(tools.ran) == 2
    assert [message.role for message in turn.added] == ["assistant", "tool"] * 2


async def test_a_stop_condition_ends_a_turn_after_a_step():
    model = PlannedModel(*[Try(calls=["read"])] * 5)
    turn = turn_of(model, stop_when=(lambda steps: len(steps) == 3,))
    events = await play(turn)
    assert isinstance(events[-1], Finish)
    assert events[-1].finish_reason == "stop_condition"
    assert len(model.requests) == 3


async def test_a_request_that_is_too_large_is_made_again_with_less_and_that_is_said():
    too_large = CodeSDKError("Too long.", code="CONTEXT_TOO_LARGE")
    model = PlannedModel(Try(fault=too_large), Try(["Fits."]))
    old = [user("x" * 4000), Message(role="assistant", content=[Text(text="y" * 4000)])]
    events = await play(turn_of(model, None, *old, user("Go.")))
    assert kinds(events) == ["ContextEvent", "TextDelta", "StepFinish", "Finish"]
    [left_out] = [event for event in events if isinstance(event, ContextEvent)]
    assert (left_out.omitted, left_out.replaced) == (2, [])
    assert model.requests[1].messages == [user("Go.")]


async def test_a_request_that_cannot_be_made_smaller_fails():
    too_large = CodeSDKError("Too long.", code="CONTEXT_TOO_LARGE")
    events = await play(turn_of(PlannedModel(Try(fault=too_large))))
    assert kinds(events) == ["TurnError"]


async def test_who_stops_listening_ends_the_work():
    model = PlannedModel(Try(["Once ", "upon ", "a time"]))
    turn = turn_of(model)
    events = turn.events()
    assert isinstance(await anext(events), TextDelta)
    await events.aclose()
    assert model.open == 0
    assert turn.steer([]) is False


async def test_a_slow_listener_is_waited_for():
    model = PlannedModel(Try([str(number) for number in range(5000)]))
    turn = turn_of(model)
    events = turn.events()
    await anext(events)
    for _ in range(500):
        await asyncio.sleep(0)
    assert turn._events.qsize() < 100
    rest = [event async for event in events]
    assert sum(isinstance(event, TextDelta) for event in rest) == 4999


async def test_a_fault_of_our_own_ends_the_turn_as_an_error():
    class Odd(PlannedModel):
        async def stream(self, request):
            raise KeyError("odd")
            yield

    events = await play(turn_of(Odd()))
    [end] = events
    assert isinstance(end, TurnError)
    assert end.error.code == "INTERNAL"
