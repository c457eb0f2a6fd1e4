"""Official clients on the real gateway with only their base URL changed: scripted answers, and every scripted fault."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any, get_args

import anyio
import pytest
from tests.gateway.clients import TOOL, Heard, Turn, converse, hear, official
from tests.gateway.fault_table import HTTP, SAID, STEPS, TABLE, Outcome, Raises
from tests.gateway.peers import WIRES, error_text, gemini_errors, post

from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Wire
from codesdk.script import model as script_model, parse_object

SILENCES = ("silence at once", "silence in mid-stream")
SHORT_S = 2.0
each_wire = pytest.mark.parametrize("wire", WIRES)
each_way = pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])


class Stage:
    """A gateway, and an official client of each format that is pointed at it; who plays is changed behind their backs."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.clients: dict[Wire, Any] = {}

    def admit(self, model: ScriptedModel, wire: Wire) -> str:
        """Let a model answer the client of a format."""
        return self.gateway.admit(model, token=f"token-of-{wire}")

    async def hear(
        self, model: ScriptedModel, wire: Wire, streaming: bool, messages: list[Any] | None = None
    ) -> Turn:
        """Have the client of a format ask a model."""
        self.admit(model, wire)
        return await hear(self.clients[wire], wire, streaming, messages)


@pytest.fixture(scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with Gateway() as gateway, AsyncExitStack() as stack:
        made = Stage(gateway)
        for wire in WIRES:
            base_url = made.admit(scripted([]), wire)
            made.clients[wire] = await stack.enter_async_context(official(base_url, wire))
        yield made


def scripted(*turns: list[dict[str, Any]], **fields: Any) -> ScriptedModel:
    return ScriptedModel(parse_object({"turns": [{"steps": steps, **fields} for steps in turns]}, "test"))


async def outcome_of(expected: Outcome, asked: Awaitable[Turn]) -> Outcome:
    """Return what comes of a question, in the terms of what is expected."""
    if isinstance(expected, Heard):
        return (await asked).heard
    with pytest.raises(expected.error) as caught:
        await asked
    error = caught.value
    says = expected.says if expected.says in str(error) else str(error)
    return Raises(type(error), says, {name: getattr(error, name) for name in expected.attributes})


@each_way
@each_wire
@pytest.mark.parametrize("status", HTTP)
@pytest.mark.slow
async def test_every_scripted_refusal_is_the_clients_own_error(
    stage: Stage, status: int, wire: Wire, streaming: bool
):
    model = scripted([{"http": {"status": status, "message": SAID}}])
    expected = HTTP[status][wire]
    assert await outcome_of(expected, stage.hear(model, wire, streaming)) == expected


@each_way
@each_wire
@pytest.mark.parametrize("fault", [fault for fault in TABLE if fault not in SILENCES])
async def test_every_other_fault_is_what_the_table_says(
    stage: Stage, fault: str, wire: Wire, streaming: bool
):
    model = scripted(STEPS[fault])
    row = TABLE[fault][wire]
    expected = row.streamed if streaming else row.whole
    assert await outcome_of(expected, stage.hear(model, wire, streaming)) == expected
    assert (model.played, model.problems) == (1, [])


@pytest.mark.parametrize("fault", SILENCES)
@pytest.mark.slow
async def test_silence_is_the_timeout_of_each_client(stage: Stage, fault: str):
    """All at once, because each has to wait: long enough for a busy machine to have begun."""
    asked: list[Awaitable[Turn]] = []
    expected: list[Outcome] = []
    async with AsyncExitStack() as stack:
        for wire, row in TABLE[fault].items():
            for streaming in (True, False):
                base_url = stage.gateway.admit(scripted(STEPS[fault]))
                client = await stack.enter_async_context(official(base_url, wire, timeout_s=SHORT_S))
                asked.append(hear(client, wire, streaming))
                expected.append(row.streamed if streaming else row.whole)
        found = await asyncio.gather(*map(outcome_of, expected, asked))
    assert found == expected


def test_the_table_has_every_fault_of_a_script():
    played = {key for steps in STEPS.values() for step in steps for key in step} | {"http"}
    kinds: Any = get_args(script_model.GatewayOnlyStep)
    faults = {kind.__struct_config__.tag for kind in kinds}
    assert faults <= played
    assert TABLE.keys() == STEPS.keys()
    assert all(set(row) == set(WIRES) for row in (*TABLE.values(), *HTTP.values()))


# --- when to come back -----------------------------------------------------------------------------

LIMITED = [{"http": {"status": 429, "retry_after_s": 7, "message": SAID}}]


@each_way
@pytest.mark.parametrize("wire", ["anthropic", "responses", "chat"])
async def test_a_client_that_is_told_when_to_come_back_waits_so_long_and_asks_again(
    stage: Stage, wire: Wire, streaming: bool, monkeypatch: pytest.MonkeyPatch
):
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    model = scripted(LIMITED, [{"text": "Now."}])
    base_url = stage.gateway.admit(model)
    with monkeypatch.context() as patch:
        patch.setattr(anyio, "sleep", note)
        turn = await converse(base_url, wire, streaming=streaming, retries=1)
    assert (turn.heard.text, slept, model.played) == ("Now.", [7.0], 2)


@each_way
async def test_google_genai_asks_again_in_its_own_time_and_hears_the_delay_only_as_a_detail(
    stage: Stage, streaming: bool
):
    model = scripted(LIMITED, [{"text": "Now."}], LIMITED)
    base_url = stage.gateway.admit(model)
    assert (await converse(base_url, "gemini", streaming=streaming, retries=1)).heard.text == "Now."
    with pytest.raises(gemini_errors.ClientError) as caught:
        await converse(base_url, "gemini", streaming=streaming)
    told: Any = caught.value.details
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    assert told["error"]["details"] == [retry]
    assert model.played == 3


@each_wire
async def test_a_refusal_that_comes_after_a_delay_waits_for_it(
    stage: Stage, wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    for fault in ({"http": {"status": 503}}, {"context_too_large": True}):
        base_url = stage.gateway.admit(scripted([{"delay_s": 2}, {"delay_s": 0.5}, fault]))
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.gateway.scripted.asyncio.sleep", note)
            answer = await post(base_url, wire)
        assert answer.status_code in (400, 503)
        assert error_text(wire, answer.content)
    assert [seconds for seconds in slept if seconds >= 0.5] == [2.5, 2.5]


@pytest.mark.parametrize(
    ("wire", "tokens", "said"),
    [
        ("anthropic", 250_001, "prompt is too long: 250001 tokens > 200000 maximum"),
        ("chat", 250_001, "your messages resulted in 250001 tokens"),
        ("gemini", 1_250_001, "The input token count (1250001) exceeds"),
    ],
)
async def test_a_context_that_is_too_large_is_told_by_how_much(
    stage: Stage, wire: Wire, tokens: int, said: str
):
    answer = await post(
        stage.gateway.admit(scripted([{"context_too_large": True}])), wire, text="word" * tokens
    )
    assert said in error_text(wire, answer.content)


# --- answers ---------------------------------------------------------------------------------------

READ_TWO = [
    {"reasoning": ["I should ", "look."]},
    {"text": ["Let me ", "read."]},
    {"call": {"tool": "workspace.read", "input": {"path": "a.txt"}, "id": "one"}},
    {"call": {"tool": "workspace.read", "input": {"path": "b.txt"}, "id": "two"}},
]
USAGE = {"input": 12, "output": 5, "cache_read": 3, "reasoning": 2}
STOPS: dict[Wire, tuple[str, str]] = {
    "anthropic": ("tool_use", "end_turn"),
    "responses": ("completed", "completed"),
    "chat": ("tool_calls", "stop"),
    "gemini": ("STOP", "STOP"),
}


@each_way
@each_wire
async def test_a_client_hears_thoughts_text_parallel_calls_and_usage_and_its_results_arrive(
    stage: Stage, wire: Wire, streaming: bool
):
    second = {"tool_result_contains": ["first of two", "second of two"], "offered": "workspace.read"}
    turns = [
        {"steps": READ_TWO, "usage": USAGE, "expect": {"user_contains": "Hi"}},
        {"steps": [{"text": "Done."}], "expect": second},
    ]
    model = ScriptedModel(parse_object({"turns": turns}, "test"))
    first = await stage.hear(model, wire, streaming)
    read, done = STOPS[wire]
    calls = ((TOOL, {"path": "a.txt"}), (TOOL, {"path": "b.txt"}))
    assert first.heard == Heard("Let me read.", "I should look.", calls, read, None, (15, 7, 22))
    messages = first.follow_up(["the first of two", "the second of two"])
    last = await stage.hear(model, wire, streaming, messages)
    assert last.heard == Heard("Done.", stop=done, tokens=(0, 0, 0))
    assert (model.played, model.problems) == (2, [])


@each_wire
async def test_a_stream_comes_in_the_chunks_of_the_script(stage: Stage, wire: Wire):
    model = scripted([{"text": ["One, ", "two, ", "three."]}])
    pieces: list[str] = []
    stage.admit(model, wire)
    async for piece in texts_of(stage.clients[wire], wire):
        pieces.append(piece)
    assert pieces == ["One, ", "two, ", "three."]


async def texts_of(client: Any, wire: Wire) -> AsyncIterator[str]:
    """Yield the pieces of text as a client gives them."""
    messages = [{"role": "user", "content": "Hi"}]
    if wire == "anthropic":
        async with client.messages.stream(model="m", max_tokens=9, messages=messages) as events:
            async for piece in events.text_stream:
                yield piece
    elif wire == "responses":
        async for event in await client.responses.create(model="m", input="Hi", stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta
    elif wire == "chat":
        async for chunk in await client.chat.completions.create(model="m", messages=messages, stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content
    else:
        async for chunk in await client.models.generate_content_stream(model="m", contents="Hi"):
            if chunk.text:
                yield chunk.text


@each_way
@each_wire
async def test_a_burst_is_of_the_kind_that_the_script_says(stage: Stage, wire: Wire, streaming: bool):
    model = scripted(
        [{"burst": {"count": 3, "size": 2, "of": "reasoning"}}, {"burst": {"count": 2, "size": 1}}]
    )
    heard = (await stage.hear(model, wire, streaming)).heard
    assert (heard.reasoning, heard.text) == ("xxxxxx", "xx")


async def test_tokens_are_counted_without_using_up_a_turn(stage: Stage):
    model = scripted([{"text": "Never."}])
    for wire in WIRES:
        stage.admit(model, wire)
    text = "four" * 10
    claude, gpt, gemini = (stage.clients[wire] for wire in ("anthropic", "responses", "gemini"))
    counted = await claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": text}])
    again = await gpt.responses.input_tokens.count(model="m", input=text)
    third = await gemini.models.count_tokens(model="m", contents=text)
    assert (counted.input_tokens, again.input_tokens, third.total_tokens) == (10, 10, 10)
    assert model.played == 0
