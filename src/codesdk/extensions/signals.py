"""Committed events → what handlers are called with: each event under its own type, and document 001's names for some.

Pure, but for the one look-up that a question about a file needs: which call it is about.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.actions import LOCAL
from codesdk.contract.events import Event
from codesdk.contract.records import SessionRow
from codesdk.extensions.outcomes import AgentRuntimeEvent

FILE_CHANGE = "file_change.approval_requested"
TURN_COMPLETED = "turn.completed"
SUGGEST = ev.TYPE_OF[ev.SuggestRequested]
_ENDS = {"task.completed": "completed", "task.failed": "failed", "task.stopped": "stopped"}
SOURCES = {FILE_CHANGE: ("approval.requested",), TURN_COMPLETED: tuple(_ENDS)}
"""The events of the log that each of these names is made from."""
APP_SERVER = "app_server."
"""What the names of an app server's messages begin with. They are not in the log."""
DELTAS = frozenset({"model.output.delta", "tool.output.delta"})
"""What a stream carries and no handler is told of."""
KNOWN = (frozenset(ev.EVENT_TYPES) | SOURCES.keys()) - DELTAS
"""Every type of event that handlers are told of."""
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")

FindCall = Callable[[str, int, str], Awaitable[ev.ToolCallRequested | None]]
"""Finds the call with an id that a session requested before a seq."""


class Origin(NamedTuple):
    """Where an event comes from: all that what it leads to may touch."""

    principal: str
    session_id: str
    task_id: str | None
    project_id: str
    seq: int
    data: dict[str, Any]
    """The event's own payload."""
    signal_id: str | None = None
    """Names a message of an app server, which is not in the log; `seq` is then the last event before it."""


class Signal(NamedTuple):
    """An event for handlers, and its origin."""

    event: AgentRuntimeEvent
    origin: Origin
    runtime: str


def wanted_types(subscribed: frozenset[str]) -> frozenset[str]:
    """Return the events of the log that are needed for what handlers subscribe to."""
    found = {name for name in subscribed if name not in SOURCES and not name.startswith(APP_SERVER)}
    for name in subscribed & SOURCES.keys():
        found.update(SOURCES[name])
    return frozenset(found)


def project_of(workspace: str) -> str:
    """Return the id of the project in a workspace: no path of the machine, but the same for the same path."""
    return f"prj_{hashlib.sha256(workspace.encode()).hexdigest()[:24]}"


def project_id_of(session: SessionRow) -> str:
    """Return the id of a session's project: the one that it was created with, or that of its workspace."""
    return session.project_id or project_of(session.workspace)


async def signals_of(
    event: Event, session: SessionRow | None, subscribed: frozenset[str], find_call: FindCall
) -> list[Signal]:
    """Return the events that handlers subscribe to and that this one is. A deleted session has none."""
    if session is None:
        return []
    data: dict[str, Any] = msgspec.to_builtins(event.payload)
    origin = Origin(
        principal=event.trace.user_id or LOCAL,
        session_id=event.trace.session_id,
        task_id=event.trace.task_id,
        project_id=project_id_of(session),
        seq=event.seq,
        data=data,
    )
    found = [_signal(event.type, event, session, origin, data)] if event.type in subscribed else []
    if event.type in _ENDS and TURN_COMPLETED in subscribed:
        more = {"status": _ENDS[event.type], **data}
        found.append(_signal(TURN_COMPLETED, event, session, origin, more))
    if FILE_CHANGE in subscribed and isinstance(event.payload, ev.ApprovalRequested):
        asked = event.payload.tool_call_id
        call = None if asked is None else await find_call(origin.session_id, event.seq, asked)
        if call is not None and call.tool_class == "write":
            more = {**data, "tool": call.name, "input": _input(call)}
            found.append(_signal(FILE_CHANGE, event, session, origin, more))
    return found


def normalize_method(method: str) -> str:
    """Return a method of an app server as the name of an event: `thread/tokenUsage` is `thread.token_usage`."""
    return ".".join(
        "_".join(word.lower() for word in _WORD.findall(part)) for part in method.split("/") if part
    )


def _signal(name: str, event: Event, session: SessionRow, origin: Origin, data: dict[str, Any]) -> Signal:
    about = {"id": session.session_id, "title": session.title, "project_id": origin.project_id}
    payload = {
        "session": about,
        "task_id": origin.task_id,
        "seq": event.seq,
        "runtime": event.runtime.name,
        "data": data,
    }
    told = AgentRuntimeEvent(
        type=name,
        payload=payload,
        emitted_at=event.time,
        correlation_id=f"{origin.session_id}:{event.seq}",
    )
    return Signal(told, origin, event.runtime.name)


def _input(call: ev.ToolCallRequested) -> Any:
    return None if call.input is msgspec.UNSET else call.input
