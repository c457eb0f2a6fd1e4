"""All opinions on a call, and the one that decides: for every combination, the strictest that stands."""

from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from codesdk.contract.tools import Evaluation, PermissionMode, ToolClass, Verdict
from codesdk.policy import decide
from codesdk.policy.decision import grant_opinion, open_questions, standing
from codesdk.policy.modes import judge_mode

ORDER = ["allow", "ask", "deny"]
RULE_IDS = ["docs", "careful", "no-env"]


def opinion(source: Any, result: Any, rule: str | None) -> Evaluation:
    return Evaluation(source=source, result=result, rule=rule)


verdicts = st.sampled_from(get_args(Verdict))
modes = st.builds(judge_mode, st.sampled_from(get_args(PermissionMode)), st.sampled_from(get_args(ToolClass)))
rules = st.builds(opinion, st.just("codesdk"), verdicts, st.sampled_from(RULE_IDS))
answerable = ["mode:ask", "mode:auto:write", *RULE_IDS, "hook"]
grants = st.builds(grant_opinion, st.sampled_from(answerable))
others = st.builds(opinion, st.sampled_from(["runtime", "extension"]), verdicts, st.just("hook"))
persons = st.builds(opinion, st.just("user"), st.sampled_from(["allow", "deny"]), st.none())
anyone = st.one_of(rules, grants, others, persons)


@st.composite
def opinions(draw: st.DrawFn) -> list[Evaluation]:
    """A mode, at most one rule, and any number of the others, in any order."""
    found = [draw(modes), *draw(st.lists(rules, max_size=1))]
    found += draw(st.lists(st.one_of(grants, others), max_size=4)) + draw(st.lists(persons, max_size=1))
    return draw(st.permutations(found))


def is_mode(one: Evaluation) -> bool:
    return (one.rule or "").startswith("mode:")


def is_rule(one: Evaluation) -> bool:
    return one.source == "codesdk" and one.rule in RULE_IDS


def applies(one: Evaluation, all_of_them: list[Evaluation]) -> bool:
    """The page's two exceptions, said once more in other words."""
    if is_mode(one) and any(is_rule(other) for other in all_of_them):
        return False
    answers = [other.rule for other in all_of_them if other.result == "allow"]
    yes = any(other.source == "user" and other.result == "allow" for other in all_of_them)
    return not (one.result == "ask" and (yes or f"grant:{one.rule}" in answers))


@given(opinions())
def test_the_effective_decision_is_always_the_strictest_that_applies(said: list[Evaluation]):
    applying = [one for one in said if applies(one, said)]
    assert standing(said) == applying
    lets_run = [one for one in applying if one.source in ("codesdk", "user") and one.result == "allow"]
    strictest = max((one.result for one in applying), key=ORDER.index, default="ask")
    if strictest == "allow" and not lets_run:
        strictest = "ask"
    assert decide(said).result == strictest


@given(opinions(), st.randoms())
@pytest.mark.slow
def test_the_order_of_opinions_does_not_matter(said: list[Evaluation], chance: Any):
    mixed = list(said)
    chance.shuffle(mixed)
    assert decide(mixed).result == decide(said).result


@given(opinions(), anyone, modes)
def test_nothing_outweighs_a_deny(said: list[Evaluation], more: Evaluation, mode: Evaluation):
    denied = [*said, opinion("codesdk", "deny", "no-env")]
    for added in (grant_opinion("no-env"), more, mode, opinion("user", "allow", None)):
        denied.append(added)
        assert decide(denied).result == "deny"


@given(opinions(), others)
def test_a_runtime_or_an_extension_can_only_make_it_stricter(said: list[Evaluation], other: Evaluation):
    assert ORDER.index(decide([*said, other]).result) >= ORDER.index(decide(said).result)


@given(opinions())
def test_who_decides_has_said_what_is_decided(said: list[Evaluation]):
    decided = decide(said)
    assert decided in said or decided.rule == "default"


@given(opinions())
def test_a_grant_for_every_open_question_settles_what_was_asked(said: list[Evaluation]):
    granted = [*said, *map(grant_opinion, open_questions(said))]
    assert open_questions(granted) == []
    if decide(said).result == "ask":
        assert decide(granted).result == "allow"


ASK, AUTO, YOLO = (judge_mode(mode, "write") for mode in get_args(PermissionMode))
TABLE: list[tuple[list[Evaluation], str, str | None]] = [
    ([ASK], "ask", "mode:ask"),
    ([ASK, opinion("codesdk", "allow", "docs")], "allow", "docs"),
    ([YOLO, opinion("codesdk", "ask", "careful")], "ask", "careful"),
    ([YOLO, opinion("codesdk", "deny", "no-env")], "deny", "no-env"),
    ([ASK, grant_opinion("mode:ask")], "allow", "grant:mode:ask"),
    ([AUTO, grant_opinion("mode:ask")], "ask", "mode:auto:write"),
    ([ASK, opinion("codesdk", "ask", "careful"), grant_opinion("mode:ask")], "ask", "careful"),
    ([ASK, opinion("codesdk", "ask", "careful"), grant_opinion("careful")], "allow", "grant:careful"),
    ([ASK, opinion("codesdk", "deny", "no-env"), grant_opinion("no-env")], "deny", "no-env"),
    ([ASK, opinion("runtime", "allow", None)], "ask", "mode:ask"),
    ([YOLO, opinion("runtime", "ask", "theirs")], "ask", "theirs"),
    ([YOLO, opinion("extension", "deny", "theirs")], "deny", "theirs"),
    ([ASK, opinion("codesdk", "ask", "careful"), opinion("user", "allow", None)], "allow", None),
    ([ASK, opinion("user", "deny", None)], "deny", None),
    ([opinion("runtime", "allow", None)], "ask", "default"),
    ([], "ask", "default"),
]


@pytest.mark.parametrize(("said", "result", "rule"), TABLE)
def test_the_cases_of_the_decision_page(said: list[Evaluation], result: str, rule: str | None):
    decided = decide(said)
    assert (decided.result, decided.rule) == (result, rule)
