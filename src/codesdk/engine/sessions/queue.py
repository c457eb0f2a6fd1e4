"""The tasks of one session in order: one runs, the others wait in the log's queue for its end and for a slot.

`session` decides what becomes a task. Each task that starts becomes a `TaskRun`, driven from here to its end;
then the next one starts.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from codesdk.contract.errors import Busy, CodeSDKError, ErrorInfo, InvalidRequest
from codesdk.contract.events import Resumes, TaskQueued
from codesdk.contract.messages import Message
from codesdk.contract.settings import Limits
from codesdk.contract.tools import Actor
from codesdk.engine.models.limits import Standing
from codesdk.engine.sessions.idling import IdleRuntime
from codesdk.engine.sessions.resources import Resources
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.answers import way_for
from codesdk.engine.tasks.compaction import OVER_BUDGET, TOO_LARGE, Plan, plan, prompt
from codesdk.engine.tasks.handover import Handover
from codesdk.engine.tasks.run import TaskRun

MOST_WAITING = 4
"""How many messages of the largest size may wait: whatever changes a session writes all that waits in it again."""
NO_SLOT = "All task slots are taken; try again when a task has ended."


class TaskQueue:
    """Starts the tasks of one session in order. Hold `writes` while changing the session's files."""

    def __init__(self, scope: SessionScope, resources: Resources, slots: "Slots") -> None:
        self.run: TaskRun | None = None
        self.writes = asyncio.Lock()
        self.changing = asyncio.Lock()
        """Held while an undo restores files or a move ends the runtime. No task begins meanwhile: what either records
        belongs to none."""
        self.winding_down = False
        scope.halt = self.give_up
        self._scope = scope
        self._resources = resources
        self._slots = slots
        self._handover = Handover(scope, resources)
        self._resumed = False
        self.idling = IdleRuntime(scope, resources)
        self._driver: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a task runs."""
        return self._driver is not None

    def begin(
        self,
        task_id: str,
        messages: list[Message],
        *,
        may_wait: bool,
        resumed: bool = False,
        output_schema: dict[str, Any] | None = None,
    ) -> None:
        """Start a task now if it is its turn and a slot is free; else queue it, if it may wait."""
        state = self._scope.state
        self._resumed = self._resumed or resumed
        if state.task is None and not state.queue and self._slots.take(state.runtime_name):
            self.launch(task_id, messages, output_schema=output_schema)
        elif may_wait:
            self._enqueue(task_id, messages, output_schema)
        else:
            raise Busy(NO_SLOT)

    async def changed(self) -> None:
        """Wait while an undo or a move is under way. Begin the task without another await, so that no new one comes first."""
        if self.changing.locked():
            async with self.changing:
                pass

    def take_slot(self) -> None:
        """Take a slot so that a task can be launched. Raise `Busy` if none is free."""
        if not self._slots.take(self._scope.state.runtime_name):
            raise Busy(NO_SLOT)

    def launch(
        self,
        task_id: str,
        messages: list[Message],
        resumes: Resumes | None = None,
        summary: Plan | None = None,
        *,
        resumed: bool = False,
        output_schema: dict[str, Any] | None = None,
    ) -> None:
        """Write `task.started` and run the task. The caller has already taken the slot.

        With a plan, the task writes the summary that it needs, and its end compacts the session. If the session is
        `resumed` with it, the log says how, once its runtime has begun.
        """
        scope = self._scope
        runtime_name = scope.state.runtime_name
        try:
            runtime = self._resources.runtime
            # Asked here, because it may fail and nothing is written yet.
            capabilities = self._resources.capabilities()
            lifecycle.start(
                scope.journal,
                task_id,
                messages,
                scope.settings.runtime_config,
                resumes=resumes,
                summarizes_before=summary.first if summary is not None else None,
                output_schema=output_schema,
                output_way=None if output_schema is None else way_for(output_schema, capabilities),
            )
            self.idling.keep()
            resumed, self._resumed = resumed or self._resumed, False
            run = TaskRun(scope, runtime, self._handover, self.writes, self._resources, summary, resumed)
            self._driver = asyncio.create_task(self._drive(run))
        except BaseException:
            self._slots.give_back(runtime_name)
            raise
        self.run = run

    def give_up(self, cause: ErrorInfo, excess: Standing | None) -> None:
        """End the running task, if any, for a reason that the engine knows."""
        if self.run is not None:
            self.run.give_up(cause, excess)

    def abort(self, error: CodeSDKError) -> None:
        """End the running task, if any, because of a fault in CodeSDK."""
        if self.run is not None:
            self.run.abort(error)

    def start_no_more(self) -> None:
        """Let the running task end by itself, and leave the queued ones for a resume."""
        self.winding_down = True
        self.idling.keep()

    async def halt(self, by: Actor, reason: str) -> None:
        """Stop the running task, if any, wait for its end, and start none of the queued ones."""
        self.start_no_more()
        if self.run is not None:
            self.run.stop(by, reason)
        await self._rest()

    async def interrupt(self) -> None:
        """Interrupt the running task, if any, so that it can be resumed, and start none of the queued ones."""
        self.start_no_more()
        if self.run is not None:
            self.run.interrupt()
        await self._rest()

    async def _rest(self) -> None:
        """Return when nothing runs, and no runtime is being ended."""
        if self._driver is not None:
            await asyncio.wait([self._driver])
        await self.idling.ended()

    async def _drive(self, run: TaskRun) -> None:
        scope = self._scope
        # Read now: once the task's end is recorded, the session may be moved to another runtime.
        runtime_name = scope.state.runtime_name
        try:
            await self.idling.ended()
            await run.run()
            await self._summarize_if_due(run)
        except CodeSDKError:
            if scope.recorder.broken is None:
                raise
        finally:
            if self.run is run:  # else the next task started as soon as the end of this one was recorded
                self.run = None
                self._driver = None
            # Sessions that wait come first: else one with a long queue would keep its slot for ever.
            self._slots.give_back(runtime_name)
            self._next()

    async def _summarize_if_due(self, ended: TaskRun) -> None:
        """Have older turns summed up before the next task, if the session wants that by itself and is too large.

        Once: if no summary comes of it, the next task leaves them out without one.
        """
        scope, state = self._scope, self._scope.state
        large = state.context.too_large or state.context.tokens > scope.settings.context_budget_tokens
        if scope.settings.auto_compact != "summary" or ended.writes_summary or not large:
            return
        reason = TOO_LARGE if state.context.too_large else OVER_BUDGET
        with contextlib.suppress(InvalidRequest):  # nothing is left to sum up
            planned = await plan(scope, lifecycle.ENGINE, reason)
            free = not (state.task or state.closed or self.winding_down or self.changing.locked())
            if (
                planned.first > state.context.compacted.first
                and free
                and self._slots.take(state.runtime_name)
            ):
                self.launch(scope.ports.stamper.mint("task"), prompt(), summary=planned)

    def _next(self) -> None:
        """Start the first queued task if a slot is free, else wait for one."""
        scope = self._scope
        state = scope.state
        if state.task is None:
            scope.recorder.feed.forget()
            if not self.winding_down:
                self.idling.watch()
        if scope.recorder.broken or self.winding_down or state.task is not None or not state.queue:
            return
        if self._slots.take(state.runtime_name):
            self._slots.leave(state.session_id)
            waiting = state.queue[0]
            self.launch(waiting.task_id, waiting.messages, output_schema=waiting.output_schema)
        else:
            self._slots.wait(state.session_id, state.runtime_name, self._next)

    def _enqueue(self, task_id: str, messages: list[Message], output_schema: dict[str, Any] | None) -> None:
        scope = self._scope
        limit = scope.ports.limits.max_queue
        if len(scope.state.queue) >= limit:
            raise Busy(
                f"Session {scope.state.session_id} already has {limit} tasks waiting. Try again when one has run.",
                code="QUEUE_FULL",
            )
        most = MOST_WAITING * scope.ports.limits.max_message_bytes
        waiting = [messages, *(entry.messages for entry in scope.state.queue)]
        if sum(len(msgspec.json.encode(each)) for each in waiting) > most:
            raise Busy(
                f"With this one, the tasks that wait in session {scope.state.session_id} would have more than {most:,}"
                " bytes. Try again when one has run.",
                code="QUEUE_FULL",
            )
        payload = TaskQueued(task_id=task_id, messages=messages, output_schema=output_schema)
        scope.journal.write(payload, in_task=False)
        if scope.state.task is None:
            self._next()


class Slots:
    """How many tasks may run at once, in all and per runtime. Sessions wait for a slot first come first served."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, tuple[str, Callable[[], None]]] = {}
        self._empty: list[asyncio.Future[None]] = []

    @property
    def running(self) -> int:
        """How many tasks run."""
        return self._running.total()

    def take(self, runtime: str) -> bool:
        """Take a slot. Return false if none is free."""
        full = self._running.total() >= self._limits.max_tasks
        if full or self._running[runtime] >= self._limits.max_tasks_per_runtime:
            return False
        self._running[runtime] += 1
        return True

    async def emptied(self) -> None:
        """Return when no task runs any more."""
        while self.running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._empty.append(waiter)
            await waiter

    def wait(self, session_id: str, runtime: str, wake: Callable[[], None]) -> None:
        """Call `wake` once a slot for the runtime may be free. A session that asks again keeps its place."""
        self._waiting[session_id] = (runtime, wake)

    def leave(self, session_id: str) -> None:
        """Stop waiting for a slot."""
        self._waiting.pop(session_id, None)

    def give_back(self, runtime: str) -> None:
        """Return a slot, and wake the waiting sessions in order until one has taken it."""
        self._running[runtime] -= 1
        self._tell_if_empty()
        for session_id, (wanted, wake) in list(self._waiting.items()):
            if self.running >= self._limits.max_tasks:
                return
            if self._running[wanted] < self._limits.max_tasks_per_runtime:
                self._waiting.pop(session_id, None)
                wake()

    def _tell_if_empty(self) -> None:
        if not self.running:
            waiting, self._empty = self._empty, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
