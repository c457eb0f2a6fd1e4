"""A call in progress: its state in the log, and what only this process knows about it."""

import asyncio
from typing import Any

import msgspec

from codesdk.contract.ports import PreparedCall, ToolRun
from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import Subjects, ToolOrigin
from codesdk.engine.calls.inputs import CallInput
from codesdk.engine.log.state import CallState

Resolution = ToolReply | str | None
"""The outcome of a call: its result, why it did not run, or None for a native one that may run now."""


class LiveCall(msgspec.Struct, kw_only=True, eq=False):
    """An attempt from its opening to its end. `state` says where it stands; the rest is needed to go on."""

    state: CallState
    origin: ToolOrigin
    input: CallInput
    subjects: Subjects | None = None
    """What a native call would touch, according to its runtime."""
    prepared: PreparedCall | None = None
    """The tool with its validated input, set when the call is judged. Native calls have none."""
    judged: "asyncio.Future[None]"
    """Done when only a person's answer is missing. An answer that comes earlier waits for it."""
    worker: "asyncio.Task[Any] | None" = None
    """Works on the call, from decision to reply."""
    tool: "asyncio.Task[ToolRun] | None" = None
    """Runs the tool, apart from the worker so that it alone can be cancelled."""
    left_because: str | None = None
    """Why nobody waits for the outcome any more."""
