"""What parses only in company: parts of the product that need an event loop, made once for many inputs.

Each room is an async context manager that gives a function of one input. What it raises is judged by the target; what
only a task or a log line would tell is raised here, too.
"""

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import msgspec
from mcp.client.stdio import _parse_line
from tests.fuzz.seeds import SESSION, TURN
from tests.tools.mcp.tool_calls import RecordingCalls
from tests.tools.mcp.wire import HEADERS, HELLO, request

from codesdk.contract.entry import ANY_CLIENT
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.models import ExactInput, ModelAnswered, ModelAsked, OwnTexts
from codesdk.daemon.app import App
from codesdk.daemon.auth import Guard
from codesdk.daemon.settings import DaemonSettings
from codesdk.gateway.capture.observe import ObservedBackend
from codesdk.gateway.cassettes.cassette import request_hash
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.server import _answer
from codesdk.gateway.wires.exchange import Ask, Call, Codec, Finish, TextChunk, Tokens
from codesdk.handles import Session
from codesdk.local import ControlServer, TokenFile
from codesdk.observe import Metrics
from codesdk.runtimes.claude.normalize import ClaudeState, normalize as normalize_claude
from codesdk.runtimes.claude.process import ClaudeProcess
from codesdk.runtimes.codex.normalize import cut_off, normalize as normalize_codex
from codesdk.runtimes.codex.server import answer_later
from codesdk.runtimes.codex.state import State
from codesdk.runtimes.program.jsonrpc import Connection, Garbage, Gone
from codesdk.sandbox.egress import EgressProxy, Internet
from codesdk.sdk import CodeSDK
from codesdk.store import SqliteLog
from codesdk.testing.fakes import FakeRuntime, FakeTools, memory_sdk
from codesdk.tools.http_get import get
from codesdk.tools.mcp.endpoint import Endpoint
from codesdk.tools.mcp.transport import _Watched
from codesdk.tools.mcp_client import connection as attaching
from codesdk.tools.mcp_client.attached import AttachedTools
from codesdk.tools.mcp_client.servers import HttpServer
from codesdk.tools.registry import ToolError, ToolRegistry

Run = Callable[[bytes], Awaitable[None]]
Room = AsyncGenerator[Run]


# --- the gateway ------------------------------------------------------------------------------------


class _Backend:
    """Answers every request, and reads its own answer again."""

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        said = [TextChunk("yes"), Call("c", "t", {"a": 1}), Finish("tool_use", Tokens(input=1, output=2))]
        body = codec.whole(ask, "a1", said)
        decoder = codec.decoder()
        decoder.whole(body)
        assert (decoder.result().text, decoder.result().calls) == ("yes", [said[1]])
        request_hash(ask.wire, request.method, request.path, request.query, ask.body)
        return Reply(status=200, headers={}, body=body)

    async def other(self, request: RawRequest) -> Reply | None:
        return None


class _Tap:
    """Takes what passes, and keeps it as JSON."""

    secrets: Sequence[str] = ("a-secret-of-the-session",)

    def learn(self, secrets: Sequence[str]) -> None: ...

    async def own_texts(self) -> OwnTexts:
        return OwnTexts(system=["You are helpful."], messages=["Go."], tools={"workspace.read": "Reads."})

    def opened(self, asked: ModelAsked) -> str:
        msgspec.json.encode(asked)
        return "req_1"

    async def taken(self, request_id: str, exact: ExactInput) -> str:
        msgspec.json.encode(exact)
        return "sha256:0"

    def closed(self, request_id: str, answered: ModelAnswered) -> None:
        msgspec.json.encode(answered)

    async def keep(self, exchange: bytes) -> None: ...


def gateway(path: str) -> Callable[[], Any]:
    """Return the room of a path: a request is parsed, studied, answered, or refused with 400."""

    @asynccontextmanager
    async def room() -> Room:
        backend = ObservedBackend(_Backend(), _Tap(), lambda: {"workspace/CLAUDE.md": b"Be kind."})

        async def run(data: bytes) -> None:
            asked = RawRequest(method="POST", path=path, query="alt=sse", headers=[], body=data)
            reply = await _answer(backend, asked)
            assert reply.status in (200, 400), reply.status

        yield run

    return room


# --- programs ---------------------------------------------------------------------------------------


class _Pipe:
    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class _Child:
    """A program that has said everything and left."""

    exit_code = None
    pid = 0

    def __init__(self, said: bytes) -> None:
        self.stdin = _Pipe()
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(said)
        self.stdout.feed_eof()

    async def wait(self) -> int:
        return 0

    async def stop(self, grace_s: float) -> None: ...

    def stderr_tail(self) -> str:
        return ""


async def claude_items(data: bytes) -> list[Any]:
    """Return what claude's lines mean, with the process that answers its questions."""
    child: Any = _Child(data)
    process = ClaudeProcess(child, ("Bash", "Read"))
    process.decide = _no_objection
    state = ClaudeState({"mcp__codesdk__workspace_read": "workspace.read"}, ("Bash", "Read"), "/w")
    items: list[Any] = []
    while (frame := await process.next_frame()) is not None:
        items += normalize_claude(state, frame)
    await process.close(force=True)
    if not process._reading.cancelled():
        process._reading.result()
    return items


async def _no_objection(request: Mapping[str, Any]) -> str | None:
    return None


async def codex_items(data: bytes) -> list[Any]:
    """Return what codex's lines mean, with the connection that answers its requests."""
    child: Any = _Child(data)
    connection = Connection(child, answer_later)
    tools = {"workspace_read": "workspace.read"}
    state = State(turn_id=TURN, model="m", tools=tools, natives=frozenset({"exec_command"}), workspace="/w")
    items: list[Any] = []
    while not isinstance(message := await connection.messages.get(), Gone):
        if not isinstance(message, Garbage):
            items += normalize_codex(state, message)
        if connection._reading.done():
            connection._reading.result()
    await connection.close()
    return items + cut_off(state)


def program(items_of: Callable[[bytes], Awaitable[list[Any]]]) -> Callable[[], Any]:
    """Return the room of a program: what its lines mean goes through an engine into a log, and the task ends."""

    @asynccontextmanager
    async def room() -> Room:
        items: list[Any] = []

        async def play(task: Any) -> AsyncGenerator[Any]:
            for item in items:
                yield item

        async with _engine(runtimes=[FakeRuntime(play)]) as sdk:

            async def run(data: bytes) -> None:
                items[:] = await items_of(data)
                session = await sdk.create_session(runtime="fake", permission_mode="yolo")
                try:
                    await (await session.start("Go.")).result()
                except CodeSDKError as error:
                    _refuse_bugs(error)
                await session.close()

            yield run

    return room


@asynccontextmanager
async def _engine(**options: Any) -> AsyncGenerator[CodeSDK]:
    with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
        log = await SqliteLog.open(Path(folder) / "codesdk.db")
        try:
            async with memory_sdk(log=log, **options) as sdk:
                yield sdk
        finally:
            await log.close()


def _refuse_bugs(error: CodeSDKError) -> None:
    if error.code in ("INTERNAL", "STORAGE_FAILED"):
        raise error


# --- MCP --------------------------------------------------------------------------------------------


@asynccontextmanager
async def mcp_served() -> Room:
    """A session's MCP address: one client says hello, then sends the input."""
    endpoint = Endpoint("ses_1", RecordingCalls(), ANY_CLIENT, progress_s=60, max_body_bytes=1 << 20)
    await endpoint.start()
    headers = {**HEADERS, "host": "127.0.0.1"}
    hello = json.dumps(request(0, "initialize", HELLO)).encode()
    answer = await _ask(endpoint, "POST", "/", headers, hello)
    headers["mcp-session-id"] = answer.headers[b"mcp-session-id"].decode()

    async def run(data: bytes) -> None:
        answer = await _ask(endpoint, "POST", "/", headers, data)
        assert answer.status < 500, (answer.status, answer.body)

    try:
        yield run
    finally:
        await endpoint.close()


@asynccontextmanager
async def mcp_attached() -> Room:
    """A server that answers hello, the list of its tools and a call with the lines of the input."""
    server = HttpServer(url="http://127.0.0.1:9/", timeout_s=5)

    async def run(data: bytes) -> None:
        lines = data.split(b"\n")
        with patch.object(attaching, "connect", lambda _server, _tail, ended: _answering(lines, ended)):
            async with AttachedTools({"outside": server}, ToolRegistry()) as tools:
                for spec in tools.specs():
                    tools.prepare(spec.name, {"text": "a", "n": 1})
                await tools._connections[0].call("echo", {"text": "a"}, lambda stream, text: None)

    yield run


_ANSWERED = ("initialize", "tools/list", "tools/call")


@asynccontextmanager
async def _answering(lines: Sequence[bytes], ended: asyncio.Event) -> AsyncGenerator[Any]:
    sending, reading = anyio.create_memory_object_stream[Any](100)
    writing, asked = anyio.create_memory_object_stream[Any](100)

    async def serve() -> None:
        async with sending:
            async for message in asked:
                sent = message.message.model_dump(by_alias=True)
                if "id" in sent and not await _respond(sending, lines, sent):
                    return

    serving = asyncio.create_task(serve())
    try:
        async with reading, writing, asked:
            yield _Watched(reading, ended), writing
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def _respond(sending: Any, lines: Sequence[bytes], sent: Any) -> bool:
    """Send the line for a request. Return whether it is an answer; a client would wait for another in vain."""
    if sent["method"] not in _ANSWERED:
        error = {"code": -32601, "message": "no such method"}
        await sending.send(_parse_line(json.dumps({"jsonrpc": "2.0", "id": sent["id"], "error": error})))
        return True
    number = _ANSWERED.index(sent["method"])
    line = lines[number].decode("utf-8", "replace") if number < len(lines) else ""
    try:
        answer = json.loads(line)
        line = json.dumps(answer | {"id": sent["id"]})
    except (ValueError, TypeError, RecursionError):
        answer = None
    parsed = _parse_line(line)
    await sending.send(parsed)
    if sent["method"] == "tools/call":
        for more in lines[number + 1 :]:
            await sending.send(_parse_line(more.decode("utf-8", "replace")))
    return answer is not None and not isinstance(parsed, Exception) and not hasattr(parsed.message, "method")


# --- the network of a command -----------------------------------------------------------------------


@asynccontextmanager
async def egress() -> Room:
    """The proxy of a sandbox, asked by a command. Names are checked as for a resolver, and not found."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        return [str(address[0]) for *_, address in found]

    async def connect(host: str, port: int) -> Any:
        raise ConnectionRefusedError

    async def run(data: bytes) -> None:
        proxy = EgressProxy(["example.com", "*.example.com", "8.8.8.8"], Internet(resolve, connect))
        reader, writer = asyncio.StreamReader(), _Writer()
        reader.feed_data(data)
        reader.feed_eof()
        await proxy._accept(reader, writer)  # pyright: ignore[reportArgumentType]

    yield run


@asynccontextmanager
async def fetched() -> Room:
    """The answer of a web server to `web.fetch`."""

    async def run(data: bytes) -> None:
        reader: Any = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        writer: Any = _Writer()
        answer = await get(reader, writer, "example.com", "/", 1 << 20)
        assert len(answer.body) <= 1 << 20

    yield run


# --- the daemon and the control socket --------------------------------------------------------------


class _Answer(msgspec.Struct):
    status: int = 0
    headers: dict[bytes, bytes] = {}
    body: bytes = b""


async def _ask(
    app: Any, method: str, target: str, headers: Mapping[str, str], body: bytes, *, leaves: bool = False
) -> _Answer:
    """Send a request to an ASGI application. `leaves`: the client hangs up when it has sent all."""
    answer, done = _Answer(), asyncio.Event()
    waiting = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if not waiting:
            await (asyncio.sleep(0) if leaves else done.wait())
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], dict(message["headers"])
        else:
            answer.body += message.get("body", b"")

    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "http_version": "1.1",
        "scheme": "http",
    }
    try:
        await app(scope, receive, send)
    finally:
        done.set()
    return answer


@asynccontextmanager
async def daemon() -> Room:
    """The daemon's application on an engine: a request gets an answer that is no bug of ours."""
    settings = DaemonSettings(requests_per_s=None)
    with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
        async with _engine(script=[[{"text": "Hello."}]], tools=FakeTools()) as sdk:
            app = App(sdk, Guard(TokenFile(Path(folder))), settings, Metrics())

            async def run(data: bytes) -> None:
                session = await _session(sdk)
                head, _, body = data.replace(SESSION.encode(), session.id.encode()).partition(b"\n\n")
                line, *fields = head.decode("latin-1").split("\n")
                method, _, target = line.partition(" ")
                given = dict(field.partition(": ")[::2] for field in fields)
                answer = await _ask(app, method, target, {"host": "localhost", **given}, body, leaves=True)
                assert answer.status != 500, answer.body

            yield run


@asynccontextmanager
async def control() -> Room:
    """The control socket's server on an engine, without the socket."""
    async with _engine(script=[[{"text": "Hello."}]], tools=FakeTools()) as sdk:
        server = ControlServer(sdk.engine, Path())

        async def run(data: bytes) -> None:
            session = await _session(sdk)
            reader, writer = asyncio.StreamReader(), _Writer()
            reader.feed_data(data.replace(SESSION.encode(), session.id.encode()))
            reader.feed_eof()
            await server._serve(reader, writer)  # pyright: ignore[reportArgumentType]
            assert b'"code":"INTERNAL"' not in writer.written, writer.written

        yield run


class _Writer:
    """A client that leaves with the first line that it gets."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, lines: Sequence[bytes]) -> None:
        raise ConnectionResetError

    async def drain(self) -> None: ...

    def close(self) -> None: ...


async def _session(sdk: CodeSDK) -> Session:
    """Return a session that is there, whatever became of the one before."""
    return await sdk.create_session(runtime="scripted", workspace="/")


HOSTILE_TOOL_ERRORS = (CodeSDKError, ToolError)
