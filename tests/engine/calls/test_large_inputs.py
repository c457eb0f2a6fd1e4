"""Inputs of calls that are large: refused before anybody looks through them, or looked through beside the event loop."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from tests.engine.calls import walk
from tests.engine.rig import rig

from codesdk.contract.codec import decode
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import RuntimeNotice, ToolCallRequested
from codesdk.contract.runtime import ToolAnnouncement, ToolReply
from codesdk.contract.settings import Limits
from codesdk.contract.validation import LONG_BYTES
from codesdk.engine.calls import inputs
from codesdk.engine.calls.inputs import UnusableCall, take
from codesdk.redaction import Redactor
from codesdk.testing.fakes import call, done

NESTED: Any = [[[[]] * 10] * 10] * 50


class Unasked(Redactor):
    """Must not be asked about a value."""

    def value(self, value: Any) -> Any:
        raise AssertionError("it was searched for secrets")


def announced(origin: Any, value: Any) -> ToolAnnouncement:
    name = "Bash" if origin == "native" else "app.read"
    return ToolAnnouncement(name=name, input=value, runtime_tool_call_id="c1", origin=origin)


def test_an_input_over_the_limit_is_refused_before_anybody_looks_through_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inputs, "hash_json", lambda value: pytest.fail("it was hashed"))
    size = len(msgspec.json.encode(NESTED))
    with pytest.raises(UnusableCall, match=rf"has {size:,} bytes.*{size - 1:,}.*limits\.max_event_bytes"):
        take(Unasked(), announced("stream", NESTED), "stream", size - 1)


def test_an_input_of_as_many_bytes_as_an_event_may_have_is_taken():
    size = len(msgspec.json.encode(NESTED))
    assert take(Redactor(), announced("stream", NESTED), "stream", size).input.stored == NESTED


def test_a_runtime_is_told_that_an_input_is_too_large_and_goes_on():
    with rig(limits=Limits(max_event_bytes=10_000)) as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(
            call("fake.read", {"all": NESTED}, call_id="c1"), call("fake.read", {"path": "a"}, call_id="c2")
        )
        r.emit(done())
        assert "10,000" in str(r.play.replies["c1"])
        assert r.play.replies["c2"] == ToolReply(result="ok", is_error=False)
        (notice,) = r.all(session, RuntimeNotice)
        assert "limits.max_event_bytes" in notice.message
        assert [event.input for event in r.all(session, ToolCallRequested)] == [{"path": "a"}]


@pytest.mark.parametrize("times", [1, 10])
async def test_a_call_over_mcp_with_an_input_that_is_too_large_is_an_error_of_that_call(times: int):
    async with walk.running(limits=Limits(max_event_bytes=10_000)) as (sdk, session, _):
        made = sdk.engine.tool_calls.call(session.id, "app.read", {"path": NESTED * times})
        with pytest.raises(InvalidRequest, match=r"limits\.max_event_bytes"):
            await made


@pytest.mark.parametrize("origin", ["stream", "mcp", "native"])
@pytest.mark.parametrize("is_long", [True, False])
async def test_a_long_input_is_looked_through_beside_the_event_loop(
    origin: str, is_long: bool, monkeypatch: pytest.MonkeyPatch
):
    beside: list[bool] = []
    hash_json = inputs.hash_json

    def hashed(value: Any) -> str:
        beside.append(threading.current_thread() is not threading.main_thread())
        return hash_json(value)

    monkeypatch.setattr(inputs, "hash_json", hashed)
    given = {"path": "a" * LONG_BYTES if is_long else "a"}
    async with walk.running() as (sdk, session, task):
        if origin == "stream":
            task.emit(announced(origin, given))
            assert await task.reply("c1") == ToolReply(result=f"the text of {given['path']}", is_error=False)
        elif origin == "mcp":
            reply = await sdk.engine.tool_calls.call(session.id, "app.read", given)
            assert reply.result == f"the text of {given['path']}"
        else:
            assert (await task.host.may_run(announced(origin, given))).denied is None
        assert beside == [is_long]


async def test_hanging_up_while_a_long_input_is_looked_through_leaves_nothing_behind():
    async with walk.running() as (sdk, session, _):
        made = sdk.engine.tool_calls.call(session.id, "app.read", {"path": "a" * LONG_BYTES})
        await asyncio.sleep(0)
        made.cancel()
        await asyncio.wait([made])
        await walk.idle()
        assert made.cancelled()
        types = [decode(frame.data).type async for frame in sdk.archive.frames(session.id)]
        assert [kind for kind in types if kind.startswith("tool.")] == []
