"""An open SDK on a scratch directory with a script to play: what most benchmarks start from."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from codesdk import CodeSDK, Session
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.runtime import Host, Runtime, RuntimeItem, RuntimeTask, TaskInput
from codesdk.runtimes.scripted.adapter import ScriptedRuntime, ScriptedTask
from codesdk.script import Script, parse_object
from codesdk.store.sqlite.log import SqliteLog

FRAME_BYTES = 471
BURST_SIZE = 5
"""Characters per delta that make a stored delta about `FRAME_BYTES` long."""


def script(*turns: list[dict[str, Any]]) -> Script:
    """Return a looping script, each turn given by its steps."""
    return parse_object({"loop": True, "turns": [{"steps": steps} for steps in turns]}, "bench")


def burst(count: int) -> Script:
    return script([{"burst": {"count": count, "size": BURST_SIZE}}])


def small_turn() -> Script:
    return script([{"text": ["A short ", "answer."]}])


@asynccontextmanager
async def rig(path: Path, played: Script | Runtime) -> AsyncGenerator[CodeSDK]:
    """Open the SDK on `path/data`, with a workspace beside it that holds one file."""
    workspace = workspace_of(path)
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "hello.txt").write_text("Hello, world\n")
    runtime = ScriptedRuntime(played) if isinstance(played, Script) else played
    async with CodeSDK.open(path / "data", runtimes={"scripted": runtime}, allow_yolo=True) as sdk:
        yield sdk


def workspace_of(path: Path) -> Path:
    return path / "workspace"


def log_of(sdk: CodeSDK) -> SqliteLog:
    log = sdk.archive.log
    assert isinstance(log, SqliteLog)
    return log


async def new_session(sdk: CodeSDK, path: Path) -> Session:
    return await sdk.create_session(runtime="scripted", workspace=workspace_of(path), permission_mode="yolo")


async def finish_task(session: Session, message: str = "Go on") -> None:
    await (await session.start(message)).result()


async def sessions_with_a_task(sdk: CodeSDK, path: Path, count: int, at_once: int = 50) -> list[Session]:
    """Create sessions that have had one finished task each."""
    made: list[Session] = []

    async def make() -> None:
        session = await new_session(sdk, path)
        await finish_task(session)
        made.append(session)

    while len(made) < count:
        await asyncio.gather(*(make() for _ in range(min(at_once, count - len(made)))))
    return made


async def until_end(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """Pass events on up to the end of the task that is running or the next one to start."""
    async for event in events:
        yield event
        if event.type in TERMINAL_TYPES:
            return


class StreamRuntime(ScriptedRuntime):
    """A runtime whose stream is a function of the task: for what a script cannot say."""

    def __init__(self, stream: Callable[[TaskInput], AsyncGenerator[RuntimeItem, None]]) -> None:
        super().__init__(small_turn())
        self._stream = stream

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        return _StreamTask(task, self._stream)


class _StreamTask(ScriptedTask):
    def __init__(
        self, task: TaskInput, stream: Callable[[TaskInput], AsyncGenerator[RuntimeItem, None]]
    ) -> None:
        super().__init__(small_turn(), task)
        self._given = task
        self._stream = stream

    def events(self) -> AsyncGenerator[RuntimeItem, None]:
        return self._stream(self._given)
