"""What an agent repeats of an answer becomes what the model said: its own calls, with our denials as results."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.gateway.ownership.agents import NEXT, RESULT, check_order, repeat, results_follow
from tests.gateway.ownership.rig import (
    MARK,
    WIRES,
    finish,
    make_plan,
    parse,
    play_whole,
    question,
)
from tests.gateway.ownership.test_answers import FOREIGN, OURS, namings, steps

from codesdk.contract.models import Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.gateway.ownership.acts import DeniedCall
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.ownership.marks import Marks, steps_of
from codesdk.gateway.wires.exchange import AskCall, AskResult, AskText, Call, Part, TextChunk


def blocks_of(wire: Wire, body: dict[str, Any]) -> list[Any]:
    ask = parse(wire, body, stream=False)
    check_order(ask)
    results_follow(ask)
    return [block for message in ask.messages for block in message.blocks]


@given(st.sampled_from(WIRES), steps(), namings, st.booleans())
def test_the_model_gets_its_own_calls_back_with_our_denials(
    wire: Wire, given_steps: list[list[Part]], naming: ToolNaming, joins: bool
):
    played = play_whole(wire, given_steps, plan=make_plan(naming))
    body = repeat(wire, question(wire, stream=False), played.data, joins=joins)
    sent = acts_for(wire).request(body, make_plan(naming, denied=played.denied))
    blocks = blocks_of(wire, sent)
    parts = [part for step in given_steps for part in step]
    calls = {p.id: AskCall(p.id, p.name, p.input) for p in parts if isinstance(p, Call)}
    assert {b.id: b for b in blocks if isinstance(b, AskCall)} == calls
    results = {b.id: b.text for b in blocks if isinstance(b, AskResult)}
    denials = {c.id: f"{c.name} is not available." for c in calls.values() if c.name in FOREIGN}
    assert results == denials | {c.id: RESULT for c in calls.values() if c.name in OURS}
    texts = "".join(b.text for b in blocks if isinstance(b, AskText))
    said = "".join(p.text for p in parts if isinstance(p, TextChunk))
    assert [c for c in texts if not c.isspace()] == [c for c in f"Hi{said}{NEXT}" if not c.isspace()]
    assert MARK[:5] not in texts


@given(st.sampled_from(WIRES), steps(), namings)
def test_what_asks_again_holds_the_calls_and_denials_of_each_step(
    wire: Wire, given_steps: list[list[Part]], naming: ToolNaming
):
    played = play_whole(wire, given_steps, plan=make_plan(naming))
    assert len(played.asked) == len(given_steps)
    for number, sent in enumerate(played.asked):
        blocks = blocks_of(wire, sent)
        before = [part for step in given_steps[:number] for part in step]
        assert [b for b in blocks if isinstance(b, AskCall)] == [
            AskCall(p.id, p.name, p.input) for p in before if isinstance(p, Call)
        ]
        texts = "".join(b.text for b in blocks if isinstance(b, AskText))
        said = "".join(p.text for p in before if isinstance(p, TextChunk))
        assert "".join(texts.split()) == "".join(f"Hi{said}".split())  # providers refuse blank texts


@pytest.mark.parametrize("wire", WIRES)
def test_a_mark_that_nobody_knows_stays_as_text_and_so_does_one_of_the_user(wire: Wire):
    steps = [finish([TextChunk("a"), Call("c1", "Bash", {})])]
    played = play_whole(wire, steps)
    body = repeat(wire, question(wire, stream=False), played.data, joins=False)
    sent = acts_for(wire).request(body, make_plan(denied={}))
    assert [m for m in blocks_of(wire, sent) if isinstance(m, AskCall)] == []
    assert MARK.format(0) in repr(blocks_of(wire, sent))
    quoted = json.loads(json.dumps(question(wire, stream=False)).replace("Hi", "x"))
    quoted = json.loads(json.dumps(quoted, ensure_ascii=False).replace('"x"', json.dumps(MARK.format(0))))
    assert blocks_of(wire, acts_for(wire).request(quoted, make_plan(denied=played.denied))) == [
        AskText(MARK.format(0))
    ]


def test_marks_are_found_anywhere_in_a_text_the_longest_first():
    calls = {
        mark: DeniedCall(mark=mark, name=mark, input={}, model_call_id=None, item={}, reason="", step=0)
        for mark in ("[m1]", "[m1]+", "[m2]")
    }
    marks = Marks(calls)
    assert marks.split("a [m1] \n[m2][m1]+[m3] [m") == [
        "a ",
        calls["[m1]"],
        calls["[m2]"],
        calls["[m1]+"],
        "[m3] [m",
    ]
    assert not marks.within("[m3]")
    odd = Marks(dict(zip(("x1", "y2"), calls.values(), strict=False)))
    assert [odd.within(text) for text in ("a x1", "y2", "x2", None)] == [True, True, False, False]
    assert not Marks({}).within("[m1]")


def test_a_message_with_steps_and_our_calls_is_split_only_where_the_model_was_asked_again():
    def call(step: int, beside: int) -> DeniedCall:
        return DeniedCall(
            mark="m", name="n", input={}, model_call_id=None, item={}, reason="", step=step, beside=beside
        )

    first, second, third = call(0, 0), call(1, 0), call(2, 1)
    content = ["a", first, first, second, "b", third, "c", "CALL", third]
    steps = steps_of(content, lambda part: part == "CALL")
    assert [step.content for step in steps] == [
        ["a", first, first],
        [second],
        ["b", third, "c", "CALL", third],
    ]
    assert [len(step.denied) for step in steps] == [2, 1, 2]
    assert [step.content for step in steps_of(["a", first], bool, keeps_calls=True)] == [["a", first], []]
    assert [step.content for step in steps_of(["a", third], bool, keeps_calls=True)] == [["a", third]]
