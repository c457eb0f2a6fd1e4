"""The editor of `judge.mjs` as a child process, and where it finds CodeSDK: over stdio, or over a daemon's WebSocket."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
JUDGE = Path(__file__).with_name("judge.mjs")
PATIENCE_S = 90
LINE_BYTES = 32 * 1024 * 1024


class Refused(Exception):
    """An error that the agent answered with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class Judge:
    """An editor that is not ours."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._news = asyncio.Event()
        self._count = 0
        self.updates: list[dict[str, Any]] = []
        self.withdrawn: list[int] = []
        self.ended = False
        self.log = ""

    def order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    def begin(self, method: str, **params: Any) -> "asyncio.Future[Any]":
        self._count += 1
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._count] = waiting
        self.order(do="request", tag=self._count, method=method, params=params)
        return waiting

    async def request(self, method: str, **params: Any) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await self.begin(method, **params)

    def prompt(self, session: str, text: str = "Go.") -> "asyncio.Future[Any]":
        return self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def answer(self, asked: dict[str, Any], option: str) -> None:
        result = {"outcome": {"outcome": "selected", "optionId": option}}
        self.order(do="answer", asked=asked["asked"], result=result)

    async def asked(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            return await self._asked.get()

    async def until(self, found: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not found():
                self._news.clear()
                await self._news.wait()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"].get("text", "") for update in self.of(kind))

    async def listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._take(json.loads(line))
            self._news.set()

    def _take(self, told: dict[str, Any]) -> None:
        if "update" in told:
            self.updates.append(told["update"]["update"])
        elif "asked" in told:
            self._asked.put_nowait(told)
        elif "log" in told:
            self.log += told["log"]
        elif "withdrawn" in told:
            self.withdrawn.append(told["withdrawn"])
        elif "closed" in told or "exited" in told:
            self.ended = True
        elif "error" in told:
            self._waiting.pop(told["tag"]).set_exception(Refused(told["error"]))
        else:
            self._waiting.pop(told["tag"]).set_result(told["result"])


@asynccontextmanager
async def judging(
    name: str, where: dict[str, Any], *, forms: bool = False, files: bool = False
) -> AsyncIterator[Judge]:
    """Start an editor, connect it and let it say who it is. What it complains of on stderr fails the test."""
    process = await asyncio.create_subprocess_exec(
        "node",
        str(JUDGE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
    )
    judge = Judge(process)
    listening = asyncio.create_task(judge.listen())
    assert process.stderr is not None
    complaining = asyncio.create_task(process.stderr.read())
    try:
        judge.order(do="connect", **where)
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}} if forms else {}
        if files:
            capabilities["fs"] = {"readTextFile": True, "writeTextFile": True}
        info = {"name": name, "version": "1"}
        await judge.request("initialize", protocolVersion=1, clientInfo=info, clientCapabilities=capabilities)
        yield judge
    finally:
        judge.order(do="end")
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()
        await asyncio.wait([listening, complaining])
    assert (await complaining).decode() == ""


def stdio(data: Path, *options: str) -> dict[str, Any]:
    """Return how an editor starts CodeSDK on a data directory."""
    command = [sys.executable, "-m", "codesdk.cli.main", "acp", "--data-dir", str(data), *options]
    return {"command": command}


def websocket(url: str, token: str | None = None, query: str = "") -> dict[str, Any]:
    """Return how an editor reaches a daemon."""
    return {"url": url.replace("http", "ws", 1) + "/acp" + query, "token": token}


def script(*turns: Any) -> Any:
    return {"turns": [{"steps": list(steps)} for steps in turns]}


async def new(judge: Judge, workspace: Path, plays: Any, **more: Any) -> str:
    """Make a session that plays a script, and return its id."""
    wishes = {"runtime": "scripted", "runtime_config": {"script": plays}}
    found = await judge.request(
        "session/new", **({"cwd": str(workspace), "mcpServers": []} | more), _meta={"codesdk": wishes}
    )
    return found["sessionId"]


async def load(judge: Judge, session: str, workspace: Path) -> Any:
    return await judge.request("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
