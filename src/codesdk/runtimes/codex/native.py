"""Codex's own tools that a session may enable: what they may do, and what codex's items say of a call. Pure.

Codex asks before each of their calls. A call is announced with that question, because only the question says
whether the call leaves codex's sandbox. A call that codex did not ask about is announced when it ends.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from codesdk.contract.runtime import ToolAnnouncement, ToolEnded
from codesdk.contract.tools import Question, ToolClass
from codesdk.runtimes.program.jsonrpc import Frame, as_dict, as_list
from codesdk.runtimes.program.workspace import touched

ASK = "request_user_input"
"""The tool by which codex asks a person. It runs nothing, and unlike the others it needs no sandbox."""
NATIVE_TOOLS: dict[str, ToolClass] = {"apply_patch": "write", "exec_command": "dangerous", ASK: "read_only"}
"""Those that were tested. `write_stdin` comes with `exec_command` and cannot be left out; its use ends the task."""
KINDS = {"commandExecution": "exec_command", "fileChange": "apply_patch"}
"""The tool that an item of a kind is a call of."""
QUESTIONS = frozenset({"item/commandExecution/requestApproval", "item/fileChange/requestApproval"})
USER_INPUT = "item/tool/requestUserInput"
MAX_QUESTIONS = 8
BY_ITSELF = "codex began this by itself and was ended for it; whether it took effect is not known."


class OwnCall(msgspec.Struct):
    """A call of codex's own tool, from its item on."""

    item: Frame
    message_id: str
    index: int
    announced: ToolAnnouncement | None = None

    def announce(self, workspace: str, reason: str | None, frame: Frame) -> ToolAnnouncement:
        """Return the announcement. `reason` is why codex says that it must run outside its sandbox."""
        given = input_of(self.item)
        self.announced = ToolAnnouncement(
            name=KINDS[self.item["type"]],
            input={**given, "reason": reason} if reason else given,
            runtime_tool_call_id=self.item["id"],
            message_id=self.message_id,
            index=self.index,
            raw=frame,
            origin="native",
            subjects=touched([str(change["path"]) for change in self.item.get("changes") or ()], workspace),
        )
        return self.announced


def input_of(item: Mapping[str, Any]) -> Frame:
    """Return the input of a call, as far as its item has it."""
    fields = ("changes",) if item.get("type") == "fileChange" else ("command", "cwd", "query", "path")
    return {name: item[name] for name in fields if item.get(name) is not None}


def ended(item: Mapping[str, Any]) -> ToolEnded:
    """Return the end of a call."""
    status = item.get("status")
    result: Any = item.get("aggregatedOutput") or ""
    if item["type"] == "fileChange":
        result = {"status": status, "changes": item.get("changes") or []}
    code = item.get("exitCode")
    return ToolEnded(
        runtime_tool_call_id=item["id"],
        result="codex did not make this call." if status == "declined" else result,
        is_error=status != "completed",
        refused=status == "declined",
        exit_code=code if isinstance(code, int) else None,
    )


def violating(item: Mapping[str, Any], frame: Frame) -> list[ToolAnnouncement | ToolEnded]:
    """Return the record of something that codex did although it is switched off."""
    kind, call_id = str(item["type"]), str(item["id"])
    announced = ToolAnnouncement(
        name=KINDS.get(kind, kind), input=input_of(item), runtime_tool_call_id=call_id, raw=frame
    )
    over = ToolEnded(runtime_tool_call_id=call_id, result=BY_ITSELF, is_error=True, outcome="unknown")
    return [announced, over]


def running(natives: Iterable[str]) -> list[str]:
    """Return those of the enabled tools that run something."""
    return [name for name in natives if name != ASK]


def asked(frame: Frame) -> dict[str, tuple[ToolAnnouncement, Question]]:
    """Return the questions of codex's own tool by their ids, each as a call of its own: they are answered one by one.

    What is to be kept secret is left out, because answers are stored.
    """
    params = as_dict(frame.get("params"))
    found: dict[str, tuple[ToolAnnouncement, Question]] = {}
    for given in as_list(params.get("questions"))[:MAX_QUESTIONS]:
        one = as_dict(given)
        name, text = one.get("id"), one.get("question")
        if not isinstance(name, str) or not isinstance(text, str) or one.get("isSecret") is True:
            continue
        labels = [as_dict(option).get("label") for option in as_list(one.get("options"))]
        call = ToolAnnouncement(
            name=ASK,
            input=one,
            runtime_tool_call_id=f"{params.get('itemId')}:{name}",
            raw=frame,
            origin="native",
        )
        options = [label for label in labels if isinstance(label, str)]
        found[name] = call, Question(text=text, options=options)
    return found
