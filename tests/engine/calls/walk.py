"""The walk of one tool call, traced: which modules call which from the runtime's word to the reply, and how many tasks that takes.

A hop is a call from one module into another, or a coroutine that one hands to a task of its own. Reading a property is
none, nor is a call of what everything stands on: the contract, the guard around foreign code, redaction, policy, the store and the log. Run as a
program it prints the walks.
"""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import msgspec

from codesdk import CodeSDK, Session
from codesdk.contract.runtime import ToolAnnouncement, ToolEnded
from codesdk.contract.settings import Limits
from codesdk.testing.fakes import FAKE_CAPABILITIES, FakeRuntime, FakeTask, done, memory_sdk, message
from codesdk.tools import ToolContext, ToolRegistry
from codesdk.tools.mcp.memory import in_memory

GROUND = tuple(
    f"codesdk.{room}"
    for room in (
        "contract",
        "foreign",
        "redaction",
        "policy",
        "store",
        "engine.log",
        "doors",
        "testing",
        "sdk",
        "assembly",
    )
)
HYBRID = msgspec.structs.replace(
    FAKE_CAPABILITIES, tool_execution_model="hybrid", native_tools={"Bash": "dangerous"}
)
FRAME = {"type": "tool_use", "id": "c1"}


class Path(msgspec.Struct):
    """What the tool takes. Counts how often an input is made one."""

    made = 0
    path: str

    def __post_init__(self) -> None:
        Path.made += 1


def tools() -> ToolRegistry:
    """Return one tool that reads."""
    registry = ToolRegistry()

    @registry.tool(name="app.read", tool_class="read_only")
    async def read(args: Path, context: ToolContext) -> str:
        """Read."""
        return f"the text of {args.path}"

    return registry


class Tracer:
    """What happens inside `with`: the hops, and the tasks that are made."""

    def __init__(self, ground: tuple[str, ...] = GROUND) -> None:
        self._ground = ground
        self.hops: list[str] = []
        self.tasks: list[str] = []
        self._seen: list[FrameType] = []

    def __enter__(self) -> "Tracer":
        sys.set_coroutine_origin_tracking_depth(1)
        asyncio.get_running_loop().set_task_factory(self._make)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        asyncio.get_running_loop().set_task_factory(None)
        sys.set_coroutine_origin_tracking_depth(0)

    def _make(self, loop: Any, coro: Any, **options: Any) -> Any:
        if "/codesdk/" in coro.cr_code.co_filename:
            self.tasks.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop, **options)

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_name
        if event != "call" or name.startswith("<") or frame in self._seen or _is_property(frame):
            return
        module = _module(frame.f_code.co_filename)
        if not module.startswith("codesdk.") or module.startswith(self._ground):
            return
        self._seen.append(frame)  # a coroutine that goes on is "called" again, in the same frame
        caller = _caller(frame)
        if caller is not None and caller != module and not caller.startswith(self._ground):
            self.hops.append(f"{caller} → {module} {name}")


def _caller(frame: FrameType) -> str | None:
    """Return the module that called, or that made the coroutine of the task that begins here."""
    back = frame.f_back
    caller = "" if back is None else _module(back.f_code.co_filename)
    if caller.startswith("codesdk."):
        return caller
    task = asyncio.current_task() if caller == "events" else None
    coro: Any = None if task is None else task.get_coro()
    if coro is None:
        return None if caller == "events" else "outside"
    return _module(coro.cr_origin[0][0]) if coro.cr_frame is frame and coro.cr_origin else None


def _module(path: str) -> str:
    _, found, inside = path.rpartition("/src/codesdk/")
    if not found:
        return path.rpartition("/")[2].removesuffix(".py")
    return "codesdk." + inside.removesuffix(".py").replace("/", ".")


def _is_property(frame: FrameType) -> bool:
    owner = frame.f_locals.get("self")
    return isinstance(inspect.getattr_static(type(owner), frame.f_code.co_name, None), property)


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[CodeSDK, Session, FakeTask]]:
    """Give a running task of a runtime that mixes origins."""
    runtime = FakeRuntime(capabilities=HYBRID)
    limits = options.pop("limits", None) or Limits()
    async with memory_sdk(runtimes=[runtime], tools=tools(), limits=limits) as sdk:
        given = {"permission_mode": "yolo", "native_tools": ["Bash"], **options}
        session = await sdk.create_session(runtime="fake", **given)
        await session.start("Go")
        task = await runtime.started()
        await idle()
        yield sdk, session, task
        task.emit(message("Done."), done())
        await session.close()


async def idle() -> None:
    """Let everything happen that is ready to."""
    for _ in range(60):
        await asyncio.sleep(0)


def announced(origin: Any) -> ToolAnnouncement:
    name, given = ("Bash", {"command": "ls"}) if origin == "native" else ("app.read", {"path": "a"})
    return ToolAnnouncement(
        name=name, input=given, runtime_tool_call_id="c1", message_id="m1", raw=FRAME, origin=origin
    )


async def walk_stream() -> Tracer:
    async with running() as (_, _, task):
        with Tracer() as tracer:
            task.emit(announced("stream"))
            await task.reply("c1")
    return tracer


async def walk_mcp() -> Tracer:
    async with running() as (sdk, session, task), in_memory(session.id, sdk.engine.tool_calls) as client:
        await client.list_tools()
        with Tracer() as tracer:
            task.emit(announced("mcp"))
            await idle()
            given: Any = {"codesdk/toolCallId": "c1"}
            await client.session.call_tool("app_read", {"path": "a"}, meta=given)
    return tracer


async def walk_native() -> Tracer:
    async with running() as (_, _, task):
        with Tracer() as tracer:
            task.emit(announced("native"))
            await idle()
            assert (await task.host.may_run(announced("native"))).denied is None
            task.emit(ToolEnded(runtime_tool_call_id="c1", result="a.txt"))
            await idle()
    return tracer


WALKS = {"stream": walk_stream, "mcp": walk_mcp, "native": walk_native}

if __name__ == "__main__":
    for origin, walk in WALKS.items():
        traced = asyncio.run(walk())
        print(f"{origin}: {len(traced.hops)} hops, {len(traced.tasks)} tasks: {', '.join(traced.tasks)}")
        print("".join(f"  {hop}\n" for hop in traced.hops))
