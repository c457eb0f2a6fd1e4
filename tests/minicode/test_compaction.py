"""A conversation that the model itself sums up."""

import pytest
from tests.minicode.playing import USED, PlannedModel, PlannedTools, Try, broken

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import Message, Span, Text, text_of, user
from codesdk.minicode.agent import Agent
from codesdk.minicode.compaction import summarize

SAID = [user("Find the bug."), Message(role="assistant", content=[Text(text="It is in line 7.")])]


def agent(model: PlannedModel) -> Agent:
    return Agent(model=model, tools=PlannedTools(), instructions="Be brief.", retries=0)


async def test_the_summary_takes_the_place_of_what_it_sums_up():
    model = PlannedModel(Try(["The bug is ", "in line 7."]))
    summary = await summarize(agent(model), SAID, lambda: "m")
    assert summary.message == Message(
        role="user",
        content=[Text(text="A summary of the conversation so far:\n\nThe bug is in line 7.")],
        summary_of=Span(first=0, last=1),
    )
    assert summary.usage == USED
    [request] = model.requests
    assert (request.messages[:2], request.tools) == (SAID, [])
    assert text_of(request.messages[2].content).startswith("Sum up our conversation")


async def test_a_model_that_fails_leaves_everything_as_it_was():
    with pytest.raises(CodeSDKError, match="The stream broke"):
        await summarize(agent(PlannedModel(Try(["Ha"], broken()))), SAID, lambda: "m")


async def test_no_summary_is_none():
    with pytest.raises(CodeSDKError, match="no summary"):
        await summarize(agent(PlannedModel(Try())), SAID, lambda: "m")
