"""The permission mode of a session, and a list of tools that never run → allow, ask or deny.

Pure. The engine asks it about every call whose input is valid.
"""

from collections.abc import Iterable

from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Evaluation


class ModePolicy:
    """`ask` asks about everything, `auto` about all but reading, `yolo` about nothing. `denied` names win."""

    def __init__(self, denied: Iterable[str] = ()) -> None:
        self._denied = frozenset(denied)

    def evaluate(self, question: PolicyQuestion) -> Evaluation:
        """Judge a call. An unknown mode is asked about."""
        name, mode, kind = question.name, question.permission_mode, question.tool_class
        if name in self._denied:
            reason = f"The tool {name} is on the deny list. Do the work without it."
            return Evaluation(source="codesdk", result="deny", rule=f"deny:{name}", reason=reason)
        if mode == "yolo":
            reason = "The permission mode yolo allows every tool."
            return Evaluation(source="codesdk", result="allow", rule="mode:yolo", reason=reason)
        if mode == "auto" and kind == "read_only":
            reason = "The permission mode auto allows tools that only read."
            return Evaluation(source="codesdk", result="allow", rule="mode:auto:read_only", reason=reason)
        if mode == "auto":
            reason = f"The permission mode auto asks before a tool of the class {kind} runs."
            return Evaluation(source="codesdk", result="ask", rule=f"mode:auto:{kind}", reason=reason)
        reason = "The permission mode ask asks before any tool runs."
        return Evaluation(source="codesdk", result="ask", rule="mode:ask", reason=reason)
