"""Record against a scripted provider, replay without it; secrets in no record; clients that leave; requests that are not there."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest
from tests.gateway.peers import (
    PATHS,
    PATIENCE_S,
    TYPED,
    WIRES,
    Peer,
    ask,
    body_of,
    error_text,
    peer,
    post,
    say,
    stream,
)

from codesdk.contract.errors import InvalidRequest
from codesdk.gateway.cassettes.cassette import (
    Chunk,
    Exchange,
    Tape,
    dump_cassette,
    parse_cassette,
    request_hash,
)
from codesdk.gateway.cassettes.record import RecordingBackend
from codesdk.gateway.cassettes.replay import ReplayBackend
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Backend, Gateway
from codesdk.gateway.wires.exchange import Ask, Codec, Wire
from codesdk.script import parse_script

pytestmark = pytest.mark.slow

STORY = """
turns:
  - steps:
      - reasoning: [I should , think.]
      - text: [Grüße, " aus dem ", Skript.]
    usage: {input: 12, output: 5}
  - steps:
      - text: Second.
  - steps:
      - http: {status: 429, retry_after_s: 2, message: Slow down.}
  - steps:
      - text: [Half a]
      - reset: true
"""
CANARY = "canary-7f3e9b1c5d2a4860"
KEY = "key-of-codesdk-0123456789"
each_wire = pytest.mark.parametrize("wire", WIRES)


def script(text: str = STORY) -> ScriptedModel:
    return ScriptedModel(parse_script(text, "story.yaml"))


class Recorder:
    """A gateway that records what passes to a provider."""

    def __init__(self, backend: RecordingBackend, base_url: str, tape: Tape) -> None:
        self.backend = backend
        self.base_url = base_url
        self.tape = tape

    @property
    def cassette(self) -> list[Exchange]:
        """What was recorded, as it is written and read."""
        return parse_cassette(self.tape.dump(), "cassette")


@asynccontextmanager
async def recording(provider: Peer, key: str | None = None, **options: Any) -> AsyncIterator[Recorder]:
    """Run a recording gateway before a provider."""
    upstream = provider.upstream(key)
    tape = Tape()
    backend = RecordingBackend(upstream, tape.add, secrets=[key] if key else [], **options)
    async with Gateway() as gateway:
        yield Recorder(backend, gateway.admit(backend), tape)
    await upstream.close()


@asynccontextmanager
async def scripted_provider(text: str = STORY) -> AsyncIterator[tuple[Peer, ScriptedModel]]:
    model = script(text)
    async with Gateway() as gateway:
        yield Peer(url=gateway.admit(model)), model


@asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[str]:
    async with Gateway() as gateway:
        yield gateway.admit(backend)


async def raw_chunks(base_url: str, wire: Wire, text: str) -> tuple[int, dict[str, str], list[bytes], bool]:
    """Return status, the headers that count, the bytes as they came, and whether they broke off."""
    chunks: list[bytes] = []
    async with httpx2.AsyncClient(timeout=PATIENCE_S, verify=False) as client:
        sent = client.stream("POST", base_url + PATHS[wire], json=body_of(wire, text))
        async with sent as answer:
            headers = {n: v for n, v in answer.headers.items() if n in ("content-type", "retry-after")}
            try:
                async for chunk in answer.aiter_raw():
                    chunks.append(chunk)
            except httpx2.RemoteProtocolError:
                return answer.status_code, headers, chunks, True
            return answer.status_code, headers, chunks, False


async def run(base_url: str, wire: Wire) -> list[Any]:
    """Ask as a runtime would, the last three times with the same request, and return all that came."""
    answers = [await raw_chunks(base_url, wire, text) for text in ("One", "Two", "Two", "Two")]
    return [(status, headers, b"".join(chunks), broke) for status, headers, chunks, broke in answers]


@each_wire
@pytest.mark.slow
async def test_what_was_recorded_is_replayed_to_the_byte_with_the_provider_gone(wire: Wire):
    async with scripted_provider() as (provider, model), recording(provider) as recorder:
        recorded = await run(recorder.base_url, wire)
        asked = model.played
    assert recorder.backend.problems == []
    backend = ReplayBackend(recorder.cassette)
    async with serving(backend) as base_url:
        assert await run(base_url, wire) == recorded
    assert [status for status, *_ in recorded] == [200, 200, 429, 200]
    assert [broke for *_, broke in recorded] == [False, False, False, True]
    assert recorded[2][1]["retry-after"] == "2"
    assert (backend.played, backend.unplayed, backend.problems) == (4, 0, [])
    assert model.played == asked == 4


@pytest.mark.slow
@each_wire
async def test_the_official_client_hears_the_same_twice(wire: Wire):
    async with scripted_provider() as (provider, _), recording(provider) as recorder:
        said = [await ask(recorder.base_url, wire, text) for text in ("One", "Two")]
        with pytest.raises(TYPED[wire], match="Slow down"):
            await ask(recorder.base_url, wire, "Two")
    async with serving(ReplayBackend(recorder.cassette)) as base_url:
        assert [await ask(base_url, wire, text) for text in ("One", "Two")] == said
        with pytest.raises(TYPED[wire], match="Slow down"):
            await ask(base_url, wire, "Two")
    assert said == ["Grüße aus dem Skript.", "Second."]
    assert [exchange.ending for exchange in recorder.cassette] == ["complete"] * 3


async def test_an_exchange_is_kept_with_all_that_replay_and_people_need():
    times = itertools.count(100.0, 0.25)
    async with (
        peer(stream(b"data: 1\n\n", b"data: 2\n\n", end=True)) as provider,
        recording(provider, clock=lambda: next(times)) as recorder,
    ):
        await post(recorder.base_url, "gemini", text="Generate a title")
        body = body_of("gemini", "Generate a title")
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
    (kept,) = recorder.cassette
    assert "".join(chunk.text for chunk in kept.chunks) == "data: 1\n\ndata: 2\n\n"
    assert [chunk.ms for chunk in kept.chunks] == [250, 500][: len(kept.chunks)]
    assert msgspec.structs.replace(kept, chunks=[]) == Exchange(
        number=1,
        wire="gemini",
        method="POST",
        path=path,
        query="alt=sse",
        hash=request_hash("gemini", "POST", path, "alt=sse", body),
        purpose="title",
        request=body,
        status=200,
        headers={"content-type": "text/event-stream"},
        ending="complete",
    )


async def test_chunks_pass_as_they_come():
    more = asyncio.Event()

    async def handle(writer: asyncio.StreamWriter) -> None:
        await stream(b"data: 1\n\n")(writer)
        await more.wait()
        writer.write(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    async with (
        peer(handle) as provider,
        recording(provider) as recorder,
        httpx2.AsyncClient() as client,
        client.stream("POST", recorder.base_url + PATHS["chat"], json=body_of("chat")) as answer,
    ):
        chunks = answer.aiter_raw()
        assert await anext(chunks) == b"data: 1\n\n"
        more.set()
        assert await anext(chunks) == b"data: 2\n\n"
        assert [chunk async for chunk in chunks] == []


async def test_a_client_that_hangs_up_releases_the_provider_at_once_and_its_exchange_is_not_replayed():
    async with peer(stream(b"data: {}\n\n")) as provider, recording(provider) as recorder:
        async with httpx2.AsyncClient() as client:
            sent = client.stream("POST", recorder.base_url + PATHS["chat"], json=body_of("chat"))
            async with sent as answer:
                assert await anext(answer.aiter_raw()) == b"data: {}\n\n"
        await asyncio.wait_for(provider.left.wait(), PATIENCE_S)
    (kept,) = recorder.cassette
    assert (kept.ending, kept.status, kept.can_replay) == ("abandoned", 200, False)
    assert [chunk.text for chunk in kept.chunks] == ["data: {}\n\n"]
    backend = ReplayBackend([kept])
    async with serving(backend) as base_url:
        answer = await post(base_url, "chat")
    assert answer.status_code == 400
    assert "recorded as exchange 1, but its answer is not complete (abandoned)" in backend.problems[0]


async def test_a_client_that_hangs_up_before_there_is_an_answer_leaves_a_request_without_one():
    asked = asyncio.Event()

    async def note(writer: asyncio.StreamWriter) -> None:
        asked.set()

    async with peer(note) as provider, recording(provider) as recorder:
        asking = asyncio.create_task(post(recorder.base_url, "responses"))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        asking.cancel()
        await asyncio.wait_for(provider.left.wait(), PATIENCE_S)
    (kept,) = recorder.cassette
    assert (kept.ending, kept.status, kept.chunks) == ("abandoned", None, [])


LAST_EVENTS = {
    "anthropic": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "responses": b'event: response.completed\ndata: {"type": "response.completed"}\n\n',
    "chat": b"data: [DONE]\n\n",
    "gemini": b'data: {"candidates":[{"finishReason": "STOP"}]}\r\n\r\n',
}


@each_wire
async def test_a_client_that_hangs_up_after_the_last_event_has_heard_it_all(wire: Wire):
    async with peer(stream(LAST_EVENTS[wire])) as provider, recording(provider) as recorder:
        async with httpx2.AsyncClient() as client:
            sent = client.stream("POST", recorder.base_url + PATHS[wire], json=body_of(wire))
            async with sent as answer:
                assert await anext(answer.aiter_raw()) == LAST_EVENTS[wire]
        await asyncio.wait_for(provider.left.wait(), PATIENCE_S)
    (kept,) = recorder.cassette
    assert kept.ending == "complete"


async def test_streams_that_are_open_when_the_gateway_ends_are_in_the_record():
    async with peer(stream(b"data: {}\n\n")) as provider, httpx2.AsyncClient() as client:
        async with recording(provider) as recorder:
            sent = client.stream("POST", recorder.base_url + PATHS["chat"], json=body_of("chat"))
            answer = await sent.__aenter__()
            assert await anext(answer.aiter_raw()) == b"data: {}\n\n"
        await answer.aclose()
    assert [kept.ending for kept in recorder.cassette] == ["abandoned"]


async def test_an_answer_that_is_too_large_passes_but_is_not_kept():
    async with (
        peer(stream(b"x" * 60, b"y" * 60, end=True)) as provider,
        recording(provider, max_answer_bytes=100) as recorder,
    ):
        answer = await post(recorder.base_url, "chat")
    assert answer.content == b"x" * 60 + b"y" * 60
    (kept,) = recorder.cassette
    assert (kept.ending, kept.chunks, kept.can_replay) == ("too_large", [], False)


async def test_what_cannot_be_kept_passes_all_the_same_and_is_said():
    deep: Any = "x"
    for _ in range(800):
        deep = [deep]
    async with peer(say(b"{}")) as provider, recording(provider) as recorder:
        answer = await post(recorder.base_url, "chat", extra=deep)
    assert answer.content == b"{}"
    assert len(provider.asked) == 1
    assert recorder.cassette == []
    (problem,) = recorder.backend.problems
    assert problem.startswith("Exchange 1 was not kept")
    async with serving(ReplayBackend([])) as base_url:
        refused = await post(base_url, "chat", extra=deep)
    assert "nested too deeply" in error_text("chat", refused.content)


async def test_a_list_of_models_passes_is_noted_and_not_kept():
    async with (
        peer(say(b'{"data":[]}')) as provider,
        recording(provider) as recorder,
        httpx2.AsyncClient() as client,
    ):
        answer = await client.get(f"{recorder.base_url}/v1/models?key={CANARY}")
    assert answer.content == b'{"data":[]}'
    assert recorder.backend.others == ["GET /v1/models"]
    assert recorder.cassette == []
    async with serving(ReplayBackend([])) as base_url, httpx2.AsyncClient() as client:
        assert (await client.get(f"{base_url}/v1/models")).status_code == 404


# --- canaries ---


async def send_with(base_url: str, wire: Wire, place: str) -> httpx2.Response:
    """Ask with a secret somewhere, and hear the answer to its end."""
    headers = {"x-api-key": "placeholder"}
    path = PATHS[wire]
    text = "Hi"
    if place in ("x-api-key", "x-goog-api-key"):
        headers = {place: CANARY}
    elif place == "authorization":
        headers = {place: f"Bearer {CANARY}"}
    elif place == "query":
        path += ("&" if "?" in path else "?") + f"key={CANARY}"
    elif place == "body":
        headers = {"x-api-key": CANARY}
        text = f"My key is {CANARY}."
    async with httpx2.AsyncClient(timeout=PATIENCE_S, verify=False, headers=headers) as client:
        return await client.post(base_url + path, json=body_of(wire, text))


@each_wire
@pytest.mark.parametrize("place", ["x-api-key", "x-goog-api-key", "authorization", "query", "body"])
@pytest.mark.slow
async def test_a_secret_of_the_client_is_in_no_cassette_log_or_error(
    wire: Wire, place: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "codesdk")
    if place != "query":  # there the test's own client logs the address; test_server has that case
        caplog.set_level(logging.INFO)
    echo = msgspec.json.encode({"error": {"message": f"You sent {CANARY}", "type": "x"}, "type": "error"})
    async with peer(say(echo, 401)) as provider, recording(provider) as recorder:
        await send_with(recorder.base_url, wire, place)
    assert (CANARY.encode() in provider.asked[0]) == (place != "query" or wire == "gemini")
    assert CANARY.encode() not in recorder.tape.dump()
    (kept,) = recorder.cassette
    assert "You sent [redacted]" in kept.chunks[0].text
    backend = ReplayBackend([])
    async with serving(backend) as base_url:
        refused = await send_with(base_url, wire, place)
    assert CANARY not in refused.text
    assert CANARY not in f"{backend.problems} {recorder.backend.problems} {caplog.text}"


ANSWERS: dict[str, Callable[[], Any]] = {
    "whole": lambda: say(msgspec.json.encode({"text": KEY})),
    "split over chunks": lambda: stream(
        *(f'data: {{"text":"{KEY}"}}\n\n'[i : i + 7].encode() for i in range(0, 60, 7)), end=True
    ),
    "split over events": lambda: stream(
        *(b'data: {"type":"t","index":0,"delta":{"text":"%s"}}\n\n' % c.encode() for c in KEY), end=True
    ),
    "broken off": lambda: stream(f'data: {{"text":"{KEY}'.encode(), abort=True),
    "in bytes": lambda: say(b"\xff" + KEY.encode()),
    "in a header": lambda: say(b"{}", 200, f"retry-after: {KEY}", f"x-request-id: {KEY}"),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_our_key_in_an_answer_of_the_provider_is_in_no_cassette(kind: str):
    async with peer(ANSWERS[kind]()) as provider, recording(provider, KEY) as recorder:
        try:
            await post(recorder.base_url, "chat")
        except httpx2.RemoteProtocolError:
            assert kind == "broken off"
    data = recorder.tape.dump()
    assert KEY.encode() not in data
    (kept,) = recorder.cassette
    said = b"".join(chunk.bytes() for chunk in kept.chunks) + str(kept.headers).encode()
    assert b"[redacted]" in said
    pieces = [msgspec.json.decode(line[6:]) for line in said.split(b"\n") if line.startswith(b'data: {"type')]
    assert KEY not in "".join(piece["delta"]["text"] for piece in pieces)


@each_wire
@pytest.mark.slow
async def test_a_request_with_a_secret_in_its_body_is_found_again_with_another_secret(wire: Wire):
    async with scripted_provider() as (provider, _), recording(provider) as recorder:
        first = await send_with(recorder.base_url, wire, "body")
    async with serving(ReplayBackend(recorder.cassette)) as base_url:
        headers = {"x-api-key": "another-login-0123456789"}
        async with httpx2.AsyncClient(timeout=PATIENCE_S, verify=False, headers=headers) as client:
            body = body_of(wire, "My key is another-login-0123456789.")
            again = await client.post(base_url + PATHS[wire], json=body)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content


# --- requests that are not there ---


def made(number: int, text: str, answer: str = "data: {}\n\n", **fields: Any) -> Exchange:
    body = body_of("anthropic", text)
    return Exchange(
        **(
            {
                "number": number,
                "wire": "anthropic",
                "method": "POST",
                "path": "/v1/messages",
                "hash": "",
                "purpose": "main",
                "request": body,
                "status": 200,
                "chunks": [Chunk(ms=0, text=answer)],
                "ending": "complete",
            }
            | fields
        )
    )


async def test_a_miss_is_an_error_of_the_provider_that_shows_the_nearest_request_and_the_difference():
    backend = ReplayBackend([made(1, "Paint the bike shed"), made(2, "Fix the greeting in greet.py")])
    async with serving(backend) as base_url:
        answer = await post(base_url, "anthropic", text="Fix the greeting in hello.py", temperature=1)
    assert answer.status_code == 400
    problem = (
        "POST /v1/messages is not in the cassette. Nearest is exchange 2 (main), 80% alike:\n"
        "/messages/0/content\n"
        '  - "Fix the greeting in greet.py"\n'
        '  + "Fix the greeting in hello.py"\n'
        "/temperature\n"
        "  - (nothing)\n"
        "  + 1"
    )
    assert backend.problems == [problem]
    assert error_text("anthropic", answer.content) == f"replay: {problem}"


async def test_a_miss_says_where_the_nearest_was_recorded_if_elsewhere():
    backend = ReplayBackend([made(1, "Hi", path="/v1/messages/count_tokens", purpose="count_tokens")])
    async with serving(backend) as base_url:
        await post(base_url, "anthropic")
    assert backend.problems == [
        "POST /v1/messages is not in the cassette. Nearest is exchange 1 (count_tokens), 100% alike:\n"
        "it was recorded at POST /v1/messages/count_tokens"
    ]


async def test_equal_requests_are_answered_in_the_order_of_the_recording_until_none_is_left():
    backend = ReplayBackend([made(1, "Hi", "1"), made(2, "Ho", "2"), made(3, "Hi", "3")])
    async with serving(backend) as base_url:
        said = [(await post(base_url, "anthropic", text=text)).text for text in ("Hi", "Hi", "Ho")]
        used_up = [(await post(base_url, "anthropic", text=text)).status_code for text in ("Hi", "Ho")]
    assert said == ["1", "3", "2"]
    assert used_up == [400, 400]
    assert backend.problems == [
        "POST /v1/messages is in the cassette, but all of its 2 answers were already played.",
        "POST /v1/messages is in the cassette, but its only answer was already played.",
    ]


async def test_requests_at_the_same_time_find_each_its_own_answer():
    texts = [f"number {word}" for word in "abcdefgh"]
    backend = ReplayBackend([made(n, text, text) for n, text in enumerate(texts, start=1)])
    async with serving(backend) as base_url:
        asked = [post(base_url, "anthropic", text=text) for text in reversed(texts)]
        assert [answer.text for answer in await asyncio.gather(*asked)] == texts[::-1]
    assert backend.unplayed == 0


async def test_an_empty_cassette_says_that_it_is_empty():
    backend = ReplayBackend([])
    async with serving(backend) as base_url:
        await post(base_url, "chat")
    assert backend.problems == ["POST /v1/chat/completions is not in the cassette, which is empty."]


async def test_dates_ids_and_directories_of_another_run_make_no_difference():
    def said(cwd: str, day: str, session: str) -> dict[str, Any]:
        return {
            "system": f"Working directory: {cwd}\nToday is {day}.",
            "metadata": {"user_id": session},
            "text": f"Read {cwd}/a.py",
        }

    recorded = said("/srv/one", "2025-10-02", "session_1")
    exchange = made(1, recorded.pop("text"), "found")
    exchange.request.update(recorded)
    backend = ReplayBackend([exchange])
    async with serving(backend) as base_url:
        answer = await post(base_url, "anthropic", **said("/tmp/x9/two", "2026-11-15", "session_2"))
    assert (answer.text, backend.problems) == ("found", [])


async def test_replay_keeps_the_recorded_pauses_only_if_asked(monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    chunks = [Chunk(ms=ms, text="x") for ms in (250, 250, 1250)]
    exchange = made(1, "Hi", chunks=chunks)
    for pace, expected in ((False, []), (True, [0.25, 1.0])):
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.gateway.cassettes.replay.asyncio.sleep", note)
            reply = await answer_of(ReplayBackend([exchange], pace=pace))
            assert not isinstance(reply.body, bytes)
            assert [chunk async for chunk in reply.body] == [b"x", b"x", b"x"]
        assert slept == expected


async def test_a_cassette_that_cannot_be_compared_is_refused():
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="Exchange 1 is nested too deeply"):
        ReplayBackend([made(1, "Hi", request={"a": deep})])


async def answer_of(backend: Backend) -> Reply:
    """Ask a backend without a server between."""
    from codesdk.gateway.wires.formats import codec_for

    codec: Codec = codec_for("anthropic")
    route = codec.route("POST", "/v1/messages", "")
    assert route is not None
    body = body_of("anthropic")
    asked: Ask = codec.parse(route, body)
    raw = RawRequest(method="POST", path="/v1/messages", query="", headers=[], body=msgspec.json.encode(body))
    return await backend.answer(codec, asked, raw)


async def test_a_body_that_is_never_read_is_released_and_written_down():
    closed: list[str] = []

    class Body:
        def __aiter__(self) -> "Body":
            return self

        async def __anext__(self) -> bytes:
            return b"never"

        async def aclose(self) -> None:
            closed.append("closed")

    class Opened(ReplayBackend):
        async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
            return Reply(status=200, headers={}, body=Body())

    kept: list[Exchange] = []
    reply = await answer_of(RecordingBackend(Opened([]), kept.append))
    await reply.body.aclose()  # type: ignore[union-attr]
    await reply.body.aclose()  # type: ignore[union-attr]
    assert closed == ["closed", "closed"]
    assert [exchange.ending for exchange in kept] == ["abandoned"]
    assert parse_cassette(dump_cassette(kept), "c") == kept
