from typing import get_args

from tests.channel.requirements import shows

from codesdk.channel.states import Happening, State, Step, step

GOOD: dict[tuple[State, Happening], State] = {
    ("new", "request"): "pending",
    ("new", "watch"): "watched",
    ("pending", "allow"): "allowed",
    ("pending", "deny"): "denied",
    ("pending", "timeout"): "denied_timeout",
    ("pending", "broken"): "transport_failed",
}


@shows("6.1-pending", "6.1-allowed", "6.1-denied", "6.1-timeout")
def test_a_call_goes_one_way_and_every_state_is_left_once():
    for (state, happening), after in GOOD.items():
        assert step(state, happening) == Step(after)
    for state in get_args(State):
        for happening in get_args(Happening):
            after, remark = step(state, happening)
            if after == state:
                assert remark is not None
            elif (state, happening) not in GOOD:
                assert (after, happening in ("done", "failed")) == ("completed", True)


def test_only_a_pending_call_can_be_allowed():
    ways = [state for state in get_args(State) if step(state, "allow").state == "allowed"]
    assert ways == ["pending", "allowed"]
    assert step("allowed", "allow").remark == "late"


@shows("6.1-unmatched", "6.1-idempotent")
def test_a_decision_on_anything_else_than_a_pending_call_changes_nothing():
    for state in set(get_args(State)) - {"pending"}:
        for happening in ("allow", "deny", "timeout", "broken"):
            assert step(state, happening) == Step(state, "late")


def test_what_ran_without_an_allow_is_remarked():
    assert step("pending", "done") == Step("completed", "unasked")
    for state in ("denied", "denied_timeout", "transport_failed"):
        assert step(state, "done") == Step("completed", "ignored_denial")
        assert step(state, "failed") == Step("completed")


@shows("6.1-repeated")
def test_repeated_and_unknown_ids_change_nothing():
    for state in set(get_args(State)) - {"new"}:
        assert step(state, "request") == Step(state, "repeated")
    assert step("new", "done") == Step("new", "unknown")
    assert step("completed", "failed") == Step("completed", "repeated")
