"""What the gateway passes on and what it keeps to itself: lists of models, cookies, failures that may be tried again, floods."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import anyio
import httpx2
import pytest
from tests.gateway.clients import converse
from tests.gateway.peers import (
    PATHS,
    PATIENCE_S,
    WIRES,
    Handler,
    Peer,
    body_of,
    error_text,
    peer,
    post,
    say,
    send_raw,
    stream,
)

from codesdk.contract.models import STAND_IN
from codesdk.gateway.providers import ORIGINS, Provider
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.upstream import Upstream
from codesdk.gateway.wires.exchange import Ask, Codec, Wire
from codesdk.gateway.wires.formats import codec_for, find_provider
from codesdk.script import parse_object

LOGIN = "login-of-the-runtime-0123456789"
each_wire = pytest.mark.parametrize("wire", WIRES)


def apart(**peers: Peer) -> Upstream:
    """Return the way to a peer of its own for each provider."""
    origins: dict[str, Peer] = {"chat": peers["openai"], "responses": peers["openai"], **peers}
    return Upstream({wire: Provider(origin=origins[wire].url) for wire in WIRES})


# --- lists of models --------------------------------------------------------------------------------


async def test_a_list_of_models_goes_out_with_the_runtimes_login_and_comes_back_as_it_is():
    answered = say(b"\x00\xfe answer", 207, "x-own: 1", "content-type: application/x-own")
    async with peer(answered) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        url = gateway.admit(upstream) + "/v1/models?limit=3&after=a%2Fb"
        answer = await send_raw(url, f"authorization: Bearer {LOGIN}", method="GET")
        await upstream.close()
    (asked,) = provider.asked
    assert asked.startswith(b"GET /v1/models?limit=3&after=a%2Fb HTTP/1.1\r\n")
    assert f"authorization: Bearer {LOGIN}\r\n".encode() in asked
    assert answer.startswith(b"HTTP/1.1 207 ")
    assert b"x-own: 1\r\n" in answer
    assert answer.endswith(b"\x00\xfe answer\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("path", "headers", "wire"),
    [
        ("/v1/models", [("anthropic-version", "2023-06-01")], "anthropic"),
        ("/v1/models", [("X-Api-Key", LOGIN)], "anthropic"),
        ("/api/hello", [("User-Agent", "claude-cli/2.1 (external)")], "anthropic"),
        ("/v1/messages/batches", [("authorization", LOGIN)], "anthropic"),
        ("/v1/models", [("x-goog-api-key", LOGIN)], "gemini"),
        ("/v1beta/models", [], "gemini"),
        ("/v1/models", [("authorization", LOGIN)], "chat"),
        ("/models", [("user-agent", "codex_cli_rs/0.50")], "chat"),
        ("/v1/responses/resp_1", [], "responses"),
        ("/api/hello", [("authorization", LOGIN)], None),
        ("/", [], None),
        ("", [], None),
    ],
)
def test_a_request_of_no_format_is_told_by_its_client(
    path: str, headers: list[tuple[str, str]], wire: Wire | None
):
    assert find_provider(path, headers) == wire


async def test_a_login_never_goes_to_another_provider_than_its_own():
    ok = say(b"{}")
    async with peer(ok) as claude, peer(ok) as openai, peer(ok) as gemini, Gateway() as gateway:
        upstream = apart(anthropic=claude, openai=openai, gemini=gemini)
        base_url = gateway.admit(upstream)
        for header in ("anthropic-version: 2023-06-01", "x-goog-api-client: x", "openai-organization: x"):
            await send_raw(f"{base_url}/v1/models", header, f"authorization: Bearer {LOGIN}", method="GET")
        assert [len(each.asked) for each in (claude, gemini, openai)] == [1, 1, 1]
        answer = await send_raw(f"{base_url}/api/hello", f"authorization: Bearer {LOGIN}")
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert [len(each.asked) for each in (claude, gemini, openai)] == [1, 1, 1]
        await upstream.close()


# --- what is kept between requests -----------------------------------------------------------------


async def test_a_cookie_of_the_provider_reaches_the_client_and_no_request_has_one():
    cookie = say(b"{}", 200, "set-cookie: session=of-one; Path=/", "connection: close")
    async with peer(cookie) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        url = gateway.admit(upstream) + PATHS["chat"]
        async with httpx2.AsyncClient() as client:
            first = await client.post(url, json=body_of("chat"))
        assert first.headers["set-cookie"] == "session=of-one; Path=/"
        async with httpx2.AsyncClient() as another:
            await another.post(url, json=body_of("chat"))
            await another.post(url, json=body_of("chat"), headers={"cookie": "own=1"})
        await upstream.close()
    _, second, third = provider.asked
    assert b"cookie" not in second.lower()
    assert b"cookie" not in third.lower()


async def test_an_answer_has_the_date_of_the_provider_once():
    dated = say(b"{}", 200, "date: Sun, 15 Nov 2026 10:00:00 GMT")
    async with peer(dated) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        answer = await post(gateway.admit(upstream), "chat")
        await upstream.close()
    assert answer.headers.get_list("date") == ["Sun, 15 Nov 2026 10:00:00 GMT"]


# --- failures that may be tried again --------------------------------------------------------------


async def break_off(writer: asyncio.StreamWriter) -> None:
    """Break the connection off before any answer."""
    writer.transport.abort()


async def keep_still(writer: asyncio.StreamWriter) -> None:
    """Never answer."""


@pytest.mark.parametrize(("failure", "status"), [(keep_still, 504), (break_off, 502)])
@each_wire
@pytest.mark.slow
async def test_a_failure_of_the_provider_is_tried_again_by_the_official_client(
    wire: Wire, failure: Handler, status: int, monkeypatch: pytest.MonkeyPatch
):
    async def at_once(seconds: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(anyio, "sleep", at_once)
    model = ScriptedModel(parse_object({"turns": [{"steps": [{"text": "Here again."}]}]}, "test"))
    async with peer(failure) as broken, Gateway() as gateway:
        failing = broken.upstream(read_timeout_s=0.2)
        real = Peer(url=gateway.admit(model)).upstream()
        backend = FirstThen(failing, real)
        turn = await converse(gateway.admit(backend), wire, retries=1)
        await failing.close()
        await real.close()
    assert (turn.heard.text, backend.statuses) == ("Here again.", [status, 200])


class FirstThen:
    """Passes the first request to one backend and the others to another."""

    def __init__(self, first: Upstream, then: Upstream) -> None:
        self._backends = [first, then]
        self.statuses: list[int] = []

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        reply = await self._backends[min(len(self.statuses), 1)].answer(codec, ask, request)
        self.statuses.append(reply.status)
        return reply

    async def list_models(self, codec: Codec, request: RawRequest) -> None:
        raise AssertionError


# --- clients that do not read, and bodies that fail ------------------------------------------------


async def test_a_client_that_does_not_read_holds_the_provider_back_and_lets_it_go_when_it_leaves():
    total, piece = 4096, b"x" * 65_536  # 256 MB, far more than all buffers on the way
    written = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(total):
            writer.write(b"10000\r\n" + piece + b"\r\n")
            await writer.drain()
            written += 1

    async with peer(flood) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        async with httpx2.AsyncClient() as client:
            sent = client.stream("POST", gateway.admit(upstream) + PATHS["chat"], json=body_of("chat"))
            async with sent as answer:
                assert await anext(answer.aiter_raw())
        await asyncio.wait_for(provider.left.wait(), PATIENCE_S)
        await upstream.close()
    assert 0 < written < total // 4


async def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_large():
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" " * 10_000

    async with Gateway(max_body_bytes=50_000) as gateway, httpx2.AsyncClient() as client:
        model = ScriptedModel(parse_object({"turns": [{"steps": []}]}, "test"))
        answer = await client.post(gateway.admit(model) + PATHS["gemini"], content=endless())
    assert answer.status_code == 413
    assert (
        error_text("gemini", answer.content) == "The request is too large; at most 50,000 bytes are accepted."
    )


@pytest.mark.parametrize("wire", WIRES)
async def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(wire: Wire):
    body = b'{"messages": [' + b"[]," * 600_000 + b"[]]}"
    async with peer(say(b"{}")) as provider, Gateway() as gateway, httpx2.AsyncClient() as client:
        upstream = provider.upstream()
        answer = await client.post(gateway.admit(upstream) + PATHS[wire], content=body)
        await upstream.close()
    assert (answer.status_code, provider.asked) == (413, [])
    assert (
        error_text(wire, answer.content)
        == "The request is too large; at most 1,000,000 JSON values are accepted."
    )


async def test_a_body_that_fails_in_mid_stream_is_a_reset_and_is_logged_without_its_message(
    caplog: pytest.LogCaptureFixture,
):
    class Failing:
        async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
            async def body() -> AsyncIterator[bytes]:
                yield b"data: {}\n\n"
                raise KeyError(LOGIN)

            return Reply(status=200, headers={}, body=body())

        async def list_models(self, codec: Codec, request: RawRequest) -> None:
            raise AssertionError

    async with Gateway() as gateway:
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(gateway.admit(Failing()), "chat")
    assert "A model request failed with KeyError" in caplog.text
    assert LOGIN not in caplog.text


async def test_a_reset_of_the_provider_is_no_failure_of_ours_and_is_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    async with peer(stream(b"data: {}\n\n", abort=True)) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(gateway.admit(upstream), "chat")
        await upstream.close()
    assert [record for record in caplog.records if record.name.startswith("codesdk")] == []


@pytest.mark.parametrize(
    ("key", "origin", "headers", "lacking"),
    [
        (None, ORIGINS["anthropic"], [], "ANTHROPIC_API_KEY"),
        (None, ORIGINS["anthropic"], [("X-Api-Key", STAND_IN)], "ANTHROPIC_API_KEY"),
        (None, ORIGINS["anthropic"], [("authorization", f"Bearer {STAND_IN}")], "ANTHROPIC_API_KEY"),
        (None, ORIGINS["anthropic"], [("authorization", "Bearer sk-ant-oat01-its-own")], None),
        (None, "http://127.0.0.1:11434", [("x-api-key", STAND_IN)], None),
        ("sk-ours", ORIGINS["anthropic"], [("x-api-key", STAND_IN)], None),
    ],
    ids=[
        "nothing",
        "stand-in",
        "stand-in as a bearer",
        "a login",
        "a model on this machine",
        "a key of ours",
    ],
)
async def test_a_provider_is_not_asked_without_a_key_or_a_login(
    key: str | None, origin: str, headers: list[tuple[str, str]], lacking: str | None
):
    upstream = Upstream({"anthropic": Provider(origin=origin, key=key)})
    request = RawRequest(method="POST", path="/v1/messages", query="", headers=headers, body=b"{}")
    assert upstream.lacks("anthropic", request) == lacking
    if lacking is not None:
        reply = await upstream._forward(codec_for("anthropic"), request)
        assert (reply.status, isinstance(reply.body, bytes)) == (401, True)
        assert b"set ANTHROPIC_API_KEY" in cast("bytes", reply.body)
    await upstream.close()
