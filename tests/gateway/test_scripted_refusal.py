"""A scripted refusal is said once, in each format's own place, and a retry-after in plain seconds."""

import msgspec
import pytest

from codesdk.gateway.reply import RawRequest, Reply, refuse
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.wires.exchange import Ask, Codec, Fault, Wire
from codesdk.gateway.wires.formats import codec_for
from codesdk.script import parse_object

WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat", "gemini")
REQUEST = RawRequest(method="POST", path="/", query="", headers=[], body=b"{}")


def ask(wire: Wire, stream: bool) -> Ask:
    return Ask(wire=wire, kind="generate", model="m", stream=stream, messages=[], tools=[], body={})


async def body_of(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    return b"".join([chunk async for chunk in reply.body])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_is_seen_as_a_refusal_and_not_as_text(wire: Wire, stream: bool) -> None:
    codec: Codec = codec_for(wire)
    script = parse_object({"turns": [{"steps": [{"refusal": "I will not."}]}]}, "test")
    answer = await body_of(await ScriptedModel(script).answer(codec, ask(wire, stream), REQUEST))
    decoder = codec.decoder()
    (decoder.feed if stream else decoder.whole)(answer)
    seen = decoder.result()
    assert (seen.text, seen.refusal, seen.stop_reason) == ("", "I will not.", "refusal")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("seconds", [2, 1_000_000])
def test_retry_after_is_written_in_plain_seconds(wire: Wire, seconds: int) -> None:
    fault = Fault(status=429, kind="rate_limit", message="slow down", retry_after_s=seconds)
    reply = refuse(codec_for(wire), fault)
    assert reply.headers["retry-after"] == str(seconds)
    assert msgspec.json.decode(reply.body if isinstance(reply.body, bytes) else b"")
