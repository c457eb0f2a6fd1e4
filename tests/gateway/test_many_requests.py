"""Requests by the thousand, good, bad and given up, through one gateway: nothing crashes and nothing is left behind."""

import asyncio
import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.counts import COUNTS
from tests.gateway.peers import PATHS, PATIENCE_S, Peer, body_of

from codesdk.gateway.cassettes.cassette import Exchange
from codesdk.gateway.cassettes.record import RecordingBackend
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Wire
from codesdk.script import parse_object

HELLO = parse_object({"loop": True, "turns": [{"steps": [{"text": ["Hel", "lo"]}]}]}, "hello")
FAILING = parse_object({"loop": True, "turns": [{"steps": [{"http": {"status": 529}}]}]}, "failing")
BODIES: dict[Wire, bytes] = {wire: msgspec.json.encode(body_of(wire)) for wire in PATHS}
OWN = ("codesdk.gateway", "uvicorn", "httpx2", "httpcore2")
WARM_UP = 20
TRACED = 50
ROUNDS = TRACED + COUNTS.gateway_rounds


class Line:
    """A connection that is kept: requests go out and whole answers come back, with no client between."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://").partition("/")[0].split(":")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, url: str, body: bytes) -> int:
        """Return the status of an answer that was read to its end."""
        reader, head = await self._send(url, body)
        if b"transfer-encoding: chunked" in head:
            await reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
        return int(head[9:12])

    async def give_up(self, url: str, body: bytes) -> int:
        """Hang up when the answer has begun. Return its status."""
        _, head = await self._send(url, body)
        self.close()
        return int(head[9:12])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams = None

    async def _send(self, url: str, body: bytes) -> tuple[asyncio.StreamReader, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address[0], int(self._address[1]))
        reader, writer = self._streams
        path = url.removeprefix("http://").partition("/")[2]
        writer.write(
            f"POST /{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        return reader, await reader.readuntil(b"\r\n\r\n")


class House:
    """A gateway with a script, with a provider behind it, with a recording of it, and with one that only fails."""

    def __init__(self, gateway: Gateway, provider: Gateway) -> None:
        self.upstream = Peer(url=provider.admit(ScriptedModel(HELLO))).upstream("key-of-codesdk-0123456789")
        self.scripted = gateway.admit(ScriptedModel(HELLO))
        self.passing = gateway.admit(self.upstream)
        self.recording = gateway.admit(RecordingBackend(self.upstream, self.keep))
        self.failing = gateway.admit(ScriptedModel(FAILING))
        self.nobody = f"{gateway.url}/g/nobody"
        self.kept = 0

    def keep(self, exchange: Exchange) -> None:
        self.kept += 1


async def a_round(house: House, line: Line) -> Counter[int]:
    """Send twenty requests and return their statuses."""
    statuses = [
        await line.ask(house.scripted + PATHS[wire], BODIES[wire]) for wire in PATHS for _ in range(2)
    ]
    statuses += [await line.ask(house.passing + PATHS[wire], BODIES[wire]) for wire in PATHS]
    statuses.append(await line.ask(house.recording + PATHS["chat"], BODIES["chat"]))
    statuses.append(await line.ask(house.failing + PATHS["anthropic"], BODIES["anthropic"]))
    statuses.append(await line.ask(house.nobody + PATHS["responses"], BODIES["responses"]))
    statuses.append(await line.ask(house.nobody, b""))
    statuses.append(await line.ask(house.scripted + PATHS["gemini"], b"{"))
    statuses.append(await line.ask(house.scripted + "/v1/nothing", b"{}"))
    statuses.append(await line.give_up(house.passing + PATHS["anthropic"], BODIES["anthropic"]))
    statuses.append(await line.give_up(house.recording + PATHS["gemini"], BODIES["gemini"]))
    return Counter(statuses)


EVERY_ROUND = Counter({200: 15, 529: 1, 401: 2, 400: 1, 404: 1})


def held() -> Counter[str]:
    """Count the objects of the gateway and of the libraries that it stands on, tasks, and open files."""
    found = Counter(
        f"{type(each).__module__}.{type(each).__qualname__}"
        for each in gc.get_objects()
        if str(type(each).__module__).startswith(OWN)
    )
    found["tasks"] = len(asyncio.all_tasks())
    found["files"] = len(list(Path("/proc/self/fd").iterdir()))
    return found


async def quiet(known: set["asyncio.Task[Any]"]) -> None:
    """Wait for all other tasks to end, since those who were hung up on are on their way out. Collect garbage."""
    while others := asyncio.all_tasks() - known:
        _, late = await asyncio.wait(others, timeout=PATIENCE_S)
        assert not late
    gc.collect()


@pytest.mark.slow
async def test_thousands_of_requests_leave_nothing_behind():
    async with Gateway() as provider, Gateway() as gateway:
        house, line = House(gateway, provider), Line(gateway.url)
        known = asyncio.all_tasks()
        for _ in range(WARM_UP):
            await a_round(house, line)
        await quiet(known)
        before = held()
        rounds = [await a_round(house, line) for _ in range(ROUNDS - TRACED)]
        tracemalloc.start()
        rounds += [await a_round(house, line) for _ in range(TRACED // 5)]
        await quiet(known)
        bytes_before = tracemalloc.get_traced_memory()[0]
        rounds += [await a_round(house, line) for _ in range(TRACED - TRACED // 5)]
        await quiet(known)
        bytes_after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        after = held()
        line.close()
        await house.upstream.close()
    assert rounds == [EVERY_ROUND] * ROUNDS
    assert gateway.refused == 2 * (ROUNDS + WARM_UP)
    assert house.kept == 2 * (ROUNDS + WARM_UP)
    grown = {name: (before[name], after[name]) for name in after if after[name] > before[name]}
    assert grown == {}
    assert bytes_after - bytes_before < 100 * 20 * TRACED, "less than a hundred bytes for each request"
