"""Rooms for the adapter protocol: what an adapter says to the engine, and what an engine says to an adapter."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from tests.fuzz.rooms import Room, _refuse_bugs, engine
from tests.runtimes.external.memory import MemoryAdapter
from tests.runtimes.external.samples import frames

from codesdk.contract.errors import CodeSDKError
from codesdk.runtimes.external.server import serve_streams
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object


def adapter_lines() -> list[bytes]:
    """Return what adapters send: each message, and a whole task."""
    sent = frames("adapter")
    return [b"".join(sent), *(line for line in sent if len(line) < 400)]


def engine_lines() -> list[bytes]:
    """Return what an engine sends: each message, and a whole task in order."""
    sent = frames("engine")
    return [b"".join(sent), *sent]


@asynccontextmanager
async def adapter_heard() -> Room:
    """An engine whose adapter says the input in its task, and leaves. The task ends, and the next one can begin."""
    adapter = MemoryAdapter()
    async with adapter.running() as runtime, engine(runtimes=[runtime]) as sdk:

        async def run(data: bytes) -> None:
            adapter.output, adapter.piece = data, 7 + len(data) // 64
            session = await sdk.create_session(
                runtime=runtime.name, permission_mode="yolo", interaction_mode="non_interactive"
            )
            try:
                await (await session.start("Go.")).result()
            except CodeSDKError as error:
                # An adapter may say that its error is internal; the engine must have none of its own.
                if b"INTERNAL" not in data and b"STORAGE_FAILED" not in data:
                    _refuse_bugs(error)
            await session.close()

        yield run


class _Sink:
    """A writer whose other end reads everything."""

    def __init__(self) -> None:
        self.transport: Any = self

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")

    async def drain(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


@asynccontextmanager
async def engine_heard() -> Room:
    """An adapter made with the library that is told the input. It ends when the engine leaves, whatever was said."""
    script = parse_object({"turns": [{"steps": [{"text": "Hi."}]}], "loop": True}, "fuzz")

    async def run(data: bytes) -> None:
        reader, writer = asyncio.StreamReader(), _Sink()
        reader.feed_data(data)
        reader.feed_eof()
        await serve_streams(ScriptedRuntime(script), reader, writer)  # pyright: ignore[reportArgumentType]

    yield run
