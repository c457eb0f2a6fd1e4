"""The socket of a wrapped program: the one place at it is for whoever speaks, and nobody holds it by connecting."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from codesdk.runtimes import offered
from codesdk.runtimes.external.wrapped import FOLDER
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.serving import COUNTS, Limits, socket_path

pytestmark = pytest.mark.anyio

HELLO = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol_versions":[1],"runtime":"wrapped",'
    b'"engine_version":"1","max_frame_bytes":1000000}}\n'
)
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Socket:
    """The socket of a wrapped program, and all who connected to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ends: list[Ends] = []

    async def connect(self, said: bytes = b"") -> asyncio.StreamReader:
        with socket_path(self.path.parent, self.path.name) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        self.ends.append((reader, writer))
        writer.write(said)
        return reader

    async def hello(self) -> object:
        return json.loads(await (await self.connect(HELLO)).readline())["result"]["name"]


@asynccontextmanager
async def listening(root: Path, limits: Limits) -> AsyncIterator[Socket]:
    script = parse_object({"turns": [{"steps": [{"text": "Hi."}]}]}, "script")
    async with offered(ScriptedRuntime(script), root, limits) as name:
        yield (found := Socket(root / FOLDER / name))
    for _, writer in found.ends:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side has hung up. Return whether it said nothing before."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [b"", HELLO[:-5]])
async def test_who_says_nothing_is_hung_up_on_and_takes_nobodys_place(tmp_path: Path, said: bytes):
    cut = COUNTS.timed_out
    async with listening(tmp_path, Limits(head_s=0.1)) as socket:
        assert await ended(await socket.connect(said))
        assert COUNTS.timed_out == cut + 1
        assert await socket.hello() == "scripted"


async def test_who_speaks_is_served_while_others_say_nothing_and_nobody_after_that(tmp_path: Path):
    async with listening(tmp_path, Limits()) as socket:
        silent = [await socket.connect() for _ in range(4)]
        assert await socket.hello() == "scripted"
        assert not socket.path.exists()
        socket.ends[0][1].write(HELLO)
        assert await ended(silent[0])
    assert [await ended(reader) for reader in silent] == [True] * 4


async def test_more_than_there_is_room_for_make_room(tmp_path: Path):
    async with listening(tmp_path, Limits(connections=2)) as socket:
        first, _ = await socket.connect(), await socket.connect()
        assert await socket.hello() == "scripted"
        assert await ended(first)


async def test_a_line_without_an_end_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codesdk.runtimes.external.wrapped.MAX_LINE_BYTES", 1000)
    async with listening(tmp_path, Limits()) as socket:
        assert await ended(await socket.connect(b"x" * 5000))
        assert await socket.hello() == "scripted"
