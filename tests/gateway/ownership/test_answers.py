"""Answers with only the calls that may reach the agent: any mix, cut anywhere, in steps, in every format."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.gateway.ownership.rig import (
    CODE,
    MARK,
    NAMESPACE,
    PREFIX,
    WIRES,
    decode,
    decode_whole,
    encode,
    finish,
    make_plan,
    parse,
    play,
    play_whole,
    question,
)
from tests.gateway.ownership.test_requests import asked, named

from codesdk.contract.models import Tokens, Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.wires.exchange import Call, Finish, Part, ReasoningChunk, Seen, TextChunk
from codesdk.gateway.wires.formats import codec_for

words = st.text(st.characters(codec="utf-8", exclude_characters="⟦⟧"), min_size=1, max_size=12)
inputs = st.dictionaries(st.sampled_from(["path", "why", "n"]), words | st.integers(-9, 9), max_size=2)
OURS = ("workspace_read", "workspace_write")
FOREIGN = (
    "Bash",
    "shell",
    "workspace_reader",
    "mcp__other__workspace_read",
    "exec_command",
    "run_typescript",
)
wires = st.sampled_from(WIRES)
namings = st.sampled_from([PREFIX, NAMESPACE, CODE, ToolNaming()])
chunkings = st.lists(st.integers(1, 90), max_size=5)
counts = st.integers(0, 1000)


@st.composite
def answers(draw: Any, *, passes: bool, number: int = 0) -> list[Part]:
    """One answer of a model; one that no call of reaches the agent has at least one that is denied."""
    kinds = st.sampled_from(["text", "reasoning", "foreign", *(["ours"] if passes else [])])
    parts: list[Part] = []
    for place, kind in enumerate(draw(st.lists(kinds, max_size=5)) + ([] if passes else ["foreign"])):
        if kind == "text":
            parts.append(TextChunk(draw(words)))
        elif kind == "reasoning":
            parts.append(ReasoningChunk(draw(words)))
        else:
            name = draw(st.sampled_from(OURS if kind == "ours" else FOREIGN))
            parts.append(Call(f"call_{number}_{place}", name, draw(inputs)))
    tokens = Tokens(input=draw(counts), output=draw(counts), cache_read=draw(counts), reasoning=draw(counts))
    return finish(parts, tokens)


@st.composite
def steps(draw: Any) -> list[list[Part]]:
    before = [draw(answers(passes=False, number=n)) for n in range(draw(st.integers(0, 2)))]
    return [*before, draw(answers(passes=True, number=len(before)))]


def calls_in(parts: Sequence[Part], names: Sequence[str]) -> list[Call]:
    return [part for part in parts if isinstance(part, Call) and part.name in names]


def expected_call(call: Call, naming: ToolNaming) -> Call:
    """A call as the agent gets it."""
    if naming.code is None:
        prefix = naming.prefix or (f"{naming.namespace}__" if naming.namespace else "")
        return Call(call.id, prefix + call.name, call.input)
    written = msgspec.json.encode(call.input).decode()
    for sign, escaped in (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        written = written.replace(sign, escaped)
    code = naming.code.template.replace("{name}", call.name).replace("{input}", written)
    return Call(call.id, naming.code.tool, {naming.code.argument: code})


def expected(wire: Wire, given_steps: list[list[Part]], naming: ToolNaming) -> tuple[Any, ...]:
    """What an agent must see: texts with marks, reasoning, our calls, why it stopped, all that was used."""
    parts = [part for step in given_steps for part in step]
    ours = [expected_call(call, naming) for call in calls_in(parts, OURS)]
    reasoning = "".join(part.text for part in parts if isinstance(part, ReasoningChunk))
    last = given_steps[-1]
    was_asked_for = "tool_use" if ours else "end_turn"
    return sorted(map(repr, ours)), reasoning, was_asked_for, total(given_steps), len(calls_in(last, FOREIGN))


def total(given_steps: list[list[Part]]) -> Tokens:
    told = [step[-1].tokens for step in given_steps]  # type: ignore[union-attr]
    return Tokens(**{name: sum(getattr(t, name) for t in told) for name in Tokens.__struct_fields__})


def seen_as(seen: Seen, denied: int) -> tuple[Any, ...]:
    tokens = seen.tokens or Tokens()
    return sorted(map(repr, seen.calls)), seen.reasoning, seen.stop_reason, tokens, denied


@given(wires, steps(), namings, chunkings)
@pytest.mark.slow
def test_an_agent_sees_our_calls_and_marks_and_no_other_call(
    wire: Wire, given_steps: list[list[Part]], naming: ToolNaming, sizes: list[int]
):
    played = play(wire, given_steps, plan=make_plan(naming), sizes=sizes)
    seen = decode(wire, played.data)
    assert seen_as(seen, len(played.acts.denied)) == expected(wire, given_steps, naming)
    assert seen.error is None
    text, marks = _without_marks(seen.text, len(played.denied))
    assert text == "".join(p.text for step in given_steps for p in step if isinstance(p, TextChunk))
    assert marks == len(calls_in([p for step in given_steps for p in step], FOREIGN)) == len(played.denied)
    assert played.acts.passed == len(calls_in(given_steps[-1], OURS))
    assert played.acts.ended


def _without_marks(text: str, count: int) -> tuple[str, int]:
    found = 0
    for number in range(count):
        mark = MARK.format(number)
        assert text.count(mark) == 1
        text, found = text.replace(mark, ""), found + 1
    return text, found


@given(wires, steps(), namings)
def test_an_unstreamed_answer_gives_the_same(wire: Wire, given_steps: list[list[Part]], naming: ToolNaming):
    played = play_whole(wire, given_steps, plan=make_plan(naming))
    seen = decode_whole(wire, played.data)
    assert seen_as(seen, len(played.acts.denied)) == expected(wire, given_steps, naming)
    text, _ = _without_marks(seen.text, len(played.denied))
    assert text == "".join(p.text for step in given_steps for p in step if isinstance(p, TextChunk))


@given(wires, steps(), namings, chunkings, chunkings)
def test_how_a_stream_is_cut_changes_nothing(
    wire: Wire, given_steps: list[list[Part]], naming: ToolNaming, one: list[int], other: list[int]
):
    first = play(wire, given_steps, plan=make_plan(naming), sizes=one)
    second = play(wire, given_steps, plan=make_plan(naming), sizes=other)
    assert first.data == second.data
    assert first.denied == second.denied


@given(st.sampled_from(WIRES), answers(passes=True), chunkings)
def test_an_answer_without_calls_passes_byte_for_byte(wire: Wire, parts: list[Part], sizes: list[int]):
    plain = finish([part for part in parts[:-1] if not isinstance(part, Call)], Tokens(input=1))
    ask = parse(wire, question(wire))
    assert play(wire, [plain], sizes=sizes).data == encode(wire, ask, plain)


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_is_held_back_but_the_end_of_a_step(wire: Wire):
    acts, plan = acts_for(wire), make_plan()
    body = acts.request(question(wire), plan)
    answer = acts.answer(plan, body)
    encoder = codec_for(wire).encoder(parse(wire, body), "a0")
    assert answer.feed(encoder.start()) == encoder_start(wire, body)
    told: list[bytes] = []
    for part in (TextChunk("one"), ReasoningChunk("two"), TextChunk("three"), Call("c", "Bash", {"x": 1})):
        told.append(answer.feed(encoder.feed(part)))
    said = (b"one", b"two", b"three", MARK.format(0).encode())
    assert all(text in data for text, data in zip(said, told, strict=True))
    assert answer.feed(encoder.feed(Finish("tool_use")))[-400:].count(b"[DONE]") == 0
    assert answer.ended
    assert answer.passed == 0
    assert answer.end() != b""


def encoder_start(wire: Wire, body: dict[str, Any]) -> bytes:
    return codec_for(wire).encoder(parse(wire, body), "a0").start()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "name", ["Bash", "workspace_read", "run_workspace_read", "mcp__codesdk__workspace_write"]
)
def test_without_a_naming_only_what_the_agent_itself_declares_of_ours_passes(wire: Wire, name: str):
    declared = "mcp__codesdk__workspace_read"
    parts = finish([Call("c1", declared, {"path": "x"}), Call("c2", name, {})], Tokens(input=1))
    body = asked(wire, named(wire, declared), named(wire, "Bash"), named(wire, "run_workspace_read"))
    if wire == "chat":
        body["stream_options"] = {"include_usage": True}
    played = play(wire, [parts], plan=make_plan(None), body=body)
    assert [call.name for call in decode(wire, played.data).calls] == [declared]
    assert [call.name for call in played.acts.denied] == [name]


@pytest.mark.parametrize("wire", WIRES)
def test_an_enabled_native_call_passes_byte_for_byte(wire: Wire):
    parts = finish([TextChunk("a"), Call("c1", "Read", {"path": "x"})], Tokens(input=1))
    ask = parse(wire, question(wire))
    assert play(wire, [parts], plan=make_plan(natives=["Read"])).data == encode(wire, ask, parts)


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_by_the_agents_own_name_for_ours_is_ours(wire: Wire):
    parts = finish([Call("c1", "mcp__codesdk__workspace_read", {"path": "x"})], Tokens(input=1))
    for naming in (PREFIX, NAMESPACE):
        played = play(wire, [parts], plan=make_plan(naming))
        assert [call.name for call in decode(wire, played.data).calls] == ["mcp__codesdk__workspace_read"]


def test_the_end_of_the_arguments_repeats_the_agents_name():
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "workspace_read", "arguments": "{}"}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.done", "output_index": 0, "name": "workspace_read"},
    ]
    data = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)
    out = acts_for("responses").answer(make_plan(), {}).feed(data)
    assert out.count(b'"name":"mcp__codesdk__workspace_read"') == 2
