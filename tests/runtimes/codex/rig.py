"""The real codex in a session, with the scripted gateway as its model and the real MCP host for its tools."""

import asyncio
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
from codesdk.runtimes.codex.adapter import CodexRuntime
from codesdk.script import parse_object

NOTE = "remember the milk"
TIMEOUT_S = 60.0


def read(path: str = "notes.txt", call_id: str = "r1") -> dict[str, Any]:
    """Return a step that reads a file."""
    return {"call": {"tool": "workspace.read", "input": {"path": path}, "id": call_id}}


class Rig:
    """One session of codex."""

    def __init__(self, sdk: CodeSDK, session: Session, runtime: CodexRuntime, workspace: Path) -> None:
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

    async def seen(self, kind: str, wanted: Callable[[Any], bool] = lambda payload: True) -> Any:
        """Wait for an event of a type and return its payload."""
        async for event in self.session.events():
            if event.type == kind and wanted(event.payload):
                return event.payload
        raise AssertionError(kind)

    @property
    def pid(self) -> int:
        """The process of codex, or of what wraps it."""
        return self.runtime._servers[self.session.id].child.pid


@asynccontextmanager
async def opened(
    tmp_path: Path, *turns: Any, tools: ToolRunner | None = None, mode: Any = "auto", **options: Any
) -> AsyncIterator[Rig]:
    """Open an SDK with one session whose model plays these turns, each a list of steps or a whole turn."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "notes.txt").write_text(f"{NOTE}\n")
    runtime = options.pop("runtime", None) or CodexRuntime(options.pop("program", None))
    extensions = options.pop("extensions", None)
    chosen = {name: options.pop(name) for name in ("native_tools", "interaction_mode") if name in options}
    async with asyncio.timeout(TIMEOUT_S):
        async with CodeSDK.open(
            tmp_path / "data",
            runtimes={"codex-sdk": runtime},
            tools=tools,
            providers={},
            allow_yolo=True,
            extensions=extensions,
        ) as sdk:
            session = await sdk.create_session(
                runtime="codex-sdk",
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


def calls(events: list[Event]) -> list[tuple[str, str | None]]:
    """Return what happened to tool calls, in order. When codex tells of them depends on how busy it is."""
    left_out = ("tool.call.policy_evaluated", "tool.call.announced")
    return [
        (event.type.removeprefix("tool.call."), getattr(event.payload, "runtime_tool_call_id", None))
        for event in events
        if event.type.startswith("tool.call.") and event.type not in left_out
    ]
