"""An adapter without a process: what it writes is given, and goes through the engine's side as if it came from a pipe."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

from codesdk.contract.runtime import Runtime
from codesdk.runtimes.external import process
from codesdk.runtimes.external.runtime import ExternalRuntime
from codesdk.runtimes.external.server import serve_streams

DESCRIPTION = {"protocol_version": 1, "name": "memory", "version": "1", "capabilities": {}}
TASK = b"TASK"
"""Stands for the id of the running task in what the adapter writes."""


class MemoryChild:
    """Answers each request as it should be, and after the start of a task writes what is given, and leaves."""

    def __init__(self, output: bytes, piece: int) -> None:
        self.stdout = asyncio.StreamReader()
        self.stdin: Any = self
        self.transport: Any = self
        self.exit_code = 0
        self._output = output
        self._piece = piece

    def write(self, data: bytes) -> None:
        message = json.loads(data)
        if "id" in message and "method" in message and not self.stdout.at_eof():
            result = DESCRIPTION if message["method"] == "initialize" else {}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            self._feed(json.dumps(answer).encode() + b"\n")
            if message["method"] == "start_task":
                self._play(message["params"]["task"]["task_id"])

    async def drain(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def stderr_tail(self) -> str:
        return ""

    async def wait(self) -> int:
        return 0

    async def stop(self, grace_s: float = 0.0) -> None:
        if not self.stdout.at_eof():
            self.stdout.feed_eof()

    def _play(self, task_id: str) -> None:
        data = self._output.replace(TASK, task_id.encode())
        for start in range(0, len(data), self._piece):
            self._feed(data[start : start + self._piece])
        self.stdout.feed_eof()

    def _feed(self, data: bytes) -> None:
        if not self.stdout._eof:  # pyright: ignore[reportAttributeAccessIssue]
            self.stdout.feed_data(data)


class MemoryAdapter:
    """A runtime whose adapter writes `output` in its next task, cut into pieces."""

    def __init__(self) -> None:
        self.runtime = ExternalRuntime("external:memory", ["memory"])
        self.output = b""
        self.piece = 1 << 20

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ExternalRuntime]:
        async def start(*_: Any, **__: Any) -> Any:
            return MemoryChild(self.output, self.piece)

        with patch.object(process, "start_child", start):
            await self.runtime.introduce()
            yield self.runtime


def frame(method: str, params: Any, number: int | str | None = None) -> bytes:
    """Return a message as a line."""
    head = {"jsonrpc": "2.0", "method": method} | ({} if number is None else {"id": number})
    return json.dumps({**head, "params": params}).encode() + b"\n"


def item(**fields: Any) -> bytes:
    """Return an item of the task as a line."""
    return frame("item", {"task_id": "TASK", "item": fields})


class PipedChild:
    """Serves a runtime of the test, with the library, over a pair of sockets: both sides of the protocol in one process."""

    def __init__(self, served: Runtime, **options: Any) -> None:
        self.exit_code: int | None = None
        self._served = served
        self._options = options

    async def start(self) -> "PipedChild":
        here, there = socket.socketpair()
        self.stdout, self.stdin = await asyncio.open_connection(sock=here)
        reader, writer = await asyncio.open_connection(sock=there)
        self._writer = writer
        self._serving = asyncio.create_task(serve_streams(self._served, reader, writer, **self._options))
        return self

    def stderr_tail(self) -> str:
        return ""

    async def wait(self) -> int:
        return 0

    async def stop(self, grace_s: float = 0.0) -> None:
        if self.exit_code is None:
            self.exit_code = 0
            self.stdin.close()
            await asyncio.wait([self._serving], timeout=5)
            self._writer.close()


@asynccontextmanager
async def piped(served: Runtime, **options: Any) -> AsyncIterator[ExternalRuntime]:
    """Give a runtime of the test as the engine has it, behind the protocol."""

    async def start(*_: Any, **__: Any) -> Any:
        return await PipedChild(served, **options).start()

    with patch.object(process, "start_child", start):
        runtime = ExternalRuntime("external:piped", ["piped"])
        problem = await runtime.introduce()
        assert problem is None, problem
        yield runtime
