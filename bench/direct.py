"""A real program driven with nothing between: started and spoken to as CodeSDK does it, but by a few lines of our own.

How CodeSDK starts a program and what it says to it first is overheard, not written down again, so that both ways have
the same command line, the same files and the same lock-down. Only the addresses of model and tools are others.
"""

import asyncio
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
import msgspec

from codesdk.contract.workspace import Workspace
from codesdk.processes import Child, start_child
from codesdk.runtimes.acp import agent as acp_agent
from codesdk.runtimes.claude import process as claude_process
from codesdk.runtimes.codex import server as codex_server
from codesdk.runtimes.opencode import server as opencode_server
from codesdk.runtimes.opencode.config import AGENT, make_folders
from codesdk.runtimes.program.environment import Places
from codesdk.runtimes.program.pinned import OPENCODE
from codesdk.tools.mcp.host import bearer

_LINE_BYTES = 64 * 1024 * 1024
_MODEL = re.compile(r"http://127\.0\.0\.1:\d+/g/[\w-]+")
_TOOLS = re.compile(r"http://127\.0\.0\.1:\d+(/m/[\w-]+)?/mcp")
_ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_BEARER = re.compile(r"Bearer [\w-]+")
_DRIVERS = (claude_process, codex_server, opencode_server, acp_agent)

Frame = dict[str, Any]


class Took(msgspec.Struct):
    """What a task took, from the word to its first delta and to its end."""

    first_ms: float
    whole_ms: float


class Addresses(msgspec.Struct):
    """Where a program finds its model and its tools."""

    model: str
    tools: str

    def put_into(self, text: str) -> str:
        """Return a text of a launch with these addresses in place of those that CodeSDK gave."""
        text = _MODEL.sub(self.model, text)
        return _TOOLS.sub(lambda found: self.tools if found[1] else _without_token(self.tools), text)


class Launch(msgspec.Struct):
    """How CodeSDK started a program: the command line, what there was on the disk, and what it wrote to it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    root: str
    files: dict[str, str]
    said: list[Frame] = []

    def prepare(self, place: Path, addresses: Addresses) -> "Launch":
        """Return the same launch for another place and other addresses, with its files written."""

        def fit(text: str) -> str:
            text = _BEARER.sub(f"Bearer {bearer(addresses.tools)}", text)
            return addresses.put_into(text).replace(self.root, str(place))

        conversation = str(uuid.uuid4())
        argv = [_ID.sub(conversation, fit(word)) for word in self.argv]
        env = {name: fit(value) for name, value in self.env.items()}
        if "CODESDK_MCP_TOKEN" in env:
            env["CODESDK_MCP_TOKEN"] = bearer(addresses.tools)
        if "XDG_RUNTIME_DIR" in env:
            env["XDG_RUNTIME_DIR"] = str(place / "run")
        files = {name: fit(text) for name, text in self.files.items()}
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        for value in env.values():
            if value.startswith(str(place)) and not Path(value).is_file():
                Path(value).mkdir(parents=True, exist_ok=True)
        said: list[Frame] = msgspec.json.decode(fit(msgspec.json.encode(self.said).decode()))
        cwd = fit(self.cwd)
        Path(cwd).mkdir(parents=True, exist_ok=True)
        return Launch(argv, env, cwd, str(place), files, said)


@contextmanager
def overheard() -> Iterator[list[Launch]]:
    """Listen to how programs are started and what they are told, while the block runs."""
    launches: list[Launch] = []

    async def listen(argv: Sequence[str], *, cwd: Workspace, env: Mapping[str, str], **options: Any) -> Child:
        root = Path(env["HOME"]).parent
        launch = Launch(argv, env, cwd.path, str(root), _files_below(root))
        launches.append(launch)
        child = await start_child(argv, cwd=cwd, env=env, **options)
        child.stdin = _Listening(child.stdin, launch.said)  # type: ignore[assignment]
        return child

    for module in _DRIVERS:
        module.start_child = listen  # type: ignore[attr-defined]
    try:
        yield launches
    finally:
        for module in _DRIVERS:
            module.start_child = start_child  # type: ignore[attr-defined]


class _Listening:
    """A pipe to a program that keeps what is written to it."""

    def __init__(self, pipe: asyncio.StreamWriter, said: list[Frame]) -> None:
        self._pipe = pipe
        self._said = said

    def write(self, data: bytes) -> None:
        self._said.append(msgspec.json.decode(data))
        self._pipe.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


class Direct(Protocol):
    """A program that is driven directly. Get it from a `start` below."""

    async def task(self) -> Took:
        """Run one task, and return when the program is ready for the next."""
        ...

    async def stop(self) -> None: ...


class _Program:
    """A process and its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    @classmethod
    async def spawn(cls, launch: Launch) -> Any:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd=launch.cwd,
            env=dict(launch.env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES,
        )
        return cls(process)

    def say(self, frame: Frame) -> None:
        self._stdin.write(msgspec.json.encode(frame) + b"\n")

    async def frames(self) -> AsyncIterator[Frame]:
        while line := await self._stdout.readline():
            yield msgspec.json.decode(line)
        raise RuntimeError("the program ended in the middle of its work")

    async def ask(self, request: Frame) -> Frame:
        """Return the result of a request of JSON-RPC. What the program says until then is dropped."""
        self.say(request)
        async for frame in self.frames():
            if frame.get("id") == request["id"] and "method" not in frame:
                return frame["result"]
        raise AssertionError

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()


class DirectClaude(_Program):
    """Claude over its stream of JSON."""

    _user: Frame

    @classmethod
    async def start(cls, launch: Launch) -> "DirectClaude":
        self: DirectClaude = await cls.spawn(launch)
        hello, self._user = (
            next(f for f in launch.said if f["type"] == kind) for kind in ("control_request", "user")
        )
        self.say(hello)
        async for frame in self.frames():
            if frame["type"] == "control_response":
                return self
        raise AssertionError

    async def task(self) -> Took:
        started, first, whole = time.perf_counter(), 0.0, 0.0
        self.say(self._user | {"uuid": str(uuid.uuid4())})
        async for frame in self.frames():
            kind = frame["type"]
            if kind == "stream_event" and not first and frame["event"]["type"] == "content_block_delta":
                first = time.perf_counter()
            elif kind == "control_request":
                self._allow(frame)
            elif kind == "result":
                assert not frame["is_error"], frame
                whole = time.perf_counter()
            elif whole and frame.get("state") == "idle":
                return _took(started, first, whole)
        raise AssertionError

    def _allow(self, frame: Frame) -> None:
        verdict = {"behavior": "allow", "updatedInput": frame["request"]["input"]}
        answer = {"subtype": "success", "request_id": frame["request_id"], "response": verdict}
        self.say({"type": "control_response", "response": answer})


class DirectCodex(_Program):
    """Codex over its JSON-RPC."""

    _turn: Frame
    _numbers = 100

    @classmethod
    async def start(cls, launch: Launch) -> "DirectCodex":
        self: DirectCodex = await cls.spawn(launch)
        asked = {frame["method"]: frame for frame in launch.said}
        await self.ask(asked["initialize"])
        self.say(asked["initialized"])
        thread = await self.ask(asked["thread/start"])
        self._turn = asked["turn/start"]
        self._turn["params"]["threadId"] = thread["thread"]["id"]
        return self

    async def task(self) -> Took:
        started, first = time.perf_counter(), 0.0
        self._numbers += 1
        self.say(self._turn | {"id": self._numbers})
        async for frame in self.frames():
            method = frame.get("method")
            if method == "item/agentMessage/delta" and not first:
                first = time.perf_counter()
            elif method == "turn/completed":
                assert frame["params"]["turn"]["status"] == "completed", frame
                return _took(started, first, time.perf_counter())
            elif method is not None and "id" in frame:
                self.say({"id": frame["id"], **codex_server.answer(method, frame.get("params"))})
        raise AssertionError


class DirectGemini(_Program):
    """Gemini over the Agent Client Protocol."""

    _prompt: Frame
    _numbers = 100

    @classmethod
    async def start(cls, launch: Launch) -> "DirectGemini":
        self: DirectGemini = await cls.spawn(launch)
        asked = {frame["method"]: frame for frame in launch.said}
        await self.ask(asked["initialize"])
        session = await self.ask(asked["session/new"])
        self._prompt = asked["session/prompt"]
        self._prompt["params"]["sessionId"] = session["sessionId"]
        return self

    async def task(self) -> Took:
        started, first = time.perf_counter(), 0.0
        self._numbers += 1
        self.say(self._prompt | {"id": self._numbers})
        async for frame in self.frames():
            if "method" not in frame:
                assert frame["result"]["stopReason"] == "end_turn", frame
                return _took(started, first, time.perf_counter())
            assert "id" not in frame, frame  # its policy allows our tools, so it has nothing to ask
            if not first and frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk":
                first = time.perf_counter()
        raise AssertionError


class DirectOpencode(_Program):
    """Opencode over HTTP and its stream of events."""

    _http: httpx2.AsyncClient
    _session: str

    @classmethod
    async def start(cls, launch: Launch) -> "DirectOpencode":
        make_folders(Places(root=Path(launch.root), lasting=True), OPENCODE.version)
        self: DirectOpencode = await cls.spawn(launch)
        login = ("opencode", launch.env["OPENCODE_SERVER_PASSWORD"])
        url = (await self._stdout.readline()).split()[-1].decode()
        self._http = httpx2.AsyncClient(base_url=url, auth=login, timeout=60.0, trust_env=False)
        self._session = (await self._http.post("/session", json={"title": "direct"})).json()["id"]
        return self

    async def task(self) -> Took:
        started, first = time.perf_counter(), 0.0
        part = {"type": "text", "text": "Read the file and say what is in it."}
        async with self._http.stream("GET", "/event") as events:
            body = {"agent": AGENT, "parts": [part]}
            asking = asyncio.create_task(self._http.post(f"/session/{self._session}/message", json=body))
            async for line in events.aiter_lines():
                if "message.part.delta" in line and not first:
                    first = time.perf_counter()
                if '"session.idle"' in line:
                    break
            answer = (await asking).json()
        assert "error" not in answer["info"], answer
        return _took(started, first, time.perf_counter())

    async def stop(self) -> None:
        await self._http.aclose()
        await super().stop()


def _took(started: float, first: float, whole: float) -> Took:
    assert first, "no delta came"
    return Took((first - started) * 1000, (whole - started) * 1000)


def _without_token(tools: str) -> str:
    return tools.partition("/m/")[0] + "/mcp"


def _files_below(root: Path) -> dict[str, str]:
    return {
        str(Path(folder, name).relative_to(root)): Path(folder, name).read_text()
        for folder, _, names in os.walk(root)
        for name in names
    }
