"""A tiny HTTP server on loopback that answers through a codec, so that official clients can judge it.

`async with judge(codec, answer) as base_url` gives a `str` that also holds what was asked. An
answer is parts, a `Fault`, a token count, or a stream that goes `Wrong`; several are given in
order, the last again and again. A request that the codec refuses gets the provider's 400 or 404.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from codesdk.gateway.reply import refuse
from codesdk.gateway.wires.exchange import Ask, Codec, Fault, Part


@dataclass(frozen=True)
class Wrong:
    """A stream that does not end well: these parts, then these bytes, then an end without `Finish`, or a reset."""

    parts: Sequence[Part] = ()
    frame: bytes = b""
    reset: bool = False


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any


Answer = Sequence[Part] | Fault | int | Wrong


class BaseUrl(str):
    """Where the judged codec answers. `requests` and `asks` grow as clients ask."""

    requests: list[Received]
    asks: list[Ask]


@dataclass
class _Judge:
    codec: Codec
    answers: list[Answer]
    requests: list[Received] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            received = await _receive(reader)
            if received is not None:
                self.requests.append(received)
                await self.answer(received, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        route = self.codec.route(received.method, received.path, received.query)
        if route is None:
            return _refuse(writer, self.codec, Fault(status=404, kind="not_found", message="no such path"))
        try:
            ask = self.codec.parse(route, received.body)
        except ValueError as error:
            return _refuse(writer, self.codec, Fault(status=400, kind="invalid", message=str(error)))
        self.asks.append(ask)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer_id = f"answer_{len(self.asks)}"
        if isinstance(answer, Fault):
            return _refuse(writer, self.codec, answer)
        if isinstance(answer, int):
            return _whole(writer, self.codec.count(answer))
        wrong = answer if isinstance(answer, Wrong) else Wrong(parts=answer)
        if ask.stream:
            return await _stream(writer, self.codec, ask, answer_id, wrong)
        return _whole(writer, self.codec.whole(ask, answer_id, wrong.parts))


async def _receive(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path, _, query = target.partition("?")
    return Received(method, path, query, headers, json.loads(body) if body else {})


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode("latin-1")


def _refuse(writer: asyncio.StreamWriter, codec: Codec, fault: Fault) -> None:
    reply = refuse(codec, fault)
    assert isinstance(reply.body, bytes)
    length = {"content-length": str(len(reply.body))}
    writer.write(_head(fault.status, reply.headers | length) + reply.body)


def _whole(writer: asyncio.StreamWriter, body: bytes) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    writer.write(_head(200, headers) + body)


async def _stream(
    writer: asyncio.StreamWriter, codec: Codec, ask: Ask, answer_id: str, answer: Wrong
) -> None:
    kind = "text/event-stream" if ask.sse else "application/json"
    writer.write(_head(200, {"content-type": kind, "transfer-encoding": "chunked"}))
    encoder = codec.encoder(ask, answer_id)
    for frame in (encoder.start(), *(encoder.feed(part) for part in answer.parts), answer.frame):
        if frame:
            writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))
            await writer.drain()
    if answer.reset:
        writer.transport.abort()
    else:
        writer.write(b"0\r\n\r\n")


@asynccontextmanager
async def judge(codec: Codec, *answers: Answer) -> AsyncIterator[BaseUrl]:
    """Serve a codec on 127.0.0.1 until the block ends."""
    state = _Judge(codec, list(answers))
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0)
    url = BaseUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    url.requests, url.asks = state.requests, state.asks
    try:
        yield url
    finally:
        server.close()
        await server.wait_closed()
