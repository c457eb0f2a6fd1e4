"""An editor in this process: it talks to an `EditorAgent` over memory, and checks each message against the library's types."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import schema

from codesdk import CodeSDK
from codesdk.acp_agent.agent import EditorAgent
from codesdk.acp_agent.place import EDITOR_SETTINGS, EnginePlace, Offer, Place
from codesdk.contract.actions import Caller

PATIENCE_S = 30
FORMS = {"elicitation": {"form": {}}}
RESULTS: dict[str, Any] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}
REQUESTS: dict[str, Any] = {
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": schema.CreateFormSessionElicitationRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
}
ALLOW = {"outcome": {"outcome": "selected", "optionId": "allow"}}
REJECT = {"outcome": {"outcome": "selected", "optionId": "reject"}}
CANCELLED = {"outcome": {"outcome": "cancelled"}}


class Refused(Exception):
    """An error that the agent answered with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class Memory:
    """A channel between two ends of this process."""

    def __init__(self) -> None:
        self.to_agent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.to_editor: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(self) -> bytes | None:
        return await self.to_agent.get()

    async def send(self, message: bytes) -> None:
        await self.to_editor.put(message)


class Editor:
    """What an editor does. `updates` are those that it was sent; `asked` are the questions that it has not answered.

    `answers` has, by method, what it answers at once.
    """

    def __init__(self) -> None:
        self.channel = Memory()
        self.updates: list[dict[str, Any]] = []
        self.withdrawn: list[Any] = []
        self.stray: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self._asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._methods: dict[Any, str] = {}
        self._news = asyncio.Event()
        self._count = 0

    # --- what it sends ----------------------------------------------------------------------------------

    def write(self, message: Any) -> None:
        """Send anything, as it is if it is bytes."""
        self.channel.to_agent.put_nowait(
            message if isinstance(message, bytes) else json.dumps(message).encode()
        )

    def begin(self, method: str, **params: Any) -> "asyncio.Future[Any]":
        """Send a request, and return what its answer will be."""
        self._count += 1
        number = f"q{self._count}"
        self._methods[number] = method
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return self._waiting[number]

    async def request(self, method: str, **params: Any) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await self.begin(method, **params)

    def notify(self, method: str, **params: Any) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, asked: dict[str, Any], result: Any) -> None:
        self.write({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def hello(self, name: str = "zed", **capabilities: Any) -> Any:
        return await self.request(
            "initialize",
            protocolVersion=1,
            clientInfo={"name": name, "version": "1"},
            clientCapabilities=capabilities,
        )

    async def new(self, workspace: Path, **more: Any) -> str:
        found = await self.request("session/new", cwd=str(workspace), mcpServers=[], **more)
        return found["sessionId"]

    def prompt(self, session: str, text: str = "Go.") -> "asyncio.Future[Any]":
        return self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    # --- what it is sent --------------------------------------------------------------------------------

    async def asked(self) -> dict[str, Any]:
        """Return the next question."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._asked.get()

    async def until(self, found: Callable[[], Any]) -> Any:
        """Return as soon as something is true of what was sent."""
        async with asyncio.timeout(PATIENCE_S):
            while not (value := found()):
                self._news.clear()
                await self._news.wait()
            return value

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of a kind."""
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"].get("text", "") for update in self.of(kind))

    async def listen(self) -> None:
        while True:
            self._take(json.loads(await self.channel.to_editor.get()))
            self._news.set()

    def _take(self, message: dict[str, Any]) -> None:
        assert message["jsonrpc"] == "2.0"
        if message.get("method") == "session/update":
            schema.SessionNotification.model_validate(message["params"])
            self.updates.append(message["params"]["update"])
        elif message.get("method") == "$/cancel_request":
            self.withdrawn.append(message["params"]["requestId"])
        elif "method" in message:
            REQUESTS[message["method"]].model_validate(message["params"])
            if message["method"] in self.answers:
                self.answer(message, self.answers[message["method"]](message["params"]))
            else:
                self._asked.put_nowait(message)
        elif message["id"] not in self._waiting:
            self.stray.append(message)
        elif "error" in message:
            self._waiting.pop(message["id"]).set_exception(Refused(message["error"]))
        else:
            kind = RESULTS.get(self._methods[message["id"]])
            if kind is not None:
                kind.model_validate(message["result"])
            self._waiting.pop(message["id"]).set_result(message["result"])


@asynccontextmanager
async def connected(place: Place, offer: Offer | None = None) -> AsyncIterator[Editor]:
    """Connect an editor to sessions; hang up in the end."""
    editor = Editor()
    serving = asyncio.create_task(EditorAgent(editor.channel, place, offer or Offer()).run())
    listening = asyncio.create_task(editor.listen())
    try:
        yield editor
    finally:
        editor.channel.to_agent.put_nowait(None)
        await serving
        listening.cancel()
        await asyncio.wait([listening])
        assert not listening.cancelled() or listening.done()


def local(sdk: CodeSDK) -> EnginePlace:
    """Return the sessions of an SDK."""
    return EnginePlace(sdk, Caller())


def playing(*turns: Any, **more: Any) -> Offer:
    """Return what makes new sessions play a script."""
    import msgspec

    script = {"turns": [{"steps": list(steps)} for steps in turns]}
    settings = msgspec.structs.replace(EDITOR_SETTINGS, runtime_config={"script": script})
    return Offer(runtimes=("scripted",), settings=settings, **more)


def call(tool: str, **given: Any) -> Any:
    """Return a step that calls a tool."""
    return {"call": {"tool": tool, "input": given}}
