"""Anthropic Messages, judged by the official client and by golden files."""

import json
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from hypothesis import given, strategies as st
from tests.gateway import goldens
from tests.gateway.judge import Wrong, judge

from codesdk.gateway.wires.anthropic import CODEC
from codesdk.gateway.wires.exchange import (
    Ask,
    AskCall,
    AskMessage,
    AskOther,
    AskResult,
    AskText,
    Call,
    Fault,
    FaultKind,
    Finish,
    Part,
    ReasoningChunk,
    Route,
    TextChunk,
    Tokens,
)

MODEL = "claude-judged"
TOKENS = Tokens(input=412, output=58, cache_read=1200, cache_write=300, reasoning=19)
TEXT: list[Part] = [TextChunk("Hello"), TextChunk(", wörld\u2028"), Finish("end_turn", tokens=TOKENS)]
WORK: list[Part] = [
    ReasoningChunk("I should "),
    ReasoningChunk("look first."),
    TextChunk("Let me look."),
    Call("toolu_1", "read_file", {"path": "src/hello.py", "lines": [1, 40], "why": "the greeting is wrong"}),
    Call("toolu_2", "shell", {}),
    Finish("tool_use", tokens=TOKENS),
]
USAGE = {
    "input_tokens": 412,
    "output_tokens": 77,
    "cache_read_input_tokens": 1200,
    "cache_creation_input_tokens": 300,
    "output_tokens_details": {"thinking_tokens": 19},
}
HELLO: Any = [{"role": "user", "content": "Hello"}]
TOOLS: Any = [{"name": "read_file", "description": "Read a file.", "input_schema": {"type": "object"}}]


def client(base_url: str) -> AsyncAnthropic:
    return AsyncAnthropic(api_key="none", base_url=base_url, max_retries=0)


async def final_message(model: AsyncAnthropic) -> Any:
    async with model.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream:
        return await stream.get_final_message()


def ask(**body: Any) -> Ask:
    route = CODEC.route("POST", "/v1/messages", "")
    assert route is not None
    return CODEC.parse(route, {"model": MODEL, "max_tokens": 100, "messages": HELLO, **body})


# --- the official client ---------------------------------------------------------------------------


async def test_the_client_streams_text_chunk_by_chunk():
    async with (
        judge(CODEC, TEXT) as url,
        client(url) as model,
        model.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream,
    ):
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert texts == ["Hello", ", wörld\u2028"]
    assert (message.id, message.model, message.stop_reason) == ("msg_answer_1", MODEL, "end_turn")
    assert message.usage.to_dict() == USAGE
    assert url.asks[0].stream is True


async def test_the_client_streams_thinking_and_two_calls_and_sends_their_results_back():
    async with judge(CODEC, WORK, TEXT) as url, client(url) as model:
        async with model.messages.stream(
            model=MODEL, max_tokens=100, messages=HELLO, tools=TOOLS, system="Be brief."
        ) as stream:
            message = await stream.get_final_message()
        results: Any = [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "helo"}]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "denied", "is_error": True},
        ]
        await model.messages.create(
            model=MODEL,
            max_tokens=100,
            messages=[*HELLO, message.to_param(), {"role": "user", "content": results}],
        )
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "I should look first.", "signature": "YW5zd2VyXzEvMA=="},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": WORK[3].input},  # type: ignore[union-attr]
        {"type": "tool_use", "id": "toolu_2", "name": "shell", "input": {}},
    ]
    assert message.stop_reason == "tool_use"
    assert url.asks[0].tools == ["read_file"]
    assert url.asks[0].messages[0] == AskMessage("system", [AskText("Be brief.")], "/system")
    assert url.asks[1].messages[1:] == [
        AskMessage(
            "assistant",
            [
                AskOther("thinking"),
                AskText("Let me look."),
                AskCall("toolu_1", "read_file", WORK[3].input),  # type: ignore[union-attr]
                AskCall("toolu_2", "shell", {}),
            ],
            "/messages/1",
        ),
        AskMessage(
            "user",
            [AskResult("toolu_1", "helo"), AskResult("toolu_2", "denied", is_error=True)],
            "/messages/2",
        ),
    ]


async def test_the_client_reads_the_same_message_whether_it_is_streamed_or_not():
    async with judge(CODEC, WORK) as url, client(url) as model:
        streamed = await final_message(model)
    async with judge(CODEC, WORK) as url, client(url) as model:
        whole = await model.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert whole.to_dict() == streamed.to_dict()
    assert whole.usage.to_dict() == USAGE


async def test_the_client_gets_every_event_of_the_sequence():
    async with judge(CODEC, [TextChunk("Hi"), Finish("end_turn")]) as url, client(url) as model:
        stream = await model.messages.create(
            model=MODEL, max_tokens=100, messages=HELLO, stream=True, extra_query={"beta": "true"}
        )
        kinds = [event.type async for event in stream]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert (url.requests[0].path, url.requests[0].query) == ("/v1/messages", "beta=true")


async def test_the_client_counts_tokens():
    async with judge(CODEC, 1234) as url, client(url) as model:
        counted = await model.messages.count_tokens(model=MODEL, messages=HELLO)
    assert counted.input_tokens == 1234
    assert url.asks[0].kind == "count_tokens"


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_refusal_is_a_stop_reason_with_an_explanation(is_streamed: bool):
    async with judge(CODEC, [Finish("refusal", refusal="I will not.")]) as url, client(url) as model:
        if is_streamed:
            message = await final_message(model)
        else:
            message = await model.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert (message.content, message.stop_reason) == ([], "refusal")
    assert message.stop_details is not None
    assert message.stop_details.explanation == "I will not."


async def test_running_out_of_tokens_is_a_stop_reason():
    async with judge(CODEC, [TextChunk("Once upon"), Finish("max_tokens")]) as url, client(url) as model:
        message = await model.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert message.stop_reason == "max_tokens"


FAULTS: list[tuple[int, FaultKind, type[anthropic.APIStatusError], str]] = [
    (400, "invalid", anthropic.BadRequestError, "invalid_request_error"),
    (401, "authentication", anthropic.AuthenticationError, "authentication_error"),
    (402, "quota", anthropic.APIStatusError, "billing_error"),
    (403, "permission", anthropic.PermissionDeniedError, "permission_error"),
    (403, "quota", anthropic.PermissionDeniedError, "permission_error"),
    (404, "not_found", anthropic.NotFoundError, "not_found_error"),
    (413, "too_large", anthropic.ContentTooLargeError, "request_too_large"),
    (429, "rate_limit", anthropic.RateLimitError, "rate_limit_error"),
    (429, "quota", anthropic.RateLimitError, "rate_limit_error"),
    (500, "server", anthropic.InternalServerError, "api_error"),
    (503, "unavailable", anthropic.ServiceUnavailableError, "api_error"),
    (504, "server", anthropic.GatewayTimeoutError, "timeout_error"),
    (529, "overloaded", anthropic.OverloadedError, "overloaded_error"),
]


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("status", "kind", "error", "said"), FAULTS)
async def test_every_fault_is_the_clients_own_error(
    status: int, kind: FaultKind, error: type[anthropic.APIStatusError], said: str, is_streamed: bool
):
    fault = Fault(status=status, kind=kind, message="so it is")
    async with judge(CODEC, fault) as url, client(url) as model:
        with pytest.raises(error) as caught:
            await model.messages.create(model=MODEL, max_tokens=100, messages=HELLO, stream=is_streamed)
    assert caught.value.status_code == status
    assert caught.value.body == {
        "type": "error",
        "error": {"type": said, "message": "so it is"},
        "request_id": "req_codesdk_gateway",
    }
    assert caught.value.request_id == "req_codesdk_gateway"


async def test_a_rate_limit_says_when_to_come_back():
    fault = Fault(status=429, kind="rate_limit", message="slower", retry_after_s=30)
    async with judge(CODEC, fault) as url, client(url) as model:
        with pytest.raises(anthropic.RateLimitError) as caught:
            await model.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert caught.value.response.headers["retry-after"] == "30"


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({}, "prompt is too long: 200001 tokens > 200000 maximum"),
        ({"tokens": 50}, "prompt is too long: 200001 tokens > 200000 maximum"),
        ({"tokens": 9001, "limit": 9000}, "prompt is too long: 9001 tokens > 9000 maximum"),
    ],
)
async def test_a_context_that_is_too_large_is_said_in_anthropics_words(numbers: dict[str, int], said: str):
    fault = Fault(status=400, kind="context_too_large", message="too many", **numbers)
    async with judge(CODEC, fault) as url, client(url) as model:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await model.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.api_message == said


async def test_a_broken_frame_cannot_be_parsed_by_the_client():
    async with judge(CODEC, Wrong([TextChunk("Half")], CODEC.broken_frame)) as url, client(url) as model:
        with pytest.raises(json.JSONDecodeError):
            await final_message(model)


async def test_a_connection_that_breaks_off_is_an_error_of_the_client():
    async with judge(CODEC, Wrong([TextChunk("Half")], reset=True)) as url, client(url) as model:
        with pytest.raises(httpx2.TransportError):
            await final_message(model)


async def test_a_stream_that_ends_without_a_finish_has_no_stop_reason():
    async with judge(CODEC, Wrong([TextChunk("Half")])) as url, client(url) as model:
        message = await final_message(model)
    assert (message.content[0].text, message.stop_reason) == ("Half", None)


async def test_a_request_that_anthropic_would_not_take_is_a_bad_request():
    wrong: Any = [{"role": "user", "content": [{"type": "tool_result", "content": "no id"}]}]
    async with judge(CODEC, TEXT) as url, client(url) as model:
        with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.0\.tool_use_id"):
            await model.messages.create(model=MODEL, max_tokens=100, messages=wrong)


# --- requests --------------------------------------------------------------------------------------


def test_only_two_paths_belong_to_the_format():
    generate = Route(kind="generate")
    assert CODEC.route("POST", "/v1/messages", "") == generate
    assert CODEC.route("POST", "/v1/messages", "beta=true") == generate
    assert CODEC.route("POST", "/v1/messages/count_tokens", "") == Route(kind="count_tokens", stream=False)
    assert CODEC.route("GET", "/v1/messages", "") is None
    assert CODEC.route("POST", "/v1/messages/batches", "") is None


@pytest.mark.parametrize("case", goldens.cases("anthropic", "requests"), ids=lambda case: case.name)
def test_a_request_is_read_as_its_golden_file_says(case: Path):
    read = goldens.ask_of(CODEC, case)
    goldens.check_json(case / "ask.json", goldens.without_body(read))
    assert read.body == json.loads((case / "request.json").read_bytes())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["Hello"]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]},
            "messages.0.content.0.name",
        ),
        ({"system": 7}, "system"),
        ({"system": ["x"]}, "system.0"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"description": "nameless"}]}, "tools.0.name"),
    ],
)
def test_a_request_that_no_provider_would_take_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], field: str
):
    with pytest.raises(ValueError, match="^" + field.replace(".", r"\.") + ": "):
        ask(**change)


# --- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", goldens.cases("anthropic", "answers"), ids=lambda case: case.name)
def test_an_answer_is_written_and_read_as_its_golden_files_say(case: Path):
    parts = goldens.parts_of(case)
    stream = goldens.streamed(CODEC, ask(stream=True), "golden", parts)
    whole = CODEC.whole(ask(), "golden", parts)
    goldens.check(case / "stream.txt", stream)
    goldens.check(case / "whole.json", whole)
    goldens.check_seen(case / "seen.json", goldens.read_stream(CODEC, stream))
    goldens.check_seen(case / "seen.json", goldens.read_whole(CODEC, whole))


@pytest.mark.parametrize("case", goldens.cases("anthropic", "seen"), ids=lambda case: case.name)
def test_what_a_provider_sends_is_read_as_its_golden_file_says(case: Path):
    goldens.check_seen(case / "seen.json", goldens.read_case(CODEC, case))


def test_an_input_comes_in_a_few_pieces_however_long_it_is():
    encoder = CODEC.encoder(ask(stream=True), "a")
    events = encoder.feed(Call("toolu_1", "write_file", {"text": "x" * 100_000}))
    assert events.count(b"input_json_delta") == 9


values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20)
inputs = st.dictionaries(st.text(max_size=8), values | st.lists(values, max_size=3), max_size=3)
chunks = st.one_of(
    st.builds(TextChunk, st.text()),
    st.builds(ReasoningChunk, st.text()),
    st.builds(Call, st.text(min_size=1), st.text(min_size=1), inputs),
)
counts = st.integers(0, 10**9)
tokens = st.builds(
    Tokens, input=counts, output=counts, cache_read=counts, cache_write=counts, reasoning=counts
)


@given(st.lists(chunks, max_size=8), tokens, st.lists(st.integers(0, 10**6), max_size=20))
def test_what_is_written_is_read_back_however_it_is_cut(parts: list[Part], tokens: Tokens, cuts: list[int]):
    answer = [*parts, Finish("end_turn", tokens=tokens)]
    stream = goldens.streamed(CODEC, ask(stream=True), "a", answer)
    seen = goldens.read_stream(CODEC, stream, cuts)
    assert seen.text == "".join(part.text for part in parts if isinstance(part, TextChunk))
    assert seen.reasoning == "".join(part.text for part in parts if isinstance(part, ReasoningChunk))
    assert seen.calls == [part for part in parts if isinstance(part, Call)]
    assert (seen.model, seen.stop_reason, seen.tokens, seen.error) == (MODEL, "end_turn", tokens, None)
    assert goldens.read_whole(CODEC, CODEC.whole(ask(), "a", answer)) == seen


@given(st.lists(st.binary()))
def test_bytes_of_any_kind_do_not_disturb_the_reader(rubbish: list[bytes]):
    decoder = CODEC.decoder()
    for data in rubbish:
        decoder.feed(data)
        decoder.feed(b"\n\ndata: " + data + b"\n\n")
        decoder.whole(data)
    assert decoder.result().calls == []
