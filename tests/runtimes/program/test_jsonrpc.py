"""The talk with a child that speaks JSON-RPC in lines."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from codesdk.contract.errors import TaskFailure
from codesdk.contract.workspace import Workspace
from codesdk.processes import start_child
from codesdk.runtimes.program.jsonrpc import Connection, Garbage, Gone, RequestFailed

PEER = r"""
import json, sys
def say(frame): print(json.dumps(frame), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    match frame.get("method"):
        case "echo": say({"id": frame["id"], "result": frame["params"]})
        case "fail": say({"id": frame["id"], "error": {"code": -1, "message": "no"}})
        case "odd": say({"id": frame["id"], "error": "text"})
        case "silent": pass
        case "tell": say({"method": "told", "params": frame.get("params")})
        case "garbage":
            sys.stdout.write("not json\n\n[1]\n" + "x" * 5000 + "\n"); sys.stdout.flush()
            say({"id": 99999, "result": "late"}); say({"method": "after"})
        case "flood":
            for n in range(5000): say({"method": "n", "params": n})
        case "ask": say({"id": "q1", "method": "may I", "params": {"x": 1}})
        case "leave": sys.exit(3)
        case None: say({"method": "answered", "params": frame})
"""


def answer(method: str, params: Any) -> dict[str, Any]:
    return {"result": {"to": method, "of": params}}


@asynccontextmanager
async def talk(**options: Any) -> AsyncIterator[Connection]:
    child = await start_child([sys.executable, "-c", PEER], cwd=Workspace("/"), env={})
    connection = Connection(child, answer, **options)
    try:
        async with asyncio.timeout(60):
            yield connection
    finally:
        await connection.close()
        await child.stop(grace_s=0)


async def test_requests_get_their_own_answers():
    async with talk() as peer:
        asked = [peer.request("echo", n, timeout_s=60) for n in range(20)]
        assert await asyncio.gather(*asked) == list(range(20))


async def test_an_error_is_raised_with_what_the_child_said():
    async with talk() as peer:
        with pytest.raises(RequestFailed, match="fail: no") as raised:
            await peer.request("fail", None, timeout_s=60)
        assert raised.value.error == {"code": -1, "message": "no"}
        with pytest.raises(RequestFailed, match="odd: text"):
            await peer.request("odd", None, timeout_s=60)


async def test_a_request_has_a_deadline_and_the_talk_goes_on():
    async with talk() as peer:
        with pytest.raises(TimeoutError):
            await peer.request("silent", None, timeout_s=0.01)
        assert await peer.request("echo", "still here", timeout_s=60) == "still here"


async def test_a_question_of_the_child_is_answered_at_once_and_shown():
    async with talk() as peer:
        await peer.notify("ask")
        shown = [await peer.messages.get() for _ in range(2)]
        assert shown == [
            {"id": "q1", "method": "may I", "params": {"x": 1}},
            {"method": "answered", "params": {"id": "q1", "result": {"to": "may I", "of": {"x": 1}}}},
        ]


async def test_what_is_no_message_is_handed_on_as_garbage_and_a_late_answer_is_forgotten():
    async with talk(max_line_bytes=1000) as peer:
        await peer.notify("garbage")
        assert [await peer.messages.get() for _ in range(4)] == [
            Garbage(8, "not json"),
            Garbage(3, "[1]"),
            Garbage(5000, "x" * 200),
            {"method": "after"},
        ]


async def test_a_slow_reader_slows_the_child_and_loses_nothing():
    async with talk() as peer:
        await peer.notify("flood")
        got = [await peer.messages.get() for _ in range(5000)]
        assert got == [{"method": "n", "params": n} for n in range(5000)]


async def test_when_the_child_leaves_everyone_who_waits_is_told():
    async with talk() as peer:
        waiting = asyncio.create_task(peer.request("silent", None, timeout_s=60))
        await asyncio.sleep(0)
        await peer.notify("leave")
        with pytest.raises(TaskFailure, match=r"The program has ended\."):
            await waiting
        assert await peer.messages.get() == Gone()
        assert not peer.open
        with pytest.raises(TaskFailure):
            await peer.request("echo", 1, timeout_s=60)


async def test_closing_tells_those_who_wait():
    async with talk() as peer:
        waiting = asyncio.create_task(peer.request("silent", None, timeout_s=60))
        await asyncio.sleep(0)
        await peer.close()
        with pytest.raises(TaskFailure):
            await waiting


def test_a_request_fails_in_one_way_even_if_the_loop_closed_the_pipe_before_the_end_was_read():
    async def attempt() -> None:
        child = await start_child(["sleep", "60"], cwd=Workspace("/"), env={})
        connection = Connection(child, answer)
        try:
            child.stdin.close()
            await asyncio.sleep(0)  # the handle is closed in the next turn
            assert connection.open, "its output has not ended"
            with pytest.raises(TaskFailure):
                await connection.request("echo", 1, timeout_s=60)
        finally:
            await child.stop(grace_s=0)
            await connection.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attempt())
