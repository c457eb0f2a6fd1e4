"""`CodeSDK` and its handles: the public face, and the place where all parts are put together.

async with CodeSDK.open(data_dir=".codesdk") as sdk:
    session = await sdk.create_session(runtime="scripted", workspace=".")
    task = await session.start("Summarize this repo")
    print((await task.result()).text)
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from codesdk.contract.errors import InvalidRequest, NotFound, TaskFailure, from_info
from codesdk.contract.events import TERMINAL_TYPES, Event, TaskCompleted, TaskFailed, TaskStopped, UsageTotals
from codesdk.contract.messages import ArtifactRef, Message, user
from codesdk.contract.ports import Policy, ToolRunner
from codesdk.contract.records import ApprovalRow, SessionRow, SessionStatus, TaskRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Budgets, Limits, OnBusy, SessionConfig, SessionSettings
from codesdk.contract.tools import Actor, Grant, InteractionMode, PermissionMode, Scope, UndoReport
from codesdk.engine.archive import Archive
from codesdk.engine.control import ControlServer
from codesdk.engine.engine import Engine
from codesdk.engine.grants import revoke
from codesdk.engine.journal import LOCAL
from codesdk.engine.scope import Ports
from codesdk.engine.session import LiveSession
from codesdk.engine.stamps import SystemStamper
from codesdk.engine.undo import undo
from codesdk.gateway.door import GatewayDoor
from codesdk.gateway.providers import Provider, providers_from
from codesdk.policy.modes import ModePolicy
from codesdk.runtimes.environment import forget_session
from codesdk.runtimes.registry import create_runtime, resolve
from codesdk.store.blobs import MemoryBlobs
from codesdk.store.directory import RUNTIMES, DataDir
from codesdk.store.memory import MemoryLog
from codesdk.store.undo import MemoryUndo
from codesdk.tools.mcp.host import McpHost
from codesdk.tools.registry import ToolRegistry
from codesdk.tools.workspace import builtin_registry

if TYPE_CHECKING:
    from codesdk.gateway.exchange import Wire
    from codesdk.gateway.sessions import Source
    from codesdk.tools.mcp.servers import McpServer
    from codesdk.tools.options import ExecOptions, FetchOptions


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended. `text` is its last answer."""

    task_id: str
    state: Literal["completed", "stopped"]
    text: str
    stop_reason: str
    usage: UsageTotals
    duration_ms: int


class CodeSDK:
    """One data directory, opened for work. Get it from `CodeSDK.open`."""

    def __init__(self, engine: Engine, principal: str, door: GatewayDoor | None = None) -> None:
        self.engine = engine
        self._door = door
        self._principal = principal

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        runtimes: Mapping[str, Runtime] | None = None,
        tools: ToolRunner | None = None,
        run: "ExecOptions | None" = None,
        fetch: "FetchOptions | None" = None,
        policy: Policy | None = None,
        limits: Limits | None = None,
        secrets: Iterable[str] = (),
        providers: "Mapping[Wire, Provider] | None" = None,
        synchronous: Literal["auto", "full", "normal"] = "auto",
        principal: str = LOCAL,
        allow_yolo: bool = False,
    ) -> AsyncGenerator["CodeSDK"]:
        """Open a data directory for work; without one, keep everything in memory.

        `runtimes` adds adapters by name, or replaces built-in ones. `tools` replaces the built-in tools;
        `run` and `fetch` switch on those that run programs and read web pages.
        `policy` is asked about every call, on top of the permission mode: `load_policy` reads one from a file.
        Without `allow_yolo` no session may use the mode that asks about nothing. `secrets` never reach an
        event, a log or an artifact. `providers` are where the model gateway passes requests on to; without
        them, the real ones, with the keys that the environment has (ANTHROPIC_API_KEY, OPENAI_API_KEY,
        GEMINI_API_KEY). Leaving the block stops what runs and waits until all is stored.
        """
        async with AsyncExitStack() as stack:
            directory: DataDir | None = None
            if data_dir is not None:
                directory = await DataDir.open_writer(Path(data_dir), synchronous=synchronous)
                stack.push_async_callback(directory.close)
            door, keys = _model_door(providers)
            stack.push_async_callback(door.aclose)
            host = McpHost()
            stack.push_async_callback(host.close)
            ports = Ports(
                log=directory.log if directory else MemoryLog(),
                blobs=directory.blobs if directory else MemoryBlobs(),
                tools=tools or await stack.enter_async_context(_offered(run, fetch)),
                policy=policy or ModePolicy(),
                stamper=SystemStamper(),
                limits=limits or Limits(),
                models=door,
                mcp=host,
                undo=directory.undo if directory else MemoryUndo(),
                state_dir=str(directory.path.resolve() / RUNTIMES) if directory else "",
            )
            engine = Engine(
                ports,
                _Runtimes(runtimes or {}).find,
                owner=f"pid:{os.getpid()}",
                secrets=[*secrets, *keys],
                allow_yolo=allow_yolo,
            )
            await engine.open()
            stack.push_async_callback(engine.close)
            if directory is not None:
                control = ControlServer(engine, directory.path)
                await control.start()
                stack.push_async_callback(control.close)
            yield cls(engine, principal, door)

    async def create_session(
        self,
        *,
        runtime: str,
        workspace: str | os.PathLike[str] = ".",
        permission_mode: PermissionMode = "ask",
        interaction_mode: InteractionMode = "interactive",
        title: str | None = None,
        model: str | None = None,
        budgets: Budgets | None = None,
        settings: SessionSettings | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
        secrets: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> "Session":
        """Create a session of a runtime on a workspace directory.

        `plays` is a script or a cassette that the model gateway answers from in place of a provider. The tools of
        `mcp_servers` are offered to the runtime as `mcp.SERVER.tool`, under the same policy and in the same log.
        """
        settings = _with_mode(settings or SessionSettings(), plays)
        if mcp_servers:
            settings = msgspec.structs.replace(settings, mcp_servers=sorted(mcp_servers))
        config = SessionConfig(
            runtime=runtime,
            workspace=_workspace(workspace),
            title=title,
            model=model,
            permission_mode=permission_mode,
            interaction_mode=interaction_mode,
            budgets=budgets,
            settings=settings,
        )
        live = await self.engine.create_session(
            config, principal=self._principal, secrets=secrets, key=idempotency_key
        )
        return await self._equip(live.session_id, plays, mcp_servers)

    async def session(
        self,
        session_id: str,
        *,
        secrets: Iterable[str] | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
    ) -> "Session":
        """Return a stored session. Its secrets, its servers and what it plays are not stored: give them again."""
        await self.engine.session(session_id, principal=self._principal, secrets=secrets)
        return await self._equip(session_id, plays, mcp_servers)

    async def _equip(
        self, session_id: str, plays: "Source | None", servers: "Mapping[str, McpServer] | None"
    ) -> "Session":
        """Give a session what is not stored with it."""
        if plays is not None and self._door is not None:
            self._door.choose(session_id, plays)
        if servers:
            from codesdk.tools.mcp.attached import AttachedTools
            from codesdk.tools.mcp.servers import secrets_of

            live = await self.engine.session(
                session_id, principal=self._principal, secrets=secrets_of(servers)
            )
            tools = AttachedTools(servers, self.engine.ports.tools)
            await tools.start()
            await live.attach(tools, tools.close)
        return Session(self.engine, session_id, self._principal)

    def model_problems(self, session_id: str) -> Sequence[str]:
        """Return what did not fit between a session's model requests and the script or cassette that it plays."""
        return () if self._door is None else self._door.problems(session_id)

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return stored sessions, newest first; `after` is the last id of the page before."""
        return await self.archive.sessions(principal=self._principal, after=after, limit=limit, status=status)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session and everything stored of it, what its runtime wrote down included."""
        await self.engine.delete(session_id, principal=self._principal)
        await asyncio.to_thread(forget_session, self.engine.ports.state_dir, session_id)

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer, over all sessions."""
        return await self.archive.approvals(principal=self._principal)

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self.engine.put_artifact(data, content_type, name, principal=self._principal)

    async def read_artifact(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return an artifact's bytes, or the range [start, end) of them."""
        _, data = await self.archive.read_artifact(artifact_id, start, end, principal=self._principal)
        return data

    @property
    def archive(self) -> Archive:
        """Everything stored, to be read."""
        return self.engine.archive


class Session:
    """A session by its id. Cheap to make; the engine holds what is live."""

    def __init__(self, engine: Engine, session_id: str, principal: str) -> None:
        self.id = session_id
        self._engine = engine
        self._principal = principal

    async def start(
        self,
        message: str | list[Message],
        *,
        on_busy: OnBusy = "queue",
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> "Task":
        """Start a task. While another one runs it is queued, or as `on_busy` says."""
        live = await self._live()
        started = await self._engine.start(
            live, _messages(message), on_busy=on_busy, task_id=task_id, key=idempotency_key
        )
        return Task(self, started)

    async def resume(self, message: str | list[Message] | None = None) -> "Task":
        """Go on after an interruption, running first what was approved meanwhile."""
        live = await self._live()
        return Task(self, await self._engine.resume(live, _messages(message) if message else None))

    async def fork(self, seq: int | None = None, *, title: str | None = None) -> "Session":
        """Return a new session that starts from this one's transcript as it was at `seq`."""
        live = await self._engine.fork(self.id, seq, principal=self._principal, title=title)
        return Session(self._engine, live.session_id, self._principal)

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
        live = await self._live()
        await live.answer(
            tool_call_id,
            "approve",
            by=self._person(),
            scope=scope,
            reason=reason,
            attempt=attempt,
            input_hash=input_hash,
        )

    async def deny(
        self, tool_call_id: str, reason: str, *, attempt: int | None = None, input_hash: str | None = None
    ) -> None:
        """Refuse a waiting tool call. The reason is told to the model."""
        live = await self._live()
        await live.answer(
            tool_call_id, "deny", by=self._person(), reason=reason, attempt=attempt, input_hash=input_hash
        )

    async def grants(self) -> list[Grant]:
        """Return what was approved for the whole session."""
        return list((await self._live()).state.grants)

    async def revoke(self, tool: str) -> None:
        """Ask about a tool again that was approved for the session."""
        await revoke(await self._live(), tool, self._person())

    async def stop(self, reason: str = "stopped by the user", *, task_id: str | None = None) -> None:
        """Stop the running task, or one that waits."""
        live = await self._live()
        await live.stop(task_id, self._person(), reason)

    async def steer(self, message: str | list[Message]) -> None:
        """Add user input to the running task, where the runtime can take it."""
        await (await self._live()).steer(_messages(message))

    async def undo(self, tool_call_id: str | None = None) -> UndoReport:
        """Take back what one tool call did to files, or what all calls of the session did, the newest first.

        A call is undone as a whole, and only if its files are still as it left them. Raise `Conflict` if
        nothing could be undone, `Busy` while a task runs.
        """
        return await undo(await self._live(), self._person(), tool_call_id)

    async def move(self, runtime: str, *, model: str | None = None) -> None:
        """Go on with another runtime, from the transcript. `session.resumed` says what is lost on the way."""
        await (await self._live()).move(runtime, model)

    async def close(self, reason: str = "closed by the user") -> None:
        """End the session; its log stays and can be read, forked and verified."""
        await self._engine.close_session(self.id, reason, principal=self._principal)

    async def events(self, after_seq: int = 0) -> AsyncIterator[Event]:
        """Yield the session's events, stored ones first, then live ones, until the SDK is closed."""
        live = await self._live()
        async for batch in live.follow(after_seq):
            for item in batch:
                yield item.event

    async def transcript(self) -> list[Message]:
        """Return the messages so far."""
        return await self._engine.archive.transcript(self.id, principal=self._principal)

    async def info(self) -> SessionRow:
        """Return the session as lists show it."""
        return await self._engine.archive.session(self.id, principal=self._principal)

    def task(self, task_id: str) -> "Task":
        """Return a handle on one of its tasks."""
        return Task(self, task_id)

    async def task_info(self, task_id: str) -> TaskRow:
        """Return one of its tasks as lists show it."""
        row = await self._engine.archive.task(task_id, principal=self._principal)
        if row.session_id != self.id:
            raise NotFound(f"There is no task {task_id} in session {self.id}.")
        return row

    async def first_seq(self, task_id: str) -> int:
        """Return where one of its tasks begins, waiting in the queue included."""
        running = (await self._live()).state.task
        if running is not None and running.task_id == task_id:
            return running.started_seq
        row = await self.task_info(task_id)
        return row.started_seq or row.queued_seq or 1

    async def ended_seq(self, task_id: str) -> int | None:
        """Return where one of its tasks ends, or None if it has not."""
        running = (await self._live()).state.task
        if running is not None and running.task_id == task_id:
            return None
        return (await self.task_info(task_id)).ended_seq

    async def event(self, seq: int) -> Event:
        """Return one stored event."""
        return await self._engine.archive.event(self.id, seq)

    async def _live(self) -> LiveSession:
        return await self._engine.session(self.id, principal=self._principal)

    def _person(self) -> Actor:
        return Actor(kind="user", id=None if self._principal == LOCAL else self._principal)


class Task:
    """A task by its id."""

    def __init__(self, session: Session, task_id: str) -> None:
        self.id = task_id
        self.session = session

    async def events(self) -> AsyncIterator[Event]:
        """Yield the task's events from `task.started` to the terminal one, stored and live."""
        first = await self.session.first_seq(self.id)
        async for event in self.session.events(first - 1):
            if event.trace.task_id == self.id:
                yield event
                if event.type in TERMINAL_TYPES:
                    return

    async def result(self) -> TaskResult:
        """Wait for the end. Raise the task's error if it failed; a stopped task has a result too."""
        ended = await self.session.ended_seq(self.id)
        if ended is not None:
            return self._result_of(await self.session.event(ended))
        async for event in self.events():
            if event.type in TERMINAL_TYPES:
                return self._result_of(event)
        raise TaskFailure("CodeSDK was closed before the task ended.", code="INTERRUPTED", retryable=True)

    async def approve(self, tool_call_id: str, **options: Any) -> None:
        """Let a waiting tool call run. Options as in `Session.approve`."""
        await self.session.approve(tool_call_id, **options)

    async def deny(self, tool_call_id: str, reason: str, **options: Any) -> None:
        """Refuse a waiting tool call. Options as in `Session.deny`."""
        await self.session.deny(tool_call_id, reason, **options)

    async def stop(self, reason: str = "stopped by the user") -> None:
        """Ask the task to end; `result` waits for it."""
        await self.session.stop(reason, task_id=self.id)

    async def steer(self, message: str | list[Message]) -> None:
        """Add user input to the task while it runs."""
        await self.session.steer(message)

    def _result_of(self, event: Event) -> TaskResult:
        payload = event.payload
        if isinstance(payload, TaskFailed):
            raise from_info(payload.error)
        assert isinstance(payload, TaskCompleted | TaskStopped), "a terminal event has one of three payloads"
        done = isinstance(payload, TaskCompleted)
        return TaskResult(
            task_id=self.id,
            state="completed" if done else "stopped",
            text=payload.text if done else "",
            stop_reason=payload.stop_reason if done else payload.reason,
            usage=payload.usage,
            duration_ms=payload.duration_ms,
        )


class _Runtimes:
    """Runtimes by name: the given ones first, built-in ones made when first used."""

    def __init__(self, given: Mapping[str, Runtime]) -> None:
        self._known = dict(given)

    def find(self, name: str) -> Runtime:
        if name not in self._known:
            name = resolve(name)
        if name not in self._known:
            self._known[name] = create_runtime(name)
        return self._known[name]


@asynccontextmanager
async def _offered(run: "ExecOptions | None", fetch: "FetchOptions | None") -> AsyncGenerator[ToolRegistry]:
    """Give the tools that are offered. What runs programs is loaded only if it is switched on."""
    if run is None and fetch is None:
        yield builtin_registry()
        return
    from codesdk.tools.options import offered_tools

    async with offered_tools(run, fetch) as registry:
        yield registry


def _model_door(providers: "Mapping[Wire, Provider] | None") -> tuple[GatewayDoor, list[str]]:
    """Return the gateway, and the keys that it puts in."""
    known = providers_from() if providers is None else providers
    return GatewayDoor(known), sorted({provider.key for provider in known.values() if provider.key})


def _with_mode(settings: SessionSettings, plays: "Source | None") -> SessionSettings:
    """Return the settings of a session with the mode that goes with what it plays."""
    if plays is None:
        return settings
    return msgspec.structs.replace(settings, gateway="replay" if isinstance(plays, Sequence) else "scripted")


def _workspace(path: str | os.PathLike[str]) -> str:
    found = Path(path).resolve()
    if not found.is_dir():
        raise InvalidRequest(f"The workspace {str(path)!r} is not a directory.")
    return str(found)


def _messages(message: str | list[Message]) -> list[Message]:
    return [user(message)] if isinstance(message, str) else message
