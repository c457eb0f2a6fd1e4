"""The handles of sessions and tasks: an id → what an application can do with it.

Cheap names for what the engine holds; `CodeSDK` gives them out.
"""

from collections.abc import AsyncIterator
from typing import Any

from codesdk.contract.errors import NotFound, TaskFailure
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import Message, user
from codesdk.contract.records import SessionRow, TaskRow
from codesdk.contract.results import TaskResult, result_of
from codesdk.contract.settings import OnBusy
from codesdk.contract.tools import Actor, Grant, Scope, UndoReport
from codesdk.engine import LOCAL, Engine, LiveSession, revoke, undo

__all__ = ["Session", "Task", "TaskResult"]


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
            return result_of(self.id, await self.session.event(ended))
        async for event in self.events():
            if event.type in TERMINAL_TYPES:
                return result_of(self.id, event)
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


def _messages(message: str | list[Message]) -> list[Message]:
    return [user(message)] if isinstance(message, str) else message
