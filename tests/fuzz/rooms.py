"""What parses only in company: parts of the product that need an event loop, made once for many inputs.

Each room is an async context manager that gives a function of one input. What it raises is judged by the target; what
only a task or a log line would tell is raised here, too.
"""

import asyncio
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.fuzz.seeds import TURN

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import UsageReported
from codesdk.contract.models import ExactInput, ModelAnswered, ModelAsked, OwnTexts, StoredInput
from codesdk.contract.ownership import WireCall, mark_for
from codesdk.contract.runtime import Draft
from codesdk.contract.tools import ToolSpec
from codesdk.gateway.capture.observe import ObservedBackend
from codesdk.gateway.cassettes.cassette import request_hash
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.server import _answer
from codesdk.gateway.wires.exchange import Ask, Call, Codec, Finish, TextChunk, Tokens
from codesdk.runtimes.claude.normalize import ClaudeState, normalize as normalize_claude
from codesdk.runtimes.claude.process import ClaudeProcess
from codesdk.runtimes.codex.normalize import cut_off, normalize as normalize_codex
from codesdk.runtimes.codex.server import answer_later
from codesdk.runtimes.codex.state import State
from codesdk.runtimes.program.jsonrpc import Connection, Garbage, Gone
from codesdk.sandbox.egress import EgressProxy, Internet
from codesdk.sdk import CodeSDK
from codesdk.store import SqliteLog
from codesdk.testing.fakes import FakeRuntime, memory_sdk, tool_spec
from codesdk.tools.http_get import get

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

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        return None


class _Tap:
    """Takes what passes, and keeps it as JSON."""

    secrets: Sequence[str] = ("a-secret-of-the-session",)

    def learn(self, secrets: Sequence[str]) -> None: ...

    def learn_login(self, secrets: Sequence[str]) -> None: ...

    async def own_texts(self) -> OwnTexts:
        return OwnTexts(system=["You are helpful."], messages=["Go."], tools={"workspace.read": "Reads."})

    async def opened(self, asked: ModelAsked) -> str:
        msgspec.json.encode([asked.model, asked.purpose, asked.estimated_input])
        return "req_1"

    async def taken(self, request_id: str, exact: ExactInput) -> StoredInput:
        msgspec.json.encode(exact)
        return StoredInput(sent="sha256:0")

    def closed(self, request_id: str, answered: ModelAnswered) -> None:
        msgspec.json.encode(answered)

    async def keep(self, exchange: bytes) -> None: ...

    def tools(self) -> Sequence[ToolSpec]:
        return [tool_spec("workspace.read")]

    def words(self) -> Sequence[str]:
        return ["Go."]

    def mark(self) -> str:
        return mark_for("call_1")

    async def denied(self, call: WireCall) -> None:
        msgspec.json.encode(call)

    async def denials(self) -> Sequence[WireCall]:
        return ()

    def converse(self) -> None: ...

    def aside(self, request_id: str, tools: Sequence[str]) -> None: ...

    def give_up(self, why: str) -> None: ...


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
    def __init__(self) -> None:
        self.transport = self

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class Child:
    """A program that has said everything and, if it has ended, left."""

    exit_code = None
    pid = 0

    def __init__(self, said: bytes, *, ended: bool = True) -> None:
        self.stdin = _Pipe()
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(said)
        if ended:
            self.stdout.feed_eof()

    async def wait(self) -> int:
        return 0

    async def stop(self, grace_s: float) -> None: ...

    def stderr_tail(self) -> str:
        return ""


async def claude_items(data: bytes) -> list[Any]:
    """Return what claude's lines mean, with the process that answers its questions."""
    child: Any = Child(data)
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
    child: Any = Child(data)
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

        async with engine(runtimes=[FakeRuntime(play)]) as sdk:

            async def run(data: bytes) -> None:
                items[:] = await items_of(data)
                _check_counts(items)
                session = await sdk.create_session(runtime="fake", permission_mode="yolo")
                try:
                    await (await session.start("Go.")).result()
                except CodeSDKError as error:
                    _refuse_bugs(error)
                await session.close()

            yield run

    return room


def _check_counts(items: Sequence[Any]) -> None:
    """What a program says that it used can be added up, and read by whoever reads JSON."""
    for item in items:
        if isinstance(item, Draft) and isinstance(item.payload, UsageReported):
            used = item.payload
            assert 0 <= min(used.input, used.output, used.cache_read, used.cache_write, used.reasoning)
            assert max(used.input, used.output, used.cache_read, used.cache_write, used.reasoning) < 2**53


@asynccontextmanager
async def engine(**options: Any) -> AsyncGenerator[CodeSDK]:
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


# --- the network of a command -----------------------------------------------------------------------


class Writer:
    """A client that leaves with the first line that it gets."""

    def __init__(self) -> None:
        self.written = b""
        self.answered = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written += data
        self.answered.set()

    def writelines(self, lines: Sequence[bytes]) -> None:
        raise ConnectionResetError

    async def drain(self) -> None: ...

    def close(self) -> None: ...


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
        reader, writer = asyncio.StreamReader(), Writer()
        reader.feed_data(data)
        reader.feed_eof()
        await proxy._converse(reader, writer)  # pyright: ignore[reportArgumentType]

    yield run


@asynccontextmanager
async def fetched() -> Room:
    """The answer of a web server to `web.fetch`."""

    async def run(data: bytes) -> None:
        reader: Any = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        writer: Any = Writer()
        answer = await get(reader, writer, "example.com", "/", 1 << 20)
        assert len(answer.body) <= 1 << 20

    yield run
