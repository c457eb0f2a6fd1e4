"""Rooms for requests to our own servers: the daemon's HTTP application, and the control socket without the socket."""

import asyncio
import tempfile
from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
from tests.fuzz.rooms import Room, Writer, engine
from tests.fuzz.seeds import ARTIFACT, SESSION

from codesdk.daemon.app import App
from codesdk.daemon.auth import Guard
from codesdk.daemon.settings import DaemonSettings
from codesdk.handles import Session
from codesdk.local import ControlServer, TokenFile
from codesdk.observe import Metrics
from codesdk.sdk import CodeSDK
from codesdk.serving import Seat
from codesdk.testing.fakes import FakeTools


class Answer(msgspec.Struct):
    status: int = 0
    headers: dict[bytes, bytes] = {}
    body: bytes = b""


async def ask(
    app: Any, method: str, target: str, headers: Mapping[str, str], body: bytes, *, leaves: bool = False
) -> Answer:
    """Send a request to an ASGI application. `leaves`: the client hangs up when it has sent all."""
    answer, done = Answer(), asyncio.Event()
    waiting = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if not waiting:
            await (asyncio.sleep(0) if leaves else done.wait())
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], dict(message["headers"])
        else:
            answer.body += message.get("body", b"")

    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "http_version": "1.1",
        "scheme": "http",
    }
    try:
        await app(scope, receive, send)
    finally:
        done.set()
    return answer


@asynccontextmanager
async def daemon() -> Room:
    """The daemon's application on an engine: a request gets an answer that is no bug of ours."""
    settings = DaemonSettings(requests_per_s=None)
    with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
        async with engine(script=[[{"text": "Hello."}]], tools=FakeTools()) as sdk:
            app = App(sdk, Guard(TokenFile(Path(folder))), settings, Metrics())
            artifact = await sdk.put_artifact(b"Some bytes.", "text/plain")

            async def run(data: bytes) -> None:
                session = await _session(sdk)
                there = data.replace(SESSION.encode(), session.id.encode())
                there = there.replace(ARTIFACT.encode(), artifact.artifact_id.encode())
                head, _, body = there.partition(b"\n\n")
                line, *fields = head.decode("latin-1").split("\n")
                method, _, target = line.partition(" ")
                given = {name: value for name, _, value in (field.partition(": ") for field in fields)}
                answer = await ask(app, method, target, {"host": "localhost", **given}, body, leaves=True)
                assert answer.status != 500, answer.body

            yield run


@asynccontextmanager
async def control() -> Room:
    """The control socket's server on an engine, without the socket."""
    async with engine(script=[[{"text": "Hello."}]], tools=FakeTools()) as sdk:
        server = ControlServer(sdk.engine, Path())

        async def run(data: bytes) -> None:
            session = await _session(sdk)
            reader, writer = asyncio.StreamReader(), Writer()
            reader.feed_data(data.replace(SESSION.encode(), session.id.encode()))
            reader.feed_eof()
            serving = asyncio.create_task(server._serve(Mock(Seat), reader, writer))  # pyright: ignore[reportArgumentType]
            answered = asyncio.create_task(writer.answered.wait())
            await asyncio.wait([serving, answered], return_when=asyncio.FIRST_COMPLETED)
            for task in (serving, answered):  # to follow a session has no end of its own
                task.cancel()
            await asyncio.gather(serving, answered, return_exceptions=True)
            if not serving.cancelled():
                serving.result()
            assert b'"code":"INTERNAL"' not in writer.written, writer.written

        yield run


async def _session(sdk: CodeSDK) -> Session:
    """Return a session that is there, whatever became of the one before."""
    return await sdk.create_session(runtime="scripted", workspace="/")
