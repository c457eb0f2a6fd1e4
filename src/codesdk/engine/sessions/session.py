"""A live session: requests become decisions in its log, and runs of tasks.

`queue` runs its tasks, on the runtime that `resources` holds. Everything here runs on the event loop, so no
decision interrupts another. When a method returns, its effect is stored, together with the idempotency key of
the request.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from codesdk.contract.errors import Busy, Conflict, InvalidRequest, NotFound
from codesdk.contract.events import GrantRevoked, Resumes, SettingsChanged
from codesdk.contract.messages import Message
from codesdk.contract.options import fitting, read_options
from codesdk.contract.ports import ToolCalls
from codesdk.contract.records import KeyRow, SessionRow, TaskRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import CompactStrategy, OnBusy, SessionSettings, SettingsChange
from codesdk.contract.tools import Actor, Decision, Scope
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import check_identity
from codesdk.engine.calls.questions import take_answer, unanswerable
from codesdk.engine.log.fold import session_row, task_row
from codesdk.engine.log.fold_calls import call_asked_about
from codesdk.engine.log.recorder import Recorder
from codesdk.engine.log.state import Carried, SessionState
from codesdk.engine.models.limits import Spending
from codesdk.engine.sessions.creation import check_fit
from codesdk.engine.sessions.queue import Slots, TaskQueue
from codesdk.engine.sessions.resources import Resources, options_of, tool_transport
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.sessions.sealing import Held
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.answers import take_schema
from codesdk.engine.tasks.compaction import ASKED, carry_out, check, plan, prompt
from codesdk.engine.tasks.user_input import take_change, take_messages, take_words
from codesdk.engine.tasks.validation import MAX_OPTIONS_BYTES, check_settings

T = TypeVar("T")


class LiveSession:
    """One session that this engine owns."""

    def __init__(
        self,
        scope: SessionScope,
        slots: Slots,
        find_runtime: Callable[[str], Runtime],
        spending: Spending,
        tool_calls: ToolCalls,
        equipment: Held,
    ) -> None:
        self.session_id = scope.state.session_id
        self.scope = scope
        self.equipment = equipment
        self._find_runtime = find_runtime
        self.resources = Resources(scope, find_runtime, spending, tool_calls)
        self.queue = TaskQueue(scope, self.resources, slots)

    @property
    def recorder(self) -> Recorder:
        """The single writer of its events."""
        return self.scope.recorder

    @property
    def state(self) -> SessionState:
        """The session's state, all written events folded in."""
        return self.scope.recorder.state

    @property
    def idle(self) -> bool:
        """Whether nothing runs, is queued, waits to be committed, is being ended or changed."""
        return (
            not self.queue.busy
            and not self.recorder.backlog
            and not self.state.queue
            and not self.queue.idling.ending
            and not self.queue.changing.locked()
        )

    async def start(
        self,
        messages: list[Message],
        *,
        on_busy: OnBusy,
        task_id: str,
        output_schema: dict[str, Any] | None = None,
        key: KeyRow | None = None,
    ) -> TaskRow:
        """Start a task, queue it, or steer the running one. Return the row of the task it became."""
        if output_schema is not None:  # first of all: a refused one must leave nothing behind
            output_schema = take_schema(self.scope, output_schema, self.resources.capabilities())
        messages = await take_messages(self.scope, messages, self.resources.capabilities)
        await self.queue.changed()
        # Checked after these awaits: the session may have been closed or become busy meanwhile.
        self._require_open()
        self.resources.require_attached()
        running = self.state.task
        if running is not None and on_busy == "steer":
            if output_schema is not None:
                raise Conflict(
                    f"Task {running.task_id} is running and would get the message, but its result cannot be given another"
                    " schema. Queue the task, or leave out output_schema."
                )
            return await self.steer(messages, key=key)
        if task_id in (entry.task_id for entry in [*self.state.queue, *([running] if running else [])]):
            raise Conflict(f"There is already a task {task_id}.")
        if running is not None and on_busy == "reject":
            raise Busy(
                f"Session {self.session_id} is busy with {running.task_id}. Wait for it, or queue the task.",
                code="SESSION_BUSY",
            )
        self.queue.begin(task_id, messages, may_wait=on_busy != "reject", output_schema=output_schema)
        return await self._commit(await self.task_row(task_id), key)

    async def steer(
        self,
        messages: list[Message],
        *,
        by: Actor | None = None,
        task_id: str | None = None,
        key: KeyRow | None = None,
    ) -> TaskRow:
        """Add user input to the running task."""
        run = self.queue.run
        if run is None:
            raise Conflict(f"Session {self.session_id} has no running task.")
        if task_id not in (None, run.task_id):
            raise Conflict(
                f"Task {task_id} is not running, so it cannot take input. The running task is {run.task_id}."
            )
        if not self.resources.capabilities().supports_steer:
            raise InvalidRequest(
                f"The runtime {self.state.runtime_name} cannot be steered; queue a task instead."
            )
        if run.writes_summary:
            raise Conflict(
                f"Task {run.task_id} is summarizing the conversation and takes no input. Queue a task instead."
            )
        messages = await take_messages(self.scope, messages, self.resources.capabilities)
        row = await self.task_row(run.task_id)
        await run.steer(messages, row, key, by)
        return row

    async def stop(
        self,
        task_id: str | None,
        by: Actor,
        reason: str,
        *,
        denies: Sequence[str] = (),
        key: KeyRow | None = None,
    ) -> TaskRow:
        """Stop the running task, or take a queued one out of the queue. Repeating it is no error.

        `denies` are the approvals that are denied with it, in the same name.
        """
        target = task_id or (self.state.task.task_id if self.state.task else None)
        if target is None:
            raise Conflict(f"Session {self.session_id} has no running task to stop.")
        reason = take_words(self.scope, reason)
        if any(entry.task_id == target for entry in self.state.queue):
            lifecycle.drop_queued(self.recorder.journal, target, by, reason)
        elif (run := self.queue.run) is not None and run.task_id == target:
            run.stop(by, reason, denies)
        return await self._commit(await self.task_row(target), key)

    async def answer(
        self,
        tool_call_id: str,
        decision: Decision,
        *,
        by: Actor,
        scope: Scope = "once",
        reason: str | None = None,
        task_id: str | None = None,
        attempt: int | None = None,
        input_hash: str | None = None,
        key: KeyRow | None = None,
    ) -> None:
        """Approve or deny a call that waits for an answer, or one that a crash left waiting.

        A budget question is named by its approval id; approving it grants the same amount once more.
        """
        if reason is not None:
            reason = take_words(self.scope, reason)
        carried = next((c for c in self.state.carried if c.tool_call_id == tool_call_id), None)
        run = self.queue.run
        self._check_asker(task_id, tool_call_id, carried)
        if decision == "approve" and (
            tool_call_id in self.state.server_questions
            or (carried is not None and carried.question is not None)
        ):
            raise unanswerable(tool_call_id)
        if tool_call_id in self.state.server_questions and run is not None:
            run.calls.approvals.answer_server(tool_call_id, None, by, reason)
        elif tool_call_id in self.state.budget_questions:
            ledger.answer_question(self.recorder.journal, tool_call_id, decision, by, reason)
            if run is not None:
                run.calls.approvals.wake(tool_call_id)
        elif carried is not None:
            check_identity(carried.identity, attempt, input_hash)
            if carried.approved is None:
                ledger.answer_question(self.recorder.journal, carried.approval_id, decision, by, reason)
            elif decision == "deny":
                raise Conflict(f"Call {tool_call_id} was already approved; resume the session to run it.")
        elif run is not None:
            await run.calls.approvals.answer(tool_call_id, decision, by, scope, reason, attempt, input_hash)
        else:
            raise NotFound(f"No call {tool_call_id} waits for an answer in session {self.session_id}.")
        await self._commit(None, key)

    async def answer_question(
        self,
        approval_id: str,
        text: str,
        *,
        by: Actor,
        task_id: str | None = None,
        key: KeyRow | None = None,
    ) -> None:
        """Answer a question with text, or one that a crash left waiting. The first answer counts."""
        text = take_words(self.scope, text)
        state, run = self.state, self.queue.run
        carried = next((entry for entry in state.carried if entry.approval_id == approval_id), None)
        self._check_asker(task_id, approval_id, carried)
        server = state.server_questions.get(approval_id)
        asked = call_asked_about(state, approval_id)
        if asked is not None and asked.phase != "waiting":
            asked = None  # somebody was faster
        waiting = server or carried or asked
        question = None if waiting is None else waiting.question
        if approval_id in state.budget_questions or (waiting is not None and question is None):
            raise InvalidRequest(f"{approval_id} asks for a decision: approve or deny it.")
        if question is None or (carried is not None and carried.approved is not None):
            raise Conflict(
                f"No question {approval_id} waits for an answer. Somebody may have answered it already."
            )
        text = take_answer(question, text)
        if carried is not None:
            ledger.answer_question(self.recorder.journal, approval_id, "approve", by, None, text)
        elif run is not None and server is not None:
            run.calls.approvals.answer_server(approval_id, text, by, None)
        elif run is not None and asked is not None:
            call_id, attempt = asked.identity.tool_call_id, asked.identity.attempt
            await run.calls.approvals.answer(call_id, "approve", by, "once", None, attempt, None, text)
        await self._commit(None, key)

    def _check_asker(self, task_id: str | None, name: str, carried: Carried | None) -> None:
        """Raise `NotFound` if a question is another task's than the one that it is answered for."""
        budget, run = self.state.budget_questions.get(name), self.queue.run
        if task_id is None or (budget is not None and budget.task_id is None):
            return  # what a budget asks after the end of a task is the session's, so it is every task's
        asking = (
            (carried.task_id or self.state.interrupted_task) if carried is not None else run and run.task_id
        )
        if task_id != asking:
            raise NotFound(f"Nothing of task {task_id} waits for an answer under {name}.")

    async def revoke(self, tool: str, by: Actor, key: KeyRow | None = None) -> None:
        """Ask about a tool again from now on. Calls that were already decided are not affected."""
        if not any(grant.tool == tool for grant in self.state.grants):
            raise NotFound(f"The tool {tool} is not approved for session {self.session_id}.")
        self.recorder.journal.write(GrantRevoked(tool=tool, by=by))
        await self._commit(None, key)

    async def resume(
        self, messages: list[Message], task_id: str, by: Actor, key: KeyRow | None = None
    ) -> TaskRow:
        """Continue after an interruption: run the calls approved meanwhile, then the runtime."""
        messages = await take_messages(self.scope, messages, self.resources.capabilities) if messages else []
        await self.queue.changed()
        self._require_open()
        self.resources.require_attached()
        state = self.state
        if state.task is not None:
            raise Busy(f"Session {self.session_id} is running {state.task.task_id}.", code="SESSION_BUSY")
        approved = [entry for entry in state.carried if entry.approved]
        if state.interrupted_task is None and not approved and not state.queue:
            raise Conflict(f"Session {self.session_id} was not interrupted; start a task instead.")
        if state.budget_questions:
            waiting = next(iter(state.budget_questions))
            raise Conflict(f"A budget is used up. Approve {waiting} to raise it, then resume.")
        before = state.interrupted_task or state.last_task
        if messages and before is None:  # nothing to go on from, so it has its turn behind those that wait
            self.queue.begin(task_id, messages, may_wait=True, resumed=True)
        elif state.interrupted_task is not None or approved or messages:
            self.queue.take_slot()
            schema = state.interrupted_schema
            resumes = self._resumes(by)
            self.queue.launch(task_id, messages, resumes, resumed=True, output_schema=schema)
        else:
            waiting = state.queue[0]
            task_id, schema = waiting.task_id, waiting.output_schema
            self.queue.take_slot()
            self.queue.launch(task_id, waiting.messages, resumed=True, output_schema=schema)
        return await self._commit(await self.task_row(task_id), key)

    def _resumes(self, by: Actor) -> Resumes | None:
        """Return what a resumed task says of the one that it continues, and of the engine if nobody asked for it."""
        before = self.state.interrupted_task or self.state.last_task
        if before is None or by.kind != "engine":
            return None if before is None else Resumes(task_id=before)
        return Resumes(task_id=before, by=by, attempt=self.state.attempts + 1)

    async def move(
        self,
        runtime: str,
        model: str | None,
        runtime_config: dict[str, Any] | None = None,
        key: KeyRow | None = None,
    ) -> SessionRow:
        """Use another runtime from the next task on. It gets the transcript; the log says what is lost."""
        if self.queue.changing.locked():
            raise Busy(
                f"Session {self.session_id} is being moved, or its files are being restored. Try again when that is done.",
                code="SESSION_BUSY",
            )
        async with self.queue.changing:
            await self._move(runtime, model, runtime_config)
        return await self._commit(session_row(self.state), key)

    async def _move(self, runtime: str, model: str | None, runtime_config: dict[str, Any] | None) -> None:
        """Change the runtime. The caller holds `changing`: to release the old one takes time, in which no task may begin."""
        self._require_open()
        state = self.state
        # Queued tasks were accepted for the runtime that the session has.
        if state.task is not None or state.queue:
            raise Busy(
                f"Session {self.session_id} has tasks to do; move it when they are done.", code="SESSION_BUSY"
            )
        found, before = self._find_runtime(runtime), state.runtime_name
        if found.name == before:
            raise InvalidRequest(f"Session {self.session_id} runs on {before} already. Name another runtime.")
        check_fit(found, state.config.native_tools, self.scope.settings)
        config = self.scope.settings.runtime_config
        left = _options_for(found, self.scope, runtime_config)
        await self.resources.release_runtime()
        self._require_open()  # it may have been closed meanwhile
        journal, transport = self.recorder.journal, tool_transport(found, left)
        lost = ["reasoning", f"what {before} kept of the conversation on its own"]
        lost += [f"the option {name}" for name in config if name not in left]
        lifecycle.resume_from_transcript(
            journal, found.name, transport, lost=lost, runtime_config=None if left == config else left
        )
        self.scope.settings = msgspec.convert(self.state.config.settings, type=SessionSettings)
        if model is not None:
            journal.identify(model, None)
        self.resources.use(found)

    async def change_settings(
        self, change: SettingsChange, by: Actor, key: KeyRow | None = None
    ) -> SessionRow:
        """Change settings from the next decision on, also while a task runs or once the session is closed."""
        given = take_change(self.scope, change).given()
        self.recorder.journal.write(SettingsChanged(by=by, **given), in_task=False)
        self.scope.settings = msgspec.convert(self.state.config.settings, type=SessionSettings)
        return await self._commit(session_row(self.state), key)

    async def compact(
        self,
        strategy: CompactStrategy,
        keep_tokens: int | None,
        by: Actor,
        task_id: str,
        key: KeyRow | None = None,
    ) -> SessionRow:
        """Give the runtime less of the conversation from the next task on, at once or when a summary is written."""
        self._require_open()
        planned = await plan(self.scope, by, ASKED, keep_tokens)
        await self.queue.changed()
        check(self.scope, planned)
        self._require_open()
        # Queued tasks were accepted for the conversation as it is.
        if self.state.task is not None or self.state.queue:
            raise Busy(
                f"Session {self.session_id} has tasks to do; compact it when they are done.",
                code="SESSION_BUSY",
            )
        if strategy == "window":
            carry_out(self.scope, planned)
        elif planned.first == self.state.context.compacted.first:
            raise Conflict(
                f"There is no turn of session {self.session_id} to summarize. Keep fewer tokens, or use the strategy window."
            )
        else:
            self.resources.require_attached()
            self.queue.take_slot()
            self.queue.launch(task_id, prompt(), summary=planned)
        return await self._commit(session_row(self.state), key)

    async def close(self, reason: str, by: Actor, key: KeyRow | None = None) -> SessionRow:
        """End the session: stop its task, empty its queue, refuse new tasks. Repeating it is no error."""
        reason = take_words(self.scope, reason)
        for waiting in list(self.state.queue):
            lifecycle.drop_queued(self.recorder.journal, waiting.task_id, by, reason)
        await self.queue.halt(by, reason)
        if self.state.closed:
            return await self._commit(session_row(self.state), key)
        lifecycle.close(self.recorder.journal, reason)
        row = await self._commit(session_row(self.state), key)
        await self.resources.release()
        return row

    async def end_work(self, by: Actor, reason: str) -> None:
        """End the running task because the engine is closed: stop it, or interrupt it if it goes on by itself."""
        if self.scope.settings.on_interrupt == "resume":
            await self.queue.interrupt()
        else:
            await self.queue.halt(by, reason)

    async def task_row(self, task_id: str) -> TaskRow:
        """Return the row of one of its tasks, including what is written but not committed yet."""
        pending = self.recorder.journal.changes.tasks
        row = next((row for row in reversed(pending) if row.task_id == task_id), None)
        row = row or task_row(self.state, task_id)
        if row is None:
            row = await self.scope.ports.log.task(task_id, self.state.principal)
        if row is None or row.session_id != self.session_id:
            raise NotFound(f"There is no task {task_id} in session {self.session_id}.")
        return row

    async def _commit(self, result: T, key: KeyRow | None) -> T:
        """Store what was written, and the result under its idempotency key, in one commit."""
        await self.recorder.commit(key, result)
        return result

    def _require_open(self) -> None:
        if self.state.closed or self.queue.winding_down:
            raise Conflict(f"Session {self.session_id} is closed. Fork it to continue from where it was.")


def _options_for(runtime: Runtime, scope: SessionScope, given: dict[str, Any] | None) -> dict[str, Any]:
    """Return what another runtime is told: what is given for it, or else what it takes of the session's options."""
    kind = options_of(runtime)
    if given is None:
        return fitting(kind, scope.settings.runtime_config)
    check_settings(given, "The runtime_config", MAX_OPTIONS_BYTES)
    read_options(kind, given, runtime.name)
    return scope.redactor.value(given)
