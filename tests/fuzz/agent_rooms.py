"""Rooms for what agents and editors say: frames of ACP agents, opencode's events, agents' own files, an editor's requests."""

import asyncio
import json
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.acp_agent.editor import call, local
from tests.fuzz.rooms import Child, Room
from tests.fuzz.seeds import SESSION, golden_lines
from tests.runtimes.acp.goldens import GOLDENS as ACP, TASK, TOOLS as ACP_TOOLS
from tests.runtimes.opencode.goldens import GOLDENS as OPENCODE, fresh

from codesdk.acp_agent.agent import EditorAgent
from codesdk.acp_agent.place import Offer
from codesdk.contract.messages import Message, Text
from codesdk.runtimes.acp import ROWS
from codesdk.runtimes.acp.agent import _answer
from codesdk.runtimes.acp.normalize import PROMPT, cut_off as cut_acp, normalize as normalize_acp
from codesdk.runtimes.acp.state import State
from codesdk.runtimes.claude.copy import in_copy as in_claude
from codesdk.runtimes.codex.rollout import in_rollout
from codesdk.runtimes.gemini.login import login_row
from codesdk.runtimes.opencode.copy import in_copy as in_opencode
from codesdk.runtimes.opencode.normalize import ANSWERED, cut_off as cut_opencode, normalize
from codesdk.runtimes.opencode.wire_v1 import Refused, WireV1
from codesdk.runtimes.program.jsonrpc import Connection, Garbage, Gone, _decode
from codesdk.runtimes.program.unanswered import Sent
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeTools, memory_sdk

_AGENT_SESSION = "00000000-0000-0000-0000-000000000001"
_OPENCODE_SESSION = "ses_00000000000000000000000000"
_TURNS = 300
"""How often the loop goes round before an editor says more, if what it asked for waits for somebody."""


# --- agents -----------------------------------------------------------------------------------------


def acp_lines() -> list[bytes]:
    """Return what ACP agents wrote in one prompt, whose answer has the id 1, with questions about calls."""
    option = {"optionId": "a", "kind": "allow_once", "name": "Yes"}
    asked = {"toolCallId": "c", "title": "workspace_read", "rawInput": {"path": "a"}, "status": "pending"}
    params = {"sessionId": _AGENT_SESSION, "toolCall": asked, "options": [option]}
    question = {"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}
    plan = {"sessionUpdate": "plan", "entries": [{"content": "a", "status": "in_progress"}]}
    update = {"method": "session/update", "params": {"sessionId": _AGENT_SESSION, "update": plan}}
    return [_lines([question, update]), *(_as_written(lines) for lines in golden_lines(ACP, "*/*/raw.jsonl"))]


def _as_written(lines: list[Any]) -> bytes:
    """Return recorded frames as they were on the pipe: the answer to the prompt has an id, and no method."""
    frames = [line["frame"] for line in lines]
    answers = ({"id": 1, **frame} for frame in frames)
    kept = [
        {name: value for name, value in answer.items() if name != "method"}
        if frame.get("method") == PROMPT
        else frame
        for frame, answer in zip(frames, answers, strict=True)
    ]
    return _lines(kept)


async def acp_items(data: bytes) -> list[Any]:
    """Return what the lines of an ACP agent mean: a gemini that counts by itself, since that says most."""
    child: Any = Child(data)
    connection = Connection(child, _answer, versioned=True)
    await connection.ask(PROMPT, {})
    state = State(
        runtime="acp:gemini",
        session_id=_AGENT_SESSION,
        task_id=TASK,
        tools=ACP_TOOLS,
        reading=login_row(ROWS["gemini"].row).reading,
        after_name=True,
        opines=True,
    )
    items: list[Any] = []
    while not isinstance(message := await connection.messages.get(), Gone):
        if not isinstance(message, Garbage):
            items += normalize_acp(state, message)
        for number, answer in state.answers:
            connection.respond(number, answer)
        state.answers = []
        if connection._reading.done():
            connection._reading.result()
    await connection.close()
    return items + cut_acp(state)


def opencode_lines() -> list[bytes]:
    """Return opencode's event streams, each with the answer to what was said as its last line."""
    found = golden_lines(OPENCODE, "*/raw.jsonl")
    return [b"".join(b"data: " + line + b"\n\n" for line in map(_line, lines)) for lines in found]


async def opencode_items(data: bytes) -> list[Any]:
    """Return what opencode's events mean. What was said to it is answered with the last line."""
    last = data.rstrip().rpartition(b"\n")[2].removeprefix(b"data: ")

    def serve(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/event":
            return httpx2.Response(200, content=_pieces(data))
        return httpx2.Response(500 if b'"error"' in last else 200, content=_pieces(last))

    wire = WireV1("http://127.0.0.1:9", "the-password-of-the-port")
    await wire.close()
    wire._client = httpx2.AsyncClient(transport=httpx2.MockTransport(serve), base_url="http://127.0.0.1:9")
    state = fresh(_OPENCODE_SESSION)
    items: list[Any] = []
    async for frame in wire.events():
        if not isinstance(frame, Garbage):
            items += normalize(state, frame)
        assert state.retry is None or abs(state.retry.next_ms) < 2**53  # the driver counts with it
    try:
        properties: dict[str, Any] = {"body": await wire.say(_OPENCODE_SESSION, "a", [])}
    except Refused as error:
        properties = {"error": error.body or {"name": "UnknownError"}}
    await wire.close()
    items += normalize(state, {"type": ANSWERED, "properties": properties})
    return items + cut_opencode(state)


async def _pieces(data: bytes) -> AsyncGenerator[bytes]:
    size = 7 + len(data) // 64
    for at in range(0, len(data), size):
        yield data[at : at + size]


# --- an agent's own copy of a conversation ----------------------------------------------------------

_ANSWER = Message(role="assistant", content=[Text(text="Hi.")], message_id="m1")
_SINCE = [Sent(texts=("And then?",)), Sent(texts=("Go on.",)), Sent(others=1)]


def copied_lines() -> list[bytes]:
    """Return what claude, codex and opencode keep of a conversation that ended with `_SINCE`, a record a line."""
    text: dict[str, Any] = {"type": "text", "text": "Hi."}
    claude = [
        {"type": "assistant", "message": {"id": "m1", "content": [text]}},
        {"type": "user", "message": {"content": "And then?"}},
        {"type": "user", "message": {"content": [{"type": "text", "text": "Go on."}]}},
    ]
    codex = [
        {"type": "response_item", "payload": {"type": "message", "role": role, "content": [{"text": said}]}}
        for role, said in (("assistant", "Hi."), ("user", "And then?"), ("user", "Go on."))
    ]
    opencode = [
        {"info": {"id": "m1", "role": "assistant"}, "parts": [text]},
        {"info": {"id": "m2", "role": "user"}, "parts": [{"type": "text", "text": "And then?"}]},
    ]
    return [_lines(claude), _lines(codex), _lines(opencode)]


@contextmanager
def copied() -> Iterator[Callable[[bytes], None]]:
    """A file of claude's and one of codex's with the input, and an answer of opencode's: it has so much of ours, or none."""
    with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
        home = Path(folder)
        files = (home / "projects/p/c.jsonl", home / "sessions/1/1/1/rollout-1-t.jsonl")
        for file in files:
            file.parent.mkdir(parents=True)

        def run(data: bytes) -> None:
            for file in files:
                file.write_bytes(data)
            decoded = map(_decode, data.split(b"\n"))
            kept = [frame for frame in decoded if not isinstance(frame, Garbage)]
            for count in (
                in_claude(home, "c", _ANSWER, _SINCE),
                in_rollout(home, "t", _SINCE),
                in_opencode(kept, _ANSWER, _SINCE),
            ):
                assert count is None or 1 <= count <= 1 + len(_SINCE)

        yield run


# --- an editor --------------------------------------------------------------------------------------


def editor_lines() -> list[bytes]:
    """Return what editors send: every method, and a prompt whose question is answered, well and badly."""
    text, session = {"type": "text", "text": "Go."}, {"sessionId": SESSION}
    place: dict[str, Any] = {"cwd": "/", "mcpServers": []}
    blocks = [
        text,
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "a", "mimeType": "text/plain"}},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ]
    meta = {"codesdk": {"title": "t", "permission_mode": "auto", "runtime_config": {"script": {"turns": []}}}}
    prompt = _asked(1, "session/prompt", {**session, "prompt": [text]})
    answers: list[Any] = [
        {"outcome": {"outcome": "selected", "optionId": "allow"}},
        {"outcome": {"outcome": "selected", "optionId": "reject"}},
        {"outcome": {"outcome": "cancelled"}},
    ]
    hello = {"protocolVersion": 1, "clientInfo": {"name": "zed", "version": "1"}, "clientCapabilities": {}}
    others = [
        _asked(2, "initialize", hello),
        _asked(3, "session/new", {**place, "_meta": meta}),
        _asked(4, "session/load", {**session, **place}),
        _asked(5, "session/resume", {**session, **place}),
        _asked(6, "session/fork", {**session, **place}),
        _asked(7, "session/list", {"cwd": "/", "cursor": SESSION}),
        _asked(8, "session/set_mode", {**session, "modeId": "auto"}),
        _asked(9, "session/set_config_option", {**session, "configId": "mode", "value": "ask"}),
        _asked(10, "session/prompt", {**session, "prompt": blocks}),
        {"jsonrpc": "2.0", "method": "session/cancel", "params": session},
        {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}},
        _asked(11, "session/close", session),
        _asked(12, "session/delete", session),
    ]
    questions = [
        _lines([prompt, {"jsonrpc": "2.0", "id": 0, "result": answer}, prompt]) for answer in answers
    ]
    failed = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32603, "message": "no"}}
    return [*questions, _lines([prompt, failed]), _lines(others), *(_lines([each]) for each in others)]


def _asked(number: int, method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class _Typed:
    """A channel on which an editor says the next line when what it asked for is answered, or waits for it."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = deque(lines)
        self.agent: Any = None

    async def receive(self) -> bytes | None:
        peer = self.agent._peer
        for _ in range(_TURNS):
            if peer._waiting or not (peer._running or peer._told):
                break
            await asyncio.sleep(0)
        return self.lines.popleft() if self.lines else None

    async def send(self, message: bytes) -> None:
        json.loads(message)


@asynccontextmanager
async def editor_heard() -> Room:
    """An agent with all its methods on an engine, and an editor that opens a session, says the input, and leaves."""
    steps = ([call("fake.write", path="a")], [{"text": "Done."}])
    script = parse_object({"turns": [{"steps": each} for each in steps], "loop": True}, "fuzz")
    async with memory_sdk(script, tools=FakeTools()) as sdk:

        async def run(data: bytes) -> None:
            session = await sdk.create_session(runtime="scripted", workspace="/", permission_mode="ask")
            hello = {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": True}}}
            opened = {"sessionId": session.id, "cwd": "/", "mcpServers": []}
            begun = [_asked(-1, "initialize", hello), _asked(-2, "session/load", opened)]
            said = data.replace(SESSION.encode(), session.id.encode())
            channel = _Typed(_lines(begun).splitlines() + said.split(b"\n"))
            channel.agent = EditorAgent(channel, local(sdk), Offer(runtimes=("scripted",)))
            await channel.agent.run()
            assert not channel.lines

        yield run


def _line(value: Any) -> bytes:
    return json.dumps(value).encode()


def _lines(values: list[Any]) -> bytes:
    return b"".join(_line(value) + b"\n" for value in values)
