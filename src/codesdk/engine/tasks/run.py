"""One run of a task: compile the context, start the runtime, take its stream, write the end.

The runtime is never trusted to end: a stop, a fault of ours or silence ends the task after a grace period,
with or without it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from codesdk.contract.errors import CodeSDKError, Conflict, ErrorInfo, TaskFailure
from codesdk.contract.events import TaskSteered
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import KeyRow, TaskRow
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    Runtime,
    RuntimeItem,
    RuntimeTask,
    ToolAnnouncement,
    ToolDropped,
    ToolEnded,
    ToolReply,
)
from codesdk.contract.tools import Actor, ToolIdentity
from codesdk.engine.calls import ledger
from codesdk.engine.calls.calls import Calls
from codesdk.engine.calls.carried import close_interrupted
from codesdk.engine.log.state import Answer
from codesdk.engine.models.limits import Standing, is_asked
from codesdk.engine.sessions.resources import Resources, RuntimeHost, tool_transport
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.adapter_calls import (
    Ending,
    call_within,
    crash,
    ending_of,
    forget,
    legible_ending,
    require_ready,
)
from codesdk.engine.tasks.answers import MAX_REMINDERS, answer_of, missing, reminder, unanswered
from codesdk.engine.tasks.compaction import NO_SUMMARY, Plan, carry_out
from codesdk.engine.tasks.context import Offered, runtime_env
from codesdk.engine.tasks.drafts import Intake
from codesdk.engine.tasks.handover import Handover
from codesdk.engine.tasks.instructions import capture
from codesdk.foreign import call, name_of

YIELD_EVERY = 64
SHUTDOWN = "CodeSDK is shutting down"
_NOT_RECORDED = (
    "The program uses an account of its own, beside the gateway, so its model's answers are not recorded. To record them,"
    " use a key, or a login that goes through the gateway."
)
_ENDINGS = (Finished, Failed)  # a tuple: a union would be built again for every item


class TaskRun:
    """Drives one task from `task.started` to its terminal event."""

    def __init__(
        self,
        scope: SessionScope,
        runtime: Runtime,
        handover: Handover,
        writes: asyncio.Lock,
        resources: Resources,
        summary: Plan | None = None,
        resumed: bool = False,
    ) -> None:
        task = scope.state.task
        assert task is not None, "a run needs a started task"
        self.task_id = task.task_id
        self._scope = scope
        self._runtime = runtime
        self._handover = handover
        self._summary = summary
        self._resumed = resumed
        self._resources = resources
        self._cause: ErrorInfo | None = None
        self._excess: Standing | None = None
        self._intake = Intake(scope, resources.spending, self._is_over_budget)
        self._halted: asyncio.Future[Failed] = asyncio.get_running_loop().create_future()
        self._handle: RuntimeTask | None = None
        self._last_item_s = 0.0
        self._stopping: asyncio.Task[None] | None = None
        self._early_steering: list[tuple[int, list[Message]]] = []
        self._ending = False
        self._interrupted = False
        self.calls = Calls(
            scope,
            self._intake,
            writes,
            resources,
            reply=self._reply,
            on_fault=self._on_fault,
            violated=self._on_violation,
        )
        resources.tap.refuse = self.calls.refuse

    @property
    def writes_summary(self) -> bool:
        """Whether the task only sums up older turns."""
        return self._summary is not None

    async def run(self) -> None:
        """Run the task to its end. Raises only if the log cannot be written."""
        ending = await self._guarded()
        try:
            await self._finish(ending)
        finally:
            if self._stopping is not None:
                self._stopping.cancel()
            self.calls.requests.release()
            if self._resources.tap.refuse == self.calls.refuse:  # else the next task has begun already
                self._resources.tap.refuse = None

    def give_up(self, cause: ErrorInfo, excess: Standing | None) -> None:
        """End the task for a reason that the engine knows, after a grace period for the runtime."""
        if self._cause is None:
            self._cause, self._excess = cause, excess
            self.calls.refusal = cause.message
            self._stopping = self._stopping or self._pressing(cause.message)

    def stop(self, by: Actor, reason: str, denies: Sequence[str] = ()) -> None:
        """Ask the task to end. Returns at once; the grace period runs in the background.

        Of what waits for an answer, the approvals in `denies` are denied by whoever stops it, all else by the engine.
        """
        task = self._scope.state.task
        if task is None or task.task_id != self.task_id or task.stop is not None:
            return
        # In one step with the stop: a runtime that was told of a denial first would go on with something else.
        self.calls.approvals.deny_each(denies, by, reason)
        lifecycle.ask_stop(self._scope.journal, by, reason)
        self.calls.stop()
        if self._stopping is not None:
            self._stopping.cancel()
        self._stopping = self._pressing(reason)

    def interrupt(self) -> None:
        """End the run as a crash would, but in order: what waits for a person is carried, and a resume goes on."""
        task = self._scope.state.task
        if task is None or task.task_id != self.task_id or task.stop is not None or self._ending:
            return
        self._interrupted = True
        self.calls.leave()
        self._stopping = self._stopping or self._pressing(SHUTDOWN)

    async def steer(
        self, messages: list[Message], row: TaskRow, key: KeyRow | None, by: Actor | None = None
    ) -> None:
        """Record more user input and give it to the runtime, now or when it has started."""
        if self._ending or self._is_stopping():
            raise Conflict(f"Task {self.task_id} is ending and takes no more input; start another task.")
        seq = self._scope.journal.write(TaskSteered(messages=messages, by=by)).seq
        self._handover.expect(seq)
        await self._scope.recorder.commit(key, row)
        # A message recorded before the input was compiled is part of it; handing it over would say it twice.
        if self._handle is None:
            self._early_steering.append((seq, messages))
        elif seq > self._handover.input_seq:
            await self._hand_over(self._handle, seq, messages)

    def abort(self, error: CodeSDKError) -> None:
        """End the run because of a fault in CodeSDK."""
        self._halt(Failed(error=error.info()))

    def _halt(self, ending: Failed) -> None:
        """End the run now, whatever the runtime does."""
        if not self._halted.done():
            self._halted.set_result(ending)

    async def _guarded(self) -> Ending:
        playing = asyncio.create_task(call(self._play))
        idle = asyncio.create_task(self._watch_silence())
        try:
            await asyncio.wait([playing, self._halted], return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
            if not playing.done():
                playing.cancel()
                await asyncio.wait([playing], timeout=self._scope.settings.stop_grace_s)
        if self._halted.done():
            forget(playing)
            return self._halted.result()
        return ending_of(self._runtime.name, playing)

    async def _play(self) -> Ending:
        state = self._scope.state
        # With many tasks started at once, all who started one hear that it is stored before any of them goes on.
        await self._scope.recorder.settle()
        await asyncio.sleep(0)
        beside = False
        if self._scope.ports.models is not None:  # else it is up to the runtime whether it needs one
            limit_s = self._scope.settings.start_timeout_s
            status = await require_ready(self._runtime, runtime_env(self._scope), limit_s)
            beside = status.traffic == "beside"
        if beside:
            await self._resources.require_countable()
            if self._scope.settings.gateway == "record":
                lifecycle.notice(self._scope.journal, "warning", _NOT_RECORDED, {})
        for carried in [entry for entry in state.carried if entry.approved]:
            if not self._is_stopping():
                await self.calls.run_carried(carried)
        if self._is_stopping():
            return Finished(stop_reason="stopped")
        await self._resources.spending.load(state.principal)
        if self._is_over_budget():
            return Finished(stop_reason="stopped")
        self._scope.hold_workspace()
        capabilities = self._resources.capabilities()
        captured = await capture(self._scope, capabilities.instruction_files)
        host = RuntimeHost(self._scope, self._resources, self.calls.may_run, self.calls.ask_user)
        offered = Offered(capture=capabilities.input_capture, captured=captured, unseen=beside)
        handle = self._handle = await self._handover.begin(self.task_id, host, offered)
        if self._resumed:
            transport = tool_transport(self._runtime, self._scope.settings.runtime_config)
            lifecycle.resumed(self._scope.journal, self._handover.went_native, transport, self._runtime)
        ending = await self._listen(handle)
        while (problem := await self._lacks(ending)) is not None:
            await self._leave_turn()
            if self._is_stopping() or self._cause is not None:
                return Finished(stop_reason="stopped")
            said = await self._ask_again(problem)
            handle = self._handle = await self._handover.begin(self.task_id, host, offered, said)
            ending = await self._listen(handle)
        return ending

    async def _listen(self, handle: RuntimeTask) -> Ending:
        """Take what a runtime says that has just begun, once it has all that was said to it meanwhile."""
        self._last_item_s = asyncio.get_running_loop().time()
        if self._is_stopping():
            return Finished(stop_reason="stopped")
        early, self._early_steering = self._early_steering, []
        for seq, messages in early:
            if seq > self._handover.input_seq:  # else it is part of the compiled input
                await self._hand_over(handle, seq, messages)
        return await self._pull(handle)

    async def _lacks(self, ending: Ending) -> str | None:
        """Return what is wrong with the result of a turn that is over, if the runtime is to be asked again."""
        task = self._scope.state.task
        if task is None or task.output_schema is None or not isinstance(ending, Finished):
            return None
        ended = await self.calls.settle(self._scope.settings.end_grace_s)
        over = self._is_stopping() or self._cause is not None or self._is_over_budget()
        if over or not ended or task.reminded >= MAX_REMINDERS or self._resources.tap.unrecognized():
            return None
        return missing(task)

    async def _leave_turn(self) -> None:
        """Release a turn that is over. What is said from here on is handed over when the next one has begun."""
        over, self._handle, self._last_item_s = self._handle, None, 0.0
        if over is not None:
            await call_within(self._scope.settings.stop_grace_s, over.close)
        self._intake.release()

    async def _ask_again(self, problem: str) -> int:
        """Record that the result is asked for again. Return the index of that message."""
        task = self._scope.state.task
        assert task is not None, "only this run ends its task"
        lifecycle.ask_again(self._scope.journal, reminder(task, problem))
        said = self._scope.state.messages - 1
        await self._scope.recorder.settle()  # what a runtime has of its own is compared with what is stored
        return said

    async def _pull(self, handle: RuntimeTask) -> Ending:
        """Take the stream. Pauses while the log is behind, so that the runtime is slowed down."""
        recorder = self._scope.recorder
        clock = asyncio.get_running_loop().time
        taken = 0
        async with aclosing(handle.events()) as items:
            async for item in items:
                self._last_item_s = clock()
                if isinstance(item, _ENDINGS):
                    return item
                if self._halted.done():
                    break  # the stream ignored its cancellation, and the task ends without it
                if type(item) is not Draft or not self._intake.quick(item):
                    await self._take(item)
                taken += 1
                if taken % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                    await recorder.ready()
        return crash(self._runtime.name, "its stream ended without saying how the task went")

    async def _take(self, item: RuntimeItem) -> None:
        if isinstance(item, Draft):
            await self._intake.draft(item)
        elif isinstance(item, ToolAnnouncement):
            if self._is_limited():
                self._intake.watch_budget(item.message_id)
            await self.calls.announce(item)
        elif isinstance(item, ToolEnded):
            await self.calls.ended(item)
        elif isinstance(item, ToolDropped):
            await self.calls.dropped(item)
        elif isinstance(item, Identified):
            await self._intake.identify(item)
        else:
            await self._intake.malformed("an item of an unknown kind.", item)

    def _on_violation(self, message: str, tool: str) -> None:
        """End a task whose runtime ran a tool that it had to ask about."""
        lifecycle.notice(self._scope.journal, "violation", message, {"tool": tool, "executed_by": "runtime"})
        error = ErrorInfo(code="FORBIDDEN", message=message, retryable=False, runtime=self._runtime.name)
        self.give_up(error, None)

    async def _finish(self, ending: Ending) -> None:
        """Close what is open and write the terminal event."""
        scope = self._scope
        self._ending = True
        if scope.recorder.broken is not None:
            await self.calls.close(0)
            await self._close_handle()
            raise scope.recorder.broken
        task = scope.state.task
        grace = scope.settings.stop_grace_s if self._is_stopping() else scope.settings.end_grace_s
        if (isinstance(ending, Failed) or self._cause is not None) and not self._interrupted:
            self.calls.approvals.refuse_all("The runtime ended the task before anyone answered.")
            grace = min(grace, scope.settings.stop_grace_s)
        # A halted run waits for nobody.
        if self._interrupted:
            await self.calls.abandon(grace)
        else:
            await self.calls.close(0 if self._halted.done() else grace)
        await self._close_handle()
        ending = legible_ending(self._runtime.name, ending, scope.ports.limits.max_event_bytes)
        raw, raw_ref = await self._intake.last_raw(ending.raw)
        # Model requests that still end now are then part of the task's usage.
        await self._resources.tap.idle(grace)
        self._intake.release()
        assert task is not None, "only this run ends its task"
        if self._interrupted and task.stop is None and self._cause is None:
            await close_interrupted(scope, "SHUTDOWN")
            return
        if self._interrupted:  # and yet stopped, or ended for its own reason: what was left open is closed
            await self.calls.close(0)
        failure = ending.error if isinstance(ending, Failed) else self._resources.tap.unrecognized()
        error = self._cause or failure
        stop_reason = ending.stop_reason if isinstance(ending, Finished) else None
        written: ArtifactRef | None = None
        if self._summary is not None and error is None and task.stop is None:
            error = None if task.text else NO_SUMMARY
            if task.text:
                written = await scope.put_artifact(
                    task.text.encode(), "text/markdown; charset=utf-8", "summary"
                )
        answer: Answer | None = None
        if error is None and task.stop is None:
            error = unanswered(task, self._runtime.name)
            answer = None if error else await answer_of(scope, task)
        lifecycle.end(
            scope.journal, stop_reason=stop_reason, error=error, raw=raw, raw_ref=raw_ref, answer=answer
        )
        if self._summary is not None and written is not None:
            carry_out(scope, self._summary, (task.text, self.task_id, written))
        over = self._excess if task.stop is None else None
        if over is not None and not is_asked(scope.state, over.level):
            ledger.ask_budget(scope.journal, over.level, over.summary)
        await scope.recorder.settle()

    def _pressing(self, reason: str) -> asyncio.Task[None]:
        # A runtime that gets a tool result now would ask its model again before it hears of the stop.
        self.calls.requests.hold()
        return asyncio.create_task(self._press(reason))

    async def _press(self, reason: str) -> None:
        """Give the runtime its grace period to stop, then stop waiting for it."""
        grace = self._scope.settings.stop_grace_s
        deadline = asyncio.get_running_loop().time() + grace
        if self._handle is not None:
            await call_within(grace, self._handle.stop, reason)
        self.calls.requests.release()
        await asyncio.sleep(max(0.0, deadline - asyncio.get_running_loop().time()))
        message = "The runtime did not end after it was asked to stop."
        self._halt(Failed(error=ErrorInfo(code="TIMEOUT", message=message, retryable=False)))

    async def _watch_silence(self) -> None:
        """Halt the run when the runtime is silent for too long while it waits for nothing of ours."""
        clock = asyncio.get_running_loop().time
        limit = self._scope.settings.idle_timeout_s
        while True:
            quiet = clock() - self._last_item_s if self._last_item_s else 0.0
            await asyncio.sleep(max(limit - quiet, 0.01))
            if self.calls.busy or not self._last_item_s:
                self._last_item_s = clock() if self._last_item_s else 0.0
            elif clock() - self._last_item_s >= limit:
                message = f"The runtime sent nothing for {limit:g} s. Try again, or raise idle_timeout_s."
                self._halt(Failed(error=ErrorInfo(code="TIMEOUT", message=message, retryable=True)))
                return

    async def _reply(self, identity: ToolIdentity, reply: ToolReply | str) -> None:
        handle = self._handle
        if handle is None:
            return
        if self._is_over_budget():
            return  # the result would be the beginning of another model request
        self._resources.tap.add_result(reply if isinstance(reply, str) else reply.result)
        try:
            async with asyncio.timeout(self._scope.settings.start_timeout_s):
                if isinstance(reply, str):
                    await call(handle.send_tool_denied, identity, reply)
                else:
                    await call(handle.send_tool_result, identity, reply)
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises ends the task, nothing else
            self._halt(crash(self._runtime.name, f"it took no tool result ({name_of(error)})"))

    async def _hand_over(self, handle: RuntimeTask, seq: int, messages: list[Message]) -> None:
        """Give the runtime more input. Raise `TaskFailure` if it does not take it."""
        self._resources.tap.add_messages(messages)
        try:
            await asyncio.wait_for(call(handle.steer, messages), self._scope.settings.start_timeout_s)
            self._handover.took(seq)
        except asyncio.CancelledError:
            self._handover.lose()  # whoever asked has gone, and the runtime may have taken it or not
            raise
        except Exception as error:
            self._handover.lose()
            raise TaskFailure(
                f"The runtime {self._runtime.name} did not take the input ({name_of(error)}).",
                code="RUNTIME_PROTOCOL",
                runtime=self._runtime.name,
            ) from error

    async def _close_handle(self) -> None:
        if self._handle is not None:
            await call_within(self._scope.settings.stop_grace_s, self._handle.close)

    def _on_fault(self, error: BaseException) -> None:
        if not isinstance(error, CodeSDKError):
            error = CodeSDKError(f"CodeSDK failed in a tool call ({name_of(error)}).")
        self.abort(error)

    def _is_over_budget(self) -> bool:
        """Return whether a budget is used up that no gateway enforces. The task then ends."""
        standing = self._resources.used_up_budget() if self._is_limited() else None
        if standing is not None:
            self.give_up(standing.error, standing)
        return standing is not None

    def _is_limited(self) -> bool:
        budgets = self._scope.state.config.budgets
        return budgets is not None or self._scope.ports.limits.principal_budget is not None

    def _is_stopping(self) -> bool:
        task = self._scope.state.task
        return self._interrupted or (task is not None and task.stop is not None)
