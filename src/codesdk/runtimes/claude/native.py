"""Claude's own tools that a session may enable: what they may do, what a call touches, how it ended. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from codesdk.contract.runtime import ToolAnnouncement, ToolEnded
from codesdk.contract.tools import Subjects, ToolClass
from codesdk.runtimes.program.workspace import touched

NATIVE_TOOLS: dict[str, ToolClass] = {
    "Bash": "dangerous",
    "Edit": "write",
    "Glob": "read_only",
    "Grep": "read_only",
    "NotebookEdit": "write",
    "Read": "read_only",
    "Write": "write",
}
"""Those that were tested. Tools that start agents, reach the network or ask the user cannot be enabled."""
HOOK = "codesdk-native"
_PLACES = ("file_path", "notebook_path", "path")
_REFUSED = "<tool_use_error>"
_EXIT = re.compile(r"Exit code (\d+)")


def hooks(natives: Sequence[str]) -> dict[str, Any] | None:
    """Return the hook that makes claude ask about every call of these. Without it, claude reads files unasked."""
    if not natives:
        return None
    return {"PreToolUse": [{"matcher": "|".join(natives), "hookCallbackIds": [HOOK], "timeout": 60}]}


ASK: dict[str, Any] = {
    "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"},
}


def inputs_of(frame: Mapping[str, Any], natives: Collection[str]) -> dict[str, Any]:
    """Return the inputs that the model gave to calls of these tools in a frame, by call id."""
    blocks = [block for block in frame["message"]["content"] if block["type"] == "tool_use"]
    return {block["id"]: block["input"] for block in blocks if block["name"] in natives}


def question(request: Mapping[str, Any], workspace: str) -> ToolAnnouncement:
    """Return the call that claude asks about."""
    return ToolAnnouncement(
        name=request["tool_name"],
        input=request["input"],
        runtime_tool_call_id=request["tool_use_id"],
        raw=dict(request),
        origin="native",
        subjects=subjects_of(request["tool_name"], request["input"], workspace),
    )


def subjects_of(name: str, arguments: Any, workspace: str) -> Subjects:
    """Return the paths that a call names, relative to the workspace if they are in it. A command's are not known."""
    if name == "Bash" or not isinstance(arguments, dict):
        return Subjects()
    given = cast("dict[str, Any]", arguments)
    places = [str(given[field]) for field in _PLACES if isinstance(given.get(field), str)]
    return touched(places or (["."] if name in ("Glob", "Grep") else []), workspace)


def ended(name: str, call_id: str, text: str, is_error: bool) -> ToolEnded:
    """Return the end of a call. Claude itself refuses an input that it cannot use, before it asks anyone."""
    code = _EXIT.match(text) if name == "Bash" and is_error else None
    return ToolEnded(
        runtime_tool_call_id=call_id,
        result=text.removeprefix(_REFUSED).removesuffix("</tool_use_error>"),
        is_error=is_error,
        refused=is_error and text.startswith(_REFUSED),
        exit_code=int(code.group(1)) if code else None,
    )
