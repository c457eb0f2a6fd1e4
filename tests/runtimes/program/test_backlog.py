"""Programs that ask without end and read no answer: they are ended, and what they leave unread is bounded."""

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from codesdk.contract.workspace import Workspace
from codesdk.processes import Child, start_child
from codesdk.runtimes.acp import agent, told as tellings
from codesdk.runtimes.claude.process import ClaudeProcess
from codesdk.runtimes.codex import server
from codesdk.runtimes.external import peer
from codesdk.runtimes.program import backlog
from codesdk.runtimes.program.endings import crash_of
from codesdk.runtimes.program.jsonrpc import Connection, Gone

ASKS = r"""
import json, sys
frame = json.loads(sys.argv[1])
number = 0
while True:
    number += 1
    frame[sys.argv[2]] = str(number)
    sys.stdout.write(json.dumps(frame) + "\n")
"""
MOST = 4 * backlog.MAX_BACKLOG_BYTES


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "UNREAD_S", 0.1)


async def asking(frame: Any, name: str = "id") -> Child:
    return await start_child(
        [sys.executable, "-c", ASKS, json.dumps(frame), name], cwd=Workspace("/"), env={}
    )


def unread(writer: asyncio.StreamWriter) -> int:
    return writer.transport.get_write_buffer_size()


async def test_a_child_that_only_asks_is_ended_with_an_error_that_says_so():
    child = await asking({"method": "m", "params": "p" * 10_000})
    most = 0

    def answer(method: str, params: Any) -> dict[str, Any]:
        nonlocal most
        most = max(most, unread(child.stdin))
        return {"result": params}

    connection = Connection(child, answer)
    async with asyncio.timeout(60):
        while not isinstance(await connection.messages.get(), Gone):
            pass
    await connection.close()
    assert most < MOST
    assert child.exit_code is not None
    error = await crash_of(child, "x", "x", 1.0, connection.hangs)
    assert (error.code, "x asks without end and has read no answer for" in error.message) == (
        "RUNTIME_PROTOCOL",
        True,
    )


async def test_claude_is_ended_if_it_only_asks():
    request = {"subtype": "can_use_tool", "tool_name": "mcp__codesdk__x", "input": {"x": "p" * 10_000}}
    child = await asking({"type": "control_request", "request": request}, "request_id")
    process = ClaudeProcess(child)
    async with asyncio.timeout(60):
        assert await process.next_frame() is None
    assert unread(child.stdin) < MOST
    assert process.hangs is not None
    assert child.exit_code is not None
    await process.close(force=True)


@pytest.mark.parametrize("answer", [agent._answer, server.answer])
def test_an_answer_quotes_no_more_than_the_beginning_of_a_method(answer: Any):
    assert len(str(answer("m" * 1_000_000, {}))) < 300


@pytest.mark.parametrize("number", ["i" * 1_000_000, {"a": "b" * 1_000_000}, ["x"] * 100_000])
async def test_an_id_of_megabytes_is_not_sent_back(number: Any):
    child = await start_child(["cat"], cwd=Workspace("/"), env={})
    connection = Connection(child, lambda method, params: None)
    connection.respond(number, {"result": {}})
    assert unread(child.stdin) == 0
    connection.respond(1, {"result": {}})
    await connection.close()
    await child.stop(0)


class Quiet:
    """A side that answers at once, and notes how the other one ended."""

    def __init__(self) -> None:
        self.why: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.noises = 0

    async def answer(self, method: str, params: Any) -> Any:
        return await asyncio.Event().wait()

    def take(self, method: str, params: Any, size: int) -> None:
        raise KeyError(method)

    def ignore(self, noise: peer.Noise) -> None:
        self.noises += 1

    def end(self, why: peer.Violation | None) -> None:
        self.why.set_result(why)


async def met(frame: Any, name: str = "id") -> tuple[str, Quiet, int]:
    """Return why an adapter was ended that says this again and again, and how much it left unread."""
    child, handler = await asking(frame, name), Quiet()
    side = peer.Peer(child.stdout, child.stdin, handler, peer.BY_NAME, other="It", strict=True)
    async with asyncio.timeout(60):
        why = await handler.why
    left = unread(child.stdin)
    await child.stop(0)
    await side.close()
    return str(why), handler, left


async def test_an_adapter_that_only_asks_for_what_is_not_there_is_ended():
    why, handler, left = await met({"jsonrpc": "2.0", "method": "dream"})
    assert "asks without end and has read no answer" in why
    assert left < MOST
    assert handler.noises > 1_000, "each is counted, by whoever counts noise"


async def test_requests_that_are_open_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(peer, "MAX_OPEN_BYTES", 100_000)
    params = {"task_id": "t", "artifact_id": "a" * 10_000}
    why, _, _ = await met({"jsonrpc": "2.0", "method": "read_artifact", "params": params})
    assert why == "has requests of more than 100,000 bytes open"


async def test_whatever_a_handler_raises_ends_the_connection_and_says_why():
    params = {"task_id": "t", "secrets": []}
    why, _, _ = await met({"jsonrpc": "2.0", "method": "learn", "params": params}, "x")
    assert why == "sent something that could not be taken: KeyError: 'learn'"


async def test_the_rest_of_a_conversation_is_heard_without_all_of_it_again_for_each_piece():
    class Told(tellings.Told):
        joined = 0

        def answers(self) -> str:
            self.joined += 1
            return super().answers()

    def chunk(text: str) -> dict[str, Any]:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        return {"method": "session/update", "params": {"update": update}}

    heard: Any = SimpleNamespace(connection=SimpleNamespace(messages=asyncio.Queue()))
    for text in (*["word "] * 500, "the very ", "last", " words", "more"):
        heard.connection.messages.put_nowait(chunk(text))
    told = Told()
    told.add(chunk("Before. "))
    await agent.Agent._hear_rest(heard, told, "very last words")
    assert told.joined == 1
    assert told.answers().endswith("word the very last words")
    assert heard.connection.messages.qsize() == 1
