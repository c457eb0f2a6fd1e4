"""A daemon in a process of its own, and clients of it over plain sockets: what `daemon` and `streams` measure with."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

CODESDKD = "codesdk.cli.codesdkd"
_ENDS = (b"task.completed", b"task.failed", b"task.stopped")


class Served:
    """A process that listens."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, ready_ms: float) -> None:
        self.process = process
        self.url = url
        self.ready_ms = ready_ms
        self.place = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._proc = Path(f"/proc/{process.pid}")

    def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Return the memory that it holds."""
        pages = int((self._proc / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def bytecode(root: Path) -> Iterator[None]:
    """Let the processes that are started keep their bytecode, as those of an installed package do."""
    before = dict(os.environ)
    os.environ["PYTHONPYCACHEPREFIX"] = str(root / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def served(*arguments: str, module: str = CODESDKD) -> Iterator[Served]:
    """Run a module that says as JSON where it listens; end it afterwards."""
    command = [sys.executable, "-m", module, *arguments]
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            ready_ms = (time.perf_counter() - started) * 1000
            yield Served(process, json.loads(first)["url"], ready_ms)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)


class Caller:
    """A connection for requests, kept open."""

    def __init__(self, daemon: Served, workspace: Path) -> None:
        self._place = daemon.place
        self._workspace = str(workspace)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def create(self, script: Any) -> str:
        """Create a session that plays a script."""
        workspace = {"runtime": "scripted", "workspace": self._workspace}
        body = {**workspace, "settings": {"runtime_config": {"script": script}}}
        return (await self.ask("POST", "/v1/sessions", body))["session_id"]

    async def start(self, session: str, message: str = "Go on") -> str:
        """Start a task."""
        return (await self.ask("POST", f"/v1/sessions/{session}/tasks", {"message": message}))["task_id"]

    async def head(self, session: str) -> int:
        """Return how many events a session has stored: the end of its last task is the last."""
        return (await self.ask("GET", f"/v1/sessions/{session}/tasks"))["tasks"][0]["ended_seq"]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask once. A request that is one too many waits as it is told."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        data = msgspec.json.encode(body) if body is not None else b""
        kind = "content-type: application/json\r\n" if data else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{kind}content-length: {len(data)}\r\n\r\n"
        while True:
            writer.write(head.encode() + data)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found = await reader.readexactly(length)
            if answer[9:12] != b"429":
                break
            await asyncio.sleep(int(answer.partition(b"retry-after: ")[2].partition(b"\r\n")[0]))
        assert answer[9:10] == b"2", found
        return msgspec.json.decode(found)

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()


class Listener:
    """A client of a session's stream, which raises if an event does not follow the one before it."""

    def __init__(self, daemon: Served, session: str, after: int = 0, *, buffer: int | None = None) -> None:
        self.seq = after
        self.ended = False
        self.ages_ms: list[float] = []
        """How old each event was that says when it was emitted."""
        self._place = daemon.place
        self._path = f"/v1/sessions/{session}/events"
        self._buffer = buffer
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> Self:
        """Connect behind the last event that was seen."""
        sock = socket.socket()
        sock.setblocking(False)
        if self._buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
        await asyncio.get_running_loop().sock_connect(sock, self._place)
        limit = self._buffer or 2**16
        self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=limit)
        head = f"GET {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n"
        self._writer.write(f"{head}last-event-id: {self.seq}\r\n\r\n".encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return self

    async def hear(self, upto: int | None = None) -> Self:
        """Read to the end of a task, or up to a seq."""
        while not self.ended and (upto is None or self.seq < upto):
            await self.take()
        return self

    async def take(self) -> None:
        """Read one write of the server's."""
        assert self._reader is not None
        size = int(await self._reader.readline(), 16)
        data = await self._reader.readexactly(size + 2)
        now = time.monotonic_ns()
        for block in data.split(b"\n\n"):
            if block.startswith(b"id: "):
                self._see(block, now)

    async def sip(self) -> None:
        """Read a byte a second, for as long as one lets it."""
        assert self._reader is not None
        while await self._reader.read(1):  # noqa: ASYNC110 - the pace is what is wanted
            await asyncio.sleep(1)

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.transport.abort()

    def _see(self, block: bytes, now: int) -> None:
        self.seq += 1
        if not block.startswith(b"id: %d\n" % self.seq):
            raise AssertionError(f"expected event {self.seq}, got {block[:100]!r}")
        sent = block.partition(b'"delta":"at ')[2]
        if sent:
            self.ages_ms.append((now - int(sent.partition(b" ")[0])) / 1e6)
        elif block[:160].partition(b'"type":"')[2].partition(b'"')[0] in _ENDS:
            self.ended = True
