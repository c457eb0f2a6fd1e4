"""Announcements and calls that meet while one of them is still on its way."""

import asyncio
from typing import Any

import pytest
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.contract.runtime import ToolAnnouncement
from codesdk.contract.tools import ToolIdentity
from codesdk.engine.calls.inputs import Arrival, LiveCall, take
from codesdk.engine.calls.matching import Matching
from codesdk.engine.log.state import CallState
from codesdk.redaction import Redactor

IDENTITY = ToolIdentity(tool_call_id="call_1", attempt=1, input_hash="sha256:1")


def arrival(runtime_id: str | None = None) -> Arrival:
    item = ToolAnnouncement(name="fake.read", input={"path": "a"}, runtime_tool_call_id=runtime_id)
    return take(Redactor(), item, "mcp", 1_000)


def opened(given: Arrival) -> LiveCall:
    state = CallState(identity=IDENTITY, name=given.name, tool_class="read_only")
    judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return LiveCall(state=state, origin="mcp", input=given.input, judged=judged)


async def test_an_announcement_that_comes_while_its_call_is_being_opened_is_of_that_call():
    matching, gate = Matching(), asyncio.Event()

    async def opening(given: Arrival) -> LiveCall:
        await gate.wait()
        return opened(given)

    calling = asyncio.create_task(matching.open_early(arrival(), opening))
    await asyncio.sleep(0)
    telling = asyncio.create_task(matching.take_early(arrival("c1")))
    await asyncio.sleep(0)
    gate.set()
    assert await telling == (await calling).state.identity == IDENTITY
    assert await matching.take_early(arrival("c1")) is None


async def test_a_call_that_could_not_be_opened_has_no_announcement():
    matching = Matching()

    async def opening(given: Arrival) -> Any:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        await matching.open_early(arrival(), opening)
    assert not matching.early
    assert await matching.take_early(arrival("c1")) is None


async def test_calls_that_were_never_made_are_taken_in_one_pass():
    matching, judged = Matching(), asyncio.get_running_loop().create_future()
    first, second = arrival("c1"), arrival("c2")
    state = CallState(identity=IDENTITY, name="fake.read", tool_class="read_only")
    calls = [LiveCall(state=state, origin="mcp", input=first.input, judged=judged) for _ in range(100_000)]
    for number, call in enumerate(calls):
        matching.announce(second if number == 7 else first, call)
    with hang_guard():
        assert matching.take_unmet("c2") == [calls[7]]
        assert matching.take_unmet() == [*calls[:7], *calls[8:]]
    assert matching.take_unmet() == []


async def test_a_call_that_is_made_or_dropped_is_found_without_a_look_at_the_others():
    matching, judged = Matching(), asyncio.get_running_loop().create_future()
    given = [arrival(f"c{number}") for number in range(100_000)]
    state = CallState(identity=IDENTITY, name="fake.read", tool_class="read_only")
    calls = [LiveCall(state=state, origin="mcp", input=one.input, judged=judged) for one in given]
    for one, call in zip(given, calls, strict=True):
        matching.announce(one, call)
    with hang_guard():
        dropped = [matching.take_unmet(f"c{number}") for number in range(99_999, 49_999, -1)]
        made = [await matching.meet(one) for one in reversed(given[:50_000])]
    assert dropped == [[call] for call in reversed(calls[50_000:])]
    assert made == calls[49_999::-1]
    assert matching.take_unmet() == []
