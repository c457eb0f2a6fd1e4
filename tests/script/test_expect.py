"""Expectations: what holds, and how it is said when something does not."""

import pytest

from codesdk.script import Expect, ScriptContext, unmet

SEEN = ScriptContext(
    user="please fix it", results=["line one", "denied: no"], offered=["workspace.read", "app.add"]
)
NOTHING = ScriptContext(user=None, results=[], offered=[])


@pytest.mark.parametrize(
    ("expect", "seen", "problem"),
    [
        (Expect(), SEEN, None),
        (Expect(user_contains=("fix", "please")), SEEN, None),
        (Expect(tool_result_contains=("denied", "one")), SEEN, None),
        (Expect(offered=("app.add",), not_offered=("workspace.edit",)), SEEN, None),
        (
            Expect(user_contains=("fix", "break")),
            SEEN,
            'expected the last user message to contain "break", but it is "please fix it"',
        ),
        (
            Expect(user_contains=("x",)),
            NOTHING,
            'expected a user message that contains "x", but there is none',
        ),
        (
            Expect(tool_result_contains=("two",)),
            SEEN,
            'expected a tool result that contains "two", but there is "line one", "denied: no"',
        ),
        (
            Expect(tool_result_contains=("two",)),
            NOTHING,
            'expected a tool result that contains "two", but there is no result',
        ),
        (
            Expect(offered=("workspace.edit",)),
            SEEN,
            "expected the tool workspace.edit to be offered, but offered are: app.add, workspace.read",
        ),
        (
            Expect(offered=("workspace.edit",)),
            NOTHING,
            "expected the tool workspace.edit to be offered, but offered are: nothing",
        ),
        (
            Expect(not_offered=("app.add",)),
            SEEN,
            "expected the tool app.add not to be offered, but offered are: app.add, workspace.read",
        ),
        (
            Expect(user_contains=("x",)),
            ScriptContext(user="y" * 300, results=[], offered=[]),
            f'expected the last user message to contain "x", but it is "{"y" * 200}…" (300 characters)',
        ),
    ],
)
def test_an_expectation_holds_or_says_what_was_there(expect, seen, problem):
    assert unmet(expect, seen) == problem
