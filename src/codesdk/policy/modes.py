"""A session's permission mode and a list of denied tools → allow, ask or deny. Pure.

`judge_mode` gives the opinion that every call gets, whatever the policy; it is recorded first.
"""

from collections.abc import Iterable
from functools import cache

from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Evaluation, PermissionMode, ToolClass, Verdict

MODE = "mode:"
"""Prefix of the name of a mode's opinion. Rule ids have no colon, so the two cannot be confused."""


# Cached: there are few combinations, and every call needs one.
@cache
def judge_mode(mode: PermissionMode, kind: ToolClass) -> Evaluation:
    """Return a mode's opinion on a class of tools. An unknown mode asks."""
    if mode == "yolo":
        return _opinion("allow", "mode:yolo", "The permission mode yolo allows every tool.")
    if mode == "auto" and kind == "read_only":
        reason = "The permission mode auto allows tools that only read."
        return _opinion("allow", "mode:auto:read_only", reason)
    if mode == "auto":
        reason = f"The permission mode auto asks before a tool of the class {kind} runs."
        return _opinion("ask", f"mode:auto:{kind}", reason)
    return _opinion("ask", "mode:ask", "The permission mode ask asks before any tool runs.")


class ModePolicy:
    """`ask` asks about everything, `auto` about all but reading, `yolo` about nothing. `denied` wins."""

    def __init__(self, denied: Iterable[str] = ()) -> None:
        self._denied = frozenset(denied)

    def evaluate(self, question: PolicyQuestion) -> Evaluation:
        """Return the opinion on a call."""
        name = question.name
        if name in self._denied:
            return _opinion(
                "deny", f"deny:{name}", f"The tool {name} is on the deny list. Do the work without it."
            )
        return judge_mode(question.permission_mode, question.tool_class)


def _opinion(result: Verdict, rule: str, reason: str) -> Evaluation:
    return Evaluation(source="codesdk", result=result, rule=rule, reason=reason)
