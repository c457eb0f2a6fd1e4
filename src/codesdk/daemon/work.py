"""Operations that change something: sessions, tasks and the answers to what they ask."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from codesdk.contract.api import (
    Approving,
    Denying,
    Ending,
    Equipment,
    Forking,
    Moving,
    NewSession,
    NewTask,
    Resuming,
    Steering,
    Undoing,
    Words,
)
from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.messages import Message, user
from codesdk.contract.records import KeyRow, SessionRow, TaskRow
from codesdk.contract.tools import UndoReport
from codesdk.daemon.operations import Call, Operation
from codesdk.daemon.problems import shutting_down
from codesdk.daemon.reading import get_session
from codesdk.engine.grants import revoke
from codesdk.engine.undo import undo
from codesdk.runtimes.registry import resolve

if TYPE_CHECKING:
    from codesdk.gateway.cassette import Exchange
    from codesdk.script import Script
    from codesdk.tools.mcp.servers import McpServer

_STOPPED = "stopped by the user"
_CLOSED = "closed by the user"


async def create_session(call: Call) -> SessionRow:
    """Create a session."""
    wanted = call.wants(NewSession)
    _refuse_late(call)
    runtime, workspace = _permitted(call, wanted.runtime, wanted.workspace, wanted.native_tools)
    session = await call.sdk.create_session(
        runtime=runtime,
        workspace=workspace,
        permission_mode=wanted.permission_mode,
        interaction_mode=wanted.interaction_mode,
        native_tools=wanted.native_tools,
        title=wanted.title,
        model=wanted.model,
        budgets=wanted.budgets,
        settings=wanted.settings,
        plays=_script(wanted) if wanted.recording is None else await _cassette(call, wanted.recording),
        mcp_servers=await _servers(call, wanted),
        secrets=wanted.secrets,
        idempotency_key=call.key,
    )
    return await session.info()


async def equip_session(call: Call) -> SessionRow:
    """Give a session again what is not stored with it."""
    wanted, session_id = call.wants(Equipment), call.path["session_id"]
    plays, servers = _script(wanted), await _servers(call, wanted)
    await get_session(call)

    async def equip(_: KeyRow | None) -> None:
        await call.sdk.session(session_id, secrets=wanted.secrets, plays=plays, mcp_servers=servers)

    await call.once(equip, passing=True)
    return await get_session(call)


async def fork_session(call: Call) -> SessionRow:
    """Create a session that starts from another's transcript."""
    wanted, engine, principal = call.wants(Forking), call.sdk.engine, call.caller.principal
    state = (await call.live()).state
    _permitted(call, state.runtime_name, state.config.workspace, state.config.native_tools)

    async def fork(key: KeyRow | None) -> str:
        source = call.path["session_id"]
        live = await engine.fork(source, wanted.seq, principal=principal, title=wanted.title, key=key)
        return live.session_id

    return await engine.archive.session(await call.once(fork), principal=principal)


async def resume_session(call: Call) -> TaskRow:
    """Go on after an interruption."""
    wanted, live = call.wants(Resuming), await call.live()
    messages = None if wanted.message is None else _messages(wanted.message)
    call.take_task(live.state.runtime_name)
    return await _task(call, await call.once(lambda key: call.sdk.engine.resume(live, messages, key)))


async def move_session(call: Call) -> SessionRow:
    """Go on with another runtime."""
    wanted, live = call.wants(Moving), await call.live()
    config = live.state.config
    runtime, _ = _permitted(call, wanted.runtime, config.workspace, config.native_tools)
    await call.once(lambda key: live.move(runtime, wanted.model, key))
    return await call.sdk.archive.session(live.session_id, principal=call.caller.principal)


async def close_session(call: Call) -> SessionRow:
    """End a session; its log stays."""
    session_id, principal = call.path["session_id"], call.caller.principal
    reason = call.wants(Ending).reason or _CLOSED
    await call.once(
        lambda key: call.sdk.engine.close_session(session_id, reason, principal=principal, key=key)
    )
    return await call.sdk.archive.session(session_id, principal=principal)


async def delete_session(call: Call) -> None:
    """Remove a session and everything stored of it."""
    await call.sdk.delete_session(call.path["session_id"])


async def undo_changes(call: Call) -> UndoReport:
    """Put files back as they were before tools changed them."""
    live, tool_call_id = await call.live(), call.wants(Undoing).tool_call_id

    async def act(key: KeyRow | None) -> str:
        return msgspec.json.encode(await undo(live, call.by, tool_call_id, key)).decode()

    return msgspec.json.decode(await call.once(act), type=UndoReport)


async def start_task(call: Call) -> TaskRow:
    """Start a task."""
    wanted, live = call.wants(NewTask), await call.live()
    _refuse_late(call)
    call.take_task(live.state.runtime_name)
    task_id = await call.sdk.engine.start(
        live, _messages(wanted.message), on_busy=wanted.on_busy, task_id=wanted.task_id, key=call.key
    )
    return await _task(call, task_id)


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


def _refuse_late(call: Call) -> None:
    if call.draining:
        raise shutting_down()


def _permitted(
    call: Call, runtime: str, workspace: str, native_tools: Literal["off"] | list[str]
) -> tuple[str, str]:
    """Check what a session is to be of, whether it is new, forked or moved. Return its runtime and workspace in full."""
    if native_tools != "off":
        call.demand("admin", "A session with native_tools")
    return _allowed(call, runtime), _workspace(call, workspace)


def _allowed(call: Call, runtime: str) -> str:
    """Return the full name of a runtime that the operator lets sessions use."""
    name = resolve(runtime)
    allowed = call.settings.runtimes
    if allowed and name not in allowed:
        raise Forbidden(f"The runtime {name} is not enabled here. Enabled: {', '.join(allowed)}.")
    return name


def _workspace(call: Call, given: str) -> str:
    """Return a workspace that the operator lets sessions use, with all links followed."""
    try:
        path = Path(given)
        if not path.is_absolute():
            raise InvalidRequest("The workspace must be an absolute path on the daemon's machine.")
        found = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidRequest(f"The workspace cannot be used ({type(error).__name__}).") from error
    roots = [Path(root).resolve() for root in call.settings.workspace_roots]
    if roots and not any(found.is_relative_to(root) for root in roots):
        raise Forbidden("The workspace is outside of the directories that the operator allows.")
    return str(found)


def _script(wanted: Equipment) -> "Script | None":
    if wanted.script is None:
        return None
    from codesdk.script import parse_object

    return parse_object(wanted.script, "script")


async def _cassette(call: Call, session_id: str) -> "list[Exchange]":
    """Return what a session of the caller recorded."""
    from codesdk.gateway.tapes import session_cassette

    await call.sdk.archive.session(session_id, principal=call.caller.principal)
    return await session_cassette(call.sdk.archive, session_id)


async def _servers(call: Call, wanted: Equipment) -> "Mapping[str, McpServer] | None":
    if not wanted.mcp_servers:
        return None
    call.demand("admin", "A session with mcp_servers")
    from codesdk.tools.mcp.servers import McpServer, check

    try:
        servers: dict[str, Any] = msgspec.convert(wanted.mcp_servers, type=dict[str, McpServer])
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"mcp_servers: {error}.") from None
    check(servers)
    return servers


OPERATIONS = (
    Operation(
        name="createSession",
        method="POST",
        path="/v1/sessions",
        scope="run",
        summary="Create a session of a runtime on a workspace directory",
        run=create_session,
        body=NewSession,
        answer=SessionRow,
        status=201,
    ),
    Operation(
        name="equipSession",
        method="POST",
        path="/v1/sessions/{session_id}/equipment",
        scope="run",
        summary="Give a session again what is not stored with it: secrets, a script, MCP servers",
        run=equip_session,
        body=Equipment,
        answer=SessionRow,
    ),
    Operation(
        name="forkSession",
        method="POST",
        path="/v1/sessions/{session_id}/fork",
        scope="run",
        summary="Create a session that starts from this one's transcript",
        run=fork_session,
        body=Forking,
        answer=SessionRow,
        status=201,
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
        name="moveSession",
        method="POST",
        path="/v1/sessions/{session_id}/move",
        scope="run",
        summary="Go on with another runtime, from the transcript",
        run=move_session,
        body=Moving,
        answer=SessionRow,
    ),
    Operation(
        name="closeSession",
        method="POST",
        path="/v1/sessions/{session_id}/close",
        scope="run",
        summary="End a session; its log stays",
        run=close_session,
        body=Ending,
        answer=SessionRow,
    ),
    Operation(
        name="deleteSession",
        method="DELETE",
        path="/v1/sessions/{session_id}",
        scope="run",
        summary="Remove a session and everything stored of it",
        run=delete_session,
        status=204,
    ),
    Operation(
        name="undoChanges",
        method="POST",
        path="/v1/sessions/{session_id}/undo",
        scope="run",
        summary="Put files back as they were before tools changed them",
        run=undo_changes,
        body=Undoing,
        answer=UndoReport,
    ),
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
