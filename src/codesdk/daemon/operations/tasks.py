"""Operations on the work in a session: tasks, and the answers to what they ask."""

from codesdk.contract.api import (
    Approving,
    Denying,
    Ending,
    NewTask,
    Resuming,
    Steering,
    Words,
)
from codesdk.contract.messages import Message, user
from codesdk.contract.records import TaskRow
from codesdk.daemon.operations.operation import Call, Operation
from codesdk.daemon.permits import check_work
from codesdk.engine import revoke

_STOPPED = "stopped by the user"


async def start_task(call: Call) -> TaskRow:
    """Start a task."""
    wanted, live = call.wants(NewTask), await call.live()
    call.refuse_late()
    check_work(call, live)
    call.take_task(live.state.runtime_name)
    task_id = await call.sdk.engine.start(
        live, _messages(wanted.message), on_busy=wanted.on_busy, task_id=wanted.task_id, key=call.key
    )
    return await _task(call, task_id)


async def resume_session(call: Call) -> TaskRow:
    """Go on after an interruption."""
    wanted, live = call.wants(Resuming), await call.live()
    messages = None if wanted.message is None else _messages(wanted.message)
    check_work(call, live)
    call.take_task(live.state.runtime_name)
    return await _task(call, await call.once(lambda key: call.sdk.engine.resume(live, messages, key)))


async def stop_task(call: Call) -> TaskRow:
    """Stop a task that runs or waits."""
    row = await _task(call, call.path["task_id"])
    live = await call.sdk.engine.session(row.session_id, principal=call.caller.principal)
    reason = call.wants(Ending).reason or _STOPPED
    await call.once(lambda key: live.stop(row.task_id, call.by, reason, key))
    return await _task(call, row.task_id)


async def steer_task(call: Call) -> TaskRow:
    """Add input to the running task."""
    row, wanted = await _task(call, call.path["task_id"]), call.wants(Steering)
    live = await call.sdk.engine.session(row.session_id, principal=call.caller.principal)
    await call.once(lambda key: live.steer(_messages(wanted.message), key, task_id=row.task_id))
    return await _task(call, row.task_id)


async def approve_call(call: Call) -> None:
    """Let a waiting tool call run, or raise a budget."""
    wanted, live, name = call.wants(Approving), await call.live(), call.path["tool_call_id"]
    await call.once(
        lambda key: live.answer(
            name,
            "approve",
            by=call.by,
            scope=wanted.scope,
            reason=wanted.reason,
            attempt=wanted.attempt,
            input_hash=wanted.input_hash,
            key=key,
        )
    )


async def deny_call(call: Call) -> None:
    """Refuse a waiting tool call."""
    wanted, live, name = call.wants(Denying), await call.live(), call.path["tool_call_id"]
    await call.once(
        lambda key: live.answer(
            name,
            "deny",
            by=call.by,
            reason=wanted.reason,
            attempt=wanted.attempt,
            input_hash=wanted.input_hash,
            key=key,
        )
    )


async def revoke_grant(call: Call) -> None:
    """Ask about a tool again."""
    live = await call.live()
    await call.once(lambda key: revoke(live, call.path["tool"], call.by, key))


async def _task(call: Call, task_id: str) -> TaskRow:
    return await call.sdk.archive.task(task_id, principal=call.caller.principal)


def _messages(words: Words) -> list[Message]:
    return [user(words)] if isinstance(words, str) else words


OPERATIONS = (
    Operation(
        name="startTask",
        method="POST",
        path="/v1/sessions/{session_id}/tasks",
        scope="run",
        summary="Start a task, or queue it",
        run=start_task,
        body=NewTask,
        answer=TaskRow,
        status=202,
        group="tasks",
    ),
    Operation(
        name="resumeSession",
        method="POST",
        path="/v1/sessions/{session_id}/resume",
        scope="run",
        summary="Go on after an interruption, running first what was approved meanwhile",
        run=resume_session,
        body=Resuming,
        answer=TaskRow,
        status=202,
    ),
    Operation(
        name="stopTask",
        method="POST",
        path="/v1/tasks/{task_id}/stop",
        scope="run",
        summary="Stop a task that runs or waits",
        run=stop_task,
        body=Ending,
        answer=TaskRow,
        status=202,
        group="tasks",
    ),
    Operation(
        name="steerTask",
        method="POST",
        path="/v1/tasks/{task_id}/steer",
        scope="run",
        summary="Add input to the running task",
        run=steer_task,
        body=Steering,
        answer=TaskRow,
        status=202,
        group="tasks",
    ),
    Operation(
        name="approveCall",
        method="POST",
        path="/v1/sessions/{session_id}/calls/{tool_call_id}/approve",
        scope="approve",
        summary="Let a waiting tool call run, once or for the session; or raise a budget",
        run=approve_call,
        body=Approving,
        status=204,
        group="approvals",
    ),
    Operation(
        name="denyCall",
        method="POST",
        path="/v1/sessions/{session_id}/calls/{tool_call_id}/deny",
        scope="approve",
        summary="Refuse a waiting tool call",
        run=deny_call,
        body=Denying,
        status=204,
        group="approvals",
    ),
    Operation(
        name="revokeGrant",
        method="DELETE",
        path="/v1/sessions/{session_id}/grants/{tool}",
        scope="approve",
        summary="Ask about a tool again that was approved for the session",
        run=revoke_grant,
        status=204,
        group="approvals",
    ),
)
