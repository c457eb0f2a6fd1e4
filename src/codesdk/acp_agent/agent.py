"""An editor's requests → what CodeSDK does: one `EditorAgent` for each connection.

It holds the sessions that the editor has open (`attachment`) and releases them when the connection ends. What runs
then continues.
"""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    CancelNotification,
    ClientCapabilities,
    CloseSessionRequest,
    DeleteSessionRequest,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
)
from pydantic import BaseModel

from codesdk import __version__
from codesdk.acp_agent.attachment import Attachment
from codesdk.acp_agent.channel import Channel
from codesdk.acp_agent.errors import INVALID_PARAMS
from codesdk.acp_agent.files import AttachedFiles, Lending
from codesdk.acp_agent.options import Options
from codesdk.acp_agent.peer import Peer, Reply, Route
from codesdk.acp_agent.place import Client, Offer, Place
from codesdk.acp_agent.requests import Choose, Fork, Initialize, Load, New, Resume
from codesdk.acp_agent.servers import GivenServer, servers_of
from codesdk.contract.actions import CreateSession, DeleteSession, EquipSession, ForkSession
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.records import SessionRow
from codesdk.contract.service import SessionService
from codesdk.contract.tools import PermissionMode
from codesdk.contract.validation import read_as

PAGE = 50
STOP_S = 10.0
"""How long a session that is closed waits for the end of what was stopped."""
_SEARCHED = 1000
"""How many sessions are looked at for one page of those in a directory."""

M = TypeVar("M", bound=BaseModel)


class Wishes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `_meta.codesdk` of `session/new` may ask for, in place of what the agent was started with."""

    runtime: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    title: str | None = None
    runtime_config: dict[str, Any] | None = None
    script: dict[str, Any] | None = None

    @classmethod
    def of(cls, meta: dict[str, Any] | None) -> "Wishes":
        """Return the wishes among an editor's own fields."""
        return read_as(cls, (meta or {}).get("codesdk", {}), "_meta.codesdk")


class EditorAgent:
    """CodeSDK, as one editor talks to it."""

    def __init__(self, channel: Channel, place: Place, offer: Offer) -> None:
        self._place = place
        self._offer = offer
        self._options = Options(offer, place.modes)
        self._connection = secrets.token_hex(3)
        self._service: SessionService | None = None
        self._has_forms = False
        self._capabilities: ClientCapabilities | None = None
        self._attached: dict[str, Attachment] = {}
        method = AGENT_METHODS
        self._peer = Peer(
            channel,
            {
                method["initialize"]: Route(Initialize, self._initialize),
                method["session_new"]: Route(New, self._known(self._new)),
                method["session_load"]: Route(Load, self._known(self._load)),
                method["session_resume"]: Route(Resume, self._known(self._resume)),
                method["session_fork"]: Route(Fork, self._known(self._fork)),
                method["session_list"]: Route(ListSessionsRequest, self._known(self._list)),
                method["session_close"]: Route(CloseSessionRequest, self._known(self._close)),
                method["session_delete"]: Route(DeleteSessionRequest, self._known(self._delete)),
                method["session_prompt"]: Route(PromptRequest, self._known(self._prompt)),
                method["session_set_mode"]: Route(SetSessionModeRequest, self._known(self._set_mode)),
                method["session_set_config_option"]: Route(Choose, self._known(self._choose)),
            },
            {method["session_cancel"]: Route(CancelNotification, self._known(self._cancel))},
        )

    async def run(self) -> None:
        """Serve the editor until it hangs up."""
        try:
            await self._peer.run()
        finally:
            for attachment in list(self._attached.values()):
                await attachment.close()

    def _known(
        self, handle: Callable[[SessionService, M], Awaitable[Reply | None]]
    ) -> Callable[[M], Awaitable[Reply | None]]:
        """Return a handler that refuses an editor that has not said who it is."""

        async def handled(request: M) -> Reply | None:
            if self._service is None:
                raise RequestError(-32600, "Call initialize first.")
            return await handle(self._service, request)

        return handled

    async def _initialize(self, request: Initialize) -> Reply:
        client = Client.of(request.client_info and request.client_info.name, self._connection)
        self._service = self._place.service(client)
        capabilities = self._capabilities = request.client_capabilities
        self._has_forms = bool(
            capabilities and capabilities.elicitation and capabilities.elicitation.form is not None
        )
        return Reply(
            InitializeResponse(
                protocol_version=PROTOCOL_VERSION,
                agent_capabilities=AgentCapabilities(
                    load_session=True,
                    prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                    mcp_capabilities=McpCapabilities(http=True, sse=False),
                    session_capabilities=SessionCapabilities(
                        list=SessionListCapabilities(),
                        delete=SessionDeleteCapabilities(),
                        fork=SessionForkCapabilities(),
                        resume=SessionResumeCapabilities(),
                        close=SessionCloseCapabilities(),
                    ),
                ),
                auth_methods=[],
                agent_info=Implementation(name="codesdk", title="CodeSDK", version=__version__),
            )
        )

    # --- sessions ---------------------------------------------------------------------------------------

    async def _new(self, service: SessionService, request: New) -> Reply:
        offer, wishes = self._offer, Wishes.of(request.field_meta)
        settings = offer.settings
        if wishes.runtime_config is not None:
            settings = msgspec.structs.replace(settings, runtime_config=wishes.runtime_config)
        script = offer.script if wishes.script is None else wishes.script
        if script is not None:
            settings = msgspec.structs.replace(settings, gateway="scripted")
        row = await service.execute(
            CreateSession(
                runtime=wishes.runtime or next(iter(offer.runtimes), None),
                workspace=request.cwd,
                permission_mode=wishes.permission_mode or offer.mode,
                model=wishes.model or next(iter(offer.models), None),
                title=wishes.title,
                settings=settings,
                script=script,
                mcp_servers=servers_of(request.mcp_servers),
            )
        )
        attachment = await self._attach(service, row, replay=False)
        return Reply(
            NewSessionResponse(session_id=row.session_id, **self._state(attachment)), attachment.greet
        )

    async def _load(self, service: SessionService, request: Load) -> Reply:
        attachment = await self._reopen(service, request, replay=True)
        return Reply(LoadSessionResponse(**self._state(attachment)), attachment.greet)

    async def _resume(self, service: SessionService, request: Resume) -> Reply:
        attachment = await self._reopen(service, request, replay=False)
        return Reply(ResumeSessionResponse(**self._state(attachment)), attachment.greet)

    async def _fork(self, service: SessionService, request: Fork) -> Reply:
        row = await service.session(request.session_id)
        _check_place(row, request.cwd)
        new = await service.execute(ForkSession(session_id=request.session_id))
        await self._equip(service, new.session_id, request.mcp_servers)
        attachment = await self._attach(service, new, replay=False)
        return Reply(
            ForkSessionResponse(session_id=new.session_id, **self._state(attachment)), attachment.greet
        )

    async def _reopen(self, service: SessionService, request: Load | Resume, *, replay: bool) -> Attachment:
        row = await service.session(request.session_id)
        _check_place(row, request.cwd)
        await self._equip(service, request.session_id, request.mcp_servers)
        return await self._attach(service, row, replay=replay)

    async def _equip(self, service: SessionService, session_id: str, given: list[GivenServer] | None) -> None:
        if servers := servers_of(given):
            await service.execute(EquipSession(session_id=session_id, mcp_servers=servers))

    async def _attach(self, service: SessionService, row: SessionRow, *, replay: bool) -> Attachment:
        before = self._attached.pop(row.session_id, None)
        if before is not None:
            await before.close()
        files = AttachedFiles.offered(self._capabilities, row.session_id, row.workspace, self._peer)
        attachment = Attachment(
            row,
            service,
            self._peer,
            self._options,
            has_forms=self._has_forms,
            replay=replay,
            lending=Lending(self._place, files),
        )
        self._attached[row.session_id] = attachment
        await attachment.begin()
        return attachment

    async def _list(self, service: SessionService, request: ListSessionsRequest) -> Reply:
        if request.cwd is None:
            rows = await service.sessions(after=request.cursor, limit=PAGE)
            following = rows[-1].session_id if len(rows) == PAGE else None
        else:
            seen = await service.sessions(after=request.cursor, limit=_SEARCHED)
            wanted = _resolved(request.cwd)
            rows = [row for row in seen if row.workspace == wanted]
            following = seen[-1].session_id if len(seen) == _SEARCHED else None
            if len(rows) > PAGE:
                rows = rows[:PAGE]
                following = rows[-1].session_id
        found = [
            SessionInfo(
                session_id=row.session_id,
                cwd=row.workspace,
                title=row.title,
                updated_at=row.updated_at,
                field_meta={"codesdk": {"runtime": row.runtime, "status": row.status}},
            )
            for row in rows
        ]
        return Reply(ListSessionsResponse(sessions=found, next_cursor=following))

    async def _close(self, service: SessionService, request: CloseSessionRequest) -> None:
        """Release a session, after stopping what this editor started. It can be loaded again."""
        attachment = self._find(request.session_id)
        await attachment.cancel_own(wait_s=STOP_S)
        self._attached.pop(request.session_id, None)
        await attachment.close()

    async def _delete(self, service: SessionService, request: DeleteSessionRequest) -> None:
        await service.execute(DeleteSession(session_id=request.session_id))
        attachment = self._attached.pop(request.session_id, None)
        if attachment is not None:
            await attachment.close()

    # --- work in a session ------------------------------------------------------------------------------

    async def _prompt(self, service: SessionService, request: PromptRequest) -> Reply:
        return Reply(await self._find(request.session_id).prompt(request.prompt))

    async def _cancel(self, service: SessionService, request: CancelNotification) -> None:
        await self._find(request.session_id).cancel()

    async def _set_mode(self, service: SessionService, request: SetSessionModeRequest) -> None:
        await self._find(request.session_id).choose("mode", request.mode_id)

    async def _choose(self, service: SessionService, request: Choose) -> Reply:
        attachment = self._find(request.session_id)
        await attachment.choose(request.config_id, request.value)
        return Reply(SetSessionConfigOptionResponse(config_options=self._options.options(attachment.chosen)))

    # --- inside -----------------------------------------------------------------------------------------

    def _find(self, session_id: str) -> Attachment:
        attachment = self._attached.get(session_id)
        if attachment is None:
            raise RequestError(
                INVALID_PARAMS, "This session is not open here. Open it with session/new, load or resume."
            )
        return attachment

    def _state(self, attachment: Attachment) -> dict[str, Any]:
        return {
            "modes": self._options.modes(attachment.chosen),
            "config_options": self._options.options(attachment.chosen),
        }


def _check_place(row: SessionRow, cwd: str) -> None:
    if _resolved(cwd) != row.workspace:
        raise InvalidRequest(
            f"Session {row.session_id} works in {row.workspace}, and cannot be moved elsewhere."
        )


def _resolved(path: str) -> str:
    try:
        return str(Path(path).resolve()) if Path(path).is_absolute() else path
    except (OSError, RuntimeError, ValueError):
        return path
