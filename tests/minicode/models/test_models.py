"""The four families at the real wire: what streams, what is told, what is used, and what goes wrong."""

import base64
from typing import Any

import pytest
from tests.gateway.peers import peer, say, say_nothing
from tests.minicode.models.wire import ALL, PIXEL, call, read_pixel, wire

from codesdk.contract.errors import CodeSDKError, ErrorCode
from codesdk.contract.messages import ArtifactBlock, Message, Reasoning, Text, ToolUse, user
from codesdk.minicode.models import ModelSettings, open_model
from codesdk.minicode.types import (
    ModelMessage,
    ModelRequest,
    ProviderId,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
)

pytestmark = pytest.mark.slow
READS = {
    "steps": [
        {"reasoning": ["Let me ", "think."]},
        {"text": ["I will ", "read."]},
        call("a"),
        call("b"),
    ],
    "usage": {"input": 100, "output": 20, "cache_read": 7},
}
DONE = {"steps": [{"text": "Done."}]}


@pytest.mark.parametrize("provider", ALL)
async def test_text_thoughts_and_calls_stream_and_come_back_as_one_message(provider: ProviderId):
    async with wire(provider, READS) as it:
        *pieces, last = await it.ask(["milk", "tea"])
    assert pieces == [
        ReasoningDelta(block_id="m0.0", text="Let me "),
        ReasoningDelta(block_id="m0.0", text="think."),
        TextDelta(block_id="m0.1", text="I will "),
        TextDelta(block_id="m0.1", text="read."),
    ]
    assert isinstance(last, ModelMessage)
    thought, said, *uses = last.message.content
    assert isinstance(thought, Reasoning)
    assert (thought.text, said) == ("Let me think.", Text(text="I will read."))
    ids = [use.tool_call_id for use in uses if isinstance(use, ToolUse)]
    assert len(set(ids)) == 2
    assert last.calls == [
        ToolCall(id=ids[0], name="workspace.read", input={"path": "a"}, index=2),
        ToolCall(id=ids[1], name="workspace.read", input={"path": "b"}, index=3),
    ]
    assert (last.finish_reason, last.message.message_id) == ("tool_calls", "m0")
    assert last.usage == Usage(input=100, output=20, cache_read=7)


@pytest.mark.parametrize("provider", ALL)
async def test_a_conversation_only_grows_so_that_a_provider_can_cache_it(provider: ProviderId):
    async with wire(provider, READS, DONE, DONE) as it:
        await it.ask(["milk", "ERROR: no tea"])
        await it.ask()
        await it.ask()
        names = {"anthropic": "messages", "google": "contents", "openai": "input"}
        first, second, third = [body[names.get(provider, "messages")] for body in it.asked.bodies]
        rest = [
            {k: v for k, v in body.items() if k != names.get(provider, "messages")}
            for body in it.asked.bodies
        ]
    assert (second[: len(first)], third[: len(second)]) == (first, second)
    assert rest[0] == rest[1] == rest[2]


@pytest.mark.parametrize("provider", ALL)
async def test_pictures_and_files_are_part_of_a_message(provider: ProviderId):
    async with wire(provider, DONE) as it:
        picture = ArtifactBlock(artifact_id="pixel", content_type="image/png", name="p.png")
        file = ArtifactBlock(
            artifact_id="parrot", content_type="text/plain; charset=utf-8", name="parrot.txt"
        )
        it.messages = [Message(role="user", content=[Text(text="What is this?"), picture, file])]
        await it.ask()
        sent = it.asked.requests[0].body.decode()
    assert base64.b64encode(PIXEL).decode() in sent
    assert "The file parrot.txt:" in sent
    assert "The captain's parrot." in sent


async def test_an_attachment_that_no_model_can_read_is_refused_by_its_name():
    async with wire("anthropic", DONE) as it:
        block = ArtifactBlock(artifact_id="pixel", content_type="application/zip", name="all.zip")
        it.messages = [Message(role="user", content=[block])]
        with pytest.raises(CodeSDKError, match=r"'all\.zip'") as caught:
            await it.ask()
    assert caught.value.code == "INVALID_REQUEST"
    assert it.asked.bodies == []


HOSTILE = {
    "OPENAI_API_KEY": "sk-of-the-environment",
    "OPENAI_ORG_ID": "org-of-the-environment",
    "OPENAI_PROJECT_ID": "project-of-the-environment",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/environment",
    "ANTHROPIC_API_KEY": "sk-of-the-environment",
    "ANTHROPIC_AUTH_TOKEN": "token-of-the-environment",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/environment",
    "GOOGLE_API_KEY": "key-of-the-environment",
    "GEMINI_API_KEY": "key-of-the-environment",
    "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/environment",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "HTTP_PROXY": "http://127.0.0.1:9/environment",
}


@pytest.mark.parametrize("provider", ALL)
async def test_nothing_of_the_environment_gets_into_a_request_or_leads_it_elsewhere(
    provider: ProviderId, monkeypatch: pytest.MonkeyPatch
):
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    async with wire(provider, DONE) as it:
        await it.ask()
        [request] = it.asked.requests
    told = str(request.headers)
    assert "not-a-key" in told
    assert "environment" not in told
    if provider != "openai-compatible":
        own = await open_model(ModelSettings(provider=provider, model="m", key="k"), read_pixel)
        assert "127.0.0.1" not in str(own._model.base_url)  # type: ignore[attr-defined]
        await own.aclose()


GARBAGE = ""
"""Stands for a frame of the format in question that breaks off within its JSON."""
FAULTS: dict[str, tuple[list[dict[str, Any]], ErrorCode, bool]] = {
    "400": ([{"http": {"status": 400}}], "MODEL_ERROR", False),
    "401": ([{"http": {"status": 401}}], "AUTH_FAILED", False),
    "403": ([{"http": {"status": 403}}], "AUTH_FAILED", False),
    "unknown model": ([{"http": {"status": 404}}], "MODEL_ERROR", False),
    "413": ([{"http": {"status": 413}}], "CONTEXT_TOO_LARGE", False),
    "429": ([{"http": {"status": 429}}], "RATE_LIMITED", True),
    "500": ([{"http": {"status": 500}}], "MODEL_ERROR", True),
    "503": ([{"http": {"status": 503}}], "OVERLOADED", True),
    "529": ([{"http": {"status": 529}}], "OVERLOADED", True),
    "context too large": ([{"context_too_large": True}], "CONTEXT_TOO_LARGE", False),
    "reset at once": ([{"reset": True}], "MODEL_ERROR", True),
    "reset": ([{"text": ["Ha", "lf"]}, {"reset": True}], "MODEL_ERROR", True),
    "reset in a call": ([call("a"), {"reset": True}], "MODEL_ERROR", True),
    "cut off": ([{"text": ["Ha", "lf"]}, {"truncate": True}], "MODEL_ERROR", True),
    "cut off after a call": ([call("a"), {"truncate": True}], "MODEL_ERROR", True),
    "garbage at once": ([{"malformed_frame": GARBAGE}], "MODEL_ERROR", True),
    "garbage": ([{"text": ["Ha", "lf"]}, {"malformed_frame": GARBAGE}], "MODEL_ERROR", True),
    "garbage after a call": ([call("a"), {"malformed_frame": GARBAGE}], "MODEL_ERROR", True),
    "refusal": ([{"refusal": "I would rather not."}], "CONTENT_FILTERED", False),
}


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_goes_wrong_is_an_error_of_ours_after_one_request(fault: str, provider: ProviderId):
    steps, code, retryable = FAULTS[fault]
    async with wire(provider, {"steps": steps}, DONE) as it:
        with pytest.raises(CodeSDKError) as caught:
            await it.ask()
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert provider in caught.value.message
    assert len(it.asked.bodies) == 1


@pytest.mark.parametrize("provider", ALL)
async def test_a_frame_of_no_format_is_an_error_unless_the_official_client_passes_it_over(
    provider: ProviderId,
):
    steps = [{"text": "Half"}, {"malformed_frame": "data: {nonsense\n\n"}, {"text": " and half."}]
    async with wire(provider, {"steps": steps}, DONE) as it:
        if provider == "anthropic":  # whose frames have names: one without a name is nobody's
            last = (await it.ask())[-1]
            assert isinstance(last, ModelMessage)
            assert last.message.content == [Text(text="Half and half.")]
            return
        with pytest.raises(CodeSDKError) as caught:
            await it.ask()
    assert (caught.value.code, caught.value.retryable) == ("MODEL_ERROR", True)


@pytest.mark.parametrize("provider", ALL)
async def test_a_provider_that_asks_for_patience_is_quoted(provider: ProviderId):
    async with wire(provider, {"steps": [{"http": {"status": 429, "retry_after_s": 3}}]}) as it:
        with pytest.raises(CodeSDKError) as caught:
            await it.ask()
    assert caught.value.details == {"http_status": 429, "retry_after_s": 3.0}


@pytest.mark.parametrize("provider", ALL)
async def test_a_refused_key_is_named_by_its_variable_and_its_place_in_the_configuration(
    provider: ProviderId,
):
    async with wire(provider, {"steps": [{"http": {"status": 401}}]}) as it:
        with pytest.raises(CodeSDKError) as caught:
            await it.ask()
    assert "_API_KEY, or " in caught.value.message
    assert "api_key in the configuration" in caught.value.message


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("status", [200, 404])
async def test_an_address_that_answers_with_a_web_page_is_said_to_be_wrong(provider: ProviderId, status: int):
    page = b"<!DOCTYPE html>\n<html><body>It works!</body></html>"
    async with peer(say(page, status, "content-type: text/html", "connection: close")) as server:
        settings = ModelSettings(provider=provider, model="m", key="k", base_url=server.url, direct=True)
        error = await failing(settings)
    assert (error.code, error.retryable) == ("MODEL_ERROR", False)
    assert "answered with a web page" in error.message
    assert "base_url in the configuration" in error.message


@pytest.mark.parametrize("provider", ALL)
async def test_silence_is_not_waited_for_for_ever(provider: ProviderId):
    async with peer(say_nothing) as server:
        error = await failing(
            ModelSettings(
                provider=provider, model="m", key="k", base_url=server.url, direct=True, silence_s=0.2
            )
        )
    assert (error.code, error.retryable) == ("MODEL_ERROR", True)


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("steps", [[{"text": ["Ha", "lf"]}], [call("a")]], ids=["text", "call"])
async def test_silence_in_the_middle_of_an_answer_is_not_waited_for_for_ever(
    provider: ProviderId, steps: list[dict[str, Any]]
):
    async with wire(provider, {"steps": [*steps, {"silence": True}]}, DONE, silence_s=0.2) as it:
        with pytest.raises(CodeSDKError) as caught:
            await it.ask()
    assert (caught.value.code, caught.value.retryable) == ("MODEL_ERROR", True)
    assert len(it.asked.bodies) == 1


@pytest.mark.parametrize("provider", ALL)
async def test_nobody_at_an_address_is_worth_another_try(provider: ProviderId):
    settings = ModelSettings(
        provider=provider, model="m", key="k", base_url="http://127.0.0.1:9", direct=True
    )
    error = await failing(settings)
    assert (error.code, error.retryable) == ("MODEL_ERROR", True)


@pytest.mark.parametrize("provider", ALL)
async def test_an_answer_at_its_limit_is_an_answer(provider: ProviderId):
    async with wire(provider, {"steps": [{"text": "Half"}, {"max_tokens": True}]}) as it:
        last = (await it.ask())[-1]
    assert isinstance(last, ModelMessage)
    assert (last.finish_reason, last.message.content) == ("length", [Text(text="Half")])


@pytest.mark.parametrize("provider", ALL)
async def test_calls_count_whatever_the_answer_says_of_its_end(provider: ProviderId):
    async with wire(provider, {"steps": [call("a"), {"max_tokens": True}]}) as it:
        last = (await it.ask(["milk"]))[-1]
    assert isinstance(last, ModelMessage)
    assert (last.finish_reason, len(last.calls)) == ("tool_calls", 1)


@pytest.mark.parametrize("provider", ALL)
async def test_an_empty_answer_is_an_answer(provider: ProviderId):
    async with wire(provider, {"steps": [{"empty": True}]}) as it:
        last = (await it.ask())[-1]
    assert isinstance(last, ModelMessage)
    assert (last.finish_reason, last.message.content, last.calls) == ("stop", [], [])


@pytest.mark.parametrize("provider", ALL)
async def test_half_of_a_surrogate_pair_in_an_answer_is_mended(provider: ProviderId):
    async with wire(provider, DONE, change=(b"Done.", b"D\\ud800.")) as it:
        *pieces, last = await it.ask()
    assert isinstance(last, ModelMessage)
    assert last.message.content[-1] == Text(text="D\ufffd.")
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == "D\ufffd."


async def failing(settings: ModelSettings) -> CodeSDKError:
    model = await open_model(settings, read_pixel)
    stream = model.stream(ModelRequest(instructions="", messages=[user("Hi")], tools=[], message_id="m"))
    with pytest.raises(CodeSDKError) as caught:
        await anext(stream)
    await model.aclose()
    return caught.value
