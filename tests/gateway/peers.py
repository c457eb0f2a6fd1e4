"""Loopback peers for the gateway: servers that misbehave as told, clients of all formats, and who asks what.

`async with peer(handler) as url` serves raw HTTP: the handler gets what was asked and a way to write, and the
peer tells when its connection was closed from the other side.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec
import openai
from anthropic import APIStatusError, AsyncAnthropic
from openai import AsyncOpenAI

from codesdk.gateway.upstream import Provider, Upstream
from codesdk.gateway.wires.exchange import Wire

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the client's source has escapes that its first compilation warns of
    from google import genai
    from google.genai import errors as gemini_errors, types

PATIENCE_S = 10.0
WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat", "gemini")
PATHS: dict[Wire, str] = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
}
TYPED: dict[Wire, type[Exception]] = {
    "anthropic": APIStatusError,
    "responses": openai.APIStatusError,
    "chat": openai.APIStatusError,
    "gemini": gemini_errors.APIError,
}
"""What the official client of a format raises when it is refused."""


@dataclass
class Peer:
    """A server on loopback. `asked` grows with each request; `left` is set when the other side hangs up."""

    url: str = ""
    asked: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def upstream(self, key: str | None = None, **options: Any) -> Upstream:
        """Return the way to this peer, in place of every provider."""
        return Upstream({wire: Provider(origin=self.url, key=key) for wire in WIRES}, **options)


Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(handler: Handler) -> AsyncIterator[Peer]:
    """Serve until the block ends. After the handler has written, the connection stays open until the other side leaves."""
    state = Peer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
            length = int(lengths[0].split(b":")[1]) if lengths else 0
            state.asked.append(head + await reader.readexactly(length))
            await handler(writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            state.left.set()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    """Take the request and never answer."""


def say(body: bytes, status: int = 200, *headers: str) -> Handler:
    """Return a handler that gives one whole answer."""

    async def handle(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return handle


def stream(*chunks: bytes, end: bool = False, abort: bool = False) -> Handler:
    """Return a handler that streams chunks, each in a write of its own, and then ends, breaks off or falls silent."""

    async def handle(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for chunk in chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(0)
        if end:
            writer.write(b"0\r\n\r\n")
        if abort:
            writer.transport.abort()

    return handle


def body_of(wire: Wire, text: str = "Hi", **fields: Any) -> dict[str, Any]:
    """Return a small streaming request of a format."""
    messages = [{"role": "user", "content": text}]
    if wire == "anthropic":
        body = {"model": "claude-judged", "max_tokens": 100, "stream": True, "messages": messages}
    elif wire == "responses":
        body = {"model": "gpt-5.5", "stream": True, "input": text}
    elif wire == "chat":
        body = {"model": "gpt-5.5", "stream": True, "messages": messages}
    else:
        body = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    return body | fields


def error_text(wire: Wire, body: bytes) -> str:
    """Return the message of an error, read as a client of the format reads it."""
    value = msgspec.json.decode(body)
    if wire == "anthropic":
        assert value["type"] == "error"
    return value["error"]["message"]


async def post(
    base_url: str, wire: Wire, client: httpx2.AsyncClient | None = None, **fields: Any
) -> httpx2.Response:
    """Ask once and return the whole answer."""
    if client is None:
        async with httpx2.AsyncClient(timeout=PATIENCE_S, verify=False) as own:
            return await post(base_url, wire, own, **fields)
    return await client.post(base_url + PATHS[wire], json=body_of(wire, **fields))


async def send_raw(
    url: str, *headers: str, method: str = "POST", body: bytes = b"", patience_s: float = PATIENCE_S
) -> bytes:
    """Send a request exactly as it is given, without a client that logs or mends it, and return all that comes back."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    lines = [
        f"{method} /{path} HTTP/1.1",
        "host: x",
        "connection: close",
        f"content-length: {len(body)}",
        *headers,
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    try:
        return await asyncio.wait_for(reader.read(), patience_s)
    finally:
        writer.close()


async def ask(base_url: str, wire: Wire, text: str = "Hi", key: str = "not-a-key") -> str:
    """Have the official client of a format stream an answer, and return its text."""
    if wire == "anthropic":
        async with AsyncAnthropic(api_key=key, base_url=base_url, max_retries=0) as claude:
            messages: Any = [{"role": "user", "content": text}]
            async with claude.messages.stream(
                model="claude-judged", max_tokens=100, messages=messages
            ) as events:
                return "".join([piece async for piece in events.text_stream])
    if wire == "gemini":
        both = genai.Client(api_key=key, http_options=types.HttpOptions(base_url=base_url))
        async with both.aio as model:
            pieces = await model.models.generate_content_stream(model="gemini-2.5-flash", contents=text)
            said = "".join([piece.text or "" async for piece in pieces])
        both.close()
        return said
    async with AsyncOpenAI(api_key=key, base_url=f"{base_url}/v1", max_retries=0) as gpt:
        if wire == "responses":
            events = await gpt.responses.create(model="gpt-5.5", input=text, stream=True)
            return "".join([e.delta async for e in events if e.type == "response.output_text.delta"])
        chunks = await gpt.chat.completions.create(
            model="gpt-5.5", messages=[{"role": "user", "content": text}], stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])
