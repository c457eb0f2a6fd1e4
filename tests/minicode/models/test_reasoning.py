"""Thoughts and their signatures: given back to the provider that signed them, never to another one."""

from typing import Any

import msgspec
import pytest
from tests.gateway.peers import peer, stream
from tests.minicode.models.wire import ALL, call, read_pixel, wire

from codesdk.contract.messages import Message, Reasoning, user
from codesdk.minicode.models import ModelSettings, open_model
from codesdk.minicode.types import ModelMessage, ModelRequest, ProviderId

pytestmark = pytest.mark.slow
THINKS: dict[str, Any] = {"steps": [{"reasoning": "Hm."}, {"text": "Let me see."}, call("a"), call("b")]}
DONE = {"steps": [{"text": "Done."}]}
SIGNED = (b'"functionCall"', b'"thoughtSignature":"c2lnbmVk","functionCall"')
"""Gemini signs the first call of an answer; the script's Gemini does not, so it is made to."""


async def second_request(provider: ProviderId, stored: bool) -> Any:
    """Return what is sent after an answer with a thought and two calls, perhaps after it went through a log."""
    async with wire(provider, THINKS, DONE, change=SIGNED if provider == "google" else None) as it:
        await it.ask(["milk", "tea"])
        if stored:
            it.messages = msgspec.json.decode(msgspec.json.encode(it.messages), type=list[Message])
        await it.ask()
        return it.asked.bodies[1]


@pytest.mark.parametrize("stored", [False, True])
async def test_anthropic_gets_its_signed_thought_back(stored: bool):
    body = await second_request("anthropic", stored)
    assert body["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "Hm.",
        "signature": "c2NyaXB0ZWQwMDAwMDEvMA==",
    }


@pytest.mark.parametrize("stored", [False, True])
async def test_openai_gets_its_encrypted_thought_back_and_stores_nothing(stored: bool):
    body = await second_request("openai", stored)
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert body["input"][1] == {
        "type": "reasoning",
        "id": "rs_scripted000001_0",
        "encrypted_content": "encrypted_rs_scripted000001_0",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    }
    # What was not stored must not be referred to.
    assert all("id" not in item for item in body["input"][2:])


@pytest.mark.parametrize("stored", [False, True])
async def test_gemini_gets_the_signature_of_its_call_back_on_that_call(stored: bool):
    body = await second_request("google", stored)
    calls = [part for part in body["contents"][1]["parts"] if "functionCall" in part]
    assert [(part["functionCall"]["args"], part.get("thoughtSignature")) for part in calls] == [
        ({"path": "a"}, "c2lnbmVk"),
        ({"path": "b"}, "c2lnbmVk"),
    ]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_compatible_service_gets_its_thought_back_in_its_own_field(stored: bool):
    body = await second_request("openai-compatible", stored)
    assert body["messages"][2]["reasoning_content"] == "Hm."


@pytest.mark.parametrize("other", ALL)
@pytest.mark.parametrize("provider", ALL)
async def test_no_other_provider_is_told_what_a_model_thought(provider: ProviderId, other: ProviderId):
    if provider == other:
        return
    async with wire(provider, THINKS, change=SIGNED if provider == "google" else None) as it:
        await it.ask(["milk", "tea"])
        conversation = it.messages
    async with wire(other, DONE) as it:
        it.messages = conversation
        await it.ask()
        sent = it.asked.requests[0].body.decode()
    assert "Let me see." in sent
    for secret in ("Hm.", "c2NyaXB0ZWQ", "c2lnbmVk", "encrypted_rs"):
        assert secret not in sent


async def test_another_service_of_the_same_kind_is_another_provider():
    async with wire("openai-compatible", THINKS, service="here") as it:
        await it.ask(["milk", "tea"])
        conversation = it.messages
    async with wire("openai-compatible", DONE, service="there") as it:
        it.messages = conversation
        await it.ask()
        assert "Hm." not in it.asked.requests[0].body.decode()


async def test_a_thought_that_was_changed_on_the_way_is_not_sent_for_it_would_be_refused():
    async with wire("anthropic", THINKS, DONE) as it:
        await it.ask(["milk", "tea"])
        first, answer, *rest = it.messages
        thought = answer.content[0]
        assert isinstance(thought, Reasoning)
        changed = msgspec.structs.replace(thought, text="[redacted]")
        answer = msgspec.structs.replace(answer, content=[changed, *answer.content[1:]])
        it.messages = [first, answer, *rest]
        await it.ask()
        blocks = it.asked.bodies[1]["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "tool_use", "tool_use"]


def events(*blocks: dict[str, Any]) -> bytes:
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        },
    }
    told: list[dict[str, Any]] = [start]
    for index, block in enumerate(blocks):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        told.append({"type": "content_block_stop", "index": index})
    told.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    told.append({"type": "message_stop"})
    return b"".join(
        f"event: {event['type']}\ndata: {msgspec.json.encode(event).decode()}\n\n".encode() for event in told
    )


async def test_a_thought_that_the_provider_hides_goes_back_hidden():
    hidden = {"type": "redacted_thinking", "data": "aGlkZGVu"}
    said = {"type": "text", "text": "Hello."}
    async with peer(stream(events(hidden, said), end=True)) as server:
        settings = ModelSettings(
            provider="anthropic", model="claude-sonnet-5", key="k", base_url=server.url, direct=True
        )
        messages = [user("Hi")]
        for number in range(2):
            model = await open_model(settings, read_pixel)  # the server answers once on each connection
            request = ModelRequest(instructions="", messages=messages, tools=[], message_id=f"m{number}")
            async for item in model.stream(request):
                if isinstance(item, ModelMessage):
                    messages = [*messages, item.message, user("And?")]
            await model.aclose()
        sent = msgspec.json.decode(server.asked[1].partition(b"\r\n\r\n")[2])
    assert sent["messages"][1]["content"] == [hidden, {"type": "text", "text": "Hello."}]
