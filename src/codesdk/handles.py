"""Handles on sessions and tasks: an id → what an application can do with it, wherever the session lives.

Written once against `SessionService`: the engine of this process, a daemon, or the holder of a data directory.
Each verb builds its action and has it executed. `Handles` is what gives them out.
"""

import asyncio
import copy
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import msgspec
from msgspec import UNSET, UnsetType

from codesdk.contract import actions as act
from codesdk.contract.arguments import check_arguments, check_upload, path_text, texts
from codesdk.contract.capabilities import IsolationLevel
from codesdk.contract.errors import Busy, Conflict, InvalidRequest, NotFound, TaskFailure
from codesdk.contract.events import (
    TERMINAL_TYPES,
    Event,
    HandlerOutcome,
    SessionCreated,
    SuggestAnswered,
    TaskCompleted,
)
from codesdk.contract.jobs import JobDetail, JobRow, JobState
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import ApprovalRow, ArtifactRow, SessionRow, SessionStatus, Supplement, TaskRow
from codesdk.contract.results import TaskResult, result_of
from codesdk.contract.sender import Sender
from codesdk.contract.service import SessionService
from codesdk.contract.settings import (
    AutoCompact,
    Budgets,
    CompactStrategy,
    GatewayMode,
    OnBusy,
    OnInterrupt,
    SessionSettings,
)
from codesdk.contract.tools import Grant, InteractionMode, PermissionMode, Scope, UndoReport
from codesdk.contract.validation import read_as

if TYPE_CHECKING:
    from codesdk.gateway import Source
    from codesdk.tools import McpServer

__all__ = ["Handles", "Session", "Task", "TaskResult"]

_MANY_EVENTS = 500
"""After so many events of a task without its end, whoever waits for that asks whether it is there already."""


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
        the client's name comes after the label of its token.
        """
        sender = Sender(request_id=request_id, client_id=client_id, traceparent=traceparent)
        return Session(self.service.traced(sender), self.id)

    async def start(
        self,
        message: str | list[Message],
        *,
        on_busy: OnBusy = "queue",
        task_id: str | None = None,
        output_schema: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> "Task":
        """Start a task. While another one runs it is queued, or as `on_busy` says.

        With an `output_schema`, a JSON Schema of an object, its result has `data` that fits it, or it fails.
        """
        action = act.StartTask(
            session_id=self.id,
            message=message,
            on_busy=on_busy,
            task_id=task_id,
            output_schema=output_schema,
        )
        row = await self.service.execute(action, key=idempotency_key)
        return Task(self, row.task_id, row.started_seq or row.queued_seq)

    async def resume(
        self, message: str | list[Message] | None = None, *, idempotency_key: str | None = None
    ) -> "Task":
        """Go on after an interruption, running first what was approved meanwhile."""
        said = None if message in ("", []) else message
        action = act.ResumeSession(session_id=self.id, message=said)
        row = await self.service.execute(action, key=idempotency_key)
        return Task(self, row.task_id, row.started_seq or row.queued_seq)

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
        task_id: str | None = None,
        attempt: int | None = None,
        input_hash: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Let a waiting tool call run; with scope `session`, this tool is not asked about again."""
        action = act.ApproveCall(
            session_id=self.id,
            tool_call_id=tool_call_id,
            task_id=task_id,
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
        task_id: str | None = None,
        attempt: int | None = None,
        input_hash: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Refuse a waiting tool call. The reason is told to the model."""
        action = act.DenyCall(
            session_id=self.id,
            tool_call_id=tool_call_id,
            reason=reason,
            task_id=task_id,
            attempt=attempt,
            input_hash=input_hash,
        )
        await self.service.execute(action, key=idempotency_key)

    async def answer(
        self,
        approval_id: str,
        text: str,
        *,
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Answer a question with text. The first answer counts; to decline a question, `deny` it."""
        action = act.AnswerQuestion(session_id=self.id, approval_id=approval_id, text=text, task_id=task_id)
        await self.service.execute(action, key=idempotency_key)

    async def grants(self) -> list[Grant]:
        """Return what was approved for the whole session."""
        return await self.service.grants(self.id)

    async def revoke(self, tool: str, *, idempotency_key: str | None = None) -> None:
        """Take back the approval of a tool for the session: ask about it again."""
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
        on_interrupt: OnInterrupt | UnsetType = UNSET,
        max_resumes: int | UnsetType = UNSET,
        resume_backoff_s: float | UnsetType = UNSET,
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
            on_interrupt=on_interrupt,
            max_resumes=max_resumes,
            resume_backoff_s=resume_backoff_s,
            context_budget_tokens=context_budget_tokens,
            auto_compact=auto_compact,
            values=values,
        )
        return await self.service.execute(action, key=idempotency_key)

    async def move(
        self,
        runtime: str,
        *,
        model: str | None = None,
        runtime_config: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Go on with another runtime, from the transcript. `session.resumed` says what is lost on the way.

        `runtime_config` is what the new runtime is told; without it, those of the session's options that it takes.
        """
        action = act.MoveSession(
            session_id=self.id, runtime=runtime, model=model, runtime_config=runtime_config
        )
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

    async def supplement(
        self,
        supplement_id: str,
        text: str | None = None,
        *,
        data: Any = None,
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Supplement:
        """Put a text or data beside the transcript, in place of what you had there under the same id.

        It is shown with the transcript, and no model is ever given it.
        """
        action = act.SupplementTranscript(
            session_id=self.id, supplement_id=supplement_id, text=text, data=data, task_id=task_id
        )
        return await self.service.execute(action, key=idempotency_key)

    async def suggest(
        self,
        text: str | None = None,
        *,
        timeout_s: float = 120.0,
        idempotency_key: str | None = None,
    ) -> list[HandlerOutcome]:
        """Ask extensions what to ask the session for next, and wait for what they say. `text` is what it should be about.

        Raise `Conflict` if no extension makes suggestions here, and `Busy` if the answer takes longer than `timeout_s`;
        it is in the log when it comes (`suggest_request.answered`).
        """
        check_arguments(timeout_s=timeout_s)
        action = act.RequestSuggestions(session_id=self.id, text=text)
        asked = await self.service.execute(action, key=idempotency_key)
        try:
            async with asyncio.timeout(timeout_s):
                async for event in self.events(asked.seq):
                    said = event.payload
                    if isinstance(said, SuggestAnswered) and said.suggest_id == asked.suggest_id:
                        return said.results
        except TimeoutError:
            pass
        raise Busy(
            f"The extensions did not answer {asked.suggest_id} in time. Look at the log, or ask again."
        )

    async def answer_suggest(
        self, suggest_id: str, results: list[HandlerOutcome], *, idempotency_key: str | None = None
    ) -> None:
        """Answer a request for suggestions in place of the extensions. The first answer counts."""
        action = act.AnswerSuggestRequest(session_id=self.id, suggest_id=suggest_id, results=results)
        await self.service.execute(action, key=idempotency_key)

    async def close(self, reason: str = "closed by the user", *, idempotency_key: str | None = None) -> None:
        """End the session; its log stays and can be read, forked and verified."""
        await self.service.execute(act.CloseSession(session_id=self.id, reason=reason), key=idempotency_key)

    async def delete(self, *, idempotency_key: str | None = None) -> None:
        """Remove the session and everything stored of it, what its runtime wrote down included."""
        await self.service.execute(act.DeleteSession(session_id=self.id), key=idempotency_key)

    async def events(self, after_seq: int = 0) -> AsyncGenerator[Event]:
        """Yield the session's events, stored ones first, then live ones, until CodeSDK is closed."""
        check_arguments(session_id=self.id, after_seq=after_seq)
        async with aclosing(self.service.follow(self.id, after_seq)) as batches:
            async for batch in batches:
                for item in batch:
                    yield item.event

    async def event(self, seq: int) -> Event:
        """Return one stored event."""
        check_arguments(session_id=self.id, seq=seq)
        return await self.service.event(self.id, seq)

    async def transcript(self) -> list[Message]:
        """Return the messages so far."""
        return await self.service.transcript(self.id)

    async def supplements(self) -> list[Supplement]:
        """Return what stands beside the messages, in the order in which it was put there."""
        return await self.service.supplements(self.id)

    async def info(self) -> SessionRow:
        """Return the session as lists show it."""
        return await self.service.session(self.id)

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer in it."""
        return await self.service.approvals(session_id=self.id)

    async def artifacts(self, *, after: str | None = None, limit: int = 100) -> list[ArtifactRow]:
        """Return its artifacts in the order of their ids."""
        check_arguments(session_id=self.id, after=after, limit=limit)
        return await self.service.artifacts(self.id, after=after, limit=limit)

    def task(self, task_id: str) -> "Task":
        """Return a handle on one of its tasks."""
        return Task(self, task_id)

    async def tasks(self, *, limit: int = 100) -> list[TaskRow]:
        """Return its tasks, newest first."""
        check_arguments(session_id=self.id, limit=limit)
        return await self.service.tasks(self.id, limit=limit)

    async def task_info(self, task_id: str) -> TaskRow:
        """Return one of its tasks as lists show it."""
        check_arguments(task_id=task_id)
        row = await self.service.task(task_id)
        if row.session_id != self.id:
            raise NotFound(f"There is no task {task_id} in session {self.id}.")
        return row


class Task:
    """A task by its id."""

    def __init__(self, session: Session, task_id: str, first_seq: int | None = None) -> None:
        self.id = task_id
        self.session = session
        self._first_seq = first_seq
        """Where it begins in the log, if that is known."""

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the task's events from `task.started` to the terminal one, stored and live."""
        if self._first_seq is None:
            self._begins(await self.info())
        async with aclosing(self.session.events((self._first_seq or 1) - 1)) as events:
            async for event in events:
                if event.trace.task_id == self.id:
                    yield event
                    if event.type in TERMINAL_TYPES:
                        return

    async def result(self) -> TaskResult:
        """Wait for the end. Raise the task's error if it failed; a stopped task has a result too."""
        if self._first_seq is None and (result := await self._ended()) is not None:
            return result
        seen = 0
        async with aclosing(self.events()) as events:
            async for event in events:
                if event.type in TERMINAL_TYPES:
                    return await self._read_result(event)
                seen += 1
                if seen == _MANY_EVENTS and (result := await self._ended()) is not None:
                    return result
        raise TaskFailure("CodeSDK was closed before the task ended.", code="INTERRUPTED", retryable=True)

    async def _ended(self) -> TaskResult | None:
        """Return the result if the task is over. That takes a row and one event, however long the task was."""
        row = await self.info()
        self._begins(row)
        if row.ended_seq is None:
            return None
        return await self._read_result(await self.session.event(row.ended_seq))

    def _begins(self, row: TaskRow) -> None:
        # Nothing of a task comes before it was queued, so the log before that need not be read.
        self._first_seq = self._first_seq or row.started_seq or row.queued_seq

    async def _read_result(self, event: Event) -> TaskResult:
        """Return the result in a terminal event, with data that is stored apart because it is large."""
        result, payload = result_of(self.id, event), event.payload
        if not isinstance(payload, TaskCompleted) or payload.data_ref is None:
            return result
        _, stored = await self.session.service.read_artifact(payload.data_ref.artifact_id)
        return msgspec.structs.replace(result, data=msgspec.json.decode(stored))

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
        """Let a waiting tool call of the task run; with scope `session`, this tool is not asked about again."""
        await self.session.approve(
            tool_call_id,
            reason=reason,
            scope=scope,
            task_id=self.id,
            attempt=attempt,
            input_hash=input_hash,
        )

    async def deny(
        self,
        tool_call_id: str,
        reason: str = "denied by the user",
        *,
        attempt: int | None = None,
        input_hash: str | None = None,
    ) -> None:
        """Refuse a waiting tool call of the task. The reason is told to the model."""
        await self.session.deny(tool_call_id, reason, task_id=self.id, attempt=attempt, input_hash=input_hash)

    async def answer(self, approval_id: str, text: str) -> None:
        """Answer a question that the task asks. The first answer counts."""
        await self.session.answer(approval_id, text, task_id=self.id)

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
        runtime: str | None = None,
        workspace: str | os.PathLike[str] = ".",
        permission_mode: PermissionMode = "ask",
        interaction_mode: InteractionMode = "interactive",
        native_tools: Literal["off"] | list[str] = "off",
        title: str | None = None,
        model: str | None = None,
        budgets: Budgets | None = None,
        isolation: IsolationLevel | None = None,
        credential_namespace: str | None = None,
        project_id: str | None = None,
        settings: SessionSettings | None = None,
        plays: "Source | None" = None,
        recording: str | None = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
        secrets: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> Session:
        """Create a session of a runtime on a workspace directory, of the machine where sessions run.

        Without a `runtime` it is minicode, if there is a key for a model, or something to play in place of one.
        `native_tools` names those of the runtime's own tools that it may run, which CodeSDK cannot confine.
        `isolation` and `credential_namespace` choose where the runtime's own state and logins live, where the operator
        allows it; two namespaces share nothing. `project_id` is your name for the project, for extensions; without one
        it follows from the workspace's path.
        `plays` is a script or a cassette that the model gateway answers from in place of a provider; `recording`
        names a recorded session whose answers are played. The tools of `mcp_servers` are offered to the runtime as
        `mcp.SERVER.tool`, under the same policy and in the same log.
        """
        script, mode = self._playable(plays)
        settings = SessionSettings() if settings is None else read_as(SessionSettings, settings, "settings")
        if plays is not None and recording is not None:
            raise InvalidRequest("A session plays one thing: give it plays or a recording, not both.")
        settings = msgspec.structs.replace(settings, gateway=act.mode_to_play(settings.gateway, mode))
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
            project_id=project_id,
            settings=settings,
            recording=recording,
            script=script,
            mcp_servers=_servers(mcp_servers),
            secrets=texts(secrets, "secrets"),
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

        Its equipment is kept beside it over restarts, except for a cassette or a custom model.
        Secrets are added to those that it has; servers and another script replace its own. What it plays is of the
        kind that it was created with: one that asks a provider's model takes nothing to play.
        """
        check_arguments(session_id=session_id)
        script, mode = self._playable(plays)
        if plays is not None and script is None:  # no action carries it, so the engine does not see it
            created = (await self.service.event(session_id, 1)).payload
            assert isinstance(created, SessionCreated), "the first event of a session"
            act.check_plays(session_id, created.settings.get("gateway", "passthrough"), mode)
        if secrets is not None or script is not None or mcp_servers:
            action = act.EquipSession(
                session_id=session_id,
                script=script,
                mcp_servers=_servers(mcp_servers),
                secrets=[] if secrets is None else texts(secrets, "secrets"),
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
        check_arguments(after=after, limit=limit, status=status)
        return await self.service.sessions(after=after, limit=limit, status=status)

    async def delete_session(self, session_id: str, *, idempotency_key: str | None = None) -> None:
        """Remove a session and everything stored of it, what its runtime wrote down included."""
        await Session(self.service, session_id).delete(idempotency_key=idempotency_key)

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
        check_upload(data, content_type, name, idempotency_key)
        return await self.service.put_artifact(data, content_type, name, key=idempotency_key)

    async def read_artifact(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return an artifact's bytes, or the range [start, end) of them."""
        check_arguments(artifact_id=artifact_id, start=start, end=end)
        _, data = await self.service.read_artifact(artifact_id, start, end)
        return data

    async def jobs(
        self,
        *,
        state: JobState | None = None,
        job_type: str | None = None,
        session_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        """Return the jobs that extensions queued, newest first; `after` is the last id of the page before."""
        of_session = UNSET if session_id is None else session_id
        check_arguments(state=state, job_type=job_type, session_id=of_session, after=after, limit=limit)
        return await self.service.jobs(
            state=state, job_type=job_type, session_id=session_id, after=after, limit=limit
        )

    async def job(self, job_id: str) -> JobDetail:
        """Return a job with what its handler is given."""
        check_arguments(job_id=job_id)
        return await self.service.job(job_id)

    async def cancel_job(self, job_id: str) -> JobRow:
        """Call off a job that is queued or runs."""
        return await self.service.execute(act.CancelJob(job_id=job_id))

    async def retry_job(self, job_id: str) -> JobRow:
        """Run a waiting, failed or canceled job now, with all its attempts."""
        return await self.service.execute(act.RetryJob(job_id=job_id))

    def _playable(self, plays: "Source | None") -> tuple[dict[str, Any] | None, GatewayMode | None]:
        """Return a script as an action carries it, and the mode of the gateway that goes with what is played."""
        if plays is None:
            return None, None
        from codesdk.script import Script, dump

        if not isinstance(plays, Script):
            raise InvalidRequest(
                "Only a Script, as load_script returns it, can be played by sessions of another process; a cassette"
                f" or a custom model cannot, and neither can a value of the type {type(plays).__name__}."
            )
        return dump(plays), "scripted"

    def _play(self, session_id: str, plays: "Source | None") -> None:
        """Have a session play what no action carries. Only where the gateway is in this process."""


def _absolute(path: object) -> str:
    """Return a path that means the same wherever the session runs."""
    return os.path.abspath(path_text(path, "workspace"))  # noqa: PTH100 - `Path.absolute` keeps `..`


def _servers(given: object) -> dict[str, Any]:
    """Return servers as an action carries them. What each of them needs is checked where they are attached."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            f"Invalid argument: mcp_servers: expected servers by name, got `{type(given).__name__}`."
        )
    return read_as(dict[str, Any], dict(cast("Mapping[str, Any]", given)), "mcp_servers")
