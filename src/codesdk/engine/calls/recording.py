"""Prepares the record of a call that arrived: what is large is stored apart first."""

from typing import Any

import msgspec

from codesdk.contract.events import ToolCallRequested
from codesdk.contract.messages import ArtifactRef
from codesdk.engine.calls.evaluation import KnownTools
from codesdk.engine.calls.inputs import Arrival
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.drafts import Intake


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The event that opens a call, and the runtime's own message."""

    payload: ToolCallRequested
    raw: Any
    raw_ref: ArtifactRef | None


async def request_of(
    scope: SessionScope,
    intake: Intake,
    tools: KnownTools,
    arrival: Arrival,
    tool_call_id: str | None = None,
    *,
    early: bool = False,
) -> Request:
    """Return what opens a call. Its id is the given one, the one its arguments streamed with, or a new one."""
    item, given = arrival.item, arrival.input
    inline, ref = given.stored, None
    if len(given.data) > scope.settings.input_inline_bytes:
        inline, ref = msgspec.UNSET, await scope.put_artifact(given.data, "application/json", "input")
    raw, raw_ref = await intake.raw(item.raw, len(given.data))
    kind = arrival.name
    if arrival.origin == "native" and item.counts_as in tools.native:
        kind = item.counts_as
    payload = ToolCallRequested(
        tool_call_id=tool_call_id
        or intake.call_ids.pop(item.runtime_tool_call_id, None)
        or scope.ports.stamper.mint("call"),
        attempt=1,
        input_hash=given.digest,
        runtime_tool_call_id=item.runtime_tool_call_id,
        name=arrival.name,
        tool_class=tools.classes.get(kind, "dangerous"),
        input=inline,
        input_ref=ref,
        input_redacted=given.redacted,
        message_id=item.message_id,
        index=item.index,
        early=early,
    )
    return Request(payload=payload, raw=raw, raw_ref=raw_ref)
