"""Which requests are the conversation, and which are an agent's own business."""

from typing import Any

import pytest
from tests.gateway.ownership.rig import WIRES, parse, question

from codesdk.contract.models import Wire
from codesdk.contract.ownership import SideMark, WireRules
from codesdk.gateway.ownership.side import is_side

RULES = WireRules()
GIVEN = ["Fix the bug.\n", "Hi"]


def said(wire: Wire, *texts: str, **more: Any) -> dict[str, Any]:
    """A request with messages of the user."""
    if wire == "gemini":
        return question(wire, **more) | {
            "contents": [{"role": "user", "parts": [{"text": text} for text in texts]}]
        }
    key = "input" if wire == "responses" else "messages"
    kind = "input_text" if wire == "responses" else "text"
    return question(wire, **more) | {
        key: [{"role": "user", "content": [{"type": kind, "text": text}]} for text in texts]
    }


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_with_what_we_said_is_the_conversation(wire: Wire):
    for texts in (
        ["  Fix  the\r\nbug. "],
        ["  Fix the bug. "],
        ["<context/>\n\nFix the bug."],
        ["Fix the bug.", "<reminder/>"],
    ):
        assert not is_side(parse(wire, said(wire, *texts)), RULES, GIVEN)


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_without_it_is_a_side_request_whatever_it_offers(wire: Wire):
    ask = parse(wire, said(wire, "Review this: Fix the bug. Is it safe?"))
    assert is_side(ask, RULES, GIVEN)


@pytest.mark.parametrize("text", ["<q>Fix the bug.</q>", "<q>\n  Fix the bug.\n</q>\n"])
def test_what_an_agent_appends_to_our_words_is_part_of_its_rules(text: str):
    ask = parse("chat", said("chat", text))
    assert is_side(ask, RULES, ["Fix the bug."])
    assert not is_side(ask, WireRules(appends=("</q>", " </q>")), ["Fix the bug."])
    assert is_side(ask, WireRules(appends=("</r>",)), ["Fix the bug."])


def test_where_nothing_was_said_in_words_only_marks_tell():
    assert not is_side(parse("chat", said("chat", "anything")), RULES, ["  "])
    marked = WireRules(side=(SideMark(text="ANYthing"),))
    assert is_side(parse("chat", said("chat", "anything")), marked, [])


@pytest.mark.parametrize(
    ("mark", "matches"),
    [
        (SideMark(text="You Write TITLES"), True),
        (SideMark(text="you write poems"), False),
        (SideMark(text="fix the bug"), True),
        (SideMark(model="m"), True),
        (SideMark(model="n"), False),
        (SideMark(tool="respond"), True),
        (SideMark(tool="other"), False),
        (SideMark(text="you write titles", tool="other"), False),
        (SideMark(text="you write titles", model="m", tool="respond"), True),
        (SideMark(), False),
    ],
)
def test_a_mark_matches_if_all_that_it_gives_holds(mark: SideMark, matches: bool):
    tools = [{"name": "respond", "input_schema": {}}]
    ask = parse("anthropic", said("anthropic", "Fix the bug.", system="You write titles.", tools=tools))
    assert is_side(ask, WireRules(side=(mark,)), GIVEN) is matches


def test_a_request_for_a_title_is_a_side_request_though_it_quotes_us():
    ask = parse("chat", said("chat", "Generate a title for this.", "Fix the bug."))
    assert not is_side(ask, RULES, GIVEN)  # only the last message counts as an instruction
    ask = parse("anthropic", said("anthropic", "Fix the bug.", system="You are a title generator."))
    assert is_side(ask, RULES, GIVEN)
    offers = said("anthropic", "Fix the bug.", system="You are a title generator.", tools=[{"name": "x"}])
    assert not is_side(parse("anthropic", offers), RULES, GIVEN)
