"""The real opencode in a session, with the scripted gateway as its model and the real MCP host for its tools."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from codesdk import CodeSDK, Session, SessionSettings
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.ports import ToolRunner
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes.opencode.adapter import OpencodeRuntime
from codesdk.script import parse_object

NOTE = "remember the milk"
TIMEOUT_S = 180.0


def read(path: str = "notes.txt", call_id: str = "r1") -> dict[str, Any]:
    """Return a step that reads a file."""
    return {"call": {"tool": "workspace.read", "input": {"path": path}, "id": call_id}}


class Rig:
    """One session of opencode."""

    def __init__(self, sdk: CodeSDK, session: Session, runtime: OpencodeRuntime, workspace: Path) -> None:
        self.sdk, self.session, self.runtime, self.workspace = sdk, session, runtime, workspace

    async def ask(self, text: str = "What do my notes say?") -> str:
        """Run a task to its end and return its text."""
        return (await (await self.session.start(text)).result()).text

    async def events(self) -> list[Event]:
        """Return the whole log, checked."""
        log, blobs = self.sdk.archive.log, self.sdk.archive.blobs
        assert await verify_session(log, blobs, self.session.id) == []
        assert (await replay_session(log, blobs, self.session.id))[1] == []
        return [decode(frame.data) async for frame in self.sdk.archive.frames(self.session.id)]

    async def bodies(self) -> list[dict[str, Any]]:
        """Return the requests that opencode sent to the model."""
        found: list[dict[str, Any]] = []
        for payload in payloads(await self.events(), "model.input"):
            if payload.capture == "exact":
                document = json.loads(await self.sdk.read_artifact(payload.input_ref.artifact_id))
                parts = {name: await self.sdk.archive.blobs.get(name) for name in hashes_of(document)}
                found.append(join(document, parts))
        return found

    async def seen(self, kind: str, wanted: Callable[[Any], bool] = lambda payload: True) -> Any:
        """Wait for an event of a type and return its payload."""
        async for event in self.session.events():
            if event.type == kind and wanted(event.payload):
                return event.payload
        raise AssertionError(kind)

    @property
    def server(self) -> Any:
        """The session's server."""
        return self.runtime._servers[self.session.id]

    @property
    def pid(self) -> int:
        """The process of opencode, or of what wraps it."""
        return self.server.child.pid


@asynccontextmanager
async def opened(
    tmp_path: Path, *turns: Any, tools: ToolRunner | None = None, mode: Any = "auto", **options: Any
) -> AsyncIterator[Rig]:
    """Open an SDK with one session whose model plays these turns, each a list of steps or a whole turn."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "notes.txt").write_text(f"{NOTE}\n")
    runtime = OpencodeRuntime(options.pop("program", None))
    chosen = {name: options.pop(name) for name in ("interaction_mode", "model") if name in options}
    async with asyncio.timeout(TIMEOUT_S):
        async with CodeSDK.open(
            tmp_path / "data", runtimes={runtime.name: runtime}, tools=tools, providers={}, allow_yolo=True
        ) as sdk:
            session = await sdk.create_session(
                runtime=runtime.name,
                workspace=workspace,
                plays=script(*turns),
                permission_mode=mode,
                **chosen,
                settings=SessionSettings(**options),
            )
            yield Rig(sdk, session, runtime, workspace)


def script(*turns: Any) -> Any:
    """Return a script of these turns."""
    whole = [turn if isinstance(turn, dict) else {"steps": turn} for turn in turns]
    return parse_object({"turns": whole}, "a test")


def payloads(events: list[Event], kind: str) -> list[Any]:
    """Return the payloads of a type."""
    return [event.payload for event in events if event.type == kind]


def notices(events: list[Event]) -> list[Any]:
    """Return the notices, without the frames that are only kept."""
    return [notice for notice in payloads(events, "runtime.notice") if notice.kind != "signal"]


def calls(events: list[Event]) -> list[str]:
    """Return what happened to tool calls, in order. When opencode tells of them depends on how busy it is."""
    left_out = ("tool.call.policy_evaluated", "tool.call.announced")
    kinds = [event.type for event in events if event.type.startswith("tool.call.")]
    return [kind.removeprefix("tool.call.") for kind in kinds if kind not in left_out]
