"""OpenAI Chat Completions, judged by OpenAI's own client and by golden files."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st
from openai import APIError, AsyncOpenAI, ContentFilterFinishReasonError, LengthFinishReasonError
from openai.types.chat import ChatCompletion
from tests.gateway import goldens, openai_faults
from tests.gateway.judge import BaseUrl, Wrong, judge
from tests.gateway.openai_faults import FAULTS, Expected

from codesdk.gateway.wires.chat import CODEC
from codesdk.gateway.wires.exchange import (
    Ask,
    AskCall,
    AskMessage,
    AskResult,
    AskText,
    Call,
    Fault,
    Finish,
    Part,
    ReasoningChunk,
    Seen,
    StopReason,
    TextChunk,
    Tokens,
)
from codesdk.gateway.wires.sse import EventReader

_TOKENS = Tokens(input=120, output=40, cache_read=1000, cache_write=30, reasoning=12)
_USAGE = {
    "prompt_tokens": 1150,
    "completion_tokens": 52,
    "total_tokens": 1202,
    "prompt_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 30},
    "completion_tokens_details": {"reasoning_tokens": 12},
}
_MESSAGES: Any = [{"role": "user", "content": "hi"}]
_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("owned_read", "owned_exec")
]
_CALLS = [
    Call("call_1", "owned_read", {"path": "a/path/that/takes/more/than/one/piece.py"}),
    Call("call_2", "owned_exec", {}),
]


def _client(url: BaseUrl) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)


def _ask(**fields: Any) -> Ask:
    route = CODEC.route("POST", "/v1/chat/completions", "")
    assert route is not None
    return CODEC.parse(route, {"model": "gpt-5.5", "messages": _MESSAGES, "tools": _TOOLS, **fields})


async def _read(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, stream=True)
    async for _ in stream:
        pass


# --- golden files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", goldens.cases("chat", "requests"), ids=lambda case: case.name)
def test_a_recorded_request_is_understood(case: Path):
    goldens.check_json(case / "ask.json", goldens.without_body(goldens.ask_of(CODEC, case)))


@pytest.mark.parametrize("case", goldens.cases("chat", "answers"), ids=lambda case: case.name)
def test_an_answer_is_written_as_it_always_was(case: Path):
    ask = goldens.ask_of(CODEC, goldens.HOME / "chat/requests/opencode_first_turn")
    parts = goldens.parts_of(case)
    stream = goldens.streamed(CODEC, ask, "golden", parts)
    whole = CODEC.whole(ask, "golden", parts)
    goldens.check(case / "stream.txt", stream)
    goldens.check(case / "whole.json", whole + b"\n")
    seen = goldens.read_stream(CODEC, stream)
    goldens.check_seen(case / "seen.json", seen)
    assert goldens.read_whole(CODEC, whole) == seen


@pytest.mark.parametrize("case", goldens.cases("chat", "seen"), ids=lambda case: case.name)
def test_what_a_provider_sends_is_seen_wherever_it_is_cut(case: Path):
    goldens.check_seen(case / "seen.json", goldens.read_case(CODEC, case))


# --- properties ------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_COUNT = st.integers(0, 10**9)
_SOME_TOKENS = st.builds(
    Tokens, input=_COUNT, output=_COUNT, cache_read=_COUNT, cache_write=_COUNT, reasoning=_COUNT
)
_MIDDLE = st.lists(
    st.text(max_size=30).map(TextChunk)
    | st.text(max_size=30).map(ReasoningChunk)
    | st.builds(Call, st.text("abc_1", min_size=1), st.sampled_from(["owned_read", "owned_exec"]), _JSON),
    max_size=8,
)


_STOPS: st.SearchStrategy[StopReason] = st.sampled_from(get_args(StopReason))


@st.composite
def _answers(draw: st.DrawFn) -> list[Part]:
    refusal = draw(st.none() | st.text(min_size=1, max_size=20))
    stop = "refusal" if refusal else draw(_STOPS)
    return [*draw(_MIDDLE), Finish(stop, draw(st.none() | _SOME_TOKENS), refusal)]


def _expected(ask: Ask, parts: list[Part]) -> Seen:
    finish = parts[-1]
    assert isinstance(finish, Finish)
    return Seen(
        model=ask.model,
        text="".join(part.text for part in parts if isinstance(part, TextChunk)),
        reasoning="".join(part.text for part in parts if isinstance(part, ReasoningChunk)),
        calls=[part for part in parts if isinstance(part, Call)],
        refusal=finish.refusal,
        stop_reason=finish.stop_reason,
        tokens=finish.tokens,
    )


@given(_answers(), st.lists(st.integers(0, 10**6), max_size=20))
def test_what_is_written_is_read_back_wherever_it_is_cut(parts: list[Part], cuts: list[int]):
    ask = _ask(stream=True, stream_options={"include_usage": True})
    stream = goldens.streamed(CODEC, ask, "a1", parts)
    assert goldens.read_stream(CODEC, stream, cuts) == _expected(ask, parts)


@given(_answers())
def test_a_whole_answer_is_read_back(parts: list[Part]):
    ask = _ask()
    assert goldens.read_whole(CODEC, CODEC.whole(ask, "a1", parts)) == _expected(ask, parts)


@given(st.binary(max_size=300), st.lists(st.integers(0, 10**6), max_size=5))
def test_no_bytes_make_the_decoder_raise(data: bytes, cuts: list[int]):
    goldens.read_stream(CODEC, data, cuts)
    goldens.read_whole(CODEC, data)


_LOOSE = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(st.fixed_dictionaries({"delta": _JSON, "message": _JSON}) | _JSON, max_size=2),
        "usage": _JSON,
        "error": _JSON,
        "model": _JSON,
    },
)


@given(st.lists(_LOOSE, max_size=4))
def test_no_chunk_makes_the_decoder_raise(chunks: list[dict[str, Any]]):
    goldens.read_stream(CODEC, openai_faults.as_stream(chunks))


# --- the official client ---------------------------------------------------------------------------


async def test_the_client_streams_text_from_role_to_finish():
    parts = [TextChunk("Hel"), TextChunk("lo"), Finish("end_turn", _TOKENS)]
    async with judge(CODEC, parts) as url, _client(url) as client:
        stream = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, stream=True)
        chunks = [chunk async for chunk in stream]
    deltas = [(chunk.choices[0].delta.to_dict(), chunk.choices[0].finish_reason) for chunk in chunks]
    assert deltas == [
        ({"role": "assistant", "content": "", "refusal": None}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo"}, None),
        ({}, "stop"),
    ]
    assert [chunk.usage for chunk in chunks] == [None] * 4


async def test_usage_comes_last_and_only_to_who_asks_for_it():
    async with judge(CODEC, [TextChunk("x"), Finish("end_turn", _TOKENS)]) as url, _client(url) as client:
        stream = await client.chat.completions.create(
            model="gpt-5.5", messages=_MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * 3
    last = chunks[-1]
    assert last.usage is not None
    assert (last.choices, last.usage.to_dict()) == ([], _USAGE)


async def test_reasoning_comes_as_compatible_providers_send_it():
    parts = [ReasoningChunk("I should "), ReasoningChunk("look."), TextChunk("Hi"), Finish("end_turn")]
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES)
        stream = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, stream=True)
        deltas = [chunk.choices[0].delta.to_dict() async for chunk in stream]
    assert "".join(str(delta.get("reasoning_content", "")) for delta in deltas) == "I should look."
    assert whole.choices[0].message.to_dict()["reasoning_content"] == "I should look."


async def test_the_clients_stream_helper_adds_up_parallel_calls():
    parts = [TextChunk("Let me look."), *_CALLS, Finish("tool_use", _TOKENS)]
    async with (
        judge(CODEC, parts) as url,
        _client(url) as client,
        client.chat.completions.stream(
            model="gpt-5.5", messages=_MESSAGES, tools=_TOOLS, stream_options={"include_usage": True}
        ) as stream,
    ):
        events = [event async for event in stream]
        completion = await stream.get_final_completion()
    pieces = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert len([piece for piece in pieces if piece.index == 0 and piece.arguments_delta]) == 4
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me look.")
    assert choice.message.tool_calls is not None
    assert [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls] == [
        ("call_1", "owned_read", '{"path":"a/path/that/takes/more/than/one/piece.py"}'),
        ("call_2", "owned_exec", "{}"),
    ]


async def test_a_whole_answer_validates_against_the_clients_own_types():
    parts: list[Part] = [TextChunk("Let me look."), *_CALLS, Finish("tool_use", _TOKENS)]
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, tools=_TOOLS)
    ChatCompletion.model_validate(whole.to_dict())
    assert whole.usage is not None
    assert whole.usage.to_dict() == _USAGE
    assert whole.choices[0].finish_reason == "tool_calls"


async def test_the_client_can_send_the_answer_back_with_results():
    answers = ([*_CALLS, Finish("tool_use")], [TextChunk("Done."), Finish("end_turn")])
    async with judge(CODEC, *answers) as url, _client(url) as client:
        first = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, tools=_TOOLS)
        results: Any = [
            {"role": "tool", "tool_call_id": "call_1", "content": "print('hi')"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "done"}]},
        ]
        sent: Any = [*_MESSAGES, first.choices[0].message, *results]
        second = await client.chat.completions.create(model="gpt-5.5", messages=sent, tools=_TOOLS)
        messages = url.asks[1].messages
    assert second.choices[0].message.content == "Done."
    assert messages == [
        AskMessage("user", [AskText("hi")], "/messages/0"),
        AskMessage("assistant", [AskCall(c.id, c.name, c.input) for c in _CALLS], "/messages/1"),
        AskMessage("tool", [AskResult("call_1", "print('hi')")], "/messages/2"),
        AskMessage("tool", [AskResult("call_2", "done")], "/messages/3"),
    ]


async def test_an_answer_that_is_cut_off_is_the_clients_length_error_where_it_parses():
    parts = [TextChunk('{"a": '), Finish("max_tokens", _TOKENS)]
    schema: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": True}}
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES)
        with pytest.raises(LengthFinishReasonError):
            await client.chat.completions.parse(model="gpt-5.5", messages=_MESSAGES, response_format=schema)
    assert whole.choices[0].finish_reason == "length"


async def test_a_refusal_is_what_the_content_filter_stopped_in_the_models_words():
    parts = [Finish("refusal", refusal="I cannot help with that.")]
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES)
        with pytest.raises(ContentFilterFinishReasonError):
            await client.chat.completions.parse(model="gpt-5.5", messages=_MESSAGES)
        stream = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]
    assert whole.choices[0].message.refusal == "I cannot help with that."
    assert [chunk.delta.refusal for chunk in chunks] == [None, "I cannot help with that.", None]
    assert chunks[-1].finish_reason == whole.choices[0].finish_reason == "content_filter"


async def test_an_empty_answer_has_no_content():
    async with judge(CODEC, [Finish("end_turn")]) as url, _client(url) as client:
        whole = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (None, "stop")


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda expected: expected.fault.kind)
async def test_every_fault_is_the_clients_own_error(fault: Expected, is_streamed: bool):
    async with judge(CODEC, fault.fault) as url, _client(url) as client:
        with pytest.raises(fault.error) as raised:
            await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, stream=is_streamed)
    assert fault.told_by(raised.value, "messages")


async def test_the_request_that_cannot_be_read_is_told_to_the_client():
    async with judge(CODEC, [Finish("end_turn")]) as url, _client(url) as client:
        bad: Any = [{"role": "narrator", "content": "hi"}]
        with pytest.raises(APIError, match=r"messages\[0\]\.role"):
            await client.chat.completions.create(model="gpt-5.5", messages=bad)


async def test_a_stream_that_breaks_is_the_clients_connection_error():
    async with judge(CODEC, Wrong([TextChunk("par")], reset=True)) as url, _client(url) as client:
        with pytest.raises(openai_faults.CONNECTION_ERRORS):
            await _read(client)


async def test_a_broken_frame_cannot_be_parsed():
    async with judge(CODEC, Wrong(frame=CODEC.broken_frame)) as url, _client(url) as client:
        stream = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES, stream=True)
        with pytest.raises(ValueError, match="Unterminated string"):
            [chunk async for chunk in stream]


async def test_a_used_up_quota_is_not_asked_for_again_though_the_client_may_retry():
    quota = Fault(status=429, kind="quota", message="You exceeded your budget.")
    async with judge(CODEC, quota) as url, _client(url).with_options(max_retries=3) as client:
        with pytest.raises(APIError):
            await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES)
        assert len(url.requests) == 1


async def test_the_client_waits_no_longer_than_it_is_told_and_asks_again():
    limit = Fault(status=429, kind="rate_limit", message="Slow down.", retry_after_s=0.001)
    async with judge(CODEC, limit, [TextChunk("Hi"), Finish("end_turn")]) as url:
        async with _client(url).with_options(max_retries=1) as client:
            whole = await client.chat.completions.create(model="gpt-5.5", messages=_MESSAGES)
        assert (whole.choices[0].message.content, len(url.requests)) == ("Hi", 2)


# --- faults in words -------------------------------------------------------------------------------


def test_how_long_to_wait_is_said_in_whole_seconds_and_in_milliseconds():
    headers, _ = CODEC.error(Fault(status=429, kind="rate_limit", message="x", retry_after_s=3600000.5))
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("3600001", "3600000500")


def test_a_request_that_is_too_long_is_refused_with_its_numbers():
    fault = Fault(status=400, kind="context_too_large", message="x", tokens=5000, limit=4096)
    _, body = CODEC.error(fault)
    assert goldens.read_whole(CODEC, body).error == (
        "context_length_exceeded: This model's maximum context length is 4096 tokens. However, your messages "
        "resulted in 5000 tokens. Please reduce the length of the messages."
    )


def test_a_stream_ends_with_done_and_its_frames_have_no_names():
    stream = goldens.streamed(CODEC, _ask(stream=True), "a", [*_CALLS, Finish("tool_use")])
    events = EventReader().feed(stream)
    assert events[-1] == b"[DONE]"
    assert b"event:" not in stream


def test_calls_of_an_answer_that_broke_off_are_not_counted():
    encoder = CODEC.encoder(_ask(stream=True), "a")
    assert goldens.read_stream(CODEC, encoder.start() + encoder.feed(_CALLS[0])).calls == []


# --- requests that nobody would take ---------------------------------------------------------------

_CALL_WITHOUT_NAME = {"id": "c", "type": "function", "function": {"arguments": "{}"}}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": ""}, "model"),
        ({"stream": 1}, "stream"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0].role"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [_CALL_WITHOUT_NAME]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        ({"tools": "all"}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "x"}]}, "tools[0].function.name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_no_provider_would_take_names_its_field(change: dict[str, Any], field: str):
    with pytest.raises(ValueError, match="^" + re.escape(f"{field}: ")):
        _ask(**change)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/chat/completions"), ("POST", "/v1/completions"), ("POST", "/v1/responses")],
)
def test_other_paths_are_not_this_formats(method: str, path: str):
    assert CODEC.route(method, path, "") is None
