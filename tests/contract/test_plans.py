"""A plan as a notice has it."""

from codesdk.contract.events import RuntimeNotice
from codesdk.contract.plans import PlanEntry, plan_in, plan_notice


def test_a_plan_is_read_back_as_it_was_written():
    plan = [PlanEntry(content="Look", status="completed", priority="high"), PlanEntry(content="Change")]
    assert plan_notice(plan).message == "The plan: 1 of 2 done."
    assert plan_in(plan_notice(plan)) == plan


def test_what_is_no_plan_has_no_entries():
    assert plan_in(RuntimeNotice(kind="plan", message="", details={})) == []
    assert plan_in(RuntimeNotice(kind="plan", message="", details={"entries": ["x", {"content": 1}]})) == []
    assert plan_in(RuntimeNotice(kind="mode", message="", details={"entries": [{"content": "x"}]})) is None
