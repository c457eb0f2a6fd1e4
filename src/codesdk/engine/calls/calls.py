"""Tool calls of one task, from announcement to reply: the async shell around the ledger.

Each call is judged, perhaps asked about, run, and answered; several at once. What
is decided is stored before it takes effect. Used by `run`; calls the tools.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from codesdk.contract.canonical import CanonicalError
from codesdk.contract.errors import CodeSDKError, Conflict, NotFound
from codesdk.contract.runtime import ToolAnnouncement, ToolReply
from codesdk.contract.tools import (
    Actor,
    Decision,
    Evaluation,
    Scope,
    ToolClass,
    ToolIdentity,
    ToolSpec,
)
from codesdk.engine.calls import ledger
from codesdk.engine.calls.approvals import Questions
from codesdk.engine.calls.evaluation import POLICY, check_identity, is_sound, judge
from codesdk.engine.calls.execution import Executions
from codesdk.engine.calls.inputs import Taken, issue_again, place, take_input
from codesdk.engine.log.state import CallState, Carried
from codesdk.engine.models.limits import Standing
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.drafts import Intake
from codesdk.policy import decide

NOBODY_TO_ASK = (
    "Nobody can be asked in a non-interactive session, and this call needs an answer. "
    "Go on without it, or say in your answer what you would have done."
)

T = TypeVar("T")
Reply = Callable[[ToolIdentity, ToolReply | str], Coroutine[Any, Any, None]]
"""Hands a result, or the reason of a denial, to the runtime."""


class Calls:
    """The tool calls of one running task."""

    def __init__(
        self,
        scope: SessionScope,
        intake: Intake,
        writes: asyncio.Lock,
        reply: Reply,
        on_fault: Callable[[BaseException], None],
        near_budget: Callable[[], Standing | None],
        natives: Mapping[str, ToolClass] | None = None,
    ) -> None:
        self._scope = scope
        self._natives = natives or {}
        self._on_fault = on_fault
        self.questions = Questions(scope, near_budget)
        self._intake = intake
        self._reply = reply
        self._specs: dict[str, ToolSpec] = {spec.name: spec for spec in scope.tools.specs()}
        self._executions = Executions(scope, writes)
        self._judged: dict[str, asyncio.Future[None]] = {}
        self._workers: set[asyncio.Task[Any]] = set()

    @property
    def busy(self) -> bool:
        """Whether any call is still on its way."""
        return bool(self._workers)

    async def announce(self, item: ToolAnnouncement) -> None:
        """Open an attempt for a call seen in the stream, and see to it in the background."""
        taken = await self.take(item)
        if taken is not None and not self.is_repeat(item, taken.digest):
            call = await self.open(item, taken)
            self.spawn(self._handle(call, item.input))

    async def take(self, item: ToolAnnouncement) -> Taken | None:
        """Return a call's input as it can be stored; None if the call cannot even be written down, which is noted."""
        if not is_sound(item):
            await self._reject(item, "a tool call without a usable name or id.")
            return None
        try:
            return take_input(self._scope.redactor, item.input)
        except (CanonicalError, CodeSDKError, RecursionError) as error:
            await self._reject(item, f"the input of a tool call is not usable ({error}).")
            return None

    async def open(self, item: ToolAnnouncement, taken: Taken) -> CallState:
        """Open an attempt. After a stop it is denied at once."""
        inline, ref = await place(self._scope, taken.stored)
        raw, raw_ref = await self._intake.raw(item.raw)
        name = item.name
        spec = self._specs.get(name)
        task = self._scope.state.task
        call = ledger.request(
            self._scope.journal,
            name=name,
            tool_class=spec.tool_class if spec else self._natives.get(name, "dangerous"),
            input_hash=taken.digest,
            input=inline,
            input_ref=ref,
            input_redacted=taken.redacted,
            runtime_tool_call_id=item.runtime_tool_call_id,
            message_id=item.message_id,
            index=item.index,
            raw=raw,
            raw_ref=raw_ref,
        )
        if task is not None and task.stop is not None:
            ledger.deny(self._scope.journal, call, lifecycle.ENGINE, lifecycle.STOP_REASON)
        self._judged[call.key] = asyncio.get_running_loop().create_future()
        return call

    async def _reject(self, item: ToolAnnouncement, problem: str) -> None:
        """Note a call that cannot even be written down, and tell the runtime, which may wait for it."""
        await self._intake.malformed(problem, item)
        runtime_id: object = item.runtime_tool_call_id
        if isinstance(runtime_id, str):
            nameless = ToolIdentity(
                tool_call_id="", attempt=1, input_hash="", runtime_tool_call_id=runtime_id
            )
            self.spawn(self._reply(nameless, f"Refused: {problem}"))

    async def run_carried(self, carried: Carried) -> None:
        """Issue an approved call of an interrupted task once more, and wait for its end."""
        call, value = await issue_again(self._scope, self._specs, carried)
        if call.phase == "approved":
            await self._executions.run(call, value)
        await self._scope.recorder.settle()

    async def answer(
        self,
        tool_call_id: str,
        decision: Decision,
        by: Actor,
        scope: Scope,
        reason: str | None,
        attempt: int | None,
        input_hash: str | None,
    ) -> None:
        """Take a person's answer to a call. Agreeing with what was already decided is no error."""
        call = self._find(tool_call_id, decision)
        if call is None:
            return
        check_identity(call.identity, attempt, input_hash)
        judged = self._judged.get(call.key)
        if judged is not None:
            await asyncio.wait([judged])
        if call.phase != "waiting" or call.approval_id is None or not self.is_open(call):
            self._find(tool_call_id, decision)
            return
        approval_id = call.approval_id
        ledger.answer(self._scope.journal, call, decision, by, scope, reason)
        self.questions.wake(approval_id)

    def _find(self, tool_call_id: str, decision: Decision) -> CallState | None:
        """Return the call if it still waits, or None if it was decided the same way already."""
        task = self._scope.state.task
        attempts = (
            [] if task is None else [key for key in task.decisions if key.startswith(f"{tool_call_id}#")]
        )
        open_calls = [] if task is None else list(task.calls.values())
        for call in reversed(open_calls):
            if call.identity.tool_call_id == tool_call_id and call.phase == "waiting":
                return call
        if task is None or not attempts:
            raise NotFound(f"No call {tool_call_id} waits for an answer in this task.")
        approved = task.decisions[attempts[-1]]
        if approved != (decision == "approve"):
            raise Conflict(f"Call {tool_call_id} was already {'approved' if approved else 'denied'}.")
        return None

    def stop(self) -> None:
        """Wake what waits and cancel what runs, after a stop was written."""
        self.questions.wake_all()
        self._executions.cancel_all()

    def give_up_questions(self, why: str) -> None:
        """Refuse the calls that wait for a person: there is nobody left to give the answer to."""
        task = self._scope.state.task
        for call in list(task.calls.values()) if task is not None else []:
            if call.phase == "waiting" and call.approval_id is not None:
                ledger.refuse(self._scope.journal, call, lifecycle.ENGINE, why)
                self.questions.wake(call.approval_id)

    async def drain(self, timeout_s: float) -> None:
        """Wait for all calls to end; after the time, cancel what runs and close whatever is open."""
        if self._workers:
            await asyncio.wait(self._workers, timeout=timeout_s)
        if self._workers:
            self.give_up_questions("The runtime ended the task before anyone answered.")
            self.stop()
            await asyncio.wait(self._workers, timeout=timeout_s)
            await self.abandon()
        task = self._scope.state.task
        if self._scope.recorder.broken is None and task is not None:
            for call in list(task.calls.values()):
                self._close(call)

    def _close(self, call: CallState) -> None:
        """Close a call that its worker left open."""
        journal = self._scope.journal
        if call.phase == "waiting":
            ledger.refuse(journal, call, lifecycle.ENGINE, "The task ended.")
        elif call.phase == "approved":
            ledger.skip(journal, call, "Not run: the task ended.")
        else:
            why = "It did not end when it was cancelled; whether it took effect is not known."
            ledger.completed(journal, call, is_error=True, outcome="unknown", result_preview=why)

    async def abandon(self) -> None:
        """Cancel everything at once."""
        workers = [*self._workers, *self._executions.running]
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers, timeout=self._scope.settings.stop_grace_s)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do a part of a call in the background. A failure of ours in it ends the task."""
        worker = asyncio.create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._done)
        return worker

    def give_up(self, call: CallState, why: str) -> None:
        """End a call that nobody waits for any more: refused if it has not started, cancelled if it runs."""
        if not self._executions.cancel(call) and self.is_open(call) and call.phase == "waiting":
            approval_id = call.approval_id
            ledger.refuse(self._scope.journal, call, lifecycle.ENGINE, why)
            if approval_id is not None:
                self.questions.wake(approval_id)

    def _done(self, worker: asyncio.Task[Any]) -> None:
        self._workers.discard(worker)
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            self._on_fault(error)

    async def _handle(self, call: CallState, arguments: Any) -> None:
        await self._reply(call.identity, await self.see_through(call, arguments))

    async def see_through(self, call: CallState, arguments: Any) -> ToolReply | str:
        """Decide a call, run it if it may run, and return its result or why it did not run, when that is stored.

        The ledger's state, not this coroutine, says where the call stands.
        """
        reply: ToolReply | str
        await self.decide(call, arguments, lambda: judge(self._scope, self._specs, call, arguments))
        if self.is_open(call):
            reply = await self._executions.run(call, arguments)
        else:
            reply = call.closing_words
        await self._scope.recorder.settle()
        return reply

    async def decide(self, call: CallState, arguments: Any, opinions: Callable[[], list[Evaluation]]) -> None:
        """Have a call decided, by what is thought of it and perhaps by a person. If it stays open, it may run."""
        try:
            await self.questions.about_budget()
            if self.is_open(call):
                await self._decide(call, arguments, opinions())
        finally:
            self._mark_judged(call)

    def _mark_judged(self, call: CallState) -> None:
        """Let an answer in that came before the question."""
        judged = self._judged.pop(call.key, None)
        if judged is not None and not judged.done():
            judged.set_result(None)

    async def _decide(self, call: CallState, arguments: Any, opinions: list[Evaluation]) -> None:
        self._mark_judged(call)
        journal = self._scope.journal
        for opinion in opinions:
            ledger.evaluate(journal, call, opinion)
        opinion = decide(opinions)
        if opinion.result == "allow":
            ledger.approve(journal, call, POLICY)
        elif opinion.result == "deny":
            ledger.deny(journal, call, POLICY, opinion.reason or f"Denied by {opinion.rule}.")
        elif self._scope.state.config.interaction_mode == "non_interactive":
            ledger.evaluate(
                journal,
                call,
                Evaluation(source="codesdk", result="deny", rule="non_interactive", reason=NOBODY_TO_ASK),
            )
            ledger.deny(journal, call, POLICY, NOBODY_TO_ASK)
        else:
            summary = ledger.summarize(call.name, self._scope.redactor.value(arguments))
            await self.questions.about(call, summary, self.is_open)

    def is_open(self, call: CallState) -> bool:
        """Tell whether a call is still on its way."""
        return self._scope.state.is_open(call)

    def is_repeat(self, item: ToolAnnouncement, digest: str) -> bool:
        """Tell whether a call was announced before, and note it."""
        task = self._scope.state.task
        if task is None or item.runtime_tool_call_id is None:
            return False
        seen = task.seen_calls.get(item.runtime_tool_call_id)
        if seen is None:
            return False
        same = seen.input_hash == digest
        lifecycle.notice(
            self._scope.journal,
            "warning" if same else "violation",
            f"The runtime announced call {item.runtime_tool_call_id} twice"
            + ("; it was joined to the first." if same else " with different inputs; both are kept apart."),
            {"runtime_tool_call_id": item.runtime_tool_call_id, "tool_call_id": seen.tool_call_id},
        )
        return same
