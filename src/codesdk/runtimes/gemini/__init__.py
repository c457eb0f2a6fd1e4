"""The runtime `gemini-cli-core`: the gemini program as an agent of the Agent Client Protocol. `ENTRY` is what others know of it."""

import msgspec

from codesdk.contract.entry import ProgramEntry, RuntimeEntry
from codesdk.contract.tools import PermissionMode
from codesdk.runtimes.acp import ROWS, AcpOptions, entry_of_row
from codesdk.runtimes.acp.row import AgentRow
from codesdk.runtimes.program import pinned

NAME = "gemini-cli-core"
_KNOWN = ROWS["gemini"]
MODES: dict[PermissionMode, str] = {"ask": "default", "auto": "autoEdit", "yolo": "yolo"}
"""Gemini's own modes for ours. What it says of a call in its mode is in the log; it can only be stricter than ours."""
ROW: AgentRow = msgspec.structs.replace(_KNOWN.row, modes=MODES, opines=True)
# Not through the gateway: its provider calls that a violation.
_PROGRAM: ProgramEntry = msgspec.structs.replace(pinned.GEMINI, logins=("beside",))


class GeminiOptions(AcpOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to gemini."""


ENTRY: RuntimeEntry = msgspec.structs.replace(
    entry_of_row(_KNOWN),
    name=NAME,
    alias="gemini",
    adapter="codesdk.runtimes.gemini.adapter:make_runtime",
    builds_on=("codesdk.runtimes.acp",),
    arguments={},
    docs="runtimes/gemini-cli-core.md",
    program=_PROGRAM,
    options=GeminiOptions,
)
