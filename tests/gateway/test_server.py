"""The gateway's server and its way upstream: bad input, peers that leave or fall silent, keys, and nothing left behind."""

import asyncio
import logging

import httpx2
import msgspec
import pytest
from tests.gateway.peers import (
    PATHS,
    PATIENCE_S,
    TYPED,
    WIRES,
    ask,
    body_of,
    error_text,
    peer,
    post,
    say,
    say_nothing,
    send_raw,
    stream,
)

from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Ask, Codec, Wire
from codesdk.script import parse_script

HELLO = parse_script("loop: true\nturns:\n- steps:\n  - text: [Hel, lo]\n", "hello.yaml")
KEY = "key-of-codesdk-0123456789"
LOGIN = "login-of-the-runtime-0123456789"
each_wire = pytest.mark.parametrize("wire", WIRES)


async def within(event: asyncio.Event) -> None:
    """Wait for a peer, but not forever."""
    await asyncio.wait_for(event.wait(), PATIENCE_S)


@each_wire
async def test_a_request_without_a_valid_token_is_refused_as_its_provider_would_and_counted(wire: Wire):
    async with Gateway() as gateway:
        kept = gateway.admit(ScriptedModel(HELLO))
        dismissed = gateway.admit(ScriptedModel(HELLO))
        gateway.dismiss(dismissed)
        for base_url in (gateway.url, f"{gateway.url}/g", f"{gateway.url}/g/wrong", dismissed):
            answer = await post(base_url, wire)
            assert answer.status_code == 401
            assert "no session behind this address" in error_text(wire, answer.content)
        assert gateway.refused == 4
        assert (await post(kept, wire)).status_code == 200
        assert gateway.refused == 4


@each_wire
@pytest.mark.slow
async def test_a_wrong_token_is_the_typed_error_of_the_official_client(wire: Wire):
    async with Gateway() as gateway:
        with pytest.raises(TYPED[wire], match="no session behind this address"):
            await ask(f"{gateway.url}/g/wrong", wire)


@each_wire
@pytest.mark.slow
async def test_a_body_over_the_limit_is_refused_and_the_connection_stays_good(wire: Wire):
    async with Gateway(max_body_bytes=10_000) as gateway, httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        base_url = gateway.admit(ScriptedModel(HELLO))
        answer = await post(base_url, wire, client, text="x" * 3_000_000)
        assert answer.status_code == 413
        assert "10,000 bytes" in error_text(wire, answer.content)
        assert (await post(base_url, wire, client, text="x" * 5_000)).status_code == 200


@pytest.mark.parametrize(
    ("wire", "method", "path"),
    [
        ("anthropic", "GET", "/v1/messages/batches"),
        ("responses", "DELETE", "/v1/responses/resp_1"),
        ("chat", "POST", "/v1/embeddings"),
        ("chat", "GET", ""),
        ("gemini", "GET", "/v1beta/models"),
    ],
)
@pytest.mark.slow
async def test_an_unknown_route_is_not_found_in_the_shape_of_the_likely_provider(
    wire: Wire, method: str, path: str
):
    async with Gateway() as gateway, httpx2.AsyncClient() as client:
        answer = await client.request(method, gateway.admit(ScriptedModel(HELLO)) + path)
        assert answer.status_code == 404
        assert "is not a route of this gateway" in error_text(wire, answer.content)


@pytest.mark.slow
@each_wire
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"model": 7, "messages": 7, "input": 7, "contents": 7}',
    ],
)
async def test_what_cannot_be_read_is_refused_as_invalid(wire: Wire, body: bytes):
    async with Gateway() as gateway, httpx2.AsyncClient() as client:
        answer = await client.post(gateway.admit(ScriptedModel(HELLO)) + PATHS[wire], content=body)
        assert answer.status_code == 400
        assert error_text(wire, answer.content)


async def test_a_client_that_hangs_up_in_mid_stream_releases_the_upstream_at_once():
    async with peer(stream(b"event: ping\ndata: {}\n\n")) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        async with httpx2.AsyncClient() as client:
            sent = client.stream(
                "POST", gateway.admit(upstream) + PATHS["anthropic"], json=body_of("anthropic")
            )
            async with sent as answer:
                assert await anext(answer.aiter_raw()) == b"event: ping\ndata: {}\n\n"
                assert not provider.left.is_set()
        await within(provider.left)
        await upstream.close()


async def test_a_client_that_hangs_up_before_the_first_byte_releases_the_upstream_at_once():
    asked = asyncio.Event()

    async def note(writer: asyncio.StreamWriter) -> None:
        asked.set()

    async with peer(note) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        asking = asyncio.create_task(post(gateway.admit(upstream), "chat"))
        await within(asked)
        asking.cancel()
        await within(provider.left)
        await upstream.close()


async def test_a_client_that_leaves_before_its_request_is_complete_asks_nothing():
    seen = Noting()
    async with Gateway() as gateway:
        path = gateway.admit(seen).removeprefix(gateway.url) + "/v1/models"
        reader, writer = await asyncio.open_connection(*address(gateway.url))
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        del reader
        assert (await post(gateway.admit(ScriptedModel(HELLO)), "chat")).status_code == 200
    assert seen.listed == 0


@each_wire
async def test_an_upstream_that_never_answers_times_out_in_the_shape_of_the_provider(wire: Wire):
    async with peer(say_nothing) as provider, Gateway() as gateway:
        upstream = provider.upstream(read_timeout_s=0.05)
        answer = await post(gateway.admit(upstream), wire)
        assert answer.status_code == 504
        assert "did not answer in time" in error_text(wire, answer.content)
        await within(provider.left)
        await upstream.close()


async def test_an_upstream_that_falls_silent_in_mid_stream_ends_in_a_reset():
    async with peer(stream(b"data: {}\n\n")) as provider, Gateway() as gateway:
        upstream = provider.upstream(read_timeout_s=0.05)
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(gateway.admit(upstream), "chat")
        await within(provider.left)
        await upstream.close()


async def test_a_reset_of_the_upstream_reaches_the_client_as_one():
    async with peer(stream(b"data: {}\n\n", abort=True)) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(gateway.admit(upstream), "responses")
        await upstream.close()


@each_wire
async def test_an_upstream_that_is_down_is_a_typed_error_that_may_be_tried_again(wire: Wire):
    async with peer(say_nothing) as provider:
        pass
    async with Gateway() as gateway:
        upstream = provider.upstream()
        base_url = gateway.admit(upstream)
        answer = await post(base_url, wire)
        assert answer.status_code == 502
        assert "cannot be reached" in error_text(wire, answer.content)
        with pytest.raises(TYPED[wire], match="cannot be reached"):
            await ask(base_url, wire)
        await upstream.close()


@pytest.mark.parametrize(
    ("wire", "header"),
    [
        ("anthropic", f"x-api-key: {KEY}"),
        ("responses", f"authorization: Bearer {KEY}"),
        ("chat", f"authorization: Bearer {KEY}"),
        ("gemini", f"x-goog-api-key: {KEY}"),
    ],
)
async def test_the_real_key_takes_the_place_of_whatever_the_runtime_sent(wire: Wire, header: str):
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        separator = "&" if "?" in PATHS[wire] else "?"
        async with httpx2.AsyncClient() as client:
            await client.post(
                f"{gateway.admit(upstream)}{PATHS[wire]}{separator}key={LOGIN}",
                json=body_of(wire),
                headers=dict.fromkeys(("x-api-key", "authorization", "x-goog-api-key"), LOGIN),
            )
        (asked,) = provider.asked
        assert header.encode() in asked
        assert asked.count(KEY.encode()) == 1
        assert LOGIN.encode() not in asked
        await upstream.close()


async def test_without_a_key_of_ours_the_login_of_the_runtime_passes_as_it_is():
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        async with httpx2.AsyncClient() as client:
            url = gateway.admit(upstream) + PATHS["anthropic"] + "?beta=true"
            await client.post(url, json=body_of("anthropic"), headers={"authorization": f"Bearer {LOGIN}"})
        (asked,) = provider.asked
        assert asked.startswith(b"POST /v1/messages?beta=true HTTP/1.1\r\n")
        assert f"authorization: Bearer {LOGIN}".encode() in asked
        await upstream.close()


async def test_a_key_in_the_query_goes_on_as_a_header_so_that_no_log_of_addresses_has_it(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream()
        url = f"{gateway.admit(upstream)}/v1beta/models/m:countTokens?key={LOGIN}&alt=sse"
        seen = await send_raw(url, body=msgspec.json.encode(body_of("gemini")))
        assert seen.startswith(b"HTTP/1.1 200")
        (asked,) = provider.asked
        assert asked.startswith(b"POST /v1beta/models/m:countTokens?alt=sse HTTP/1.1\r\n")
        assert f"x-goog-api-key: {LOGIN}".encode() in asked
        await upstream.close()
    assert "send_request_headers" in caplog.text
    assert LOGIN not in caplog.text


@each_wire
@pytest.mark.slow
async def test_our_key_in_the_error_text_of_a_provider_does_not_reach_the_runtime(wire: Wire):
    text = msgspec.json.encode({"type": "error", "error": {"message": f"Incorrect key {KEY}.", "code": 401}})
    async with peer(say(text, 401, "content-type: application/json")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        base_url = gateway.admit(upstream)
        with pytest.raises(TYPED[wire], match=r"Incorrect key \[redacted\]\.") as caught:
            await ask(base_url, wire)
        assert KEY not in f"{caught.value!r} {caught.value}"
        await upstream.close()


async def test_a_bug_of_ours_is_an_error_of_the_provider_and_its_message_is_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    async with Gateway() as gateway:
        answer = await post(gateway.admit(Broken()), "anthropic")
    assert answer.status_code == 500
    assert error_text("anthropic", answer.content) == "The gateway failed to handle this request (KeyError)."
    assert "KeyError" in caplog.text
    assert LOGIN not in caplog.text


@pytest.mark.slow
async def test_streams_that_are_open_when_the_gateway_ends_are_closed_before_it_has_ended():
    async with peer(stream(b"data: {}\n\n")) as provider:
        upstream = provider.upstream()
        async with httpx2.AsyncClient() as client:
            async with Gateway() as gateway:
                sent = client.stream("POST", gateway.admit(upstream) + PATHS["chat"], json=body_of("chat"))
                answer = await sent.__aenter__()
                chunks = answer.aiter_raw()
                assert await anext(chunks) == b"data: {}\n\n"
            with pytest.raises(httpx2.RemoteProtocolError):
                await anext(chunks)
            await answer.aclose()
        await within(provider.left)
        await upstream.close()


class Noting:
    """Counts what reaches it."""

    def __init__(self) -> None:
        self.listed = 0

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        raise AssertionError

    async def list_models(self, codec: Codec, request: RawRequest) -> None:
        self.listed += 1


class Broken(Noting):
    """Fails with a message that must not be seen."""

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        raise KeyError(LOGIN)


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)
