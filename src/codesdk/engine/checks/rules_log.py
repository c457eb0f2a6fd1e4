"""A stored log, checked frame by frame against the nine invariants of the contract.

Pure and streaming: it remembers the open task, the queue, the carried questions and the ids of finished tasks
and calls and of uncounted requests, never events. `verify` adds what only rows and artifacts can show.
"""

from collections.abc import Callable
from typing import Any

from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.contract.events import EVENT_TYPES, TERMINAL_TYPES, Event
from codesdk.contract.messages import text_of
from codesdk.contract.records import StoredFrame
from codesdk.engine.checks.rules_calls import CallChecks
from codesdk.engine.checks.rules_ends import check_end, check_usage
from codesdk.engine.checks.rules_state import Finding, TaskCheck
from codesdk.engine.checks.rules_times import TimeChecks
from codesdk.engine.log.state import add_usage

_OUTSIDE = {
    "session.created": 2,
    "session.resumed": 3,
    "session.recovered": 8,
    "session.not_resumed": 8,
    "session.settings_changed": 3,
    "session.compacted": 3,
    "transcript.supplemented": 3,
    "suggest_request.requested": 3,
    "suggest_request.answered": 3,
    "session.closed": 3,
    "task.queued": 3,
    "approval.carried": 8,
    "files.undone": 4,
}
"""The types that never have a `task_id`, and the invariant that says so."""
_EITHER = {
    "runtime.notice",
    "runtime.request.started",
    "model.input",
    "approval.requested",
    "runtime.request.completed",
    "usage.reported",
    "artifact.created",
    "approval.answered",
    "grant.revoked",
}
"""The types that may come without a `task_id`: what a runtime does between tasks, facts that came late,
budgets that are used up, and answers to questions that no task waits for."""
_AFTER_CRASH = TERMINAL_TYPES | {
    "approval.answered",
    "tool.call.denied",
    "tool.call.started",
    "tool.call.completed",
    "model.output.completed",
}
"""The types that closing an interrupted task may write."""


class Checker:
    """Checks one session's log. Feed it every frame in order, then call `finish`.

    A frame that cannot be read, or is missing, leaves a hole: until the next task starts, findings that may
    be due to it are not reported. `event` is the frame's event, if it could be read and is in its place.
    """

    def __init__(self, session_id: str) -> None:
        self.event: Event | None = None
        self._session_id = session_id
        self._last = 0
        self._found: list[Finding] = []
        self._seq: int | None = None
        self._blurred = False
        self._calls = CallChecks(self._report)
        self._task: TaskCheck | None = None
        self._passing: TaskCheck | None = None
        self._ended: set[str] = set()
        self._queue: dict[str, ev.TaskQueued] = {}
        self._requests: set[str] = set()  # not counted yet
        self._suggests: set[str] = set()  # not answered yet
        self._created = False
        self._closed = False
        self._times = TimeChecks(self._report)
        self._handlers: dict[str, Callable[[Event, Any, Any], None]] = {
            "session.closed": self._close,
            "task.queued": self._queued,
            "task.started": self._started,
            "session.recovered": self._recovered,
            "session.not_resumed": self._not_resumed,
            "transcript.supplemented": self._supplemented,
            "suggest_request.requested": self._suggest_requested,
            "suggest_request.answered": self._suggest_answered,
            "task.steered": self._steered,
            "task.stop_requested": self._stop_requested,
            "files.undone": self._undone,
            "model.output.delta": self._delta,
            "model.output.retracted": self._retracted,
            "model.output.completed": self._completed,
            "runtime.request.started": self._requested,
            "usage.reported": self._used,
            "task.completed": self._end,
            "task.failed": self._end,
            "task.stopped": self._end,
        }

    @property
    def whole(self) -> bool:
        """Whether every event so far could be read."""
        return self._calls.whole

    def take(self, frame: StoredFrame) -> list[Finding]:
        """Check the next frame; return what is wrong with it."""
        self._found = []
        self._seq = frame.seq
        self.event = self._read(frame)
        if self.event is not None:
            self._check(self.event)
        return self._found

    def finish(self, *, running: bool = False) -> list[Finding]:
        """Check that the log may end here. `running`: its last task may still be running."""
        self._found = []
        self._seq = None
        if not self._last:
            self._report(2, "the log is empty: even session.created is missing")
        if self._passing is not None and not running:
            what = f"{self._passing.task_id}, started at seq {self._passing.seq}, has no terminal event"
            self._report(3, what)
        if self._task is not None and not running:
            what = f"{self._task.task_id}, started at seq {self._task.seq}, has no terminal event"
            self._report(3, what, open_end=self._task.recovered is None)
        if not running:
            self._check_owed()
        return self._found

    def _report(self, invariant: int | None, what: str, *, open_end: bool = False) -> None:
        """Report a finding, unless it may be due to a hole in the log."""
        if self._blurred and invariant not in (None, 2):
            return
        self._found.append(Finding(self._seq, invariant, what, open_end))

    # --- the frame and the envelope ------------------------------------------------------------------

    def _read(self, frame: StoredFrame) -> Event | None:
        expected = self._last + 1
        if frame.seq < expected:
            self._report(2, f"this seq was already taken; the next one is {expected}")
            return None
        if frame.seq > expected:
            self._report(2, f"follows seq {self._last}; {frame.seq - expected} before it are missing")
            self._hole()
        self._last = frame.seq
        try:
            if frame.damage is not None:
                raise ValueError(frame.damage)
            event = decode(frame.data)
        except (ValueError, RecursionError) as error:
            self._report(None, f"the stored frame is damaged ({error})")
            self._hole()
            return None
        if isinstance(event, ev.UnknownEvent) and event.type in EVENT_TYPES:
            self._hole()  # of a newer schema version: it may be right, but cannot be judged
            return None
        return event

    def _hole(self) -> None:
        self._times.forget()
        self._blurred = True
        self._created = True
        self._calls.whole = False
        self._calls.owed.clear()  # the events that carried them may be in the hole

    def _check(self, event: Event) -> None:
        if event.seq != self._seq:
            self._report(2, f"the event stored here says that its seq is {event.seq}")
        if event.trace.session_id != self._session_id:
            self._report(2, f"{event.type} belongs to session {event.trace.session_id}")
        if (event.type == "session.created") == self._created:
            self._report(2, f"{event.type} is not the first event" if self._created else "no session.created")
        self._created = True
        if event.type != "approval.carried" and self._task is None:
            self._check_owed()
        self._times.check(event)
        if isinstance(event.payload, ev.ClockChanged):
            return  # it may stand anywhere, and means nothing to what surrounds it
        self._check_passing(event)
        placed, task = self._place(event)
        if placed:
            self._calls.take(event, event.payload, task)
            handler = self._handlers.get(event.type)
            if handler is not None:
                handler(event, event.payload, task)

    def _check_owed(self) -> None:
        for approval_id, attempt in self._calls.owed.items():
            self._report(8, f"{approval_id} on {attempt.key} was open at a crash, and is not carried")
        self._calls.owed.clear()

    def _check_passing(self, event: Event) -> None:
        """Check that the start and the stop of a task that never ran are next to each other."""
        task = self._passing
        if task is not None and (event.trace.task_id, event.type) != (task.task_id, "task.stopped"):
            self._report(3, f"{event.type} comes before the task.stopped of {task.task_id}, which never ran")
            self._ended.add(task.task_id)
            self._passing = None

    def _place(self, event: Event) -> tuple[bool, TaskCheck | None]:
        """Return whether the event stands where it may, and the task that it belongs to."""
        task_id = event.trace.task_id
        if event.type in _OUTSIDE:
            if task_id is not None:
                self._report(_OUTSIDE[event.type], f"{event.type} must not have a task_id ({task_id})")
            return True, None
        if event.type == "task.started":
            return True, None
        if task_id is None:
            fits = event.type in _EITHER or event.type not in EVENT_TYPES
            if not fits:
                self._report(3, f"{event.type} belongs to no task")
            return fits, None
        for task in (self._task, self._passing):
            if task is not None and task.task_id == task_id:
                if task.recovered and event.type not in _AFTER_CRASH:
                    self._report(8, f"{event.type} in {task_id} after it was closed for a crash")
                return True, task
        why = "had already ended" if task_id in self._ended else "had not started"
        self._report(3, f"{event.type} belongs to {task_id}, which {why}")
        return False, None

    # --- sessions and tasks ------------------------------------------------------------------------------

    def _close(self, event: Event, payload: ev.SessionClosed, _: TaskCheck | None) -> None:
        if self._task is not None:
            self._report(4, f"session.closed while {self._task.task_id} runs")
        elif self._queue and self.whole:
            self._report(4, f"session.closed while {next(iter(self._queue))} waits")
        self._closed = True

    def _queued(self, event: Event, payload: ev.TaskQueued, _: TaskCheck | None) -> None:
        if self._closed:
            self._report(4, f"task.queued for {payload.task_id} after session.closed")
        if payload.task_id in self._queue or self._is_known(payload.task_id):
            self._report(4, f"task.queued for {payload.task_id}, which was queued or started before")
        self._queue[payload.task_id] = payload

    def _started(self, event: Event, payload: ev.TaskStarted, _: TaskCheck | None) -> None:
        task_id = event.trace.task_id
        if self._blurred and payload.executed:
            self._blurred = False
            self._task = None
        if task_id is None:
            self._report(3, "task.started names no task")
            return
        if self._is_known(task_id):
            self._report(3, f"task.started for {task_id}, which had started before")
            return
        if self._closed:
            self._report(4, f"task.started for {task_id} after session.closed")
        if self.whole:
            self._check_turn(task_id, payload)
        self._queue.pop(task_id, None)
        task = TaskCheck(
            task_id=task_id,
            seq=event.seq,
            started_at=event.time,
            executed=payload.executed,
            output_schema=payload.output_schema,
            output_way=payload.output_way,
        )
        if not payload.executed:
            self._passing = task
            return
        if self._task is not None:
            self._report(4, f"task.started for {task_id} while {self._task.task_id} runs")
            self._ended.add(self._task.task_id)
        self._task = task

    def _check_turn(self, task_id: str, payload: ev.TaskStarted) -> None:
        """Check that queued tasks start in order; only one that resumes or sums up the session may overtake them."""
        queued = self._queue.get(task_id)
        if queued is None:
            if not payload.executed:
                self._report(4, f"task.started for {task_id} says that it never ran, but it was not queued")
            elif self._queue and payload.resumes is None and payload.summarizes_before is None:
                self._report(4, f"task.started for {task_id} while {next(iter(self._queue))} waits")
        else:
            if payload.executed and next(iter(self._queue)) != task_id:
                self._report(4, f"task.started for {task_id} before {next(iter(self._queue))}")
            if queued.messages != payload.messages:
                self._report(9, f"task.started for {task_id} has other messages than its task.queued")
            if queued.output_schema != payload.output_schema:
                self._report(9, f"task.started for {task_id} has another output schema than its task.queued")
        if payload.resumes is not None and payload.resumes.task_id not in self._ended:
            self._report(
                8, f"task.started for {task_id} resumes {payload.resumes.task_id}, which never ended"
            )

    def _is_known(self, task_id: str) -> bool:
        return task_id in self._ended or (self._task is not None and self._task.task_id == task_id)

    def _steered(self, event: Event, payload: ev.TaskSteered, task: TaskCheck) -> None:
        if payload.by is None or payload.by.kind == "extension":
            return
        if payload.by.kind != "engine" or task.output_schema is None:
            self._report(9, f"task.steered by {payload.by.kind} in {task.task_id}, which owes no result")

    def _stop_requested(self, event: Event, payload: ev.TaskStopRequested, task: TaskCheck) -> None:
        if task.stop is not None:
            self._report(7, f"a stop of {task.task_id} was already asked for")
        else:
            task.stop = payload

    def _recovered(self, event: Event, payload: ev.SessionRecovered, _: TaskCheck | None) -> None:
        task = self._task
        if task is None or task.task_id != payload.task_id:
            self._report(8, f"session.recovered closes {payload.task_id}, which was not open")
        elif task.recovered is not None:
            self._report(8, f"session.recovered closes {payload.task_id} for the second time")
        else:
            if self.whole and payload.open_calls != sorted(task.calls):
                self._report(8, f"session.recovered names other open calls than {payload.task_id} had")
            task.recovered = payload

    def _not_resumed(self, event: Event, payload: ev.SessionNotResumed, _: TaskCheck | None) -> None:
        if self.whole and payload.task_id not in self._ended and payload.task_id not in self._queue:
            self._report(8, f"session.not_resumed names {payload.task_id}, which neither ended nor waits")

    def _supplemented(self, event: Event, payload: ev.TranscriptSupplemented, _: TaskCheck | None) -> None:
        if payload.by.kind not in ("user", "extension"):
            self._report(9, f"transcript.supplemented by {payload.by.kind}, which puts nothing there")
        if payload.task_id is not None and self.whole and not self._was_given(payload.task_id):
            self._report(3, f"transcript.supplemented is about {payload.task_id}, which there was not")

    def _suggest_requested(self, event: Event, payload: ev.SuggestRequested, _: TaskCheck | None) -> None:
        self._suggests.add(payload.suggest_id)

    def _suggest_answered(self, event: Event, payload: ev.SuggestAnswered, _: TaskCheck | None) -> None:
        if payload.suggest_id in self._suggests:
            self._suggests.remove(payload.suggest_id)
        elif self.whole:
            self._report(9, f"suggest_request.answered for {payload.suggest_id}, which nobody waits for")

    def _was_given(self, task_id: str) -> bool:
        return self._is_known(task_id) or task_id in self._queue

    def _undone(self, event: Event, payload: ev.FilesUndone, _: TaskCheck | None) -> None:
        busy = self._task.task_id if self._task is not None else next(iter(self._queue), None)
        if busy is not None and self.whole:
            self._report(4, f"files.undone while {busy} runs or waits")
        self._calls.check_undone(payload)

    def _end(self, event: Event, payload: Any, task: TaskCheck) -> None:
        self._calls.close(event, task)
        check_end(self._report, event, payload, task)
        self._ended.add(task.task_id)
        if task is self._passing:
            self._passing = None
        else:
            self._task = None

    # --- what the model says ----------------------------------------------------------------------------

    def _delta(self, event: Event, payload: ev.OutputDelta, task: TaskCheck) -> None:
        if payload.message_id in task.messages:
            self._report(7, f"model.output.delta for message {payload.message_id}, which was complete")
        else:
            if task.blocks.setdefault(payload.block_id, payload.message_id) == payload.message_id:
                task.streaming.setdefault(payload.message_id, {})[payload.block_id] = None

    def _retracted(self, event: Event, payload: ev.OutputRetracted, task: TaskCheck) -> None:
        for block_id in payload.block_ids:
            task.blocks.pop(block_id, None)

    def _completed(self, event: Event, payload: ev.OutputCompleted, task: TaskCheck) -> None:
        message_id = payload.message_id
        if message_id in task.messages:
            self._report(7, f"model.output.completed for message {message_id}, which was complete")
        task.messages.add(message_id)
        for block_id in task.streaming.pop(message_id, ()):
            if task.blocks.get(block_id) == message_id:
                del task.blocks[block_id]
        task.text = text_of(payload.content) or task.text

    def _requested(self, event: Event, payload: ev.RequestStarted, _: TaskCheck | None) -> None:
        self._requests.add(payload.request_id)

    def _used(self, event: Event, payload: ev.UsageReported, task: TaskCheck | None) -> None:
        check_usage(self._report, payload, self._requests if self.whole else None)
        if task is not None:
            task.usage = add_usage(task.tallies, payload)
