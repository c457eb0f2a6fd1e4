"""Gemini generateContent, judged by the official client and by golden files."""

import json
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, strategies as st
from tests.gateway import goldens
from tests.gateway.judge import Wrong, judge

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
from codesdk.gateway.wires.gemini import CODEC
from codesdk.gateway.wires.gemini_answer import ObjectReader

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the client's source has escapes that its first compilation warns of
    from google import genai
    from google.genai import errors, types

MODEL = "gemini-judged"
TOKENS = Tokens(input=412, output=58, cache_read=1200, reasoning=19)
TEXT: list[Part] = [
    TextChunk("Hello"),
    TextChunk(", wörld\x85\u2028\u2029"),
    Finish("end_turn", tokens=TOKENS),
]
READ = {"path": "src/hello.py", "lines": [1, 40]}
WORK: list[Part] = [
    ReasoningChunk("I should "),
    ReasoningChunk("look first."),
    TextChunk("Let me look."),
    Call("call_1", "read_file", READ),
    Call("call_2", "shell", {}),
    Finish("tool_use", tokens=TOKENS),
]
USAGE = {
    "prompt_token_count": 1612,
    "cached_content_token_count": 1200,
    "candidates_token_count": 58,
    "thoughts_token_count": 19,
    "total_token_count": 1689,
}
PATH = f"/v1beta/models/{MODEL}:"


@asynccontextmanager
async def client(base_url: str, version: str = "v1beta") -> AsyncIterator[Any]:
    options = types.HttpOptions(base_url=base_url, api_version=version)
    both = genai.Client(api_key="none", http_options=options)
    async with both.aio as model:
        yield model.models
    both.close()


async def answer_of(model: Any, *, is_streamed: bool) -> Any:
    """Return the answer, or the last chunk of its stream."""
    if is_streamed:
        return (await chunks_of(model))[-1]
    return await model.generate_content(model=MODEL, contents="Hello")


async def chunks_of(model: Any, **arguments: Any) -> list[types.GenerateContentResponse]:
    stream = await model.generate_content_stream(**{"model": MODEL, "contents": "Hello", **arguments})
    return [chunk async for chunk in stream]


def ask(method: str = "streamGenerateContent", query: str = "alt=sse", **body: Any) -> Ask:
    route = CODEC.route("POST", PATH + method, query)
    assert route is not None
    return CODEC.parse(route, {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **body})


# --- the official client ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1beta", "v1"])
async def test_the_client_streams_text_chunk_by_chunk(version: str):
    async with judge(CODEC, TEXT) as url, client(url, version) as model:
        chunks = await chunks_of(model)
    assert [chunk.text for chunk in chunks] == ["Hello", ", wörld\x85\u2028\u2029", ""]
    last = chunks[-1]
    assert last.candidates is not None
    assert last.usage_metadata is not None
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.usage_metadata.model_dump(exclude_none=True) == USAGE
    assert (last.model_version, last.response_id) == (MODEL, "answer_1")
    assert url.requests[0].path == f"/{version}/models/{MODEL}:streamGenerateContent"
    assert (url.asks[0].model, url.asks[0].stream, url.asks[0].sse) == (MODEL, True, True)


async def test_the_client_streams_thoughts_and_two_calls_and_sends_their_results_back():
    declared = types.FunctionDeclaration(name="read_file", description="Read a file.")
    config = types.GenerateContentConfig(
        system_instruction="Be brief.", tools=[types.Tool(function_declarations=[declared])]
    )
    async with judge(CODEC, WORK, TEXT) as url, client(url) as model:
        chunks = await chunks_of(model, config=config)
        parts = [
            part
            for chunk in chunks
            for candidate in chunk.candidates or []
            if candidate.content
            for part in candidate.content.parts or []
        ]
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id="call_1", name="read_file", response={"output": "helo"}
                )
            ),
            types.Part(
                function_response=types.FunctionResponse(
                    id="call_2", name="shell", response={"error": "denied"}
                )
            ),
        ]
        contents = [
            types.Content(role="user", parts=[types.Part(text="Hello")]),
            types.Content(role="model", parts=parts[:-1]),
            types.Content(role="user", parts=results),
        ]
        await model.generate_content(model=MODEL, contents=contents)
    assert [part.model_dump(exclude_none=True) for part in parts] == [
        {"text": "I should ", "thought": True},
        {"text": "look first.", "thought": True},
        {"text": "Let me look."},
        {"function_call": {"id": "call_1", "name": "read_file", "args": READ}},
        {"function_call": {"id": "call_2", "name": "shell", "args": {}}},
        {"text": ""},
    ]
    assert url.asks[0].tools == ["read_file"]
    assert url.asks[0].messages[0] == AskMessage(
        "system", [AskText("Be brief.")], "/systemInstruction/parts/0"
    )
    assert url.asks[1].messages == [
        AskMessage("user", [AskText("Hello")], "/contents/0"),
        AskMessage(
            "assistant",
            [
                AskOther("thought"),
                AskOther("thought"),
                AskText("Let me look."),
                AskCall("call_1", "read_file", READ),
                AskCall("call_2", "shell", {}),
            ],
            "/contents/1",
        ),
        AskMessage(
            "user",
            [AskResult("call_1", "helo"), AskResult("call_2", "denied", is_error=True)],
            "/contents/2",
        ),
    ]


async def test_the_client_reads_an_answer_that_is_not_streamed():
    async with judge(CODEC, WORK) as url, client(url) as model:
        answer = await model.generate_content(model=MODEL, contents="Hello")
    content = answer.candidates[0].content
    assert [part.model_dump(exclude_none=True) for part in content.parts] == [
        {"text": "I should look first.", "thought": True},
        {"text": "Let me look."},
        {"function_call": {"id": "call_1", "name": "read_file", "args": READ}},
        {"function_call": {"id": "call_2", "name": "shell", "args": {}}},
    ]
    assert [call.name for call in answer.function_calls] == ["read_file", "shell"]
    assert answer.usage_metadata.model_dump(exclude_none=True) == USAGE
    assert url.asks[0].stream is False


async def test_the_client_counts_tokens():
    async with judge(CODEC, 1234) as url, client(url) as model:
        counted = await model.count_tokens(model=MODEL, contents="Hello")
    assert counted.total_tokens == 1234
    assert url.asks[0].kind == "count_tokens"


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish("refusal", refusal="I will not."), types.FinishReason.SAFETY),
        (Finish("max_tokens"), types.FinishReason.MAX_TOKENS),
        (Finish("end_turn"), types.FinishReason.STOP),
    ],
)
@pytest.mark.slow
async def test_the_way_an_answer_ends_is_a_finish_reason(
    finish: Finish, reason: types.FinishReason, is_streamed: bool
):
    async with judge(CODEC, [finish]) as url, client(url) as model:
        answer = await answer_of(model, is_streamed=is_streamed)
    assert answer.candidates[0].finish_reason == reason


FAULTS: list[tuple[int, FaultKind, type[errors.APIError], str]] = [
    (400, "invalid", errors.ClientError, "INVALID_ARGUMENT"),
    (401, "authentication", errors.ClientError, "UNAUTHENTICATED"),
    (403, "permission", errors.ClientError, "PERMISSION_DENIED"),
    (403, "quota", errors.ClientError, "PERMISSION_DENIED"),
    (404, "not_found", errors.ClientError, "NOT_FOUND"),
    (413, "too_large", errors.ClientError, "INVALID_ARGUMENT"),
    (429, "rate_limit", errors.ClientError, "RESOURCE_EXHAUSTED"),
    (429, "quota", errors.ClientError, "RESOURCE_EXHAUSTED"),
    (500, "server", errors.ServerError, "INTERNAL"),
    (503, "unavailable", errors.ServerError, "UNAVAILABLE"),
    (503, "overloaded", errors.ServerError, "UNAVAILABLE"),
    (504, "server", errors.ServerError, "DEADLINE_EXCEEDED"),
]


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("status", "kind", "error", "said"), FAULTS)
async def test_every_fault_is_the_clients_own_error(
    status: int, kind: FaultKind, error: type[errors.APIError], said: str, is_streamed: bool
):
    async with judge(CODEC, Fault(status=status, kind=kind, message="so it is")) as url, client(url) as model:
        with pytest.raises(error) as caught:
            await answer_of(model, is_streamed=is_streamed)
    assert (caught.value.code, caught.value.status, caught.value.message) == (status, said, "so it is")


async def test_a_rate_limit_says_when_to_come_back():
    fault = Fault(status=429, kind="rate_limit", message="slower", retry_after_s=1.5)
    async with judge(CODEC, fault) as url, client(url) as model:
        with pytest.raises(errors.ClientError) as caught:
            await model.generate_content(model=MODEL, contents="Hello")
    details: Any = caught.value.details
    assert details["error"]["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}
    ]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({}, "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."),
        (
            {"tokens": 9001, "limit": 9000},
            "The input token count (9001) exceeds the maximum number of tokens allowed (9000).",
        ),
    ],
)
async def test_a_context_that_is_too_large_is_said_in_googles_words(numbers: dict[str, int], said: str):
    fault = Fault(status=400, kind="context_too_large", message="too many", **numbers)
    async with judge(CODEC, fault) as url, client(url) as model:
        with pytest.raises(errors.ClientError) as caught:
            await chunks_of(model)
    assert (caught.value.status, caught.value.message) == ("INVALID_ARGUMENT", said)


async def test_a_broken_frame_cannot_be_parsed_by_the_client():
    async with judge(CODEC, Wrong([TextChunk("Half")], CODEC.broken_frame)) as url, client(url) as model:
        with pytest.raises(errors.UnknownApiResponseError):
            await chunks_of(model)


async def test_a_connection_that_breaks_off_is_an_error_of_the_client():
    async with judge(CODEC, Wrong([TextChunk("Half")], reset=True)) as url, client(url) as model:
        with pytest.raises(httpx2.TransportError):
            await chunks_of(model)


async def test_a_stream_that_ends_without_a_finish_has_no_finish_reason():
    async with judge(CODEC, Wrong([TextChunk("Half")])) as url, client(url) as model:
        [chunk] = await chunks_of(model)
    assert chunk.candidates is not None
    assert (chunk.text, chunk.candidates[0].finish_reason) == ("Half", None)


async def test_a_request_that_google_would_not_take_is_a_bad_request():
    async with judge(CODEC, TEXT) as url, client(url) as model:
        with pytest.raises(errors.ClientError, match=r"contents\[0\]\.role: should be"):
            await model.generate_content(
                model=MODEL, contents=types.Content(role="wizard", parts=[types.Part(text="Hello")])
            )


# --- requests --------------------------------------------------------------------------------------


def test_the_path_says_model_and_method_and_the_query_says_how_a_stream_is_framed():
    assert CODEC.route("POST", "/v1/models/gemini-2.5-pro:generateContent", "") == Route(
        kind="generate", model="gemini-2.5-pro", stream=False, sse=False
    )
    assert CODEC.route(
        "POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "key=x&alt=sse"
    ) == Route(kind="generate", model="gemini-2.5-pro", stream=True, sse=True)
    assert CODEC.route("POST", "/v1beta/models/gemini-2.5-pro:countTokens", "alt=json") == Route(
        kind="count_tokens", model="gemini-2.5-pro", stream=False, sse=False
    )
    assert CODEC.route("GET", "/v1beta/models/gemini-2.5-pro:generateContent", "") is None
    assert CODEC.route("POST", "/v1beta/models/gemini-2.5-pro:embedContent", "") is None
    assert CODEC.route("POST", "/v1beta/models/a/b:generateContent", "") is None
    assert CODEC.route("POST", "/v2/models/gemini-2.5-pro:generateContent", "") is None


@pytest.mark.parametrize("case", goldens.cases("gemini", "requests"), ids=lambda case: case.name)
def test_a_request_is_read_as_its_golden_file_says(case: Path):
    read = goldens.ask_of(CODEC, case)
    goldens.check_json(case / "ask.json", goldens.without_body(read))
    assert read.body == json.loads((case / "request.json").read_bytes())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"contents": None}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": ["Hello"]}, "contents[0]"),
        ({"contents": [{"role": "assistant", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"role": "user"}]}, "contents[0].parts"),
        ({"contents": [{"parts": ["Hello"]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"text": 7}]}]}, "contents[0].parts[0].text"),
        ({"contents": [{"parts": [{"functionCall": {}}]}]}, "contents[0].parts[0].functionCall.name"),
        ({"contents": [{"parts": [{"functionResponse": {}}]}]}, "contents[0].parts[0].functionResponse.name"),
        ({"systemInstruction": 7}, "systemInstruction"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name"),
    ],
)
def test_a_request_that_no_provider_would_take_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], field: str
):
    with pytest.raises(ValueError, match=": ") as caught:
        ask(**change)
    assert str(caught.value).partition(": ")[0] == field


# --- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", goldens.cases("gemini", "answers"), ids=lambda case: case.name)
def test_an_answer_is_written_and_read_as_its_golden_files_say(case: Path):
    parts = goldens.parts_of(case)
    stream = goldens.streamed(CODEC, ask(), "golden", parts)
    array = goldens.streamed(CODEC, ask(query=""), "golden", parts)
    whole = CODEC.whole(ask("generateContent"), "golden", parts)
    goldens.check(case / "stream.txt", stream)
    goldens.check(case / "array.json", array)
    goldens.check(case / "whole.json", whole)
    goldens.check_seen(case / "seen.json", goldens.read_stream(CODEC, stream))
    goldens.check_seen(case / "seen.json", goldens.read_stream(CODEC, array))
    goldens.check_seen(case / "seen.json", goldens.read_whole(CODEC, array))
    goldens.check_seen(case / "seen.json", goldens.read_whole(CODEC, whole))


@pytest.mark.parametrize("case", goldens.cases("gemini", "seen"), ids=lambda case: case.name)
def test_what_a_provider_sends_is_read_as_its_golden_file_says(case: Path):
    goldens.check_seen(case / "seen.json", goldens.read_case(CODEC, case))


values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20)
inputs = st.dictionaries(st.text(max_size=8), values | st.lists(values, max_size=3), max_size=3)
parts_but_last = st.one_of(
    st.builds(TextChunk, st.text()),
    st.builds(ReasoningChunk, st.text()),
    st.builds(Call, st.text(min_size=1), st.text(min_size=1), inputs),
)
counts = st.integers(0, 10**9)
tokens = st.builds(Tokens, input=counts, output=counts, cache_read=counts, reasoning=counts)


@pytest.mark.parametrize("query", ["alt=sse", ""])
@given(
    parts=st.lists(parts_but_last, max_size=8),
    tokens=tokens,
    cuts=st.lists(st.integers(0, 10**6), max_size=20),
)
def test_what_is_written_is_read_back_however_it_is_cut(
    query: str, parts: list[Part], tokens: Tokens, cuts: list[int]
):
    answer = [*parts, Finish("max_tokens", tokens=tokens)]
    seen = goldens.read_stream(CODEC, goldens.streamed(CODEC, ask(query=query), "a", answer), cuts)
    assert seen.text == "".join(part.text for part in parts if isinstance(part, TextChunk))
    assert seen.reasoning == "".join(part.text for part in parts if isinstance(part, ReasoningChunk))
    assert seen.calls == [part for part in parts if isinstance(part, Call)]
    assert (seen.model, seen.stop_reason, seen.tokens, seen.error) == (MODEL, "max_tokens", tokens, None)
    assert goldens.read_whole(CODEC, CODEC.whole(ask("generateContent"), "a", answer)) == seen


@given(st.lists(st.binary()))
def test_bytes_of_any_kind_do_not_disturb_the_reader(rubbish: list[bytes]):
    for first in (b"data: ", b"["):
        decoder = CODEC.decoder()
        decoder.feed(first)
        for data in rubbish:
            decoder.feed(data)
            decoder.feed(b"\n\ndata: {" + data + b"}\n\n")
            decoder.whole(data)
        assert decoder.result().calls == []


def test_an_object_that_is_too_large_is_passed_over_and_the_next_is_read():
    reader = ObjectReader(max_bytes=10)
    assert reader.feed(b'[{"a":1},{"b":"xxxx') == [b'{"a":1}']
    assert reader.feed(b"x" * 100) == []
    assert reader.feed(b'"},{"c":"}"}]') == [b'{"c":"}"}']
