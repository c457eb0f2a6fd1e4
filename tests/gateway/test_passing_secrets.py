"""A secret in every place where one can enter, passed on and recorded: it is in no cassette, log, error or repr.

Requests are sent without a client, so that every logger of the process can be listened to.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.gateway.peers import PATHS, WIRES, Handler, Peer, body_of, peer, say, send_raw, stream

from codesdk.gateway.cassettes.cassette import Tape, parse_cassette
from codesdk.gateway.cassettes.record import RecordingBackend
from codesdk.gateway.cassettes.replay import ReplayBackend
from codesdk.gateway.providers import Provider
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.server import Gateway
from codesdk.gateway.upstream import Upstream
from codesdk.gateway.wires.exchange import Ask, AskMessage, AskText, Wire

CANARY = "canary-7f3e9b1c5d2a4860"
QUOTED = msgspec.json.encode({"type": "error", "error": {"message": f"Bad key {CANARY}.", "type": "x"}})
each_wire = pytest.mark.parametrize("wire", WIRES)


async def in_trailers(writer: asyncio.StreamWriter) -> None:
    """Stream an event, and the secret in the headers that follow the body."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-key\r\n\r\n")
    writer.write(b"a\r\ndata: {}\n\n\r\n0\r\nx-key: " + CANARY.encode() + b"\r\n\r\n")


def cut(text: str, size: int = 9) -> list[bytes]:
    return [text[at : at + size].encode() for at in range(0, len(text), size)]


ENTRANCES: dict[str, Handler] = {
    "a refusal's text": say(QUOTED, 401, "content-type: application/json"),
    "a failure's text": say(QUOTED, 500),
    "a refusal that breaks off": stream(QUOTED[:-5], abort=True),
    "a refusal's headers": say(b"{}", 403, f"x-key: {CANARY}", f"www-authenticate: Bearer {CANARY}"),
    "a header": say(b"{}", 200, f"x-key: {CANARY}", f"retry-after: {CANARY}"),
    "a cookie": say(b"{}", 200, f"set-cookie: key={CANARY}; Path=/"),
    "an answer": say(msgspec.json.encode({"text": CANARY})),
    "an answer that is not text": say(b"\xff\xfe" + CANARY.encode()),
    "an event": stream(f'data: {{"text":"{CANARY}"}}\n\n'.encode(), end=True),
    "an event in pieces": stream(*cut(f'data: {{"text":"{CANARY}"}}\n\n'), end=True),
    "events in pieces": stream(
        *(b'data: {"type":"t","index":0,"delta":"%s"}\n\n' % piece for piece in cut(CANARY, 5)), end=True
    ),
    "an event's name": stream(f"event: {CANARY}\ndata: {{}}\n\n".encode(), end=True),
    "a comment": stream(f": keep-alive {CANARY}\n\ndata: {{}}\n\n".encode(), end=True),
    "a comment in pieces": stream(*cut(f": keep-alive {CANARY}\n\ndata: {{}}\n\n"), end=True),
    "trailing headers": in_trailers,
    "a stream that breaks off": stream(f'data: {{"text":"{CANARY}'.encode(), abort=True),
}
"""Where a provider may quote a key, of ours or of the client."""
PLACES = (
    *("authorization", "x-api-key", "x-goog-api-key", "api-key", "proxy-authorization", "cookie", "x-own"),
    *("?key", "?api_key", "?access_token", "?own"),
)
"""Where a client may send one: in a header, or in the query."""


class Scene:
    """A gateway with every logger listened to."""

    def __init__(self, gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(1)
        self.gateway = gateway
        self.log = caplog

    async def play(
        self, provider: Peer, key: str | None, target: str, *headers: str, body: bytes, method: str = "POST"
    ) -> tuple[bytes, str]:
        """Ask in passing and while recording. Return both answers, and all that somebody may keep or see."""
        passing, recorded = provider.upstream(key), provider.upstream(key)
        tape = Tape()
        recording = RecordingBackend(recorded, tape.add, secrets=[key] if key else [])
        said: list[bytes] = []
        for backend in (passing, recording):
            said.append(
                await send_raw(self.gateway.admit(backend) + target, *headers, body=body, method=method)
            )
        await passing.close()
        await recorded.close()
        assert len(provider.asked) == 2
        kept = parse_cassette(tape.dump(), "cassette")
        problems = [*recording.problems, *recording.others, *tape.problems]
        shown = [repr(each) for each in (passing, recorded, recording, tape, self.gateway, *kept)]
        return b"\n".join(said), "\n".join([tape.dump().decode(), self.log.text, *problems, *shown])


@pytest.fixture(scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway() as running:
        yield running


@pytest.fixture
def scene(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(gateway, caplog)


QUOTES_TO_NOBODY = ("a refusal's text", "a failure's text", "a refusal's headers", "a header", "a cookie")
"""Where our key does not even reach the client."""


@each_wire
@pytest.mark.parametrize("entrance", ENTRANCES)
async def test_our_key_that_a_provider_says_is_left_nowhere(wire: Wire, entrance: str, scene: Scene):
    body = msgspec.json.encode(body_of(wire))
    async with peer(ENTRANCES[entrance]) as provider:
        said, left = await scene.play(provider, CANARY, PATHS[wire], body=body)
    assert CANARY not in left
    assert CANARY.encode() in provider.asked[0], "it was put in"
    assert "receive_response_headers.started" in left, "the library's own log was listened to"
    assert entrance not in QUOTES_TO_NOBODY or CANARY.encode() not in said


@each_wire
@pytest.mark.parametrize("entrance", ENTRANCES)
async def test_a_login_of_the_client_that_a_provider_says_is_left_nowhere(
    wire: Wire, entrance: str, scene: Scene
):
    body = msgspec.json.encode(body_of(wire, f"My key is {CANARY}."))
    login = f"authorization: Bearer {CANARY}"
    async with peer(ENTRANCES[entrance]) as provider:
        _, left = await scene.play(provider, None, PATHS[wire], login, body=body)
    assert CANARY not in left


@each_wire
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.slow
async def test_a_secret_in_a_header_or_a_query_is_left_nowhere(wire: Wire, place: str, scene: Scene):
    target, headers = PATHS[wire], []
    if place.startswith("?"):
        target += f"{'&' if '?' in target else '?'}{place[1:]}={CANARY}"
    else:
        headers = [f"{place}: {CANARY}"]
    body = msgspec.json.encode(body_of(wire))
    async with peer(say(b"{}")) as provider:
        _, left = await scene.play(provider, None, target, *headers, body=body)
    assert CANARY not in left


async def test_a_secret_in_a_request_for_a_model_is_left_nowhere(scene: Scene):
    target, login = f"/v1/models/{CANARY}?key={CANARY}", f"authorization: Bearer {CANARY}"
    async with peer(say(QUOTED, 401)) as provider:
        _, left = await scene.play(provider, None, target, login, body=CANARY.encode(), method="GET")
    assert "GET /v1/models/[redacted]" in left
    assert CANARY not in left


@each_wire
async def test_a_replay_that_does_not_find_a_request_does_not_show_its_secret(wire: Wire, scene: Scene):
    backend = ReplayBackend([])
    url = scene.gateway.admit(backend) + PATHS[wire]
    body = msgspec.json.encode(body_of(wire, f"My key is {CANARY}."))
    answer = await send_raw(url, f"x-api-key: {CANARY}", body=body)
    assert b"not in the cassette" in answer
    assert CANARY not in f"{answer!r} {backend.problems} {backend!r} {scene.log.text}"


def test_what_holds_a_secret_does_not_show_it():
    request = RawRequest(
        method="POST",
        path=f"/v1/{CANARY}",
        query=f"key={CANARY}",
        headers=[("x-api-key", CANARY)],
        body=CANARY.encode(),
    )
    reply = Reply(status=200, headers={"x-key": CANARY}, body=CANARY.encode())
    provider = Provider(origin="https://api.example.com", key=CANARY)
    ask = Ask(
        wire="chat",
        kind="generate",
        model="m",
        stream=True,
        messages=[AskMessage("user", [AskText(CANARY)], "/messages/0")],
        tools=[],
        body={"messages": [CANARY]},
    )
    shown = f"{request!r} {request} {reply!r} {ask!r} {provider!r} {Upstream({'chat': provider})!r}"
    assert CANARY not in shown
    assert repr(provider) == "Provider(origin='https://api.example.com', key=[redacted])"
