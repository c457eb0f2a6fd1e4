"""Handles on sessions and tasks: an id → what an application can do with it, wherever the session lives.

Written once against `SessionService`: the engine of this process, a daemon, or the holder of a data directory.
Each verb builds its action and has it executed. `Handles` is what gives them out.
"""

import copy
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import msgspec
from msgspec import UNSET, UnsetType

from codesdk.contract import actions as act
from codesdk.contract.capabilities import IsolationLevel
from codesdk.contract.errors import Conflict, InvalidRequest, NotFound, TaskFailure
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import ApprovalRow, ArtifactRow, SessionRow, SessionStatus, TaskRow
from codesdk.contract.results import TaskResult, result_of
from codesdk.contract.sender import Sender
from codesdk.contract.service import SessionService
from codesdk.contract.settings import (
    AutoCompact,
    Budgets,
    CompactStrategy,
    GatewayMode,
    OnBusy,
    SessionSettings,
)
from codesdk.contract.tools import Grant, InteractionMode, PermissionMode, Scope, UndoReport

if TYPE_CHECKING:
    from codesdk.gateway import Source
    from codesdk.tools import McpServer

__all__ = ["Handles", "Session", "Task", "TaskResult"]


class Session:
    """A session by its id. Cheap to make; what is live is held by the service."""

    def __init__(self, service: SessionService, session_id: str) -> None:
        self.id = session_id
        self.service = service

    def traced(
        self, *, request_id: str | None = None, client_id: str | None = None, traceparent: str | None = None
    ) -> "Session":
        """Return the same session for requests with this id, from this client, in this trace.

        The events that they bring about carry the ids; a task that they start is a span of the trace. Over HTTP
        the client is known by its token and cannot be given.
        """
        sender = Sender(request_id=request_id, client_id=client_id, traceparent=traceparent)
        return Session(self.service.traced(sender), self.id)

    async def start(
        self,
        message: str | list[Message],
        *,
        on_busy: OnBusy = "queue",
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> "Task":
        """Start a task. While another one runs it is queued, or as `on_busy` says."""
        action = act.StartTask(session_id=self.id, message=message, on_busy=on_busy, task_id=task_id)
        row = await self.service.execute(action, key=idempotency_key)
        return Task(self, row.task_id)

    async def resume(
        self, message: str | list[Message] | None = None, *, idempotency_key: str | None = None
    ) -> "Task":
        """Go on after an interruption, running first what was approved meanwhile."""
        action = act.ResumeSession(session_id=self.id, message=message or None)
        row = await self.service.execute(action, key=idempotency_key)
        return Task(self, row.task_id)

    async def fork(
        self, seq: int | None = None, *, title: str | None = None, idempotency_key: str | None = None
    ) -> "Session":
        """Return a new session that starts from this one's transcript as it was at `seq`."""
        action = act.ForkSession(session_id=self.id, seq=seq, title=title)
        row = await self.service.execute(action, key=idempotency_key)
        return Session(self.service, row.session_id)

    async def approve(
        self,
        tool_call_id: str,
        *,
        reason: str | None = None,
        scope: Scope = "once",
        attempt: int | None = None,
        input_hash: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Let a waiting tool call run; with scope `session`, this tool is not asked about again."""
        action = act.ApproveCall(
            session_id=self.id,
            tool_call_id=tool_call_id,
            attempt=attempt,
            input_hash=input_hash,
            scope=scope,
            reason=reason,
        )
        await self.service.execute(action, key=idempotency_key)

    async def deny(
        self,
        tool_call_id: str,
        reason: str = "denied by the user",
        *,
        attempt: int | None = None,
        input_hash: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Refuse a waiting tool call. The reason is told to the model."""
        action = act.DenyCall(
            session_id=self.id,
            tool_call_id=tool_call_id,
            reason=reason,
            attempt=attempt,
            input_hash=input_hash,
        )
        await self.service.execute(action, key=idempotency_key)

    async def grants(self) -> list[Grant]:
        """Return what was approved for the whole session."""
        return await self.service.grants(self.id)

    async def revoke(self, tool: str, *, idempotency_key: str | None = None) -> None:
        """Ask about a tool again that was approved for the session."""
        await self.service.execute(act.RevokeGrant(session_id=self.id, tool=tool), key=idempotency_key)

    async def stop(
        self,
        reason: str = "stopped by the user",
        *,
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Stop the running task, or one that waits."""
        action = act.StopTask(session_id=self.id, task_id=task_id, reason=reason)
        await self.service.execute(action, key=idempotency_key)

    async def steer(
        self,
        message: str | list[Message],
        *,
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Add user input to the running task, where the runtime can take it."""
        action = act.SteerTask(session_id=self.id, message=message, task_id=task_id)
        await self.service.execute(action, key=idempotency_key)

    async def undo(
        self, tool_call_id: str | None = None, *, idempotency_key: str | None = None
    ) -> UndoReport:
        """Take back what one tool call did to files, or what all calls of the session did, the newest first.

        A call is undone as a whole, and only if its files are still as it left them. Raise `Conflict` if
        nothing could be undone, `Busy` while a task runs.
        """
        action = act.UndoChanges(session_id=self.id, tool_call_id=tool_call_id)
        return await self.service.execute(action, key=idempotency_key)

    async def set(
        self,
        *,
        title: str | UnsetType | None = UNSET,
        model: str | UnsetType = UNSET,
        permission_mode: PermissionMode | UnsetType = UNSET,
        budgets: Budgets | UnsetType | None = UNSET,
        approval_timeout_s: float | UnsetType = UNSET,
        stop_grace_s: float | UnsetType = UNSET,
        end_grace_s: float | UnsetType = UNSET,
        start_timeout_s: float | UnsetType = UNSET,
        idle_timeout_s: float | UnsetType = UNSET,
        context_budget_tokens: int | UnsetType = UNSET,
        auto_compact: AutoCompact | UnsetType = UNSET,
        values: dict[str, Any] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> SessionRow:
        """Change what is given, from the next decision on; the rest of a session is fixed at its creation.

        `values` are for applications: these keys are set, those that are None removed, all others stay.
        """
        action = act.ChangeSettings(
            session_id=self.id,
            title=title,
            model=model,
            permission_mode=permission_mode,
            budgets=budgets,
            approval_timeout_s=approval_timeout_s,
            stop_grace_s=stop_grace_s,
            end_grace_s=end_grace_s,
            start_timeout_s=start_timeout_s,
            idle_timeout_s=idle_timeout_s,
            context_budget_tokens=context_budget_tokens,
            auto_compact=auto_compact,
            values=values,
        )
        return await self.service.execute(action, key=idempotency_key)

    async def move(
        self, runtime: str, *, model: str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Go on with another runtime, from the transcript. `session.resumed` says what is lost on the way."""
        action = act.MoveSession(session_id=self.id, runtime=runtime, model=model)
        await self.service.execute(action, key=idempotency_key)

    async def compact(
        self,
        strategy: CompactStrategy = "window",
        *,
        keep_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> SessionRow:
        """Give the runtime less of the conversation from the next task on; the transcript keeps everything.

        `window` leaves out the oldest turns. With `summary` the session's own runtime sums them up first, which is
        waited for. About `keep_tokens` of the newest turns stay as they are; by default, half of what there is.
        """
        action = act.CompactSession(session_id=self.id, strategy=strategy, keep_tokens=keep_tokens)
        row = await self.service.execute(action, key=idempotency_key)
        if strategy == "summary" and row.active_task_id is not None:
            written = await Task(self, row.active_task_id).result()
            if written.state != "completed":
                raise Conflict("The summary was stopped, so the conversation is as it was.")
        return await self.info()

    async def close(self, reason: str = "closed by the user", *, idempotency_key: str | None = None) -> None:
        """End the session; its log stays and can be read, forked and verified."""
        await self.service.execute(act.CloseSession(session_id=self.id, reason=reason), key=idempotency_key)

    async def delete(self) -> None:
        """Remove the session and everything stored of it, what its runtime wrote down included."""
        await self.service.execute(act.DeleteSession(session_id=self.id))

    async def events(self, after_seq: int = 0) -> AsyncGenerator[Event]:
        """Yield the session's events, stored ones first, then live ones, until CodeSDK is closed."""
        async with aclosing(self.service.follow(self.id, after_seq)) as batches:
            async for batch in batches:
                for item in batch:
                    yield item.event

    async def event(self, seq: int) -> Event:
        """Return one stored event."""
        return await self.service.event(self.id, seq)

    async def transcript(self) -> list[Message]:
        """Return the messages so far."""
        return await self.service.transcript(self.id)

    async def info(self) -> SessionRow:
        """Return the session as lists show it."""
        return await self.service.session(self.id)

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer in it."""
        return await self.service.approvals(session_id=self.id)

    async def artifacts(self, *, after: str | None = None, limit: int = 100) -> list[ArtifactRow]:
        """Return its artifacts in the order of their ids."""
        return await self.service.artifacts(self.id, after=after, limit=limit)

    def task(self, task_id: str) -> "Task":
        """Return a handle on one of its tasks."""
        return Task(self, task_id)

    async def tasks(self, *, limit: int = 100) -> list[TaskRow]:
        """Return its tasks, newest first."""
        return await self.service.tasks(self.id, limit=limit)

    async def task_info(self, task_id: str) -> TaskRow:
        """Return one of its tasks as lists show it."""
        row = await self.service.task(task_id)
        if row.session_id != self.id:
            raise NotFound(f"There is no task {task_id} in session {self.id}.")
        return row


class Task:
    """A task by its id."""

    def __init__(self, session: Session, task_id: str) -> None:
        self.id = task_id
        self.session = session

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the task's events from `task.started` to the terminal one, stored and live."""
        row = await self.info()
        # Nothing of a task comes before it was queued, so the log before that need not be read.
        first = row.started_seq or row.queued_seq or 1
        async with aclosing(self.session.events(first - 1)) as events:
            async for event in events:
                if event.trace.task_id == self.id:
                    yield event
                    if event.type in TERMINAL_TYPES:
                        return

    async def result(self) -> TaskResult:
        """Wait for the end. Raise the task's error if it failed; a stopped task has a result too."""
        ended = (await self.info()).ended_seq
        if ended is not None:  # one event is enough, however long the task was
            return result_of(self.id, await self.session.event(ended))
        async with aclosing(self.events()) as events:
            async for event in events:
                if event.type in TERMINAL_TYPES:
                    return result_of(self.id, event)
        raise TaskFailure("CodeSDK was closed before the task ended.", code="INTERRUPTED", retryable=True)

    async def info(self) -> TaskRow:
        """Return the task as lists show it."""
        return await self.session.task_info(self.id)

    async def approve(
        self,
        tool_call_id: str,
        *,
        reason: str | None = None,
        scope: Scope = "once",
        attempt: int | None = None,
        input_hash: str | None = None,
    ) -> None:
        """Let a waiting tool call run; with scope `session`, this tool is not asked about again."""
        await self.session.approve(
            tool_call_id, reason=reason, scope=scope, attempt=attempt, input_hash=input_hash
        )

    async def deny(
        self,
        tool_call_id: str,
        reason: str = "denied by the user",
        *,
        attempt: int | None = None,
        input_hash: str | None = None,
    ) -> None:
        """Refuse a waiting tool call. The reason is told to the model."""
        await self.session.deny(tool_call_id, reason, attempt=attempt, input_hash=input_hash)

    async def stop(self, reason: str = "stopped by the user") -> None:
        """Ask the task to end; `result` waits for it."""
        await self.session.stop(reason, task_id=self.id)

    async def steer(self, message: str | list[Message]) -> None:
        """Add user input to the task while it runs."""
        await self.session.steer(message, task_id=self.id)


class Handles:
    """Creates, finds and lists the sessions of a service."""

    def __init__(self, service: SessionService) -> None:
        self.service = service

    def traced(
        self, *, request_id: str | None = None, client_id: str | None = None, traceparent: str | None = None
    ) -> Self:
        """Return the same sessions for requests with this id, from this client, in this trace."""
        other = copy.copy(self)
        sender = Sender(request_id=request_id, client_id=client_id, traceparent=traceparent)
        other.service = self.service.traced(sender)
        return other

    async def create_session(
        self,
        *,
        runtime: str,
        workspace: str | os.PathLike[str] = ".",
        permission_mode: PermissionMode = "ask",
        interaction_mode: InteractionMode = "interactive",
        native_tools: Literal["off"] | list[str] = "off",
        title: str | None = None,
        model: str | None = None,
        budgets: Budgets | None = None,
        isolation: IsolationLevel | None = None,
        credential_namespace: str | None = None,
        settings: SessionSettings | None = None,
        plays: "Source | None" = None,
        recording: str | None = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
        secrets: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> Session:
        """Create a session of a runtime on a workspace directory, of the machine where sessions run.

        `native_tools` names those of the runtime's own tools that it may run, which CodeSDK cannot confine.
        `isolation` and `credential_namespace` choose where the runtime's own state and logins live, where the operator
        allows it; two namespaces share nothing.
        `plays` is a script or a cassette that the model gateway answers from in place of a provider; `recording`
        names a recorded session whose answers are played. The tools of `mcp_servers` are offered to the runtime as
        `mcp.SERVER.tool`, under the same policy and in the same log.
        """
        script, mode = self._playable(plays)
        settings = settings or SessionSettings()
        if mode is not None and settings.gateway == "record":
            raise InvalidRequest(act.PLAYS_AND_RECORDS)
        action = act.CreateSession(
            runtime=runtime,
            workspace=_absolute(workspace),
            permission_mode=permission_mode,
            interaction_mode=interaction_mode,
            native_tools=native_tools,
            title=title,
            model=model,
            budgets=budgets,
            isolation=isolation,
            credential_namespace=credential_namespace,
            settings=settings if mode is None else msgspec.structs.replace(settings, gateway=mode),
            recording=recording,
            script=script,
            mcp_servers=_servers(mcp_servers),
            secrets=list(secrets),
        )
        row = await self.service.execute(action, key=idempotency_key)
        self._play(row.session_id, plays)
        return Session(self.service, row.session_id)

    async def session(
        self,
        session_id: str,
        *,
        secrets: Iterable[str] | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
    ) -> Session:
        """Return a stored session, and equip it with what is given, if anything.

        Its equipment is kept beside it over restarts, except for a cassette or a model of one's own to play.
        Secrets are added to those that it has; servers and another script replace its own.
        """
        script, _ = self._playable(plays)
        if secrets is not None or script is not None or mcp_servers:
            action = act.EquipSession(
                session_id=session_id,
                script=script,
                mcp_servers=_servers(mcp_servers),
                secrets=list(secrets or ()),
            )
            await self.service.execute(action)
        else:
            await self.service.session(session_id)
        self._play(session_id, plays)
        return Session(self.service, session_id)

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return stored sessions, newest first; `after` is the last id of the page before."""
        return await self.service.sessions(after=after, limit=limit, status=status)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session and everything stored of it, what its runtime wrote down included."""
        await self.service.execute(act.DeleteSession(session_id=session_id))

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer, over all sessions."""
        return await self.service.approvals()

    async def put_artifact(
        self,
        data: bytes,
        content_type: str,
        name: str | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self.service.put_artifact(data, content_type, name, key=idempotency_key)

    async def read_artifact(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return an artifact's bytes, or the range [start, end) of them."""
        _, data = await self.service.read_artifact(artifact_id, start, end)
        return data

    def _playable(self, plays: "Source | None") -> tuple[dict[str, Any] | None, GatewayMode | None]:
        """Return a script as an action carries it, and the mode of the gateway that goes with what is played."""
        if plays is None:
            return None, None
        from codesdk.script import Script, dump

        if not isinstance(plays, Script):
            raise InvalidRequest(
                "Only a script can be given to sessions of another process; a cassette or a model of one's own cannot."
            )
        return dump(plays), "scripted"

    def _play(self, session_id: str, plays: "Source | None") -> None:
        """Have a session play what no action carries. Only where the gateway is in this process."""


def _absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that means the same wherever the session runs."""
    return os.path.abspath(path)  # noqa: PTH100 - `Path.absolute` keeps `..`


def _servers(given: "Mapping[str, McpServer] | None") -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.to_builtins(dict(given or {})))
