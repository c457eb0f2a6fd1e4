"""Decides which events follow from what happens to sessions and tasks, and writes them through a journal. Pure.

Each function takes one thing that happened and writes all events that follow from it, without an await.
Replay calls the same functions.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.capabilities import McpTransport, OutputWay
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import ArtifactRef, AssistantBlock, Code, Message, Reasoning, Text, user
from codesdk.contract.runtime import DraftPayload, Runtime
from codesdk.contract.tools import Actor
from codesdk.engine.calls import ledger
from codesdk.engine.log.acting import acting_for
from codesdk.engine.log.clock import millis
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import ActiveTask, Answer, OpenBlock
from codesdk.engine.tasks.answers import asking

ENGINE = Actor(kind="engine")
STOP_REASON = "the task was stopped"
_OF_MESSAGES = (ev.OutputDelta, ev.OutputCompleted)

Ending = ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped


def create(journal: Journal, payload: ev.SessionCreated) -> None:
    """Open the session's log."""
    journal.state.runtime_name = payload.runtime
    journal.state.model = payload.model
    journal.write(payload, in_task=False)


def resume_from_transcript(
    journal: Journal,
    runtime: str,
    mcp_transport: McpTransport | None,
    *,
    lost: list[str],
    runtime_config: dict[str, Any] | None = None,
) -> None:
    """Continue the session from its transcript, with another runtime, which may know fewer options."""
    journal.write(
        ev.SessionResumed(
            resume_model="reconstruct",
            from_seq=journal.state.seq,
            runtime=runtime,
            lost=lost,
            mcp_transport=mcp_transport,
            runtime_config=runtime_config,
        ),
        in_task=False,
    )


def resumed(
    journal: Journal, native: bool | None, mcp_transport: McpTransport | None, runtime: Runtime
) -> None:
    """Record how a session went on after an interruption, now that its runtime has begun.

    `native` says whether the runtime went on with its own copy of the conversation; None if it keeps none.
    """
    task = _running(journal)
    kept = ["reasoning", f"what {runtime.name} kept of the conversation on its own"]
    payload = ev.SessionResumed(
        resume_model="native" if native else "reconstruct",
        from_seq=task.started_seq - 1,
        runtime=journal.state.runtime_name,
        lost=kept if native is False else [],
        mcp_transport=mcp_transport,
        by=task.resumed_by,
    )
    with acting_for(task.sender):  # the request that resumed it is the one that the task came from
        journal.write(payload, in_task=False)


def close(journal: Journal, reason: str) -> None:
    """End the session, and with it the questions that a crash left open."""
    for carried in [entry for entry in journal.state.carried if entry.approved is None]:
        ledger.answer_question(journal, carried.approval_id, "deny", ENGINE, "The session was closed.")
    journal.write(ev.SessionClosed(reason=reason), in_task=False)


def start(
    journal: Journal,
    task_id: str,
    messages: list[Message],
    runtime_config: dict[str, Any],
    *,
    executed: bool = True,
    resumes: ev.Resumes | None = None,
    summarizes_before: int | None = None,
    output_schema: dict[str, Any] | None = None,
    output_way: OutputWay | None = None,
) -> None:
    """Start a task, and ask for the result if it is given with a tool. The session must have no running task."""
    if executed and journal.state.next_model is not None:
        journal.identify(journal.state.next_model, None)
    journal.write(
        ev.TaskStarted(
            messages=messages,
            runtime_config=runtime_config,
            executed=executed,
            resumes=resumes,
            summarizes_before=summarizes_before,
            output_schema=output_schema,
            output_way=output_way,
        ),
        task_id=task_id,
    )
    if executed and output_schema is not None and output_way == "tool":
        journal.write(ev.TaskSteered(messages=[user(asking(output_schema))], by=ENGINE))


def ask_again(journal: Journal, words: str) -> None:
    """Ask for the result again, now that the runtime has ended its turn without it."""
    for message in cut_off(_running(journal)):
        journal.write(message)
    journal.write(ev.TaskSteered(messages=[user(words)], by=ENGINE))


def drop_queued(journal: Journal, task_id: str, by: Actor, reason: str) -> None:
    """End a queued task that never ran: write its start and its stop together."""
    waiting = next(entry for entry in journal.state.queue if entry.task_id == task_id)
    start(journal, task_id, waiting.messages, {}, executed=False, output_schema=waiting.output_schema)
    journal.write(
        ev.TaskStopped(reason=reason, by=by, usage=ev.UsageTotals(), duration_ms=0), task_id=task_id
    )


def draft(
    journal: Journal, payload: DraftPayload, raw: Any = None, raw_ref: ArtifactRef | None = None
) -> None:
    """Write an event that the runtime drafted, or a notice why it does not count."""
    task = journal.state.task
    if task is not None and not (
        isinstance(payload, _OF_MESSAGES) and payload.message_id in task.completed_messages
    ):
        journal.write(payload, raw=raw, raw_ref=raw_ref)
        return
    what = ev.TYPE_OF[type(payload)]
    if isinstance(payload, _OF_MESSAGES) and task is not None:
        notice(
            journal,
            "violation",
            f"The runtime sent {what} for message {payload.message_id}, which was already complete.",
            {"type": what, "message_id": payload.message_id},
            raw,
            raw_ref,
        )
    elif isinstance(payload, ev.UsageReported | ev.RuntimeNotice | ev.RequestCompleted):
        journal.write(payload, in_task=False, raw=raw, raw_ref=raw_ref)
    else:
        message = f"The runtime sent {what} after its task had ended; it does not count."
        notice(journal, "late_event", message, {"type": what}, raw, raw_ref)


def notice(
    journal: Journal,
    kind: str,
    message: str,
    details: dict[str, Any],
    raw: Any = None,
    raw_ref: ArtifactRef | None = None,
) -> None:
    """Write a notice about the session or its running task."""
    journal.write(ev.RuntimeNotice(kind=kind, message=message, details=details), raw=raw, raw_ref=raw_ref)


def ask_stop(journal: Journal, by: Actor, reason: str) -> None:
    """Record that the task must stop, and resolve every call that has not started. Once per task."""
    task = journal.state.task
    if task is None or task.stop is not None:
        return
    journal.write(ev.TaskStopRequested(reason=reason, by=by))
    ledger.close_questions(journal, STOP_REASON)
    # Running calls are left to their workers, which are cancelled and record how they end.
    for call in list(task.calls.values()):
        if call.phase == "waiting":
            ledger.refuse(journal, call, STOP_REASON)
        elif call.phase == "approved":
            ledger.skip(journal, call, f"Not run: {STOP_REASON}.")


def end(
    journal: Journal,
    *,
    stop_reason: str | None = None,
    error: ErrorInfo | None = None,
    raw: Any = None,
    raw_ref: ArtifactRef | None = None,
    answer: Answer | None = None,
) -> None:
    """Write the task's terminal event, after closing whatever still streams. `answer` is the result that it owes.

    A requested stop wins over the runtime's own ending, whose message is kept. Every call must be closed.
    """
    task = _running(journal)
    ledger.close_questions(journal, "the task ended")
    now = _close_streams(journal, task)
    totals: Any = {"usage": task.usage, "duration_ms": _duration_ms(task, now), "work": work_of(task)}
    ending: Ending
    if task.stop is not None:
        ending = ev.TaskStopped(reason=task.stop.reason, by=task.stop.by, **totals)
    elif error is not None:
        ending = ev.TaskFailed(error=error, **totals)
    else:
        given = answer or Answer()
        ending = ev.TaskCompleted(
            text=task.text,
            stop_reason=stop_reason or "end_turn",
            data=given.data,
            data_ref=given.data_ref,
            **totals,
        )
    journal.write(ending, time=now, raw=raw, raw_ref=raw_ref)


_CRASHED = ErrorInfo(
    code="INTERRUPTED",
    message="The process ended while this task ran. Resume the session to continue.",
    retryable=True,
)
_UNSTORED = ErrorInfo(
    code="STORAGE_FAILED",
    message="The data directory could not be written while this task ran. Make room, then resume the session.",
    retryable=True,
)


_SHUT_DOWN = ErrorInfo(
    code="INTERRUPTED",
    message="CodeSDK was shut down while this task ran. It continues by itself at the next start.",
    retryable=True,
)
_CAUSES: dict[ev.RecoveryCause, ErrorInfo] = {
    "INTERRUPTED": _CRASHED,
    "STORAGE_FAILED": _UNSTORED,
    "SHUTDOWN": _SHUT_DOWN,
}


def recover(journal: Journal, inputs: dict[str, ArtifactRef], cause: ev.RecoveryCause) -> None:
    """Close a task that a crash, a log that could not be written or a shutdown left open.

    `inputs` names the stored input of each waiting call.
    """
    task = _running(journal)
    journal.write(
        ev.SessionRecovered(task_id=task.task_id, cause=cause, open_calls=sorted(task.calls)),
        in_task=False,
    )
    ledger.close_questions(journal, "the process ended")
    carried: list[ev.ApprovalCarried] = []
    for call in list(task.calls.values()):
        if call.phase == "waiting":
            carried.extend(ledger.carry(journal, call, inputs))
        elif call.phase == "approved":
            ledger.skip(journal, call, "Not run: the process ended before it started.")
        else:
            ledger.lose(
                journal, call, "The process ended while this ran; whether it took effect is not known."
            )
    now = _close_streams(journal, task)
    error, duration = _CAUSES[cause], _duration_ms(task, now)
    work = work_of(task)
    journal.write(ev.TaskFailed(error=error, usage=task.usage, duration_ms=duration, work=work), time=now)
    # After the terminal event: these questions belong to the session now, not to the task.
    for payload in carried:
        journal.write(payload, in_task=False)


def work_of(task: ActiveTask) -> ev.WorkTotals:
    """Return what the calls of a task came to so far."""
    if not task.changed:
        return task.work
    listed = list(islice(task.changed.values(), ev.MAX_LISTED))
    return msgspec.structs.replace(task.work, changed=len(task.changed), changes=listed)


def _running(journal: Journal) -> ActiveTask:
    task = journal.state.task
    if task is None:
        raise ValueError(f"session {journal.state.session_id} has no running task")
    return task


def cut_off(task: ActiveTask) -> list[ev.OutputCompleted]:
    """Return the messages that still stream, as they are recorded if their task ends now."""
    by_message: dict[str, list[OpenBlock]] = {}
    for block in task.blocks.values():
        by_message.setdefault(block.message_id, []).append(block)
    return [
        ev.OutputCompleted(
            message_id=message_id,
            content=[made for block in blocks for made in _content(block)],
            partial=True,
        )
        for message_id, blocks in by_message.items()
    ]


def _close_streams(journal: Journal, task: ActiveTask) -> str:
    """Write the messages that still stream. Return the time at which the task ends."""
    for message in cut_off(task):
        journal.write(message)
    return journal.now()


def _content(block: OpenBlock) -> Sequence[AssistantBlock]:
    text = "".join(block.chunks)
    if block.kind == "reasoning_delta":
        return [Reasoning(text=text)]
    if block.kind == "code_delta":
        return [Code(code=text, language=block.language)]
    if block.kind == "json_delta":
        return []  # the arguments of a call, which has an event of its own
    return [Text(text=text)]


def _duration_ms(task: ActiveTask, now: str) -> int:
    return max(0, millis(now) - millis(task.started_at))
