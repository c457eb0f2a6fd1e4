"""Sessions and tasks of a daemon: the methods of `codesdk.handles`, each one a request.

A test compares the two, so that what is written for the one works with the other.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec

from codesdk.client.connection import Connection
from codesdk.client.stream import EventStream
from codesdk.contract import api
from codesdk.contract.codec import decode
from codesdk.contract.errors import Conflict, NotFound, TaskFailure
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import Message
from codesdk.contract.records import ApprovalRow, SessionRow, StoredFrame, TaskRow
from codesdk.contract.results import TaskResult, result_of
from codesdk.contract.settings import OnBusy
from codesdk.contract.tools import Grant, Record, Scope, UndoReport

PAGE = 1000
CHECK_S = 3600.0
"""How long the check of a log may take."""
_Nothing = type(None)
_DAMAGED = "the daemon cannot read it"


class _Page(Record, frozen=True, kw_only=True):
    """A page of events, each one kept as it was sent."""

    events: list[msgspec.Raw]
    head: int = 0
    damaged: list[int] = msgspec.field(default_factory=list[int])


class _Head(msgspec.Struct):
    seq: int


_HEAD = msgspec.json.Decoder(_Head)


class RemoteSession:
    """A session by its id. Cheap to make; the daemon holds what is live."""

    def __init__(self, connection: Connection, session_id: str) -> None:
        self.id = session_id
        self.path = f"/v1/sessions/{quote(session_id, safe='')}"
        self._connection = connection

    async def start(
        self,
        message: str | list[Message],
        *,
        on_busy: OnBusy = "queue",
        task_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> "RemoteTask":
        """Start a task. While another one runs it is queued, or as `on_busy` says."""
        body = api.NewTask(message=message, on_busy=on_busy, task_id=task_id)
        row = await self._connection.post(f"{self.path}/tasks", body, TaskRow, key=idempotency_key)
        return RemoteTask(self, row.task_id)

    async def resume(self, message: str | list[Message] | None = None) -> "RemoteTask":
        """Go on after an interruption, running first what was approved meanwhile."""
        row = await self._connection.post(
            f"{self.path}/resume", api.Resuming(message=message or None), TaskRow
        )
        return RemoteTask(self, row.task_id)

    async def fork(self, seq: int | None = None, *, title: str | None = None) -> "RemoteSession":
        """Return a new session that starts from this one's transcript as it was at `seq`."""
        row = await self._connection.post(f"{self.path}/fork", api.Forking(seq=seq, title=title), SessionRow)
        return RemoteSession(self._connection, row.session_id)

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
        body = api.Approving(attempt=attempt, input_hash=input_hash, scope=scope, reason=reason)
        await self._connection.post(self._call(tool_call_id, "approve"), body, _Nothing)

    async def deny(
        self, tool_call_id: str, reason: str, *, attempt: int | None = None, input_hash: str | None = None
    ) -> None:
        """Refuse a waiting tool call. The reason is told to the model."""
        body = api.Denying(reason=reason, attempt=attempt, input_hash=input_hash)
        await self._connection.post(self._call(tool_call_id, "deny"), body, _Nothing)

    async def grants(self) -> list[Grant]:
        """Return what was approved for the whole session."""
        return (await self._connection.get(f"{self.path}/grants", api.GrantPage)).grants

    async def revoke(self, tool: str) -> None:
        """Ask about a tool again that was approved for the session."""
        await self._connection.delete(f"{self.path}/grants/{quote(tool, safe='')}")

    async def stop(self, reason: str = "stopped by the user", *, task_id: str | None = None) -> None:
        """Stop the running task, or one that waits."""
        target = task_id or (await self.info()).active_task_id
        if target is None:
            raise Conflict(f"Session {self.id} has no running task to stop.")
        if task_id is not None:
            await self.task_info(task_id)
        await self._connection.post(_task(target, "stop"), api.Ending(reason=reason), TaskRow)

    async def steer(self, message: str | list[Message]) -> None:
        """Add user input to the running task, where the runtime can take it."""
        target = (await self.info()).active_task_id
        if target is None:
            raise Conflict(f"Session {self.id} has no running task.")
        await self.steer_task(target, message)

    async def steer_task(self, task_id: str, message: str | list[Message]) -> None:
        """Add user input to this task, if it is the running one."""
        await self._connection.post(_task(task_id, "steer"), api.Steering(message=message), TaskRow)

    async def undo(self, tool_call_id: str | None = None) -> UndoReport:
        """Take back what one tool call did to files, or what all calls of the session did, the newest first.

        A call is undone as a whole, and only if its files are still as it left them. Raise `Conflict` if
        nothing could be undone, `Busy` while a task runs.
        """
        body = api.Undoing(tool_call_id=tool_call_id)
        return await self._connection.post(f"{self.path}/undo", body, UndoReport)

    async def move(self, runtime: str, *, model: str | None = None) -> None:
        """Go on with another runtime, from the transcript. `session.resumed` says what is lost on the way."""
        await self._connection.post(f"{self.path}/move", api.Moving(runtime=runtime, model=model), SessionRow)

    async def close(self, reason: str = "closed by the user") -> None:
        """End the session; its log stays and can be read, forked and verified."""
        await self._connection.post(f"{self.path}/close", api.Ending(reason=reason), SessionRow)

    async def events(self, after_seq: int = 0) -> AsyncGenerator[Event]:
        """Yield the session's events, stored ones first, then live ones, until the client is closed.

        A daemon that is restarted is waited for, and its stream goes on where it was.
        """
        async with aclosing(self.frames(after_seq)) as batches:
            async for batch in batches:
                for frame in batch:
                    yield decode(frame.data)

    def frames(self, after_seq: int = 0) -> AsyncGenerator[list[StoredFrame]]:
        """Yield the same as bytes, as they are stored, in the batches in which they come."""
        return EventStream(self._connection, f"{self.path}/events", after_seq).batches()

    async def transcript(self) -> list[Message]:
        """Return the messages so far."""
        return (await self._connection.get(f"{self.path}/transcript", api.Transcript)).messages

    async def info(self) -> SessionRow:
        """Return the session as lists show it."""
        return await self._connection.get(self.path, SessionRow)

    def task(self, task_id: str) -> "RemoteTask":
        """Return a handle on one of its tasks."""
        return RemoteTask(self, task_id)

    async def task_info(self, task_id: str) -> TaskRow:
        """Return one of its tasks as lists show it."""
        row = await self._connection.get(_task(task_id), TaskRow)
        if row.session_id != self.id:
            raise NotFound(f"There is no task {task_id} in session {self.id}.")
        return row

    async def tasks(self, *, limit: int = 100) -> list[TaskRow]:
        """Return its tasks, newest first."""
        return (await self._connection.get(f"{self.path}/tasks", api.TaskPage, limit=limit)).tasks

    async def first_seq(self, task_id: str) -> int:
        """Return where one of its tasks begins, waiting in the queue included."""
        row = await self.task_info(task_id)
        return row.started_seq or row.queued_seq or 1

    async def ended_seq(self, task_id: str) -> int | None:
        """Return where one of its tasks ends, or None if it has not."""
        return (await self.task_info(task_id)).ended_seq

    async def event(self, seq: int) -> Event:
        """Return one stored event."""
        page = await self.page(seq - 1, limit=1) if seq > 0 else []
        if not page or page[0].seq != seq or page[0].damage is not None:
            raise NotFound(f"Event {seq} of session {self.id} cannot be read.")
        return decode(page[0].data)

    async def page(self, after_seq: int, *, limit: int = PAGE) -> list[StoredFrame]:
        """Return stored events after a seq, as bytes; those that cannot be read are marked."""
        path = f"{self.path}/events"
        found = await self._connection.get(path, _Page, stream="page", after_seq=after_seq, limit=limit)
        frames = [StoredFrame(seq=_HEAD.decode(event).seq, data=bytes(event)) for event in found.events]
        frames += [StoredFrame(seq=seq, data=b"", damage=_DAMAGED) for seq in found.damaged]
        return sorted(frames, key=lambda frame: frame.seq)

    async def head(self) -> int:
        """Return how many events it has."""
        return (await self._connection.get(f"{self.path}/events", _Page, stream="page", limit=1)).head

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer in it."""
        return (await self._connection.get(f"{self.path}/approvals", api.ApprovalPage)).approvals

    async def artifacts(self, *, after: str | None = None, limit: int = 100) -> list[api.ArtifactInfo]:
        """Return its artifacts in the order of their ids."""
        path = f"{self.path}/artifacts"
        return (await self._connection.get(path, api.ArtifactPage, after=after, limit=limit)).artifacts

    async def verify(self) -> api.CheckReport:
        """Have its log checked against the contract."""
        return await self._connection.get(f"{self.path}/verify", api.CheckReport, answer_s=CHECK_S)

    async def replay(self) -> api.CheckReport:
        """Have its log played through a fresh engine and compared."""
        return await self._connection.get(f"{self.path}/replay", api.CheckReport, answer_s=CHECK_S)

    def _call(self, tool_call_id: str, verb: str) -> str:
        return f"{self.path}/calls/{quote(tool_call_id, safe='')}/{verb}"


class RemoteTask:
    """A task by its id."""

    def __init__(self, session: RemoteSession, task_id: str) -> None:
        self.id = task_id
        self.session = session

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the task's events from `task.started` to the terminal one, stored and live."""
        first = await self.session.first_seq(self.id)
        async with aclosing(self.session.events(first - 1)) as events:
            async for event in events:
                if event.trace.task_id == self.id:
                    yield event
                    if event.type in TERMINAL_TYPES:
                        return

    async def result(self) -> TaskResult:
        """Wait for the end. Raise the task's error if it failed; a stopped task has a result too."""
        ended = await self.session.ended_seq(self.id)
        if ended is not None:
            return result_of(self.id, await self.session.event(ended))
        async with aclosing(self.events()) as events:
            async for event in events:
                if event.type in TERMINAL_TYPES:
                    return result_of(self.id, event)
        raise TaskFailure("The client was closed before the task ended.", code="INTERRUPTED", retryable=True)

    async def approve(self, tool_call_id: str, **options: Any) -> None:
        """Let a waiting tool call run. Options as in `RemoteSession.approve`."""
        await self.session.approve(tool_call_id, **options)

    async def deny(self, tool_call_id: str, reason: str, **options: Any) -> None:
        """Refuse a waiting tool call. Options as in `RemoteSession.deny`."""
        await self.session.deny(tool_call_id, reason, **options)

    async def stop(self, reason: str = "stopped by the user") -> None:
        """Ask the task to end; `result` waits for it."""
        await self.session.stop(reason, task_id=self.id)

    async def steer(self, message: str | list[Message]) -> None:
        """Add user input to the task while it runs."""
        await self.session.steer_task(self.id, message)


def _task(task_id: str, verb: str = "") -> str:
    return f"/v1/tasks/{quote(task_id, safe='')}" + (f"/{verb}" if verb else "")
