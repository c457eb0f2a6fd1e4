"""The walks of docs/architecture.md that are not tool calls, traced: a delta, a model request, a start, a resume. Run as a program it prints them."""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.engine.calls.walk import GROUND, Tracer, idle

from codesdk import CodeSDK
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.events import Event, OutputDelta, UsageReportedEvent
from codesdk.contract.runtime import Draft
from codesdk.daemon.sse import EventStream
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, FakeTask, done, memory_sdk, message

WITH_LOG = tuple(room for room in GROUND if room != "codesdk.engine.log")
HELLO = parse_object({"turns": [{"steps": [{"text": "Hello."}]}] * 2}, "hello")


async def walk_delta(ground: tuple[str, ...]) -> Tracer:
    """From an item of the runtime to an event of `session.events()`."""
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await session.start("Go")
        task = await runtime.started()
        seen: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            async for event in session.events():
                seen.put_nowait(event)

        reading = asyncio.create_task(read())
        tracer = await _trace_delta(task, seen, ground)
        reading.cancel()
        await _end(task)
    return tracer


async def walk_streamed_delta(ground: tuple[str, ...]) -> Tracer:
    """From an item of the runtime to a write of the daemon's stream."""
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await session.start("Go")
        task = await runtime.started()
        sent: asyncio.Queue[Any] = asyncio.Queue()
        feed = await sdk.engine.feed(session.id)
        stream = EventStream(feed, 0, None, heartbeat_s=100, welcome=lambda: True)
        streaming = asyncio.create_task(stream({"method": "GET"}, asyncio.Future, sent.put))
        tracer = await _trace_delta(task, sent, ground)
        streaming.cancel()
        await asyncio.wait([streaming])
        await _end(task)
    return tracer


async def walk_model(ground: tuple[str, ...]) -> Tracer:
    """From a model request to its end in the log; a script plays the model."""
    import httpx2

    runtime = FakeRuntime(capabilities=Capabilities(input_capture="exact"))
    async with CodeSDK.open(runtimes={"fake": runtime}) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=".", plays=HELLO)
        await session.start("Go")
        task = await runtime.started()
        url = await task.host.model_endpoint() + "/v1/messages"
        body: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 10, "stream": True}
        async with httpx2.AsyncClient() as client, contextlib.aclosing(session.events()) as events:
            await client.post(url, json=body | {"messages": [{"role": "user", "content": "hi"}]})
            await _used(events)
            await idle()
            with Tracer(ground) as tracer:
                await client.post(url, json=body | {"messages": [{"role": "user", "content": "ho"}]})
                await _used(events)
                await idle()
        await _end(task)
    return tracer


async def walk_start(ground: tuple[str, ...]) -> Tracer:
    """From `create_session` and `start` to the runtime's beginning."""
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        with Tracer(ground) as tracer:
            session = await sdk.create_session(runtime="fake")
            await session.start("Go")
            task = await runtime.started()
        await _end(task)
    return tracer


async def walk_resume(ground: tuple[str, ...]) -> Tracer:
    """From `resume` to the runtime's beginning, in a directory as a crash would leave it."""
    with tempfile.TemporaryDirectory() as folder:
        data, left = Path(folder) / "data", Path(folder) / "left"
        runtime = FakeRuntime()
        async with CodeSDK.open(data, runtimes={"fake": runtime}) as sdk:
            session = await sdk.create_session(runtime="fake", workspace=folder)
            await session.start("Go")
            await runtime.started()
            shutil.copytree(data, left, ignore=shutil.ignore_patterns("control.sock", "lock"))
        runtime = FakeRuntime()
        async with CodeSDK.open(left, runtimes={"fake": runtime}) as sdk:
            again = await sdk.session(session.id)
            sdk.engine.ports.tools.specs()  # loads them: once in a process, and no step of a resume
            with Tracer(ground) as tracer:
                await again.resume()
                task = await runtime.started()
            await _end(task)
    return tracer


async def _trace_delta(task: FakeTask, seen: asyncio.Queue[Any], ground: tuple[str, ...]) -> Tracer:
    await idle()
    task.emit(_delta("a "))
    await idle()
    while not seen.empty():
        seen.get_nowait()
    with Tracer(ground) as tracer:
        task.emit(_delta("b "))
        await asyncio.wait_for(seen.get(), 5)
    return tracer


async def _used(events: AsyncIterator[Event]) -> None:
    """Read up to the last event of a model request."""
    while not isinstance(await anext(events), UsageReportedEvent):
        pass


async def _end(task: FakeTask) -> None:
    await idle()
    task.emit(message("Done."), done())
    await idle()


def _delta(text: str) -> Draft:
    return Draft(payload=OutputDelta(kind="text_delta", block_id="b1", message_id="m1", delta=text))


WALKS = {
    "delta": walk_delta,
    "streamed delta": walk_streamed_delta,
    "model": walk_model,
    "start": walk_start,
    "resume": walk_resume,
}

if __name__ == "__main__":
    for name, walk in WALKS.items():
        short, whole = asyncio.run(walk(GROUND)), asyncio.run(walk(WITH_LOG))
        print(f"{name}: {len(short.hops)} hops, {len(whole.hops)} with those into the log")
        if "-v" in sys.argv:
            print("".join(f"  {hop}\n" for hop in whole.hops))
