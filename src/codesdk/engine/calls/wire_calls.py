"""Records calls that the gateway kept from the runtime (origin `wire`): requested, and denied at once.

The model made them, the runtime never heard of them, and nothing runs. So they are no fault of the runtime's, no policy
is asked, and nobody waits for an answer: the gateway tells the model itself. What is recorded is enough for the gateway
to know them again after a restart.
"""

from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.ownership import MARK_START, WireCall, mark_for
from codesdk.contract.ports import Blobs
from codesdk.contract.runtime import ToolAnnouncement
from codesdk.contract.text import mend
from codesdk.contract.tools import Evaluation
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import KnownTools
from codesdk.engine.calls.inputs import UnusableCall, take_in
from codesdk.engine.calls.recording import request_of
from codesdk.engine.log.feed import read_events
from codesdk.engine.log.fold_calls import WIRE
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.drafts import Intake


async def record_denied(scope: SessionScope, intake: Intake, tools: KnownTools, call: WireCall) -> None:
    """Record a call of the running task."""
    task = scope.state.task
    # Not under the model's own id: the runtime never saw it, and may yet get another call with the same one.
    try:
        raw = msgspec.to_builtins(call)
        item = ToolAnnouncement(name=call.name, input=call.input, raw=raw, origin="wire")
        arrival = await take_in(scope.redactor, item, "wire", scope.ports.limits.max_event_bytes)
    except (UnusableCall, RecursionError) as problem:
        goes_on = task is not None and scope.state.task is task
        note_denied(scope, call, f"It cannot be recorded as a call: {problem}", in_task=goes_on)
        return
    request = await request_of(scope, intake, tools, arrival, _id_of(call.mark))
    if task is None or scope.state.task is not task:
        note_denied(scope, call, "Its task had ended.", in_task=False)
        return
    # No await from here on, so that the task cannot end in between.
    state = ledger.request(scope.journal, request.payload, request.raw, request.raw_ref)
    reason = scope.redactor.text(mend(call.reason))
    opinion = Evaluation(source="codesdk", result="deny", rule=WIRE, reason=reason)
    ledger.conclude(scope.journal, state, [opinion], opinion)


def note_denied(scope: SessionScope, call: WireCall, why: str, *, in_task: bool) -> None:
    """Note a denied call that cannot be one of a task."""
    name = mend(str(call.name))[:200]
    message = f"The model called {name}, which is not one of the session's tools. The runtime did not get the call. {why}"
    details: dict[str, Any] = {"tool": name, "rule": WIRE, "request_id": call.request_id}
    scope.journal.write(
        ev.RuntimeNotice(kind="denied_call", message=message, details=details), in_task=in_task
    )


async def read_denied(scope: SessionScope, after_seq: int) -> tuple[list[str], list[WireCall]]:
    """Return the marks that a session issued after a seq, and the calls that they stand for, as far as these were kept."""
    marks: list[str] = []
    calls: list[WireCall] = []
    requested: dict[str, Event] = {}
    async for event in read_events(scope.ports.log, scope.state.session_id, after_seq):
        payload = event.payload
        if isinstance(payload, ev.ToolCallRequested):
            requested = {payload.tool_call_id: event}  # its opinion follows it at once
        elif isinstance(payload, ev.ToolCallPolicyEvaluated) and payload.rule == WIRE:
            marks.append(mark_for(payload.tool_call_id))
            asked = requested.get(payload.tool_call_id)
            call = None if asked is None else await _kept(scope.ports.blobs, asked)
            if call is not None and call.mark == marks[-1]:
                calls.append(call)
    return marks, calls


async def _kept(blobs: Blobs, event: Event) -> WireCall | None:
    """Return a denied call from the raw message of its request; None if none was kept."""
    raw, ref = event.runtime.raw, event.runtime.raw_ref
    try:
        if ref is not None:
            raw = msgspec.json.decode(await blobs.get(ref.content_hash))
        return msgspec.convert(raw, type=WireCall)
    except (ValueError, CodeSDKError):
        return None


def _id_of(mark: str) -> str:
    return mark.removeprefix(MARK_START).removesuffix("]")
