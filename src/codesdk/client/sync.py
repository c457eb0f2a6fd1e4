"""The same handles for scripts without asyncio: each method waits for its answer, each stream is a plain iterator.

One thread runs the asynchronous client; the methods here only wait for it. A `KeyboardInterrupt` ends the waiting.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from codesdk.client.handles import RemoteSession, RemoteTask
from codesdk.client.remote import CodeSDKClient
from codesdk.contract.codec import decode
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import ApprovalRow, SessionRow, SessionStatus, TaskRow
from codesdk.contract.results import TaskResult
from codesdk.contract.settings import Budgets, OnBusy, SessionSettings
from codesdk.contract.tools import Grant, InteractionMode, PermissionMode, Scope, UndoReport

if TYPE_CHECKING:
    from codesdk.gateway import Source
    from codesdk.tools import McpServer

T = TypeVar("T")
CLEANUP_S = 5.0


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="codesdk-client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns. If the waiting is cut short, so is the coroutine, and its end is awaited."""
        over = threading.Event()

        async def doing() -> T:
            try:
                return await work
            finally:
                over.set()

        future = asyncio.run_coroutine_threadsafe(doing(), self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                over.wait(CLEANUP_S)
            raise

    def each(self, batches: AsyncGenerator[list[T]]) -> Iterator[T]:
        """Yield the items of batches that come in over time."""
        try:
            while batch := self.wait(_next(batches)):
                yield from batch
        finally:
            self.wait(_close(batches))

    def close(self) -> None:
        """End the thread."""
        self.wait(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(batches: AsyncGenerator[list[T]]) -> list[T]:
    nothing: list[T] = []
    return await anext(batches, nothing)


async def _close(batches: AsyncGenerator[list[T]]) -> None:
    await batches.aclose()


class SyncClient:
    """A daemon's sessions. Get it from `SyncClient.connect`."""

    def __init__(self, loop: Loop, client: CodeSDKClient) -> None:
        self._loop = loop
        self._client = client

    @classmethod
    @contextmanager
    def connect(
        cls,
        url: str | None = None,
        token: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> Generator["SyncClient"]:
        """Connect to a daemon, found as `CodeSDKClient.connect` finds it."""
        loop = Loop()
        try:
            opened = CodeSDKClient.connect(url, token, data_dir)
            client = loop.wait(opened.__aenter__())
            try:
                yield cls(loop, client)
            finally:
                loop.wait(opened.__aexit__(None, None, None))
        finally:
            loop.close()

    def create_session(
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
        settings: SessionSettings | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
        secrets: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> "SyncSession":
        """Create a session of a runtime on a workspace: a directory on the daemon's machine."""
        creating = self._client.create_session(
            runtime=runtime,
            workspace=workspace,
            permission_mode=permission_mode,
            interaction_mode=interaction_mode,
            native_tools=native_tools,
            title=title,
            model=model,
            budgets=budgets,
            settings=settings,
            plays=plays,
            mcp_servers=mcp_servers,
            secrets=secrets,
            idempotency_key=idempotency_key,
        )
        return SyncSession(self._loop, self._loop.wait(creating))

    def session(
        self,
        session_id: str,
        *,
        secrets: Iterable[str] | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
    ) -> "SyncSession":
        """Return a stored session. Its secrets, its servers and what it plays are not stored: give them again."""
        finding = self._client.session(session_id, secrets=secrets, plays=plays, mcp_servers=mcp_servers)
        return SyncSession(self._loop, self._loop.wait(finding))

    def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return stored sessions, newest first; `after` is the last id of the page before."""
        return self._loop.wait(self._client.sessions(after=after, limit=limit, status=status))

    def delete_session(self, session_id: str) -> None:
        """Remove a session and everything stored of it."""
        self._loop.wait(self._client.delete_session(session_id))

    def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer, over all sessions."""
        return self._loop.wait(self._client.approvals())

    def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return self._loop.wait(self._client.put_artifact(data, content_type, name))

    def read_artifact(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return an artifact's bytes, or the range [start, end) of them."""
        return self._loop.wait(self._client.read_artifact(artifact_id, start, end))


class SyncSession:
    """A session by its id."""

    def __init__(self, loop: Loop, session: RemoteSession) -> None:
        self.id = session.id
        self._loop = loop
        self._session = session

    def start(
        self,
        message: str | list[Message],
        *,
        on_busy: OnBusy = "queue",
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> "SyncTask":
        """Start a task. While another one runs it is queued, or as `on_busy` says."""
        starting = self._session.start(
            message, on_busy=on_busy, task_id=task_id, idempotency_key=idempotency_key
        )
        return SyncTask(self, self._loop, self._loop.wait(starting))

    def resume(self, message: str | list[Message] | None = None) -> "SyncTask":
        """Go on after an interruption, running first what was approved meanwhile."""
        return SyncTask(self, self._loop, self._loop.wait(self._session.resume(message)))

    def fork(self, seq: int | None = None, *, title: str | None = None) -> "SyncSession":
        """Return a new session that starts from this one's transcript as it was at `seq`."""
        return SyncSession(self._loop, self._loop.wait(self._session.fork(seq, title=title)))

    def approve(
        self,
        tool_call_id: str,
        *,
        reason: str | None = None,
        scope: Scope = "once",
        attempt: int | None = None,
        input_hash: str | None = None,
    ) -> None:
        """Let a waiting tool call run; with scope `session`, this tool is not asked about again."""
        self._loop.wait(
            self._session.approve(
                tool_call_id, reason=reason, scope=scope, attempt=attempt, input_hash=input_hash
            )
        )

    def deny(
        self, tool_call_id: str, reason: str, *, attempt: int | None = None, input_hash: str | None = None
    ) -> None:
        """Refuse a waiting tool call. The reason is told to the model."""
        self._loop.wait(self._session.deny(tool_call_id, reason, attempt=attempt, input_hash=input_hash))

    def grants(self) -> list[Grant]:
        """Return what was approved for the whole session."""
        return self._loop.wait(self._session.grants())

    def revoke(self, tool: str) -> None:
        """Ask about a tool again that was approved for the session."""
        self._loop.wait(self._session.revoke(tool))

    def stop(self, reason: str = "stopped by the user", *, task_id: str | None = None) -> None:
        """Stop the running task, or one that waits."""
        self._loop.wait(self._session.stop(reason, task_id=task_id))

    def steer(self, message: str | list[Message]) -> None:
        """Add user input to the running task, where the runtime can take it."""
        self._loop.wait(self._session.steer(message))

    def undo(self, tool_call_id: str | None = None) -> UndoReport:
        """Take back what one tool call did to files, or what all calls of the session did, the newest first."""
        return self._loop.wait(self._session.undo(tool_call_id))

    def move(self, runtime: str, *, model: str | None = None) -> None:
        """Go on with another runtime, from the transcript."""
        self._loop.wait(self._session.move(runtime, model=model))

    def close(self, reason: str = "closed by the user") -> None:
        """End the session; its log stays and can be read, forked and verified."""
        self._loop.wait(self._session.close(reason))

    def events(self, after_seq: int = 0) -> Iterator[Event]:
        """Yield the session's events, stored ones first, then live ones, for ever: leave the loop to end it."""
        for frame in self._loop.each(self._session.frames(after_seq)):
            yield decode(frame.data)

    def transcript(self) -> list[Message]:
        """Return the messages so far."""
        return self._loop.wait(self._session.transcript())

    def info(self) -> SessionRow:
        """Return the session as lists show it."""
        return self._loop.wait(self._session.info())

    def task(self, task_id: str) -> "SyncTask":
        """Return a handle on one of its tasks."""
        return SyncTask(self, self._loop, self._session.task(task_id))

    def task_info(self, task_id: str) -> TaskRow:
        """Return one of its tasks as lists show it."""
        return self._loop.wait(self._session.task_info(task_id))

    def first_seq(self, task_id: str) -> int:
        """Return where one of its tasks begins, waiting in the queue included."""
        return self._loop.wait(self._session.first_seq(task_id))

    def ended_seq(self, task_id: str) -> int | None:
        """Return where one of its tasks ends, or None if it has not."""
        return self._loop.wait(self._session.ended_seq(task_id))

    def event(self, seq: int) -> Event:
        """Return one stored event."""
        return self._loop.wait(self._session.event(seq))


class SyncTask:
    """A task by its id."""

    def __init__(self, session: SyncSession, loop: Loop, task: RemoteTask) -> None:
        self.id = task.id
        self.session = session
        self._loop = loop
        self._task = task

    def events(self) -> Iterator[Event]:
        """Yield the task's events from `task.started` to the terminal one, stored and live."""
        for event in self.session.events(self.session.first_seq(self.id) - 1):
            if event.trace.task_id == self.id:
                yield event
                if event.type in TERMINAL_TYPES:
                    return

    def result(self) -> TaskResult:
        """Wait for the end. Raise the task's error if it failed; a stopped task has a result too."""
        return self._loop.wait(self._task.result())

    def approve(self, tool_call_id: str, **options: Any) -> None:
        """Let a waiting tool call run. Options as in `SyncSession.approve`."""
        self.session.approve(tool_call_id, **options)

    def deny(self, tool_call_id: str, reason: str, **options: Any) -> None:
        """Refuse a waiting tool call. Options as in `SyncSession.deny`."""
        self.session.deny(tool_call_id, reason, **options)

    def stop(self, reason: str = "stopped by the user") -> None:
        """Ask the task to end; `result` waits for it."""
        self._loop.wait(self._task.stop(reason))

    def steer(self, message: str | list[Message]) -> None:
        """Add user input to the task while it runs."""
        self._loop.wait(self._task.steer(message))
