"""Operations that change sessions: made, equipped, forked, moved, undone, closed, removed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract.api import (
    Ending,
    Equipment,
    Forking,
    Moving,
    NewSession,
    Undoing,
)
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.records import KeyRow, SessionRow
from codesdk.contract.tools import UndoReport
from codesdk.daemon.operations.operation import Call, Operation
from codesdk.daemon.operations.reading import get_session
from codesdk.daemon.permits import check_new
from codesdk.engine import undo

if TYPE_CHECKING:
    from codesdk.gateway import Exchange
    from codesdk.script import Script
    from codesdk.tools import McpServer

_CLOSED = "closed by the user"


async def create_session(call: Call) -> SessionRow:
    """Create a session."""
    wanted = call.wants(NewSession)
    call.refuse_late()
    runtime, workspace = check_new(call, wanted.runtime, wanted.workspace, wanted.native_tools)
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
    check_new(call, state.runtime_name, state.config.workspace, state.config.native_tools)

    async def fork(key: KeyRow | None) -> str:
        source = call.path["session_id"]
        live = await engine.fork(source, wanted.seq, principal=principal, title=wanted.title, key=key)
        return live.session_id

    return await engine.archive.session(await call.once(fork), principal=principal)


async def move_session(call: Call) -> SessionRow:
    """Go on with another runtime."""
    wanted, live = call.wants(Moving), await call.live()
    config = live.state.config
    runtime, _ = check_new(call, wanted.runtime, config.workspace, config.native_tools)
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


def _script(wanted: Equipment) -> "Script | None":
    if wanted.script is None:
        return None
    from codesdk.script import parse_object

    return parse_object(wanted.script, "script")


async def _cassette(call: Call, session_id: str) -> "list[Exchange]":
    """Return what a session of the caller recorded."""
    from codesdk.gateway import session_cassette

    await call.sdk.archive.session(session_id, principal=call.caller.principal)
    return await session_cassette(call.sdk.archive, session_id)


async def _servers(call: Call, wanted: Equipment) -> "Mapping[str, McpServer] | None":
    if not wanted.mcp_servers:
        return None
    call.demand("admin", "A session with mcp_servers")
    from codesdk.tools import McpServer, check

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
)
