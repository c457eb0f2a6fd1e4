"""The other ends of `gateway` and `programs`, each in a process of its own: a bare provider, a gateway, a scripted model.

`python -m bench.peers provider`, `… gateway MODE ORIGIN` and `… scripted FILE` print where they listen and serve
until stdin ends. The provider does what the request's `bench` says: so many events, with pauses or without, each
with the time at which it was sent.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import uvloop

from codesdk.contract.ownership import ToolNaming, WireCall, WireRules, mark_for
from codesdk.contract.tools import ToolSpec
from codesdk.gateway.cassettes.cassette import Exchange
from codesdk.gateway.cassettes.record import RecordingBackend
from codesdk.gateway.ownership.backend import OwnedBackend
from codesdk.gateway.providers import ORIGINS, Provider
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Backend, Gateway
from codesdk.gateway.upstream import Upstream
from codesdk.gateway.wires.exchange import Wire
from codesdk.script import load_script
from codesdk.tools import PREFIX, builtin_registry

_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = b'data: {"id":"x","sent":%d,"choices":[{"index":0,"delta":{"content":"' + b"x" * 100 + b'"}}]}\n\n'
_WHOLE = b'{"id":"x","object":"chat.completion","choices":[]}'
_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_WHOLE) + _WHOLE
)


class Order(msgspec.Struct):
    """What a request wants of the provider: this many events, so far apart; none for an answer in one piece."""

    events: int = 0
    pause_ms: float = 0


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = msgspec.json.decode(await reader.readexactly(length))
            await _play(msgspec.convert(body["bench"], Order), writer)
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def _play(order: Order, writer: asyncio.StreamWriter) -> None:
    if not order.events:
        writer.write(_ANSWER)
        return
    writer.write(_STREAM)
    for _ in range(order.events):
        if order.pause_ms:
            await asyncio.sleep(order.pause_ms / 1000)
        event = _EVENT % time.monotonic_ns()
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def _until_told() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _provider() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await _until_told()


async def _gateway(mode: str, origin: str) -> None:
    wires: dict[Wire, Provider] = {wire: Provider(origin=origin, key="key-of-the-bench") for wire in ORIGINS}
    upstream = Upstream(wires)
    backend: Backend = upstream
    if mode == "record":
        backend = RecordingBackend(upstream, _forget)
    elif mode == "owned":
        backend = OwnedBackend(upstream, _Tap(), WireRules(naming=ToolNaming(prefix=PREFIX)))
    async with Gateway() as gateway:
        print(gateway.admit(backend), flush=True)
        await _until_told()
    await upstream.close()


class _Tap:
    """A session whose tools are ours, and that nothing is told of."""

    def __init__(self) -> None:
        self._specs = builtin_registry().specs()

    def tools(self) -> Sequence[ToolSpec]:
        return self._specs

    def words(self) -> Sequence[str]:
        return ()

    def mark(self) -> str:
        return mark_for("call")

    async def denied(self, call: WireCall) -> None:
        """Keep nothing."""

    async def denials(self) -> Sequence[WireCall]:
        return ()

    def aside(self, request_id: str, tools: Sequence[str]) -> None:
        """Note nothing."""

    def converse(self) -> None:
        """Note nothing."""

    def give_up(self, why: str) -> None:
        """Go on."""


async def _scripted(file: str) -> None:
    async with Gateway() as gateway:
        print(gateway.admit(ScriptedModel(load_script(file))), flush=True)
        await _until_told()


def _forget(exchange: Exchange) -> None:
    """Keep nothing: what recording costs is measured, not what a cassette weighs."""


if __name__ == "__main__":
    main: Any = {"provider": _provider, "gateway": _gateway, "scripted": _scripted}[sys.argv[1]]
    uvloop.run(main(*sys.argv[2:]))
