"""A live session: what callers ask of it, turned into decisions and runs.

Loaded and owned by `Engine`. Everything here happens on the loop, so each decision
is whole before anything else is looked at; what it promised is stored when the call returns.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import Busy, CodeSDKError, Conflict, ErrorInfo, InvalidRequest, NotFound
from codesdk.contract.events import SessionClosed, SessionResumed
from codesdk.contract.messages import ArtifactBlock, Message
from codesdk.contract.ports import ToolGate, ToolRunner
from codesdk.contract.records import KeyRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import OnBusy, SessionSettings
from codesdk.contract.tools import Actor, Decision, Scope, ToolIdentity
from codesdk.engine import ledger, lifecycle
from codesdk.engine.attachments import take_attachments
from codesdk.engine.beginnings import check_fit
from codesdk.engine.budgets import Standing
from codesdk.engine.context import Window
from codesdk.engine.endpoints import SessionEndpoints, tool_transport
from codesdk.engine.feed import Published, follow
from codesdk.engine.gate import TaskGate
from codesdk.engine.judgement import check_identity
from codesdk.engine.legible import check_size
from codesdk.engine.purses import Purses
from codesdk.engine.recorder import Recorder
from codesdk.engine.run import TaskRun
from codesdk.engine.scope import Ports, SessionScope
from codesdk.engine.slots import Slots
from codesdk.engine.state import Carried, SessionState
from codesdk.store.redaction import Redactor

PERSON = Actor(kind="user")


class LiveSession:
    """One session that this engine owns."""

    def __init__(
        self,
        ports: Ports,
        slots: Slots,
        runtime: Callable[[str], Runtime],
        state: SessionState,
        epoch: int,
        redactor: Redactor,
        on_broken: Callable[[str, CodeSDKError], None],
        purses: Purses,
        gate: ToolGate,
    ) -> None:
        self.session_id = state.session_id
        self._ports = ports
        self._slots = slots
        self._find_runtime = runtime
        self._on_broken = on_broken
        self.recorder = Recorder(
            ports.log,
            state,
            epoch,
            ports.stamper,
            max_backlog=ports.limits.max_backlog_frames,
            observers=ports.observers,
            strain=ports.strain,
            on_broken=self._broke,
        )
        self._redactor = redactor
        self._scope: SessionScope | None = None
        self._window: Window | None = None
        self.writes = asyncio.Lock()
        self._run: TaskRun | None = None
        self._driver: asyncio.Task[None] | None = None
        self._runtime: Runtime | None = None
        self._winding_down = False
        self._endpoints: SessionEndpoints | None = None
        self._purses = purses
        self._detach: Callable[[], Awaitable[None]] | None = None
        self._door = gate

    @property
    def state(self) -> SessionState:
        """The session's state, all written events folded in."""
        return self.recorder.state

    @property
    def scope(self) -> SessionScope:
        """What the parts of this session share. There once the session has its first event."""
        if self._scope is None:
            settings = msgspec.convert(self.state.config.settings, type=SessionSettings)
            self._scope = SessionScope(
                ports=self._ports, recorder=self.recorder, settings=settings, redactor=self._redactor
            )
        return self._scope

    def use_redactor(self, redactor: Redactor) -> None:
        """Keep other secrets out of what is written from now on."""
        self._redactor = redactor
        if self._scope is not None:
            self._scope.redactor = redactor

    async def attach(self, tools: ToolRunner, close: Callable[[], Awaitable[None]]) -> None:
        """Offer these tools from the next task on; `close` ends what is behind them when the session is let go."""
        detach, self._detach = self._detach, close
        self.scope.attached = tools
        if detach is not None:
            await detach()

    def _require_attached(self) -> None:
        missing = self.scope.settings.mcp_servers if self.scope.attached is None else []
        if missing:
            raise InvalidRequest(
                f"The session uses the MCP servers {', '.join(missing)}, and how to reach them is not stored."
                " Open it with mcp_servers again."
            )

    @property
    def gate(self) -> TaskGate | None:
        """Where calls of the running task come in, if its runtime makes them over MCP."""
        return None if self._run is None else self._run.gate

    @property
    def connected(self) -> bool:
        """Whether a runtime may be using an address of this session, even between tasks."""
        return self._detach is not None or (self._endpoints is not None and self._endpoints.open)

    @property
    def endpoints(self) -> SessionEndpoints:
        """The addresses that this session gives its runtime."""
        if self._endpoints is None:
            self._endpoints = SessionEndpoints(
                self._ports, lambda: self.scope, self._purses, self._give_up, self._door, self._learn
            )
        return self._endpoints

    def _learn(self, secret: str) -> None:
        self.use_redactor(Redactor((*self._redactor.secrets, secret)))

    def _give_up(self, cause: ErrorInfo, excess: Standing | None) -> None:
        if self._run is not None:
            self._run.give_up(cause, excess)

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits to run or waits to be committed."""
        return self._driver is None and not self.recorder.backlog and not self.state.queue

    def follow(self, after_seq: int) -> AsyncIterator[list[Published]]:
        """Yield batches of events after a seq, as they are committed."""
        return follow(self.recorder.feed, after_seq)

    async def start(
        self,
        messages: list[Message],
        *,
        on_busy: OnBusy,
        task_id: str,
        key: KeyRow | None = None,
    ) -> str:
        """Start a task, let it wait, or steer the running one. Return the id of the task it became."""
        messages = await self._accept(messages)
        self._require_open()
        self._require_attached()
        running = self.state.task
        if running is not None and on_busy == "steer":
            return await self.steer(messages, key)
        if task_id in (entry.task_id for entry in [*self.state.queue, *([running] if running else [])]):
            raise Conflict(f"There is already a task {task_id}.")
        if running is not None and on_busy == "reject":
            raise Busy(
                f"Session {self.session_id} is busy with {running.task_id}. Wait for it, or queue the task.",
                code="SESSION_BUSY",
            )
        free = running is None and not self.state.queue
        if free and self._slots.take(self.state.runtime_name):
            self._launch(task_id, messages)
        else:
            self._enqueue(task_id, messages, reject=on_busy == "reject")
        if key is not None:
            self.recorder.add_key(key)
        await self.recorder.settle()
        return task_id

    async def steer(
        self, messages: list[Message], key: KeyRow | None = None, *, task_id: str | None = None
    ) -> str:
        """Add user input to the running task. Return its id, which is also the answer under the key."""
        run = self._running_run()
        if task_id not in (None, run.task_id):
            raise Conflict(f"Task {task_id} does not run, so it takes no input; {run.task_id} does.")
        if not self._capabilities().supports_steer:
            raise InvalidRequest(
                f"The runtime {self.state.runtime_name} cannot be steered; queue a task instead."
            )
        if key is not None:
            key = msgspec.structs.replace(key, answer=run.task_id)
        await run.steer(await self._accept(messages), key)
        return run.task_id

    async def stop(self, task_id: str | None, by: Actor, reason: str, key: KeyRow | None = None) -> None:
        """Stop the running task, or take a waiting one out of the queue. Again is no error."""
        async with self.recorder.under_key(key):
            await self._stop(task_id, by, reason)

    async def _stop(self, task_id: str | None, by: Actor, reason: str) -> None:
        target = task_id or (self.state.task.task_id if self.state.task else None)
        if target is None:
            raise Conflict(f"Session {self.session_id} has no running task to stop.")
        reason = self._words(reason)
        if any(entry.task_id == target for entry in self.state.queue):
            lifecycle.drop_queued(self.recorder.journal, target, by, reason)
        elif self._run is not None and self._run.task_id == target:
            self._run.stop(by, reason)
        else:
            row = await self._ports.log.task(target, self.state.principal)
            if row is None or row.session_id != self.session_id:
                raise NotFound(f"There is no task {target} in session {self.session_id}.")

    async def answer(
        self,
        tool_call_id: str,
        decision: Decision,
        *,
        by: Actor = PERSON,
        scope: Scope = "once",
        reason: str | None = None,
        attempt: int | None = None,
        input_hash: str | None = None,
        key: KeyRow | None = None,
    ) -> None:
        """Approve or deny a call that waits for an answer, or one that a crash left waiting.

        A question about a budget is named by its approval id; to approve it grants the same amount once more.
        """
        async with self.recorder.under_key(key):
            await self._answer(tool_call_id, decision, by, scope, reason, attempt, input_hash)

    async def _answer(
        self,
        tool_call_id: str,
        decision: Decision,
        by: Actor,
        scope: Scope,
        reason: str | None,
        attempt: int | None,
        input_hash: str | None,
    ) -> None:
        if reason is not None:
            reason = self._words(reason)
        if tool_call_id in self.state.budget_questions:
            self._answer_budget(tool_call_id, decision, by, reason)
            return
        carried = next((c for c in self.state.carried if c.tool_call_id == tool_call_id), None)
        if carried is not None:
            check_identity(_identity(carried), attempt, input_hash)
            if carried.approved is None:
                ledger.answer_carried(self.recorder.journal, carried.approval_id, decision, by, reason)
            elif decision == "deny":
                raise Conflict(f"Call {tool_call_id} was already approved; resume the session to run it.")
        elif self._run is not None:
            await self._run.calls.answer(tool_call_id, decision, by, scope, reason, attempt, input_hash)
        else:
            raise NotFound(f"No call {tool_call_id} waits for an answer in session {self.session_id}.")

    def _answer_budget(self, approval_id: str, decision: Decision, by: Actor, reason: str | None) -> None:
        ledger.answer_budget(self.recorder.journal, approval_id, decision, by, reason)
        if self._run is not None:
            self._run.calls.questions.wake(approval_id)

    async def resume(self, messages: list[Message], task_id: str, key: KeyRow | None = None) -> str:
        """Go on after an interruption: run what was approved meanwhile, then continue the runtime."""
        messages = await self._accept(messages) if messages else []
        self._require_open()
        self._require_attached()
        state = self.state
        if state.task is not None:
            raise Busy(f"Session {self.session_id} is running {state.task.task_id}.", code="SESSION_BUSY")
        approved = [entry for entry in state.carried if entry.approved]
        if state.interrupted_task is None and not approved and not state.queue:
            raise Conflict(f"Session {self.session_id} was not interrupted; start a task instead.")
        if state.budget_questions:
            waiting = next(iter(state.budget_questions))
            raise Conflict(f"A budget is used up. Approve {waiting} to raise it, then resume.")
        if not self._slots.take(state.runtime_name):
            raise Busy("All task slots are taken; try again when a task has ended.")
        journal = self.recorder.journal
        journal.write(
            SessionResumed(
                resume_model="reconstruct",
                from_seq=state.seq,
                runtime=state.runtime_name,
                lost=[],
                mcp_transport=tool_transport(self._capabilities()),
            ),
            in_task=False,
        )
        if state.interrupted_task is not None or approved or messages:
            self._launch(task_id, messages, resumes=state.interrupted_task or state.last_task)
        else:
            waiting = state.queue[0]
            task_id = waiting.task_id
            self._launch(task_id, waiting.messages)
        if key is not None:
            self.recorder.add_key(msgspec.structs.replace(key, answer=task_id))
        await self.recorder.settle()
        return task_id

    async def move(self, runtime: str, model: str | None, key: KeyRow | None = None) -> None:
        """Go on with another runtime from the next task on. It is given the transcript; what is lost is said."""
        self._require_open()
        state = self.state
        if state.task is not None or state.queue:
            raise Busy(
                f"Session {self.session_id} has tasks to do; move it when they are done.", code="SESSION_BUSY"
            )
        found, before = self._find_runtime(runtime), state.runtime_name
        if found.name == before:
            raise InvalidRequest(f"Session {self.session_id} is a session of {before} already.")
        check_fit(found, state.config.native_tools, self.scope.settings.implicit_sources)
        await self._let_runtime_go()
        journal = self.recorder.journal
        journal.write(
            SessionResumed(
                resume_model="reconstruct",
                from_seq=state.seq,
                runtime=found.name,
                lost=["reasoning", f"what {before} kept of the conversation on its own"],
                mcp_transport=tool_transport(found.capabilities()),
            ),
            in_task=False,
        )
        if key is not None:
            self.recorder.add_key(key)
        if model is not None:
            journal.identify(model, None)
        self._runtime = found
        await self.recorder.settle()

    async def close(self, reason: str, key: KeyRow | None = None) -> bool:
        """End the session: stop its task, empty its queue, take no more. Return whether it was this call that did."""
        reason = self._words(reason)
        for waiting in list(self.state.queue):
            lifecycle.drop_queued(self.recorder.journal, waiting.task_id, PERSON, reason)
        await self.halt(PERSON, reason)
        if self.state.closed:
            async with self.recorder.under_key(key):
                return False
        for carried in [entry for entry in self.state.carried if entry.approved is None]:
            ledger.answer_carried(
                self.recorder.journal,
                carried.approval_id,
                "deny",
                lifecycle.ENGINE,
                "The session was closed.",
            )
        self.recorder.journal.write(SessionClosed(reason=reason), in_task=False)
        if key is not None:
            self.recorder.add_key(key)
        await self.recorder.settle()
        await self.release()
        return True

    async def release(self) -> None:
        """Let go of what is kept for this session, by its runtime, its tools and the servers attached to it."""
        try:
            await self._let_runtime_go()
        finally:
            await self._ports.tools.close_session(self.session_id)
            if self._detach is not None:
                detach, self._detach = self._detach, None
                await detach()

    async def _let_runtime_go(self) -> None:
        """Have the runtime close what it has of this session, in the time of a stop, and take its addresses back."""
        try:
            await self._close_runtime()
        finally:
            if self._endpoints is not None:
                await self._endpoints.close()

    async def _close_runtime(self) -> None:
        if self._runtime is not None:
            closing = asyncio.create_task(_let_go(self._runtime, self.session_id))
            await asyncio.wait([closing], timeout=self.scope.settings.stop_grace_s)
            closing.cancel()

    def start_no_more(self) -> None:
        """Let the running task end by itself and leave those that wait in the queue, for a resume."""
        self._winding_down = True

    async def halt(self, by: Actor, reason: str) -> None:
        """Stop the running task, if any, wait for its end, and start none of those that wait."""
        self.start_no_more()
        if self._run is not None:
            self._run.stop(by, reason)
        if self._driver is not None:
            await asyncio.wait([self._driver])

    def _launch(self, task_id: str, messages: list[Message], resumes: str | None = None) -> None:
        """Write `task.started` and set the task going. The slot is taken already."""
        try:
            runtime = self._use_runtime()
        except CodeSDKError:
            self._slots.give_back(self.state.runtime_name)
            raise
        scope = self.scope
        config = self._redactor.value(scope.settings.runtime_config)
        lifecycle.start(self.recorder.journal, task_id, messages, config, resumes=resumes)
        if self._window is None:
            self._window = Window(scope.settings.context_budget_tokens)
        self._run = TaskRun(scope, runtime, self._window, self.writes, self.endpoints)
        self._driver = asyncio.create_task(self._drive(self._run))

    async def _drive(self, run: TaskRun) -> None:
        runtime_name = self.state.runtime_name
        try:
            await run.run()
        except CodeSDKError:
            if self.recorder.broken is None:
                raise
        finally:
            if self._run is run:  # else the next task was started as soon as the end of this one showed
                self._run = None
                self._driver = None
            self._slots.give_back(runtime_name)
            self._next()

    def _next(self) -> None:
        """Start the first waiting task if there is room, else wait for room."""
        state = self.state
        if state.task is None:
            self.recorder.feed.forget()
        if self.recorder.broken or self._winding_down or state.task is not None or not state.queue:
            return
        if self._slots.take(state.runtime_name):
            self._slots.leave(self.session_id)
            self._launch(state.queue[0].task_id, state.queue[0].messages)
        else:
            self._slots.wait(self.session_id, state.runtime_name, self._next)

    def _enqueue(self, task_id: str, messages: list[Message], *, reject: bool) -> None:
        limit = self._ports.limits.max_queue
        if reject:
            raise Busy("All task slots are taken; try again when a task has ended.")
        if len(self.state.queue) >= limit:
            raise Busy(
                f"Session {self.session_id} already has {limit} tasks waiting. Try again when one has run.",
                code="QUEUE_FULL",
            )
        lifecycle.queue(self.recorder.journal, task_id, messages)
        if self.state.task is None:
            self._next()

    async def _accept(self, messages: list[Message]) -> list[Message]:
        """Check user messages, take secrets out of them, and make the files that they attach the session's."""
        check_size(messages, "The messages", self._ports.limits.max_message_bytes)
        if not messages:
            raise InvalidRequest("A task needs at least one message.")
        for message in messages:
            if message.role != "user" or not message.content:
                raise InvalidRequest("A task takes user messages with at least one block each.")
        if any(isinstance(block, ArtifactBlock) for message in messages for block in message.content):
            messages = await take_attachments(self.scope, self._capabilities(), messages)
        plain = msgspec.to_builtins(messages)
        clean = self._redactor.value(plain)
        return messages if clean is plain else msgspec.convert(clean, type=list[Message])

    def _words(self, text: str) -> str:
        """Return a reason that somebody gave, as it may be stored."""
        check_size(text, "A reason", self._ports.limits.max_message_bytes)
        return self._redactor.text(text)

    def _capabilities(self) -> Capabilities:
        return self._use_runtime().capabilities()

    def _use_runtime(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._find_runtime(self.state.runtime_name)
        return self._runtime

    def _running_run(self) -> TaskRun:
        if self._run is None:
            raise Conflict(f"Session {self.session_id} has no running task.")
        return self._run

    def _require_open(self) -> None:
        if self.state.closed or self._winding_down:
            raise Conflict(f"Session {self.session_id} is closed. Fork it to go on from where it was.")

    def _broke(self, error: CodeSDKError) -> None:
        if self._run is not None:
            self._run.abort(error)
        self._on_broken(self.session_id, error)


async def _let_go(runtime: Runtime, session_id: str) -> None:
    """Close what a runtime keeps of a session. It must not raise; if it does, other sessions still have to be closed."""
    with contextlib.suppress(Exception):
        await runtime.close_session(session_id)


def _identity(carried: Carried) -> ToolIdentity:
    return ToolIdentity(
        tool_call_id=carried.tool_call_id, attempt=carried.attempt, input_hash=carried.input_hash
    )
