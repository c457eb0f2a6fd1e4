"""The real claude behind CodeSDK, with a scripted model: how the tests open it, and what they look at."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from codesdk import CodeSDK, Session
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes.claude import NAME
from codesdk.runtimes.claude.adapter import ClaudeRuntime
from codesdk.script import Script, parse_object

MODEL = "claude-sonnet-4-5"
USAGE = {"input": 100, "output": 20, "cache_read": 5, "cache_write": 3}
READ: dict[str, Any] = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}
MORE: dict[str, Any] = {"call": {"tool": "workspace.read", "input": {"path": "more.txt"}, "id": "r2"}}
EDIT: dict[str, Any] = {
    "call": {
        "tool": "workspace.edit",
        "input": {"path": "notes.txt", "old": "milk", "new": "tea"},
        "id": "e1",
    }
}


def script(*turns: list[dict[str, Any]] | str) -> Script:
    """Return a script of turns, each a list of steps or a text."""
    steps = [[{"text": turn}] if isinstance(turn, str) else turn for turn in turns]
    return parse_object({"turns": [{"steps": turn, "usage": USAGE} for turn in steps]}, "the test")


def native_call(name: str, arguments: dict[str, Any], call_id: str = "toolu_native") -> dict[str, Any]:
    """Return a step in which the model calls a tool that was not offered, as raw events of its stream."""
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": call_id, "name": name, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(arguments)}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return {"malformed_frame": "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)}


class World:
    """An open CodeSDK and a workspace."""

    def __init__(self, sdk: CodeSDK, runtime: ClaudeRuntime, workspace: Path) -> None:
        self.sdk = sdk
        self.runtime = runtime
        self.workspace = workspace

    async def session(self, plays: Script, **options: Any) -> Session:
        """Create a session whose model plays a script."""
        options.setdefault("permission_mode", "auto")
        options.setdefault("model", MODEL)
        return await self.sdk.create_session(runtime=NAME, workspace=self.workspace, plays=plays, **options)

    async def events(self, session: Session) -> list[Event]:
        """Return all that is stored of a session."""
        return [decode(frame.data) async for frame in self.sdk.archive.frames(session.id)]

    async def payloads(self, session: Session, kind: str) -> list[Any]:
        """Return the payloads of one type."""
        return [event.payload for event in await self.events(session) if event.type == kind]

    async def notices(self, session: Session, kind: str) -> list[Any]:
        """Return the notices of one kind."""
        return [notice for notice in await self.payloads(session, "runtime.notice") if notice.kind == kind]

    async def requests(self, session: Session) -> list[dict[str, Any]]:
        """Return what claude sent to the model, request by request."""
        sent: list[dict[str, Any]] = []
        for exact in await self.payloads(session, "model.input"):
            if exact.capture == "exact":
                document = json.loads(await self.sdk.read_artifact(exact.input_ref.artifact_id))
                parts = {name: await self.sdk.archive.blobs.get(name) for name in hashes_of(document)}
                sent.append(join(document, parts))
        return sent

    async def check(self, session: Session) -> None:
        """Hold the log to the invariants, and replay it."""
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        found = await verify_session(log, blobs, session.id)
        assert not found, found
        _, differences = await replay_session(log, blobs, session.id)
        assert not differences, differences

    def pid(self, session: Session) -> int:
        """Return the process of a session."""
        return self.runtime._live[session.id].process.pid


@asynccontextmanager
async def opened(tmp_path: Path, *, max_retries: int = 1, **options: Any) -> AsyncIterator[World]:
    """Open CodeSDK with the real program, or another one."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "notes.txt").write_text("remember the milk\n")
    (workspace / "more.txt").write_text("and the bread\n")
    runtime = ClaudeRuntime(options.pop("program", None), max_retries=max_retries)
    async with CodeSDK.open(tmp_path / "data", runtimes={NAME: runtime}, providers={}, **options) as sdk:
        yield World(sdk, runtime, workspace)


def texts_of(request: dict[str, Any]) -> list[str]:
    """Return the texts of a request's messages, without claude's own reminders."""
    return [
        block["text"]
        for message in request["messages"]
        for block in message["content"]
        if block["type"] == "text" and not block["text"].startswith("<system-reminder>")
    ]


def below(pid: int) -> list[int]:
    """Return a process and all that it started."""
    try:
        children = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(found for child in children for found in below(int(child)))]
