"""The tool calls of one task, from arrival to reply: one path for every origin.

    stream   announce ──────────────────────────▶ ┐                          ┌▶ reply to the runtime
    mcp      announce? ▶ matching ◀ request ────▶ ├ open ▶ decide ▶ execute ─┼▶ outcome of the request
    native   announce? ▶ matching ◀ may_run ────▶ ┘                          └▶ yes or no; then `ended`

Each call has one worker, and one more asyncio task while its tool runs. Decisions are stored before they take
effect.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.events import ToolCallRequested
from codesdk.contract.runtime import ToolAnnouncement, ToolDropped, ToolEnded, ToolReply
from codesdk.contract.tools import ToolIdentity, ToolOrigin
from codesdk.engine.calls import ledger
from codesdk.engine.calls.approvals import Approvals
from codesdk.engine.calls.carried import issue_again
from codesdk.engine.calls.evaluation import NOBODY_TO_ASK, judge, known_tools
from codesdk.engine.calls.execution import Executions
from codesdk.engine.calls.inputs import Arrival, LiveCall, Resolution, UnusableCall, default_origin, take
from codesdk.engine.calls.matching import Matching
from codesdk.engine.calls.mcp_calls import ENDING, Request, Requests
from codesdk.engine.calls.reported import UNCONFINED, drop, note_repeat, record_end
from codesdk.engine.log.state import Carried
from codesdk.engine.sessions.resources import Resources
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.drafts import Intake
from codesdk.engine.tasks.validation import is_text, mend
from codesdk.policy import decide

NEVER_MADE = "The runtime did not go through with this call."
NOBODY_WAITS = "The runtime no longer waits for this call."
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
        self._on_fault = on_fault
        self._violated = violated
        capabilities = resources.capabilities()
        self._default_origin: ToolOrigin = default_origin(capabilities.tool_execution_model)
        self._tools = known_tools(scope.tools.specs(), capabilities.native_tools)
        self._live: dict[str, LiveCall] = {}
        self._asked: dict[str, LiveCall] = {}
        self._workers: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.refusal: str | None = None  # why no call is decided any more: the task is about to end
        self._matching = Matching()
        self._executions = Executions(scope, writes)
        self.approvals = Approvals(scope, self._live)
        self.requests = Requests(self._abandon)

    @property
    def busy(self) -> bool:
        """Whether any call is not finished."""
        return bool(self._workers)

    async def announce(self, item: ToolAnnouncement) -> None:
        """Open a call that the stream announces. Run it if it was handed over, else wait for its request."""
        arrival = await self._take(item, item.origin or self._default_origin)
        if arrival is None or self._is_known(arrival):
            return
        call = await self._open(arrival)
        if call.origin == "stream":
            call.worker = self._spawn(self._answer(call))
        else:
            self._matching.announce(arrival, call)

    def request(self, name: str, arguments: Any, runtime_id: str | None) -> "asyncio.Future[ToolReply]":
        """Take a call made over MCP. Return a future of its outcome; cancelling that means hanging up."""
        item = ToolAnnouncement(name=name, input=arguments, runtime_tool_call_id=runtime_id)
        try:
            arrival = take(self._scope.redactor, item, "mcp")
        except UnusableCall as problem:
            raise InvalidRequest(f"The call cannot be made: {problem}") from None
        request = self.requests.find(arrival)
        if request.worker is None:
            if self._closed:
                raise Conflict("The task is ending; no more tools are called.")
            request.worker = self._spawn(self._serve(request, arrival))
        return self.requests.wait(request)

    async def may_run(self, item: ToolAnnouncement) -> str | None:
        """Decide a call that the runtime would run. Return why not, or None once its start is stored."""
        arrival = None if self._closed else await self._take(item, "native")
        if arrival is None or item.runtime_tool_call_id is None:
            return ENDING.result if self._closed else "The call cannot be written down, so it must not run."
        call = self._asked.get(item.runtime_tool_call_id)
        if call is None or call.input.digest != arrival.input.digest:
            call = self._asked[item.runtime_tool_call_id] = await self._meet(arrival)
            call.worker = self._spawn(self._resolve(call))
        assert call.worker is not None, "what was asked about has a worker"
        try:
            await asyncio.wait([call.worker])
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        return ENDING.result if call.worker.cancelled() else call.worker.result()

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
            drop(self._scope, call, mend(str(item.result)))
        elif not await record_end(self._scope, self._tools, call, item) and call.origin == "native":
            name = call.state.name
            self._violated(f"The runtime ran its own tool {name} without asking. The task is stopped.", name)

    async def dropped(self, item: ToolDropped) -> None:
        """Deny an announced call that the runtime says it will not make."""
        if not self._has_seen(item.runtime_tool_call_id) or not is_text(item.reason):
            await self._intake.malformed("a call that it drops, but never announced.", item)
        elif (call := self._unmet(item.runtime_tool_call_id)) is not None:
            drop(self._scope, call, item.reason)

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

    async def close(self, timeout_s: float) -> None:
        """Refuse new calls and wait for open ones; after the timeout, cancel and close what is left."""
        self._closed = True
        if self._scope.recorder.broken is not None:
            await self._cancel_workers()
            return
        self.requests.release()
        for call in self._matching.take_unmet():
            drop(self._scope, call, NEVER_MADE)
        if self._workers:
            await asyncio.wait(self._workers, timeout=timeout_s)
        if self._workers:
            self.approvals.refuse_all("The runtime ended the task before anyone answered.")
            self.stop()
            await asyncio.wait(self._workers, timeout=timeout_s)
            await self._cancel_workers()
        if self._scope.recorder.broken is None and (task := self._scope.state.task) is not None:
            for state in list(task.calls.values()):
                ledger.close_left_open(self._scope.journal, state)

    async def _take(self, item: ToolAnnouncement, origin: ToolOrigin) -> Arrival | None:
        """Take a call in. Note one that cannot be recorded, and tell a runtime that waits for it."""
        try:
            return take(self._scope.redactor, item, origin)
        except UnusableCall as problem:
            await self._intake.malformed(str(problem), item)
            runtime_id: object = item.runtime_tool_call_id
            if origin == "stream" and isinstance(runtime_id, str):
                nameless = msgspec.structs.replace(NAMELESS, runtime_tool_call_id=runtime_id)
                self._spawn(self._reply(nameless, f"Refused: {problem}"))
            return None

    def _is_known(self, arrival: Arrival) -> bool:
        """Return whether an announced call is already open, and note one that was announced twice."""
        if self._matching.alone and self._matching.is_late(arrival):
            return True
        task, runtime_id = self._scope.state.task, arrival.item.runtime_tool_call_id
        seen = None if task is None or runtime_id is None else task.seen_calls.get(runtime_id)
        return seen is not None and note_repeat(self._scope, seen, arrival.input.digest)

    async def _meet(self, arrival: Arrival) -> LiveCall:
        """Return the announced call that is now made or asked about, or open a new one."""
        call = await self._matching.meet(arrival)
        if call is None:
            return await self._open(arrival)
        if call.input.digest != arrival.input.digest:
            drop(self._scope, call, CHANGED)
            return await self._open(arrival)
        # Hashes cover the redacted input, so two equal ones may hide different secrets: the made call counts.
        call.input, call.subjects = arrival.input, arrival.item.subjects
        return call

    async def _open(self, arrival: Arrival) -> LiveCall:
        """Open an attempt. After a stop it is denied at once."""
        scope, item, given = self._scope, arrival.item, arrival.input
        inline, ref = given.stored, None
        if len(given.data) > scope.settings.input_inline_bytes:
            inline, ref = msgspec.UNSET, await scope.put_artifact(given.data, "application/json", "input")
        raw, raw_ref = await self._intake.raw(item.raw)
        payload = ToolCallRequested(
            tool_call_id=self._intake.call_ids.pop(item.runtime_tool_call_id, None)
            or scope.ports.stamper.mint("call"),
            attempt=1,
            input_hash=given.digest,
            runtime_tool_call_id=item.runtime_tool_call_id,
            name=arrival.name,
            tool_class=self._tools.classes.get(arrival.name, "dangerous"),
            input=inline,
            input_ref=ref,
            input_redacted=given.redacted,
            message_id=item.message_id,
            index=item.index,
        )
        state = ledger.request(scope.journal, payload, raw, raw_ref)
        task = scope.state.task
        if task is not None and task.stop is not None:
            ledger.deny(scope.journal, state, ledger.ENGINE, lifecycle.STOP_REASON)
        judged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = self._live[state.key] = LiveCall(
            state=state, origin=arrival.origin, input=given, subjects=item.subjects, judged=judged
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
        elif call.origin != "native":
            outcome = await self._executions.run(call)
        else:
            ledger.started(self._scope.journal, call.state, ledger.NATIVE, UNCONFINED)
        await self._scope.recorder.settle()
        self._live.pop(call.state.key, None)
        return outcome

    async def _decide(self, call: LiveCall) -> None:
        """Decide a call: by policy, and by a person if the policy asks. If it stays open, it may run."""
        opinions = judge(self._scope, self._tools, call)
        _mark_judged(call)
        verdict = decide(opinions)
        if verdict.result == "ask" and self._scope.state.config.interaction_mode == "non_interactive":
            verdict = NOBODY_TO_ASK
            opinions.append(verdict)
        ledger.conclude(self._scope.journal, call.state, opinions, verdict)
        if verdict.result == "ask":
            await self.approvals.ask(call)

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
        workers = [*self._workers, *self._executions.running]
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers, timeout=self._scope.settings.stop_grace_s)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work on a call in the background. A fault of ours in it ends the task."""
        worker = asyncio.create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._done)
        return worker

    def _done(self, worker: asyncio.Task[Any]) -> None:
        self._workers.discard(worker)
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            self._on_fault(error)


def _mark_judged(call: LiveCall) -> None:
    """Release an answer that came before the policy had spoken."""
    if not call.judged.done():
        call.judged.set_result(None)
