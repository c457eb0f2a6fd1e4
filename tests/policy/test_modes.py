"""The permission modes, as a table."""

from typing import get_args

import pytest

from codesdk.contract.ports import Policy, PolicyQuestion
from codesdk.contract.tools import Evaluation, PermissionMode, ToolClass
from codesdk.policy import ModePolicy

ASK = "The permission mode ask asks before any tool runs."
YOLO = "The permission mode yolo allows every tool."
READING = "The permission mode auto allows tools that only read."
TABLE = [
    *(("ask", tool_class, "ask", "mode:ask", ASK) for tool_class in get_args(ToolClass)),
    *(("yolo", tool_class, "allow", "mode:yolo", YOLO) for tool_class in get_args(ToolClass)),
    ("auto", "read_only", "allow", "mode:auto:read_only", READING),
    *(
        (
            "auto",
            tool_class,
            "ask",
            f"mode:auto:{tool_class}",
            f"The permission mode auto asks before a tool of the class {tool_class} runs.",
        )
        for tool_class in ("write", "network", "dangerous")
    ),
]


def question(mode, tool_class, name="workspace.edit"):
    return PolicyQuestion(
        session_id="ses_1", name=name, tool_class=tool_class, input={}, permission_mode=mode
    )


@pytest.mark.parametrize(("mode", "tool_class", "result", "rule", "reason"), TABLE)
def test_each_mode_judges_each_class(mode, tool_class, result, rule, reason):
    policy: Policy = ModePolicy()
    expected = Evaluation(source="codesdk", result=result, rule=rule, reason=reason)
    assert policy.evaluate(question(mode, tool_class)) == expected


def test_the_table_covers_every_mode_and_class():
    pairs = {(mode, tool_class) for mode, tool_class, *_ in TABLE}
    assert pairs == {(m, c) for m in get_args(PermissionMode) for c in get_args(ToolClass)}


@pytest.mark.parametrize("mode", get_args(PermissionMode))
def test_a_denied_tool_is_denied_in_every_mode(mode):
    policy = ModePolicy(denied=["workspace.edit"])
    assert policy.evaluate(question(mode, "write")) == Evaluation(
        source="codesdk",
        result="deny",
        rule="deny:workspace.edit",
        reason="The tool workspace.edit is on the deny list. Do the work without it.",
    )


def test_denying_one_tool_leaves_the_others_alone():
    policy = ModePolicy(denied=["workspace.edit"])
    assert policy.evaluate(question("yolo", "write", "workspace.write")).result == "allow"


def test_a_mode_that_is_not_known_is_asked_about():
    assert ModePolicy().evaluate(question("reckless", "read_only")).result == "ask"
