"""The tool calls of one task, from arrival to reply: one path for every origin.

    stream   announce ──────────────────────────▶ ┐                          ┌▶ reply to the runtime
    mcp      announce? ▶ matching ◀ request ────▶ ├ open ▶ decide ▶ execute ─┼▶ outcome of the request
    native   announce? ▶ matching ◀ may_run ────▶ ┘                          └▶ yes or no; then `ended`
    wire     refuse ────────────────────────────▶ open ▶ denied: the runtime never heard of it

Each call has one worker, and one more asyncio task while its tool runs. Decisions are stored before they take
effect.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from codesdk.contract.errors import Conflict, ErrorInfo, InvalidRequest
from codesdk.contract.ownership import WireCall
from codesdk.contract.runtime import Ruling, ToolAnnouncement, ToolDropped, ToolEnded, ToolReply
from codesdk.contract.text import is_text, mend
from codesdk.contract.tools import Question, ToolIdentity, ToolOrigin
from codesdk.contract.validation import is_long
from codesdk.engine.calls import ledger
from codesdk.engine.calls.approvals import Approvals
from codesdk.engine.calls.carried import issue_again
from codesdk.engine.calls.evaluation import judge, known_tools, nobody_to_ask, rule_behind
from codesdk.engine.calls.execution import Executions
from codesdk.engine.calls.inputs import (
    Arrival,
    LiveCall,
    Resolution,
    UnusableCall,
    default_origin,
    take,
    take_in,
)
from codesdk.engine.calls.matching import Matching
from codesdk.engine.calls.mcp_calls import ENDING, Request, Requests
from codesdk.engine.calls.questions import answered, asking, problem_of
from codesdk.engine.calls.recording import request_of
from codesdk.engine.calls.reported import UNCONFINED, drop, note_repeat, record_end
from codesdk.engine.calls.wire_calls import record_denied
from codesdk.engine.calls.workers import Workers
from codesdk.engine.log.state import Carried
from codesdk.engine.sessions.resources import Resources
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.answers import MAX_REFUSED, unanswered
from codesdk.engine.tasks.drafts import Intake
from codesdk.policy import decide

NEVER_MADE = "The runtime did not go through with this call."
UNWRITTEN = "The call cannot be recorded, so it must not run."
NOBODY_WAITS = "The runtime no longer waits for this call."
SHUT_DOWN = "CodeSDK was shut down."
CHANGED = "The runtime asks about another input than it announced; that is a call of its own."
NAMELESS = ToolIdentity(tool_call_id="", attempt=1, input_hash="")
"""A call that could not be recorded: only the runtime has an id for it."""

Reply = Callable[[ToolIdentity, ToolReply | str], Coroutine[Any, Any, None]]
"""Gives the runtime a result, or the reason for a denial."""


class Calls:
    """The tool calls of one task. `violated` ends it for the runtime's fault, `on_fault` for one of ours."""

    def __init__(
        self,
        scope: SessionScope,
        intake: Intake,
        writes: asyncio.Lock,
        resources: Resources,
        *,
        reply: Reply,
        on_fault: Callable[[BaseException], None],
        violated: Callable[[str, str], None],
    ) -> None:
        self._scope = scope
        self._intake = intake
        self._resources = resources
        self._reply = reply
        self._violated = violated
        capabilities = resources.capabilities()
        self._default_origin: ToolOrigin = default_origin(capabilities.tool_execution_model)
        self._max_input_bytes = scope.ports.limits.max_event_bytes
        self._tools = known_tools(scope.tools.specs(), capabilities.native_tools)
        self._live: dict[str, LiveCall] = {}
        self._asked: dict[str, LiveCall] = {}
        self._workers = Workers(on_fault)
        self._closed = False
        self.refusal: str | None = None  # why no call is decided any more: the task is about to end
        self._matching = Matching()
        self.approvals = Approvals(scope, self._live)
        self._executions = Executions(scope, writes, self.approvals)
        self.requests = Requests(self._abandon)

    @property
    def busy(self) -> bool:
        """Whether any call is not finished."""
        return bool(self._workers)

    async def announce(self, item: ToolAnnouncement) -> None:
        """Open a call that the stream announces. Run it if it was handed over, else wait for its request."""
        arrival = await self._take(item, item.origin or self._default_origin)
        if arrival is None or await self._is_known(arrival):
            return
        if self._are_many():
            return  # the task is being ended for it, and its runtime has been told
        call = await self._open(arrival)
        if self._closed:
            return  # the task is ending, and its end closes the call
        if call.origin == "stream":
            call.worker = self._workers.spawn(self._answer(call))
        else:
            self._matching.announce(arrival, call)

    def request(self, name: str, arguments: Any, runtime_id: str | None) -> "asyncio.Future[ToolReply]":
        """Take a call made over MCP. Return a future of its outcome; cancelling that means hanging up."""
        item = ToolAnnouncement(name=name, input=arguments, runtime_tool_call_id=runtime_id)
        if is_long(arguments):
            return asyncio.create_task(self._request_long(item))
        return self._wait_for(self._requested(item))

    async def _request_long(self, item: ToolAnnouncement) -> ToolReply:
        return await self._wait_for(await asyncio.to_thread(self._requested, item))

    def _requested(self, item: ToolAnnouncement) -> Arrival:
        try:
            return take(self._scope.redactor, item, "mcp", self._max_input_bytes)
        except UnusableCall as problem:
            raise InvalidRequest(f"The call cannot be made: {problem}") from None

    def _wait_for(self, arrival: Arrival) -> "asyncio.Future[ToolReply]":
        """Have a call made that came over MCP, once however often it came, and return a future of its outcome."""
        request = self.requests.find(arrival)
        if request.worker is None:
            if self._closed:
                raise Conflict("The task is ending; no more tools are called.")
            request.worker = self._workers.spawn(self._serve(request, arrival))
        return self.requests.wait(request)

    async def may_run(self, item: ToolAnnouncement) -> Ruling:
        """Decide a call that the runtime would run. If it may, its start is stored."""
        arrival = None if self._closed else await self._take(item, "native")
        if arrival is None or self._closed or item.runtime_tool_call_id is None:
            return Ruling(denied=ENDING.result if self._closed else UNWRITTEN)
        call = self._asked.get(item.runtime_tool_call_id)
        if call is None or call.input.digest != arrival.input.digest:
            # What counts as another tool comes from a program, not from a model's message: nothing else announces it.
            found = await (self._meet(arrival) if item.counts_as is None else self._open(arrival))
            call = self._asked[item.runtime_tool_call_id] = found
            call.worker = self._workers.spawn(self._resolve(call))
        outcome = await self._outcome(call)
        denied = ENDING.result if outcome is ENDING else outcome
        return Ruling(denied=denied, rule=rule_behind(call, "allow" if denied is None else "deny"))

    async def ask_user(self, item: ToolAnnouncement, question: Question) -> ToolReply:
        """Ask what a tool of the runtime's own asks. Return the answer, or as an error why there is none."""
        arrival = None if self._closed else await self._take(item, "native")
        if arrival is None or self._closed or item.runtime_tool_call_id is None:
            return ENDING
        if (problem := problem_of(question)) is not None:
            await self._intake.malformed(f"a question that cannot be asked: {problem}.", item)
            return ToolReply(result=f"Nobody was asked: {problem}.", is_error=True)
        if not self._intake.admit(sum(map(len, (question.text, *question.options)))):
            return ENDING
        call = await self._open(arrival)
        call.prepared = asking(question, UNCONFINED)
        call.worker = self._workers.spawn(self._resolve(call))
        outcome = await self._outcome(call)
        reply = outcome if isinstance(outcome, ToolReply) else ToolReply(result=outcome, is_error=True)
        self._resources.tap.add_result(reply.result)
        return reply

    async def _outcome(self, call: LiveCall) -> Any:
        """Wait for what becomes of a call that the runtime asks about. Cancelling this withdraws the question."""
        assert call.worker is not None, "what was asked about has a worker"
        try:
            await asyncio.wait([call.worker])
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        return ENDING if call.worker.cancelled() else call.worker.result()

    async def refuse(self, call: WireCall) -> None:
        """Record a call that the gateway kept from the runtime."""
        await record_denied(self._scope, self._intake, self._tools, call)

    async def ended(self, item: ToolEnded) -> None:
        """Record the end of a call that the runtime ran. Not having asked where it had to is a violation."""
        runtime_id: Any = item.runtime_tool_call_id
        if not self._has_seen(runtime_id):
            await self._intake.malformed("the end of a call that it never announced.", item)
            return
        call = self._asked.pop(runtime_id, None) or self._unmet(runtime_id)
        if call is None or not self._scope.state.is_open(call.state):
            return  # it was denied, and this is the runtime confirming it
        if call.state.phase == "waiting" and item.refused:
            self._drop(call, mend(str(item.result)))
        elif (
            not await record_end(self._scope, self._intake, self._tools, call, item)
            and call.origin == "native"
            and not item.watched
        ):
            name = call.state.name
            self._violated(f"The runtime ran its own tool {name} without asking. The task is stopped.", name)

    async def dropped(self, item: ToolDropped) -> None:
        """Deny an announced call that the runtime says it will not make."""
        if not self._has_seen(item.runtime_tool_call_id) or not is_text(item.reason):
            await self._intake.malformed("a call that it drops, but never announced.", item)
        elif (call := self._unmet(item.runtime_tool_call_id)) is not None:
            self._drop(call, item.reason)

    def _drop(self, call: LiveCall, reason: str) -> None:
        """Deny a call for a reason that the runtime gives, which counts as something that it said."""
        drop(self._scope, call, reason if self._intake.admit(len(reason)) else NEVER_MADE)

    async def run_carried(self, carried: Carried) -> None:
        """Issue an approved call of an interrupted task again, and wait for its end."""
        call = await issue_again(self._scope, self._tools, carried)
        if call.state.phase == "approved":
            await self._executions.run(call)
        await self._scope.recorder.settle()

    def stop(self) -> None:
        """Wake waiting calls and cancel running ones, after a stop was recorded."""
        self.approvals.wake_all()
        self._executions.cancel_all()

    def leave(self) -> None:
        """Begin no more calls, cancel those that run, and leave the others open: the task is interrupted."""
        self._closed = True
        self.approvals.leave()
        for call in self._live.values():
            call.left_because = SHUT_DOWN
        self._executions.cancel_all()

    async def abandon(self, timeout_s: float) -> None:
        """Wait until the calls that ran have recorded their ends; then nothing works on any call."""
        self.requests.release()
        await self._workers.wait(timeout_s)
        await self._cancel_workers()

    async def settle(self, timeout_s: float) -> bool:
        """Wait for the calls of a turn that is over, and drop those it did not make. Return whether all have ended."""
        for call in self._matching.take_unmet():
            drop(self._scope, call, NEVER_MADE)
        await self._workers.wait(timeout_s)
        return not self._workers

    async def close(self, timeout_s: float) -> None:
        """Refuse new calls and wait for open ones; after the timeout, cancel and close what is left."""
        self._closed = True
        if self._scope.recorder.broken is not None:
            await self._cancel_workers()
            return
        self.requests.release()
        for call in self._matching.take_unmet():
            drop(self._scope, call, NEVER_MADE)
        await self._workers.wait(timeout_s)
        if self._workers:
            self.approvals.refuse_all("The runtime ended the task before anyone answered.")
            self.stop()
            await self._workers.wait(timeout_s)
            await self._cancel_workers()
        if self._scope.recorder.broken is None and (task := self._scope.state.task) is not None:
            for state in list(task.calls.values()):
                ledger.close_left_open(self._scope.journal, state)

    async def _take(self, item: ToolAnnouncement, origin: ToolOrigin) -> Arrival | None:
        """Take a call in. Note one that cannot be recorded, and tell a runtime that waits for it."""
        try:
            return await take_in(self._scope.redactor, item, origin, self._max_input_bytes)
        except UnusableCall as problem:
            await self._intake.malformed(str(problem), item)
            runtime_id: object = item.runtime_tool_call_id
            if origin == "stream" and isinstance(runtime_id, str):
                nameless = msgspec.structs.replace(NAMELESS, runtime_tool_call_id=runtime_id)
                self._workers.spawn(self._reply(nameless, f"Refused: {problem}"))
            return None

    async def _is_known(self, arrival: Arrival) -> bool:
        """Return whether an announced call is already open. Record where it belongs, or that it is announced twice."""
        early = await self._matching.take_early(arrival) if self._matching.early else None
        if early is not None:
            raw, raw_ref = await self._intake.raw(arrival.item.raw)
            if not self._closed:
                ledger.announced(self._scope.journal, early, arrival.item, raw, raw_ref)
            return True
        task, runtime_id = self._scope.state.task, arrival.item.runtime_tool_call_id
        seen = None if task is None or runtime_id is None else task.seen_calls.get(runtime_id)
        if seen is not None:
            await self._intake.raw(None, 0)  # the notice of it counts as something that the runtime said
        return seen is not None and note_repeat(self._scope, seen, arrival.input.digest)

    async def _meet(self, arrival: Arrival) -> LiveCall:
        """Return the announced call that is now made or asked about, or open a new one."""
        call = await self._matching.meet(arrival)
        if call is None:
            return await self._matching.open_early(arrival, self._open_early)
        if call.input.digest != arrival.input.digest:
            drop(self._scope, call, CHANGED)
            return await self._open(arrival)
        # Hashes cover the redacted input, so two equal ones may hide different secrets: the made call counts.
        call.input, call.subjects = arrival.input, arrival.item.subjects
        return call

    async def _open_early(self, arrival: Arrival) -> LiveCall:
        return await self._open(arrival, early=True)

    async def _open(self, arrival: Arrival, *, early: bool = False) -> LiveCall:
        """Open an attempt. After a stop it is denied at once."""
        scope, item = self._scope, arrival.item
        request = await request_of(scope, self._intake, self._tools, arrival, early=early)
        state = ledger.request(scope.journal, request.payload, request.raw, request.raw_ref)
        self._stop_many()  # when it opens: a runtime may announce calls without end, and make none
        task = scope.state.task
        if task is not None and task.stop is not None:
            ledger.deny(scope.journal, state, ledger.ENGINE, lifecycle.STOP_REASON)
        judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = self._live[state.key] = LiveCall(
            state=state,
            origin=arrival.origin,
            input=arrival.input,
            subjects=item.subjects,
            opinion=item.opinion,
            counts_as=item.counts_as if arrival.origin == "native" else None,
            judged=judged,
        )
        return call

    async def _answer(self, call: LiveCall) -> None:
        """Resolve a call that the runtime handed over, and send the outcome back."""
        outcome = await self._resolve(call)
        assert outcome is not None, "only native calls are left to the runtime"
        await self._reply(call.state.identity, outcome)

    async def _serve(self, request: Request, arrival: Arrival) -> ToolReply:
        """Resolve a call that came over MCP."""
        request.call = call = await self._meet(arrival)
        outcome = await self._resolve(call)
        reply = outcome if isinstance(outcome, ToolReply) else ToolReply(result=outcome, is_error=True)
        # The next model request will quote it; the tap then knows the text as CodeSDK's own.
        self._resources.tap.add_result(reply.result)
        return reply

    async def _resolve(self, call: LiveCall) -> Resolution:
        """Decide a call, run it if it may run, and return the outcome once it is stored.

        After each await, look at the ledger's state: a stop or a person may have closed the call meanwhile.
        """
        try:
            await self._ask_budget()
            if self._scope.state.is_open(call.state) and self.refusal is not None:
                ledger.refuse(self._scope.journal, call.state, self.refusal)
            elif self._scope.state.is_open(call.state):
                await self._decide(call)
        finally:
            _mark_judged(call)
        outcome: Resolution = None
        if not self._scope.state.is_open(call.state):
            outcome = call.state.closing_words
        elif call.origin != "native" or call.prepared is not None:
            outcome = await self._executions.run(call)
        else:
            ledger.started(self._scope.journal, call.state, ledger.NATIVE, UNCONFINED)
        await self._scope.recorder.settle()
        self._live.pop(call.state.key, None)
        self._stop_loop(may_poll=call.counts_as is not None)
        return outcome

    async def _decide(self, call: LiveCall) -> None:
        """Decide a call: by policy, and by a person if the policy asks. If it stays open, it may run."""
        opinions = judge(self._scope, self._tools, call)
        _mark_judged(call)
        verdict = decide(opinions)
        if verdict.result == "ask" and self._scope.state.config.interaction_mode == "non_interactive":
            verdict = nobody_to_ask(call)
            opinions.append(verdict)
        ledger.conclude(self._scope.journal, call.state, opinions, verdict)
        if verdict.result == "ask":
            await self.approvals.ask(call)
            call.prepared = answered(call.prepared, call.state.answer)

    def _stop_loop(self, *, may_poll: bool) -> None:
        """End a task whose model makes the same call for ever, or never a result that fits.

        Its requests grow with each call, so none is like another. What has tools by names of its own is a program, not a
        model: it may poll, but not for ever either.
        """
        task, limit = self._scope.state.task, self._scope.ports.limits.max_same_calls
        if task is not None and task.repeated.times > limit and not may_poll:
            message = (
                f"The model called {task.repeated.call[0]} with the same input more than {limit} times in a row, and got the"
                " same result each time. The task was stopped; start it again, perhaps with another wording or model."
            )
            self._scope.halt(ErrorInfo(code="MODEL_ERROR", message=message, retryable=False), None)
        elif task is not None and task.refused >= MAX_REFUSED and task.answer is None:
            error = unanswered(task, self._scope.state.runtime_name)
            assert error is not None, "it has no answer"
            self._scope.halt(error, None)

    def _stop_many(self) -> None:
        """End a task that makes calls without end, whatever they are."""
        if self._are_many():
            limit = self._scope.ports.limits.max_calls
            message = (
                f"The task made more than {limit} tool calls (limits.max_calls) and came to no end. It was stopped;"
                " divide it into smaller ones, or have the limit raised by whoever runs CodeSDK."
            )
            self._scope.halt(ErrorInfo(code="MODEL_ERROR", message=message, retryable=False), None)

    def _are_many(self) -> bool:
        task = self._scope.state.task
        return task is not None and task.work.calls > self._scope.ports.limits.max_calls

    async def _ask_budget(self) -> None:
        """Ask whether to raise a budget that is nearly used up, before the model gets this call's result."""
        config = self._scope.state.config
        limited = config.budgets is not None or self._scope.ports.limits.principal_budget is not None
        if limited and config.interaction_mode == "interactive":
            standing = self._resources.near_budget()
            if standing is not None:
                await self.approvals.ask_budget(standing)

    def _abandon(self, request: Request) -> None:
        """End a request that nobody waits for. If it has no attempt yet, nothing of it is recorded."""
        if request.call is not None:
            self._give_up(request.call)
        elif request.worker is not None:
            request.worker.cancel()

    def _give_up(self, call: LiveCall) -> None:
        """End a call that nobody waits for: cancel it if it runs, else never start it."""
        call.left_because = NOBODY_WAITS
        if call.tool is not None:
            call.tool.cancel()
        elif self._scope.state.is_open(call.state) and call.state.phase == "waiting":
            self.approvals.refuse(call.state, NOBODY_WAITS)
        elif self._scope.state.is_open(call.state) and call.state.phase == "approved":
            ledger.skip(self._scope.journal, call.state, f"Not run: {NOBODY_WAITS}")

    def _unmet(self, runtime_id: str) -> LiveCall | None:
        """Return and forget an announced call that was neither made nor asked about."""
        return next(iter(self._matching.take_unmet(runtime_id)), None)

    def _has_seen(self, runtime_id: Any) -> bool:
        task = self._scope.state.task
        return is_text(runtime_id) and task is not None and runtime_id in task.seen_calls

    async def _cancel_workers(self) -> None:
        await self._workers.cancel(self._executions.running, self._scope.settings.stop_grace_s)


def _mark_judged(call: LiveCall) -> None:
    """Release an answer that came before the policy had spoken."""
    if not call.judged.done():
        call.judged.set_result(None)
