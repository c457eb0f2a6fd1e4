"""A live session: what callers ask of it, turned into decisions and runs.

Loaded and owned by `Engine`; `turns` runs its tasks, on the runtime that `holdings` has for it. Everything
here happens on the loop, so each decision is whole before anything else is looked at; what it promised is
stored when the call returns.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from codesdk.contract.errors import Busy, CodeSDKError, Conflict, InvalidRequest, NotFound
from codesdk.contract.messages import Message
from codesdk.contract.ports import ToolGate, ToolRunner
from codesdk.contract.records import KeyRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import OnBusy, SessionSettings
from codesdk.contract.tools import Actor, Decision, Scope
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import check_identity
from codesdk.engine.calls.mcp_calls import TaskGate
from codesdk.engine.log.choke_point import ChokePoint
from codesdk.engine.log.feed import Published, follow
from codesdk.engine.log.observers import Observers
from codesdk.engine.log.recorder import Recorder
from codesdk.engine.log.state import SessionState
from codesdk.engine.models.spending import Purses
from codesdk.engine.sessions.creation import check_fit
from codesdk.engine.sessions.endpoints import SessionEndpoints, tool_transport
from codesdk.engine.sessions.queue import Turns
from codesdk.engine.sessions.resources import Holdings
from codesdk.engine.sessions.scope import Ports, SessionScope
from codesdk.engine.sessions.slots import Slots
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.user_input import take_messages, take_words
from codesdk.redaction import Redactor

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
        observers: Observers,
    ) -> None:
        self.session_id = state.session_id
        self._ports = ports
        self._find_runtime = runtime
        self._on_broken = on_broken
        self.recorder = Recorder(
            ports.log,
            state,
            epoch,
            ports.stamper,
            choke_point=ChokePoint(redactor, ports.strain),
            max_backlog=ports.limits.max_backlog_frames,
            observers=observers,
            strain=ports.strain,
            on_broken=self._broke,
        )
        self._scope: SessionScope | None = None
        self._holdings = Holdings(
            lambda: self.scope,
            runtime,
            lambda: SessionEndpoints(
                ports, lambda: self.scope, purses, self._turns.give_up, gate, self._learn
            ),
        )
        self._turns = Turns(lambda: self.scope, self._holdings, slots)

    @property
    def state(self) -> SessionState:
        """The session's state, all written events folded in."""
        return self.recorder.state

    @property
    def scope(self) -> SessionScope:
        """What the parts of this session share. There once the session has its first event."""
        if self._scope is None:
            settings = msgspec.convert(self.state.config.settings, type=SessionSettings)
            self._scope = SessionScope(ports=self._ports, recorder=self.recorder, settings=settings)
        return self._scope

    def use_redactor(self, redactor: Redactor) -> None:
        """Keep other secrets out of what is written from now on."""
        self.recorder.choke_point.redactor = redactor

    async def attach(self, tools: ToolRunner, close: Callable[[], Awaitable[None]]) -> None:
        """Offer these tools from the next task on; `close` ends what is behind them when the session is let go."""
        await self._holdings.attach(tools, close)

    @property
    def gate(self) -> TaskGate | None:
        """Where calls of the running task come in, if its runtime makes them over MCP."""
        return None if self._turns.run is None else self._turns.run.gate

    @property
    def writes(self) -> asyncio.Lock:
        """Held by whoever changes the files of this session."""
        return self._turns.writes

    @property
    def connected(self) -> bool:
        """Whether a runtime may be using an address of this session, even between tasks."""
        return self._holdings.connected

    def _learn(self, secret: str) -> None:
        known = self.recorder.choke_point.redactor.secrets
        self.use_redactor(Redactor((*known, secret)))

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits to run or waits to be committed."""
        return not self._turns.busy and not self.recorder.backlog and not self.state.queue

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
        messages = await take_messages(self.scope, messages, self._holdings.capabilities)
        self._require_open()
        self._holdings.require_attached()
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
        self._turns.begin(task_id, messages, may_wait=on_busy != "reject")
        if key is not None:
            self.recorder.add_key(key)
        await self.recorder.settle()
        return task_id

    async def steer(
        self, messages: list[Message], key: KeyRow | None = None, *, task_id: str | None = None
    ) -> str:
        """Add user input to the running task. Return its id, which is also the answer under the key."""
        run = self._turns.run
        if run is None:
            raise Conflict(f"Session {self.session_id} has no running task.")
        if task_id not in (None, run.task_id):
            raise Conflict(f"Task {task_id} does not run, so it takes no input; {run.task_id} does.")
        if not self._holdings.capabilities().supports_steer:
            raise InvalidRequest(
                f"The runtime {self.state.runtime_name} cannot be steered; queue a task instead."
            )
        if key is not None:
            key = msgspec.structs.replace(key, answer=run.task_id)
        await run.steer(await take_messages(self.scope, messages, self._holdings.capabilities), key)
        return run.task_id

    async def stop(self, task_id: str | None, by: Actor, reason: str, key: KeyRow | None = None) -> None:
        """Stop the running task, or take a waiting one out of the queue. Again is no error."""
        async with self.recorder.under_key(key):
            await self._stop(task_id, by, reason)

    async def _stop(self, task_id: str | None, by: Actor, reason: str) -> None:
        target = task_id or (self.state.task.task_id if self.state.task else None)
        if target is None:
            raise Conflict(f"Session {self.session_id} has no running task to stop.")
        reason = take_words(self.scope, reason)
        if any(entry.task_id == target for entry in self.state.queue):
            lifecycle.drop_queued(self.recorder.journal, target, by, reason)
        elif (run := self._turns.run) is not None and run.task_id == target:
            run.stop(by, reason)
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
            reason = take_words(self.scope, reason)
        if tool_call_id in self.state.budget_questions:
            self._answer_budget(tool_call_id, decision, by, reason)
            return
        carried = next((c for c in self.state.carried if c.tool_call_id == tool_call_id), None)
        if carried is not None:
            check_identity(carried.identity, attempt, input_hash)
            if carried.approved is None:
                ledger.answer_carried(self.recorder.journal, carried.approval_id, decision, by, reason)
            elif decision == "deny":
                raise Conflict(f"Call {tool_call_id} was already approved; resume the session to run it.")
        elif (run := self._turns.run) is not None:
            await run.calls.answer(tool_call_id, decision, by, scope, reason, attempt, input_hash)
        else:
            raise NotFound(f"No call {tool_call_id} waits for an answer in session {self.session_id}.")

    def _answer_budget(self, approval_id: str, decision: Decision, by: Actor, reason: str | None) -> None:
        ledger.answer_budget(self.recorder.journal, approval_id, decision, by, reason)
        if self._turns.run is not None:
            self._turns.run.calls.questions.wake(approval_id)

    async def resume(self, messages: list[Message], task_id: str, key: KeyRow | None = None) -> str:
        """Go on after an interruption: run what was approved meanwhile, then continue the runtime."""
        messages = await take_messages(self.scope, messages, self._holdings.capabilities) if messages else []
        self._require_open()
        self._holdings.require_attached()
        state = self.state
        if state.task is not None:
            raise Busy(f"Session {self.session_id} is running {state.task.task_id}.", code="SESSION_BUSY")
        approved = [entry for entry in state.carried if entry.approved]
        if state.interrupted_task is None and not approved and not state.queue:
            raise Conflict(f"Session {self.session_id} was not interrupted; start a task instead.")
        if state.budget_questions:
            waiting = next(iter(state.budget_questions))
            raise Conflict(f"A budget is used up. Approve {waiting} to raise it, then resume.")
        transport = tool_transport(self._holdings.capabilities())  # may fail, so before a slot is taken
        self._turns.take_slot()
        lifecycle.go_on(self.recorder.journal, state.runtime_name, transport, lost=[])
        if state.interrupted_task is not None or approved or messages:
            self._turns.launch(task_id, messages, resumes=state.interrupted_task or state.last_task)
        else:
            waiting = state.queue[0]
            task_id = waiting.task_id
            self._turns.launch(task_id, waiting.messages)
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
        await self._holdings.let_runtime_go()
        journal, transport = self.recorder.journal, tool_transport(found.capabilities())
        lost = ["reasoning", f"what {before} kept of the conversation on its own"]
        lifecycle.go_on(journal, found.name, transport, lost=lost)
        if key is not None:
            self.recorder.add_key(key)
        if model is not None:
            journal.identify(model, None)
        self._holdings.use(found)
        await self.recorder.settle()

    async def close(self, reason: str, key: KeyRow | None = None) -> bool:
        """End the session: stop its task, empty its queue, take no more. Return whether it was this call that did."""
        reason = take_words(self.scope, reason)
        for waiting in list(self.state.queue):
            lifecycle.drop_queued(self.recorder.journal, waiting.task_id, PERSON, reason)
        await self.halt(PERSON, reason)
        if self.state.closed:
            async with self.recorder.under_key(key):
                return False
        lifecycle.close(self.recorder.journal, reason)
        if key is not None:
            self.recorder.add_key(key)
        await self.recorder.settle()
        await self.release()
        return True

    async def release(self) -> None:
        """Let go of what is kept for this session, by its runtime, its tools and the servers attached to it."""
        try:
            await self._holdings.let_runtime_go()
        finally:
            await self._ports.tools.close_session(self.session_id)
            await self._holdings.detach()

    def start_no_more(self) -> None:
        """Let the running task end by itself and leave those that wait in the queue, for a resume."""
        self._turns.start_no_more()

    async def halt(self, by: Actor, reason: str) -> None:
        """Stop the running task, if any, wait for its end, and start none of those that wait."""
        await self._turns.halt(by, reason)

    def _require_open(self) -> None:
        if self.state.closed or self._turns.winding_down:
            raise Conflict(f"Session {self.session_id} is closed. Fork it to go on from where it was.")

    def _broke(self, error: CodeSDKError) -> None:
        self._turns.abort(error)
        self._on_broken(self.session_id, error)
