"""Turns payloads into events: the only place that assigns a seq.

The pure half of the recorder. `ledger` and `lifecycle` write through a journal; each event passes the choke
point, which encodes it. The recorder stores what its `sink` gets; replay compares it with a stored log.
"""

from collections.abc import Callable
from typing import Any

from codesdk.contract.actions import LOCAL
from codesdk.contract.events import (
    EVENT_OF,
    SCHEMA_VERSION,
    ApprovalAnswered,
    ClockChanged,
    Event,
    OutputDelta,
    RuntimeInfo,
    ToolCallDenied,
    Trace,
)
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import Stamper
from codesdk.contract.records import Changes
from codesdk.contract.sender import Sender
from codesdk.engine.log.acting import current_sender
from codesdk.engine.log.choke_point import ChokePoint
from codesdk.engine.log.clock import is_set_back
from codesdk.engine.log.fold import fold
from codesdk.engine.log.state import SessionState
from codesdk.redaction import Redactor

_NOBODY = Sender()
_DECISIONS = (ApprovalAnswered, ToolCallDenied)


class Journal:
    """Writes the events of one session and folds each into its state at once.

    Without a session's choke point, only what looks like a secret is one: stored events hold no others.
    """

    def __init__(
        self,
        state: SessionState,
        stamper: Stamper,
        sink: Callable[[Event, bytes], None],
        choke_point: ChokePoint | None = None,
        sender: Callable[[], Sender | None] = current_sender,
    ) -> None:
        self.state = state
        self.stamper = stamper
        self.choke_point = choke_point or ChokePoint()
        self._changes: Changes | None = None  # none most of the time, and there may be thousands of sessions
        self._sink = sink
        self._info: RuntimeInfo | None = None
        self._model: str | None = None
        self._runtime_session_id: str | None = None
        self._trace: Trace | None = None
        self._sender = sender
        self._is_told = sender is not current_sender
        """Whether it is told whom each event is from, as in a replay: a secret learned in a task changes what its name looks like."""
        self._traced: Sender | None = None
        self._name = state.runtime_name
        self._user = None if state.principal == LOCAL else state.principal

    @property
    def changes(self) -> Changes:
        """The row changes that come with the next events."""
        if self._changes is None:
            self._changes = Changes()
        return self._changes

    @changes.setter
    def changes(self, changes: Changes) -> None:
        self._changes = changes

    def identify(self, model: str | None, runtime_session_id: str | None) -> None:
        """Stamp later events with the runtime's own session id and model, where given."""
        self._check_name()
        clean = self.choke_point.clean
        self._model = clean(model) or self._model
        self._runtime_session_id = clean(runtime_session_id) or self._runtime_session_id
        self._info = None

    def redact_with(self, redactor: Redactor) -> None:
        """Look for other secrets from now on, also in the names of clients and requests that later events carry."""
        self.choke_point.redactor = redactor
        self._trace = None

    def now(self) -> str:
        """Return the time for the next event. It is not before the last one's, unless the clock was set back."""
        now, last = self.stamper.now(), self.state.time
        return last if now < last and not is_set_back(last, now) else now

    def write(
        self,
        payload: Any,
        *,
        in_task: bool = True,
        task_id: str | None = None,
        raw: Any = None,
        raw_ref: ArtifactRef | None = None,
        make: Callable[..., Event] | None = None,
        time: str | None = None,
    ) -> Event:
        """Make the next event of the session, pass it to the sink and fold it. Return it as it is stored.

        It belongs to the running task unless `in_task` is false; `task_id` names the task for the one event
        that comes before it runs. Pass `time`, got from `now`, where the payload depends on it, and `make` where the payload's
        type does not determine the event's.
        """
        state = self.state
        if time is None:
            time = self.stamper.now()
        if time < state.time:
            time = self._keep_order(time)
        task = state.task
        if in_task and task_id is None and task is not None:
            task_id = task.task_id
        trace = self._trace
        source: object = payload
        kind = type(source)
        if kind is OutputDelta and task is not None and task.task_id == task_id and not self._is_told:
            sender = task.sender  # the most frequent, and no action writes one
        else:
            sender = self._sender_of(payload, task_id)
        if trace is None or trace.task_id != task_id or sender is not self._traced:
            trace = self._trace_for(task_id, sender)
        event = (make or EVENT_OF[kind])(
            schema_version=SCHEMA_VERSION,
            seq=state.seq + 1,
            time=time,
            trace=trace,
            runtime=self._info_for(raw, raw_ref),
            payload=payload,
        )
        event, frame = self.choke_point.encode(event)
        self._sink(event, frame)  # first: what the sink refuses must not be folded either
        changes = self._changes
        fold(state, event, self.changes if changes is None else changes)
        return event

    def _keep_order(self, time: str) -> str:
        """Return the time of an event that would come before the last one. Record a clock that was set back."""
        last = self.state.time
        if not is_set_back(last, time):
            return last
        self.state.time = time  # so that this one event is not late itself
        self.write(ClockChanged(before=last, after=time), in_task=False, time=time)
        return time

    def take_changes(self) -> Changes | None:
        """Return the row changes since the last call, None if there are none."""
        if not self._changes:
            return None
        changes, self._changes = self._changes, None
        return changes

    def _sender_of(self, payload: Any, task_id: str | None) -> Sender | None:
        """Return the request behind an event: the one that acts now, or else the one that started the task."""
        state = self.state
        if task_id is not None and (state.task is None or state.task.task_id != task_id):
            # A task that leaves the queue was requested when it came in, whoever makes it leave.
            waiting = next((entry for entry in state.queue if entry.task_id == task_id), None)
            if waiting is not None:
                return waiting.sender
        # Nobody asked for that. Nor did anyone decide what the engine decides, because time is over, a stop came
        # or a process died: a client that had started the task, or stopped it, would seem to have answered.
        if isinstance(payload, _DECISIONS):
            if payload.by.kind == "engine":
                return None
        elif isinstance(payload, ClockChanged):
            return None
        sender = self._sender()
        if sender is None and task_id is not None and state.task is not None:
            return state.task.sender
        return sender

    def _trace_for(self, task_id: str | None, sender: Sender | None) -> Trace:
        """Return the trace of the events of a task, which they share, and keep it for those that follow."""
        if task_id is not None and not self._knows(task_id):
            self.choke_point.check_task_id(task_id)
        by, clean = sender or _NOBODY, self.choke_point.clean
        self._traced = sender
        self._trace = Trace(
            session_id=self.state.session_id,
            task_id=task_id,
            request_id=clean(by.request_id),
            client_id=clean(by.client_id),
            user_id=self._user,
            traceparent=clean(by.traceparent),
        )
        return self._trace

    def _knows(self, task_id: str) -> bool:
        """Return whether events carry the id of this task already. A secret that is learned later cannot take it back."""
        task = self.state.task
        return (task is not None and task.task_id == task_id) or any(
            waiting.task_id == task_id for waiting in self.state.queue
        )

    def _check_name(self) -> None:
        """Forget the runtime's session id and model when the session has moved to another runtime."""
        # Not told of a move: the name is compared, so that no event of the new runtime carries the old ids.
        if self._name != self.state.runtime_name:
            self._name = self.state.runtime_name
            self._model = self._runtime_session_id = self._info = None

    def _info_for(self, raw: Any, raw_ref: ArtifactRef | None) -> RuntimeInfo:
        if self._name != self.state.runtime_name:  # compared here, too, because this runs for every event
            self._check_name()
        info = self._info
        if info is None:
            info = RuntimeInfo(
                name=self.state.runtime_name,
                model=self._model or self.state.model,
                runtime_session_id=self._runtime_session_id or self.state.runtime_session_id,
            )
            self._info = info
        if raw is None and raw_ref is None:
            return info
        return RuntimeInfo(
            name=info.name,
            model=info.model,
            runtime_session_id=info.runtime_session_id,
            raw=raw,
            raw_ref=raw_ref,
        )
