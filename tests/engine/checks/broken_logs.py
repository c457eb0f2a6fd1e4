"""Logs that no engine would write: healthy ones, each with one fault, and the invariant that it breaks.

An `Edit` breaks a list of events in place and returns the place where it shows, as an index of the
broken list, or None for the end of the log. Events are renumbered afterwards, except in `RAW`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from codesdk.contract.codec import encode
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import (
    EVENT_OF,
    Event,
    OutputDelta,
    Resumes,
    SessionClosed,
    SessionNotResumed,
    SessionRecovered,
    SuggestAnswered,
    TaskFailed,
    TaskStopRequested,
    ToolCallStarted,
    ToolOutputDelta,
    TranscriptSupplemented,
    UsageTotals,
)
from codesdk.contract.messages import Text, user
from codesdk.contract.records import StoredFrame
from codesdk.contract.tools import Actor, Evaluation, SandboxSummary, UndoneFile

STOP_REQUEST = TaskStopRequested(reason="enough", by=Actor(kind="user"))

Edit = Callable[[list[Event]], int | None]
OTHER_HASH = "sha256:" + "1" * 64
LONG_AGO = "2001-01-01T00:00:00.000Z"


class Broken(NamedTuple):
    """A fault: the invariant it breaks, the story it is put into, what it is, how it is done."""

    invariant: int
    story: str
    fault: str
    edit: Edit


# --- tools -------------------------------------------------------------------------------------------


def renumber(events: list[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)]


def frames(events: list[Event]) -> list[StoredFrame]:
    return [StoredFrame(seq=event.seq, data=encode(event)) for event in events]


def find(events: list[Event], type_: str, nth: int = 0, **fields: Any) -> int:
    """Return the index of the nth event of this type whose payload has these fields."""
    places = [
        index
        for index, event in enumerate(events)
        if event.type == type_ and all(getattr(event.payload, name) == fields[name] for name in fields)
    ]
    return places[nth]


def later(events: list[Any], at: int, type_: str) -> int:
    """Return the index of the next event of this type that speaks of the same call."""
    key = (events[at].payload.tool_call_id, events[at].payload.attempt)
    return next(
        index
        for index in range(at + 1, len(events))
        if events[index].type == type_
        and (events[index].payload.tool_call_id, events[index].payload.attempt) == key
    )


def changed(event: Any, **fields: Any) -> Event:
    """Return the event with other fields, wherever they live."""
    envelope = {name: fields.pop(name) for name in ("time", "seq") if name in fields}
    trace = {name: fields.pop(name) for name in ("task_id", "session_id") if name in fields}
    payload = msgspec.structs.replace(event.payload, **fields) if fields else event.payload
    return msgspec.structs.replace(
        event, payload=payload, trace=msgspec.structs.replace(event.trace, **trace), **envelope
    )


def with_payload(event: Event, payload: Any) -> Event:
    return EVENT_OF[type(payload)](
        schema_version=event.schema_version,
        seq=event.seq,
        time=event.time,
        trace=event.trace,
        runtime=event.runtime,
        payload=payload,
    )


class At(NamedTuple):
    """Which event: the nth of a type, perhaps among those with these fields."""

    type: str
    nth: int = 0
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def find(self, events: list[Event]) -> int:
        return find(events, self.type, self.nth, **self.fields)


END = At("")
"""The end of the log, as the place where a fault shows."""


def edit(which: At, **fields: Any) -> Edit:
    """Change fields of an event; it shows there."""
    return edit_seen(which, which, **fields)


def edit_seen(which: At, shows: At, **fields: Any) -> Edit:
    """Change fields of an event; it shows elsewhere."""

    def apply(events: list[Event]) -> int | None:
        place = which.find(events)
        events[place] = changed(events[place], **fields)
        return None if shows is END else place if shows is which else shows.find(events)

    return apply


def drop(which: At, shows: At) -> Edit:
    def apply(events: list[Event]) -> int | None:
        del events[which.find(events)]
        return None if shows is END else shows.find(events)

    return apply


def repeat(which: At) -> Edit:
    def apply(events: list[Event]) -> int:
        place = which.find(events)
        events.insert(place + 1, events[place])
        return place + 1

    return apply


def move(which: At, before: At, shows: At | None = None) -> Edit:
    """Move an event before another one; it shows there, or elsewhere."""

    def apply(events: list[Event]) -> int:
        event = events.pop(which.find(events))
        place = before.find(events)
        follower = events[place]
        events.insert(place, _at_time_of(event, follower))
        return place if shows is None else shows.find(events)

    return apply


def move_after(which: At, after: At) -> Edit:
    def apply(events: list[Event]) -> int:
        place = which.find(events)
        target = events[after.find(events)]
        event = events.pop(place)
        place = events.index(target) + 1
        events.insert(place, _at_time_of(event, target))
        return place

    return apply


def insert(after: At, make: Callable[[Event, list[Event]], Event]) -> Edit:
    """Put an event that is made from another one behind it."""

    def apply(events: list[Event]) -> int:
        place = after.find(events)
        events.insert(place + 1, make(events[place], events))
        return place + 1

    return apply


def _at_time_of(event: Event, neighbour: Event) -> Event:
    return msgspec.structs.replace(event, time=neighbour.time)


def output_of(event: Any, _: list[Event]) -> Event:
    call: Any = event.payload
    payload = ToolOutputDelta(
        tool_call_id=call.tool_call_id,
        attempt=call.attempt,
        input_hash=call.input_hash,
        runtime_tool_call_id=call.runtime_tool_call_id,
        stream="stdout",
        delta="more",
    )
    return with_payload(event, payload)


def start_of(event: Event, _: list[Event]) -> Event:
    call: Any = event.payload
    payload = ToolCallStarted(
        tool_call_id=call.tool_call_id,
        attempt=call.attempt,
        input_hash=call.input_hash,
        runtime_tool_call_id=call.runtime_tool_call_id,
        name=call.name,
        execution_env="codesdk_host",
        sandbox=SandboxSummary(network=False),
    )
    return with_payload(event, payload)


def delta_like(event: Event, events: list[Event]) -> Event:
    """A copy of the log's first delta, at this event's time."""
    return _at_time_of(events[find(events, "model.output.delta")], event)


def start_again(event: Event, events: list[Event]) -> Event:
    return _at_time_of(events[find(events, "task.started")], event)


def late_words(event: Any, _: list[Event]) -> Event:
    message = event.payload.message_id
    payload = OutputDelta(kind="text_delta", block_id="late", message_id=message, delta="and")
    return with_payload(event, payload)


def fail(events: list[Any]) -> int:
    place = find(events, "task.stopped")
    stopped = events[place].payload
    error = ErrorInfo(code="TIMEOUT", message="too slow", retryable=True)
    payload = TaskFailed(error=error, usage=stopped.usage, duration_ms=stopped.duration_ms)
    events[place] = with_payload(events[place], payload)
    return place


def drop_end_of_call(events: list[Event]) -> int:
    place = find(events, "tool.call.completed")
    del events[place]
    return find(events, "task.completed")


def drop_start_of_call(events: list[Event]) -> int:
    place = find(events, "tool.call.started")
    done = later(events, place, "tool.call.completed")
    del events[place]
    return done - 1


def skip_an_attempt(events: list[Event]) -> int:
    for place, event in enumerate(events):
        if getattr(event.payload, "attempt", 0) == 2:
            events[place] = changed(event, attempt=3)
    return find(events, "tool.call.requested", attempt=3)


def output_after_the_call(events: list[Event]) -> int:
    place = find(events, "tool.call.completed", 1)
    events.insert(place + 1, output_of(events[place], events))
    return place + 1


def output_before_the_call(events: list[Event]) -> int:
    place = find(events, "tool.call.approved")
    events.insert(place + 1, output_of(events[place], events))
    return place + 1


def other_snapshot(type_: str, **fields: Any) -> Edit:
    def apply(events: list[Any]) -> int:
        place = find(events, type_)
        snapshot = msgspec.structs.replace(events[place].payload.policy_snapshot, **fields)
        events[place] = changed(events[place], policy_snapshot=snapshot)
        return place

    return apply


def approved_against_an_opinion(events: list[Any]) -> int:
    place = find(events, "tool.call.approved")
    snapshot = events[place].payload.policy_snapshot
    against = Evaluation(source="extension", result="deny", reason="no")
    worse = msgspec.structs.replace(snapshot, sources=[*snapshot.sources, against])
    events[place] = changed(events[place], policy_snapshot=worse)
    over = later(events, place, "tool.call.completed")
    events[over] = changed(events[over], policy_snapshot=worse)
    return place


def answer_otherwise(events: list[Event]) -> int:
    place = find(events, "approval.answered", decision="approve")
    events[place] = changed(events[place], decision="deny")
    return next(i for i in range(place, len(events)) if events[i].type == "tool.call.approved")


def drop_answer(events: list[Event]) -> int:
    place = find(events, "approval.answered", decision="approve")
    del events[place]
    return next(i for i in range(place, len(events)) if events[i].type == "tool.call.approved")


def drop_question(events: list[Any]) -> int:
    place = find(events, "approval.requested")
    name = events[place].payload.approval_id
    del events[place]
    return find(events, "approval.answered", approval_id=name)


def close_early(events: list[Event]) -> int:
    place = find(events, "task.failed")
    closed = with_payload(events[place], SessionClosed(reason="done"))
    events.insert(place + 1, changed(closed, task_id=None))
    return place + 2


def give_up_a_call(events: list[Event]) -> int:
    place = find(events, "tool.call.completed")
    events[place] = changed(events[place], outcome="unknown", is_error=True)
    return next(i for i in range(place, len(events)) if events[i].type == "tool.call.approved")


def interrupted_differently(events: list[Any]) -> int:
    place = find(events, "task.failed")
    error = msgspec.structs.replace(events[place].payload.error, retryable=False)
    events[place] = changed(events[place], error=error)
    return place


def recover_another(events: list[Any]) -> int:
    place = find(events, "session.recovered")
    other = msgspec.structs.replace(events[place].payload, task_id="task_x")
    events[place] = with_payload(events[place], other)
    return place


def give_up_another(events: list[Any]) -> int:
    place = find(events, "task.completed", 2)
    payload = SessionNotResumed(task_id="task_x", cause="attempts", message="no", attempts=1)
    events.insert(place + 1, changed(with_payload(events[place], payload), task_id=None))
    return place + 1


def recover_the_ended(events: list[Any]) -> int:
    place = find(events, "task.completed", 2)
    task_id = events[place].trace.task_id
    payload = SessionRecovered(task_id=task_id, cause="INTERRUPTED", open_calls=[])
    events.insert(place + 1, changed(with_payload(events[place], payload), task_id=None))
    return place + 1


def supplement(by: str, task_id: str | None = None, inside: str | None = None) -> Edit:
    """Put something beside the transcript, behind the end of a task."""

    def make(event: Event, _: list[Event]) -> Event:
        author = Actor(kind=by)  # type: ignore[arg-type]
        payload = TranscriptSupplemented(supplement_id="s", by=author, text="x", task_id=task_id)
        return changed(with_payload(event, payload), task_id=inside)

    return insert(At(DONE), make)


def suggested(event: Event, _: list[Event]) -> Event:
    payload = SuggestAnswered(suggest_id="sug_x", by=Actor(kind="engine"), results=[])
    return changed(with_payload(event, payload), task_id=None)


def stop_of_nothing(event: Event, _: list[Event]) -> Event:
    return changed(with_payload(event, STOP_REQUEST), task_id=None)


def stop_in_task(event: Event, events: list[Event]) -> Event:
    task_id = events[find(events, "task.failed")].trace.task_id
    return changed(with_payload(event, STOP_REQUEST), task_id=task_id)


def announce_another(events: list[Any]) -> int:
    """A call that was requested under an id of the runtime's is announced under another."""
    request, told = find(events, REQUEST), find(events, TOLD)
    for place in range(request, told):
        if getattr(events[place].payload, "tool_call_id", None) == events[request].payload.tool_call_id:
            events[place] = changed(events[place], runtime_tool_call_id="x")
    return told


def fit_less(events: list[Any]) -> int:
    """The schema asks for more than the result has."""
    place = find(events, STARTED)
    schema = {**events[place].payload.output_schema, "required": ["n", "m"]}
    events[place] = changed(events[place], output_schema=schema)
    return find(events, DONE)


def say_otherwise(events: list[Any]) -> int:
    """The model's last answer, and the text of the task with it, is no JSON."""
    said, end = find(events, MESSAGE, 1), find(events, DONE)
    events[said] = changed(events[said], content=[Text(text="Seven.")])
    events[end] = changed(events[end], text="Seven.")
    return end


# --- the table ---------------------------------------------------------------------------------------

STARTED, QUEUED, DONE = "task.started", "task.queued", "task.completed"
REQUEST, EVALUATED = "tool.call.requested", "tool.call.policy_evaluated"
APPROVED, DENIED = "tool.call.approved", "tool.call.denied"
TOLD = "tool.call.announced"
STEERED = "task.steered"
RUN, OVER, OUTPUT = "tool.call.started", "tool.call.completed", "tool.output.delta"
ASKED, ANSWERED, CARRIED = "approval.requested", "approval.answered", "approval.carried"
DELTA, MESSAGE = "model.output.delta", "model.output.completed"
STOP, CRASH, REVOKED = At("task.stop_requested"), At("session.recovered"), At("grant.revoked")
SET, UNDONE = At("session.settings_changed"), At("files.undone")
NOBODYS_FILE = UndoneFile(path="a.txt", tool_call_id="call_x", attempt=1)
GRANT = {"decision": "approve"}
GRANTED = At(EVALUATED, 0, {"rule": "grant:mode:auto:write"})

BROKEN = [
    Broken(1, "busy", "a time that is not UTC", edit(At("model.input"), time="2026-01-01 10:00:00")),
    Broken(1, "busy", "time runs backwards in a task", edit(At("model.input"), time=LONG_AGO)),
    Broken(2, "busy", "no session.created", drop(At("session.created"), At(STARTED))),
    Broken(2, "busy", "a second session.created", repeat(At("session.created"))),
    Broken(2, "busy", "an event of another session", edit(At(DELTA), session_id="ses_x")),
    Broken(3, "stopped", "an event before task.started", move(At("model.input"), At(STARTED))),
    Broken(3, "failed", "an event after the end", insert(At("task.failed"), delta_like)),
    Broken(3, "failed", "two ends", repeat(At("task.failed"))),
    Broken(3, "stopped", "no end", drop(At("task.stopped"), END)),
    Broken(3, "stopped", "started twice", repeat(At(STARTED))),
    Broken(3, "busy", "started once more when over", insert(At(DONE), start_again)),
    Broken(3, "busy", "a task.queued with a task_id", edit(At(QUEUED), task_id="task_x")),
    Broken(3, "busy", "a delta that belongs to no task", edit(At(DELTA), task_id=None)),
    Broken(3, "busy", "a start that names no task", edit(At(STARTED, 2), task_id=None)),
    Broken(
        3, "busy", "never ran, but goes on", edit_seen(At(STARTED, 2), At("model.input", 2), executed=False)
    ),
    Broken(4, "busy", "two tasks at once", drop(At(DONE), At(STARTED, 1))),
    Broken(
        4, "busy", "the queue is not first in, first out", move(At(QUEUED, 1), At(QUEUED), At(STARTED, 1))
    ),
    Broken(4, "busy", "a task jumps the queue", drop(At(QUEUED), At(STARTED, 1))),
    Broken(4, "busy", "queued twice", repeat(At(QUEUED))),
    Broken(4, "resumed", "queued when it already runs", move_after(At(QUEUED), At(STARTED, 2))),
    Broken(4, "refused", "closed while a task runs", move(At("session.closed"), At(DONE, 1))),
    Broken(4, "failed", "a start after the close", close_early),
    Broken(4, "refused", "closed while a task waits", move(At("session.closed"), At(STARTED, 1))),
    Broken(4, "refused", "overtakes without a resume", edit(At(STARTED, 1), resumes=None)),
    Broken(5, "busy", "never requested", drop(At(REQUEST), At(EVALUATED))),
    Broken(5, "busy", "requested twice", repeat(At(REQUEST))),
    Broken(5, "stopped", "an input that does not have its hash", edit(At(REQUEST), input={"gate": "z"})),
    Broken(5, "stopped", "a request without input", edit(At(REQUEST), input=msgspec.UNSET)),
    Broken(5, "busy", "another input is approved", edit(At(APPROVED), input_hash=OTHER_HASH)),
    Broken(5, "busy", "another input is asked about", edit(At(ASKED), input_hash=OTHER_HASH)),
    Broken(5, "busy", "another input is run", edit(At(RUN), input_hash=OTHER_HASH)),
    Broken(5, "busy", "another tool is run", edit(At(RUN), name="workspace.edit")),
    Broken(5, "busy", "another call of the runtime", edit(At(OVER), runtime_tool_call_id="x")),
    Broken(5, "busy", "run elsewhere", edit(At(OVER), execution_env="codesdk_docker")),
    Broken(5, "busy", "run by somebody else", edit(At(OVER), executed_by="runtime")),
    Broken(5, "busy", "approved twice", repeat(At(APPROVED))),
    Broken(5, "busy", "denied twice", repeat(At(DENIED))),
    Broken(5, "busy", "never approved", drop(At(APPROVED), At(RUN))),
    Broken(5, "busy", "run although denied", insert(At(DENIED), start_of)),
    Broken(5, "busy", "started twice", repeat(At(RUN))),
    Broken(5, "busy", "completed without a start", drop_start_of_call),
    Broken(5, "busy", "completed twice", repeat(At(OVER))),
    Broken(5, "busy", "never completed", drop_end_of_call),
    Broken(5, "stopped", "output before the start", output_before_the_call),
    Broken(5, "stopped", "output after the end of output", insert(At("tool.output.completed"), output_of)),
    Broken(5, "stopped", "output after the end", output_after_the_call),
    Broken(5, "resumed", "run again although nobody answered", drop(At(ANSWERED, 2), At(REQUEST, 4))),
    Broken(
        5, "resumed", "run again although denied", edit_seen(At(ANSWERED, 2), At(REQUEST, 4), decision="deny")
    ),
    Broken(5, "resumed", "an attempt is left out", skip_an_attempt),
    Broken(5, "early", "announced twice", repeat(At(TOLD))),
    Broken(5, "early", "announced before it was requested", move(At(TOLD), At(REQUEST))),
    Broken(5, "early", "announced, but not early", edit_seen(At(REQUEST), At(TOLD), early=False)),
    Broken(5, "early", "early, and yet with a place", edit(At(REQUEST), message_id="m1")),
    Broken(5, "early", "another input is announced", edit(At(TOLD), input_hash=OTHER_HASH)),
    Broken(
        5, "early", "runs under another id than was announced", edit(At(RUN, 1), runtime_tool_call_id="x")
    ),
    Broken(5, "early", "another call of the runtime is announced", announce_another),
    Broken(6, "busy", "an opinion after the approval", move_after(At(EVALUATED), At(APPROVED))),
    Broken(6, "unattended", "an opinion after the denial", move_after(At(EVALUATED, 1), At(DENIED))),
    Broken(6, "busy", "approved by a snapshot that denies", other_snapshot(APPROVED, decision="deny")),
    Broken(6, "busy", "denied by a snapshot that allows", other_snapshot(DENIED, decision="allow")),
    Broken(6, "busy", "a snapshot without its opinions", other_snapshot(APPROVED, sources=[])),
    Broken(6, "busy", "completed under another policy", other_snapshot(OVER, permission_mode="yolo")),
    Broken(6, "busy", "approved although the answer was no", answer_otherwise),
    Broken(6, "busy", "approved while the question is open", drop_answer),
    Broken(6, "busy", "approved although an opinion denies", approved_against_an_opinion),
    Broken(6, "granted", "a grant that was given only once", edit_seen(At(ANSWERED), GRANTED, scope="once")),
    Broken(6, "granted", "a grant that was taken back", move(REVOKED, GRANTED, GRANTED)),
    Broken(6, "granted", "taken back twice", repeat(REVOKED)),
    Broken(6, "changed", "decided under a mode that did not hold", drop(SET, At(APPROVED, 1))),
    Broken(3, "busy", "a supplement inside of a task", supplement("user", inside="task_x")),
    Broken(3, "busy", "a supplement about a task that there was not", supplement("user", "task_x")),
    Broken(9, "busy", "a supplement of a runtime's", supplement("runtime")),
    Broken(9, "busy", "suggestions that nobody asked for", insert(At(DONE), suggested)),
    Broken(3, "changed", "settings that change inside of a task", edit(SET, task_id="task_x")),
    Broken(4, "changed", "undone while a task runs", move(UNDONE, At(DONE))),
    Broken(4, "changed", "undone inside of a task", edit(UNDONE, task_id="task_x")),
    Broken(5, "changed", "undone what nobody did", edit(UNDONE, restored=[NOBODYS_FILE])),
    Broken(7, "stopped", "stopped although nobody asked", drop(STOP, At("task.stopped"))),
    Broken(7, "stopped", "another end than stopped", fail),
    Broken(7, "stopped", "asked to stop twice", repeat(STOP)),
    Broken(3, "busy", "a stop of no task", insert(At(DONE, 2), stop_of_nothing)),
    Broken(8, "interrupted", "a stop after the crash", insert(CRASH, stop_in_task)),
    Broken(7, "stopped", "a question after the stop", move(STOP, At(ASKED, 2), At(ASKED, 2))),
    Broken(
        7, "stopped", "a grant after the stop", move(STOP, At(ANSWERED, 1, GRANT), At(ANSWERED, 1, GRANT))
    ),
    Broken(7, "stopped", "an approval after the stop", move(STOP, At(APPROVED, 2), At(APPROVED, 2))),
    Broken(7, "stopped", "a call that ran after the stop", edit(At(OVER), is_error=False)),
    Broken(7, "stopped", "output of a call that must not run", insert(At(RUN, 2), output_of)),
    Broken(7, "stopped", "a question is left open", drop(At(ANSWERED, 2), At(DENIED))),
    Broken(7, "stopped", "a message is left open", drop(At(MESSAGE), At("task.stopped"))),
    Broken(7, "failed", "a message is left open by a failure", drop(At(MESSAGE), At("task.failed"))),
    Broken(7, "busy", "a message is completed twice", repeat(At(MESSAGE))),
    Broken(7, "busy", "a delta after the message", insert(At(MESSAGE), late_words)),
    Broken(8, "interrupted", "closed without a recovery", drop(CRASH, At(DENIED))),
    Broken(8, "interrupted", "a recovery with a task_id", edit(CRASH, task_id="task_x")),
    Broken(8, "interrupted", "another task is recovered", recover_another),
    Broken(8, "interrupted", "recovered twice", repeat(CRASH)),
    Broken(8, "interrupted", "other calls were open", edit(CRASH, open_calls=[])),
    Broken(8, "interrupted", "another cause", edit_seen(CRASH, At("task.failed"), cause="STORAGE_FAILED")),
    Broken(8, "busy", "recovered when nothing was open", recover_the_ended),
    Broken(8, "busy", "a task is given up that never was", give_up_another),
    Broken(6, "busy", "a decision has words of its own", edit(At("approval.answered"), answer="yes")),
    Broken(8, "interrupted", "an open question is simply denied", edit(At(DENIED), carried=False)),
    Broken(8, "busy", "carried without a crash", edit(At(DENIED), carried=True)),
    Broken(8, "interrupted", "the end of a lost call is known", edit(At(OVER), outcome="known")),
    Broken(8, "interrupted", "a lost call is a success", edit(At(OVER), is_error=False)),
    Broken(8, "interrupted", "a call that never ran is lost", edit(At(OVER, 1), outcome="unknown")),
    Broken(8, "stopped", "lost, but no error", edit(At(OVER, 2), outcome="unknown", is_error=False)),
    Broken(8, "busy", "goes on although a call was given up", give_up_a_call),
    Broken(8, "interrupted", "not worth a retry", interrupted_differently),
    Broken(8, "interrupted", "goes on after the crash", insert(CRASH, delta_like)),
    Broken(8, "interrupted", "the question is lost", drop(At(CARRIED), END)),
    Broken(8, "interrupted", "the question has a task_id", edit(At(CARRIED), task_id="task_x")),
    Broken(8, "interrupted", "another question is carried", edit(At(CARRIED), input_hash=OTHER_HASH)),
    Broken(8, "interrupted", "a question that nobody asked", edit(At(CARRIED), approval_id="apr_x")),
    Broken(8, "resumed", "a carried question is answered twice", repeat(At(ANSWERED, 2))),
    Broken(8, "busy", "asked twice", repeat(At(ASKED))),
    Broken(8, "busy", "an answer without a question", drop_question),
    Broken(8, "busy", "an answer to what was answered", repeat(At(ANSWERED))),
    Broken(
        8, "resumed", "resumes a task that never was", edit(At(STARTED, 1), resumes=Resumes(task_id="task_x"))
    ),
    Broken(9, "busy", "another text", edit(At(DONE), text="invented")),
    Broken(9, "busy", "another sum", edit(At(DONE), usage=UsageTotals(input=1))),
    Broken(9, "busy", "negative usage", edit(At("usage.reported"), output=-1)),
    Broken(9, "busy", "absurd usage", edit(At("usage.reported"), input=10**12)),
    Broken(9, "busy", "usage that nobody asked a model for", edit(At("usage.reported"), source="gateway")),
    Broken(9, "busy", "usage that is not in the sum", drop(At("usage.reported"), At(DONE))),
    Broken(9, "busy", "another duration of the task", edit(At(DONE), duration_ms=10**6)),
    Broken(9, "busy", "another duration of a call", edit(At(OVER), duration_ms=10**6)),
    Broken(9, "busy", "other messages than were queued", edit(At(STARTED, 1), messages=[user("else")])),
    Broken(9, "stopped", "another reason to stop", edit(At("task.stopped"), reason="because")),
    Broken(9, "busy", "a result that nobody asked for", edit(At(DONE), data={"n": 1})),
    Broken(9, "answered", "no result", edit(At(DONE), data=None)),
    Broken(9, "answered", "a result that was replaced", edit(At(DONE), data={"n": 6})),
    Broken(9, "answered", "a result of another task", edit(At(DONE, 1), data={"n": 7})),
    Broken(
        9, "answered", "a result that was not accepted", edit_seen(At(OVER, 2), At(DONE, 1), is_error=True)
    ),
    Broken(9, "answered", "a result that does not fit", fit_less),
    Broken(9, "answered", "another schema than was queued", edit(At(STARTED, 1), output_schema=None)),
    Broken(9, "answered", "the engine asks for what is not owed", edit(At(STEERED), by=Actor(kind="user"))),
    Broken(9, "natively", "a result that is not the answer", edit(At(DONE), data={"n": 8})),
    Broken(9, "natively", "an answer that is no result", say_otherwise),
]


def leave_out(events: list[Event]) -> int:
    place = find(events, APPROVED)
    del events[place]
    return events[place].seq


def store_twice(events: list[Event]) -> int:
    place = find(events, APPROVED)
    events.insert(place + 1, events[place])
    return events[place].seq


RAW: list[tuple[str, Callable[[list[Event]], int]]] = [
    ("a seq is missing", leave_out),
    ("a seq is repeated", store_twice),
]
"""Faults of invariant 2 that renumbering would heal. They return the seq at which they show."""
