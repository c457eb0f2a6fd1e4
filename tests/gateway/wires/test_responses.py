"""OpenAI Responses, judged by OpenAI's own client and by golden files."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai import APIError, AsyncOpenAI
from openai.types.responses import Response
from tests.gateway import goldens, openai_faults
from tests.gateway.judge import BaseUrl, Wrong, judge
from tests.gateway.openai_faults import FAULTS, Expected

from codesdk.gateway.wires.exchange import (
    Ask,
    AskCall,
    AskResult,
    Call,
    Finish,
    Part,
    ReasoningChunk,
    Seen,
    StopReason,
    TextChunk,
    Tokens,
)
from codesdk.gateway.wires.responses import CODEC

_TOKENS = Tokens(input=120, output=40, cache_read=1000, cache_write=30, reasoning=12)
_TOOLS: Any = [
    {
        "type": "namespace",
        "name": "mcp__codesdk",
        "description": "",
        "tools": [
            {"type": "function", "name": "read", "parameters": {"type": "object"}},
            {"type": "function", "name": "exec", "parameters": {"type": "object"}},
        ],
    },
    {"type": "function", "name": "plain", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "apply_patch"},
]
_CALLS = [
    Call("call_1", "mcp__codesdk__read", {"path": "a/path/that/takes/more/than/one/piece.py"}),
    Call("call_2", "mcp__codesdk__exec", {"command": "ls"}),
    Call("call_3", "plain", {}),
    Call("call_4", "apply_patch", "*** Begin Patch\n*** End Patch"),
]


def _client(url: BaseUrl) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)


def _ask(**fields: Any) -> Ask:
    route = CODEC.route("POST", "/v1/responses", "")
    assert route is not None
    return CODEC.parse(route, {"model": "gpt-5.5", "input": "hi", "tools": _TOOLS, **fields})


def _event_types(data: bytes) -> list[str]:
    return [line.removeprefix("event: ") for line in data.decode().split("\n") if line.startswith("event: ")]


async def _read(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="gpt-5.5", input="hi", stream=True)
    async for _ in stream:
        pass


# --- golden files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", goldens.cases("responses", "requests"), ids=lambda case: case.name)
def test_a_recorded_request_is_understood(case: Path):
    goldens.check_json(case / "ask.json", goldens.without_body(goldens.ask_of(CODEC, case)))


@pytest.mark.parametrize("case", goldens.cases("responses", "answers"), ids=lambda case: case.name)
def test_an_answer_is_written_as_it_always_was(case: Path):
    ask = goldens.ask_of(CODEC, goldens.HOME / "responses/requests/codex_first_turn")
    parts = goldens.parts_of(case)
    stream = goldens.streamed(CODEC, ask, "golden", parts)
    whole = CODEC.whole(ask, "golden", parts)
    goldens.check(case / "stream.txt", stream)
    goldens.check(case / "whole.json", whole + b"\n")
    seen = goldens.read_stream(CODEC, stream)
    goldens.check_seen(case / "seen.json", seen)
    assert goldens.read_whole(CODEC, whole) == seen


@pytest.mark.parametrize("case", goldens.cases("responses", "seen"), ids=lambda case: case.name)
def test_what_a_provider_sends_is_seen_wherever_it_is_cut(case: Path):
    goldens.check_seen(case / "seen.json", goldens.read_case(CODEC, case))


# --- properties ------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_INPUTS = st.dictionaries(st.text(max_size=8), _JSON, max_size=4)
_COUNT = st.integers(0, 10**9)
_SOME_TOKENS = st.builds(
    Tokens, input=_COUNT, output=_COUNT, cache_read=_COUNT, cache_write=_COUNT, reasoning=_COUNT
)
_MIDDLE = st.lists(
    st.text(max_size=30).map(TextChunk)
    | st.text(max_size=30).map(ReasoningChunk)
    | st.builds(Call, st.text("abc_1", min_size=1), st.sampled_from(["mcp__codesdk__read", "plain"]), _INPUTS)
    | st.builds(Call, st.text("abc_1", min_size=1), st.just("apply_patch"), st.text(max_size=30)),
    max_size=8,
)


@st.composite
def _answers(draw: st.DrawFn) -> list[Part]:
    """Answers whose end says what the parts say, as this format has no other word for it."""
    middle = draw(_MIDDLE)
    refusal = draw(st.none() | st.text(min_size=1, max_size=20))
    has_calls = any(isinstance(part, Call) for part in middle)
    natural: StopReason = "tool_use" if has_calls else "end_turn"
    stops: list[StopReason] = ["refusal"] if refusal else [natural, "max_tokens", "refusal"]
    stop = draw(st.sampled_from(stops))
    return [*middle, Finish(stop, draw(st.none() | _SOME_TOKENS), refusal)]


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


@given(_answers(), st.lists(st.integers(0, 10**6), max_size=20), st.sampled_from([None, "auto", "none"]))
def test_what_is_written_is_read_back_wherever_it_is_cut(
    parts: list[Part], cuts: list[int], summary: str | None
):
    ask = _ask(stream=True, reasoning={"effort": "low", "summary": summary})
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


@given(st.lists(st.tuples(st.sampled_from(openai_faults.RESPONSES_TYPES), _INPUTS), max_size=6))
@pytest.mark.slow
def test_no_event_makes_the_decoder_raise(events: list[tuple[str, dict[str, Any]]]):
    goldens.read_stream(CODEC, openai_faults.as_stream([{**fields, "type": kind} for kind, fields in events]))


# --- the official client ---------------------------------------------------------------------------


async def test_the_client_streams_text_with_every_event_in_order():
    parts = [TextChunk("Hel"), TextChunk("lo"), Finish("end_turn", _TOKENS)]
    async with judge(CODEC, parts) as url, _client(url) as client:
        stream = await client.responses.create(model="gpt-5.5", input="hi", stream=True)
        events = [event async for event in stream]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))


@pytest.mark.slow
async def test_the_clients_stream_helper_accepts_the_order_of_events_and_adds_them_up():
    parts = [ReasoningChunk("I should "), ReasoningChunk("look."), TextChunk("Let me "), TextChunk("look.")]
    async with (
        judge(CODEC, [*parts, *_CALLS, Finish("tool_use", _TOKENS)]) as url,
        _client(url) as client,
        client.responses.stream(model="gpt-5.5", input="hi", tools=_TOOLS) as stream,
    ):
        events = [event async for event in stream]
        response = await stream.get_final_response()
    assert "".join(e.delta for e in events if e.type == "response.reasoning_summary_text.delta") == (
        "I should look."
    )
    assert response.output_text == "Let me look."
    assert [item.type for item in response.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call",
        "custom_tool_call",
    ]
    calls = [item.to_dict() for item in response.output[2:]]
    assert [(call.get("namespace"), call["name"], call["call_id"]) for call in calls] == [
        ("mcp__codesdk", "read", "call_1"),
        ("mcp__codesdk", "exec", "call_2"),
        (None, "plain", "call_3"),
        (None, "apply_patch", "call_4"),
    ]
    assert calls[0]["arguments"] == '{"path":"a/path/that/takes/more/than/one/piece.py"}'
    assert calls[3]["input"] == "*** Begin Patch\n*** End Patch"


async def test_the_client_gets_the_same_answer_whole_as_streamed():
    parts: list[Part] = [
        ReasoningChunk("Hm."),
        TextChunk("Hello"),
        *_CALLS,
        Finish("tool_use", _TOKENS),
    ]
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.responses.create(model="gpt-5.5", input="hi", tools=_TOOLS)
        stream = await client.responses.create(model="gpt-5.5", input="hi", tools=_TOOLS, stream=True)
        last = [event async for event in stream][-1]
    assert last.type == "response.completed"
    streamed = last.response.to_dict()
    assert whole.to_dict() | {"id": ""} == _with_ids_of_first(streamed) | {"id": ""}


def _with_ids_of_first(response: dict[str, Any]) -> dict[str, Any]:
    """The judge numbers its answers, and their items are named after them."""
    output = [item | {"id": item["id"].replace("answer_2", "answer_1")} for item in response["output"]]
    return response | {"output": output}


async def test_what_the_client_received_validates_against_its_own_types():
    parts: list[Part] = [
        ReasoningChunk("Hm."),
        TextChunk("Hello"),
        *_CALLS,
        Finish("refusal", _TOKENS, "No."),
    ]
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.responses.create(model="gpt-5.5", input="hi", tools=_TOOLS)
    Response.model_validate(whole.to_dict())


async def test_parallel_calls_stream_their_arguments_in_pieces_that_add_up():
    async with judge(CODEC, [*_CALLS, Finish("tool_use")]) as url, _client(url) as client:
        stream = await client.responses.create(model="gpt-5.5", input="hi", tools=_TOOLS, stream=True)
        pieces: dict[int, list[str]] = {}
        async for event in stream:
            if event.type == "response.function_call_arguments.delta":
                pieces.setdefault(event.output_index, []).append(event.delta)
            if event.type == "response.function_call_arguments.done":
                assert "".join(pieces[event.output_index]) == event.arguments
    assert {index: len(found) for index, found in pieces.items()} == {0: 4, 1: 1, 2: 1}


async def test_usage_counts_everything_once_in_total():
    async with judge(CODEC, [TextChunk("x"), Finish("end_turn", _TOKENS)]) as url, _client(url) as client:
        response = await client.responses.create(model="gpt-5.5", input="hi")
    assert response.usage is not None
    assert response.usage.to_dict() == {
        "input_tokens": 1150,
        "input_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 30},
        "output_tokens": 52,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 1202,
    }


async def test_the_client_can_send_the_output_back_with_results():
    async with (
        judge(
            CODEC,
            [ReasoningChunk("Hm."), *_CALLS, Finish("tool_use")],
            [TextChunk("Done."), Finish("end_turn")],
        ) as url,
        _client(url) as client,
    ):
        first = await client.responses.create(model="gpt-5.5", input="hi", tools=_TOOLS)
        results: Any = [
            {"type": "function_call_output", "call_id": "call_1", "output": "print('hi')"},
            {"type": "custom_tool_call_output", "call_id": "call_4", "output": "Success."},
        ]
        sent: Any = [{"role": "user", "content": "hi"}, *first.output, *results]
        second = await client.responses.create(model="gpt-5.5", input=sent, tools=_TOOLS)
        blocks = [block for message in url.asks[1].messages for block in message.blocks]
    assert second.output_text == "Done."
    assert [AskCall(call.id, call.name, call.input) for call in _CALLS] == [
        block for block in blocks if isinstance(block, AskCall)
    ]
    assert [block for block in blocks if isinstance(block, AskResult)] == [
        AskResult("call_1", "print('hi')"),
        AskResult("call_4", "Success."),
    ]


async def test_reasoning_is_told_as_it_is_to_who_wants_no_summary():
    parts = [ReasoningChunk("Hm."), TextChunk("Hi"), Finish("end_turn")]
    async with (
        judge(CODEC, parts) as url,
        _client(url) as client,
        client.responses.stream(
            model="gpt-5.5", input="hi", reasoning={"effort": "low"}, include=["reasoning.encrypted_content"]
        ) as stream,
    ):
        events = [event async for event in stream]
        response = await stream.get_final_response()
    assert "response.reasoning_text.delta" in [event.type for event in events]
    assert response.output[0].to_dict() == {
        "id": "rs_answer_1_0",
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "encrypted_content": "encrypted_rs_answer_1_0",
    }


async def test_an_answer_that_is_cut_off_is_incomplete():
    parts = [TextChunk("It is cut "), Finish("max_tokens", _TOKENS)]
    async with judge(CODEC, parts) as url, _client(url) as client:
        whole = await client.responses.create(model="gpt-5.5", input="hi")
        stream = await client.responses.create(model="gpt-5.5", input="hi", stream=True)
        last = [event async for event in stream][-1]
    assert last.type == "response.incomplete"
    assert whole.status == last.response.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.output[0].to_dict()["status"] == "incomplete"


async def test_a_refusal_is_a_part_of_its_own():
    parts = [Finish("refusal", refusal="I cannot help with that.")]
    async with judge(CODEC, parts) as url, _client(url) as client:
        stream = await client.responses.create(model="gpt-5.5", input="hi", stream=True)
        events = [event async for event in stream]
    assert [event.delta for event in events if event.type == "response.refusal.delta"] == [
        "I cannot help with that."
    ]
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output[0].to_dict()["content"] == [
        {"type": "refusal", "refusal": "I cannot help with that."}
    ]


async def test_a_refusal_without_words_is_what_the_content_filter_stopped():
    async with judge(CODEC, [Finish("refusal")]) as url, _client(url) as client:
        response = await client.responses.create(model="gpt-5.5", input="hi")
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "content_filter")


async def test_an_empty_answer_is_complete():
    async with (
        judge(CODEC, [Finish("end_turn")]) as url,
        _client(url) as client,
        client.responses.stream(model="gpt-5.5", input="hi") as stream,
    ):
        response = await stream.get_final_response()
    assert (response.status, response.output, response.usage) == ("completed", [], None)


async def test_the_client_can_count_tokens():
    async with judge(CODEC, 17) as url, _client(url) as client:
        counted = await client.responses.input_tokens.count(model="gpt-5.5", input="hi", tools=_TOOLS)
    assert counted.input_tokens == 17


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda expected: expected.fault.kind)
async def test_every_fault_is_the_clients_own_error(fault: Expected, is_streamed: bool):
    async with judge(CODEC, fault.fault) as url, _client(url) as client:
        with pytest.raises(fault.error) as raised:
            await client.responses.create(model="gpt-5.5", input="hi", stream=is_streamed)
    assert fault.told_by(raised.value, "input")


async def test_the_request_that_cannot_be_read_is_told_to_the_client():
    async with judge(CODEC, [Finish("end_turn")]) as url, _client(url) as client:
        bad: Any = [{"role": "narrator", "content": "hi"}]
        with pytest.raises(APIError, match=r"input\[0\]\.role"):
            await client.responses.create(model="gpt-5.5", input=bad)


async def test_a_stream_that_breaks_is_the_clients_connection_error():
    async with judge(CODEC, Wrong([TextChunk("par")], reset=True)) as url, _client(url) as client:
        with pytest.raises(openai_faults.CONNECTION_ERRORS):
            await _read(client)


async def test_a_broken_frame_cannot_be_parsed():
    async with judge(CODEC, Wrong(frame=CODEC.broken_frame)) as url, _client(url) as client:
        stream = await client.responses.create(model="gpt-5.5", input="hi", stream=True)
        with pytest.raises(ValueError, match="Unterminated string"):
            [event async for event in stream]


# --- as Codex sees it ------------------------------------------------------------------------------


def test_an_older_namespace_that_ends_in_underscores_is_not_given_more():
    tool = {"type": "function", "name": "read", "parameters": {}}
    ask = _ask(tools=[{"type": "namespace", "name": "mcp__codesdk__", "tools": [tool]}])
    assert ask.tools == ["mcp__codesdk__read"]
    stream = goldens.streamed(CODEC, ask, "a", [Call("c", "mcp__codesdk__read", {}), Finish("tool_use")])
    assert b'"name":"read","arguments":"{}","namespace":"mcp__codesdk__"' in stream
    assert [call.name for call in goldens.read_stream(CODEC, stream).calls] == ["mcp__codesdk__read"]


def test_parts_without_an_end_still_make_a_whole_answer():
    assert goldens.read_whole(CODEC, CODEC.whole(_ask(), "a", [TextChunk("Hi")])) == Seen(
        model="gpt-5.5", text="Hi", stop_reason="end_turn"
    )


# --- requests that nobody would take ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"instructions": 5}, "instructions"),
        ({"input": None}, "input"),
        ({"input": {}}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{"role": "narrator", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "name": "x", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"tools": {}}, "tools"),
        ({"tools": ["x"]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{}]}]}, "tools[0].tools[0].type"),
        ({"input": [{"type": "additional_tools", "tools": [{"type": "custom"}]}]}, "input[0].tools[0].name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_no_provider_would_take_names_its_field(change: dict[str, Any], field: str):
    with pytest.raises(ValueError, match="^" + re.escape(f"{field}: ")):
        _ask(**change)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/responses/"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1"),
    ],
)
def test_other_paths_are_not_this_formats(method: str, path: str):
    assert CODEC.route(method, path, "") is None
