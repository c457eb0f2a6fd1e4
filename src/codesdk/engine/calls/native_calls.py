"""Calls of a runtime's own tools: decided where the runtime asks, and on record as executed by the runtime.

CodeSDK does not run these and cannot confine them. What it can do is to answer the runtime's question, by the
session's list, the mode, the rules and perhaps a person; to write down what the runtime tells; and to end a task
whose runtime did not ask. Used by `run`.
"""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from codesdk.contract.ports import ToolRun
from codesdk.contract.runtime import ToolAnnouncement, ToolEnded
from codesdk.contract.tools import Actor, Evaluation, SandboxSummary
from codesdk.engine.calls.calls import Calls, ledger
from codesdk.engine.calls.evaluation import POLICY, judge_native
from codesdk.engine.calls.execution import Execution
from codesdk.engine.calls.matching import JOIN_S
from codesdk.engine.calls.mcp_calls import TaskGate
from codesdk.engine.log.state import CallState
from codesdk.engine.sessions.scope import SessionScope
from codesdk.policy import decide

RUNTIME = Actor(kind="runtime")
UNCONFINED = SandboxSummary(network=True)
UNASKED = "The runtime ran this itself, without asking."
CHANGED = "The runtime asks about another input than it announced; that is a call of its own."


class _Own(msgspec.Struct):
    """A call of the runtime's own tool, and what it was announced or asked about with."""

    call: CallState
    item: ToolAnnouncement


class NativeCalls:
    """The calls of one task that its runtime runs itself. `violated` ends the task, and says why."""

    def __init__(
        self, scope: SessionScope, calls: Calls, gate: TaskGate, violated: Callable[[str, str], None]
    ) -> None:
        self._scope = scope
        self._calls = calls
        self._gate = gate
        self._violated = violated
        self._known: dict[str, _Own] = {}
        self._news = asyncio.Event()

    async def announce(self, item: ToolAnnouncement) -> None:
        """Open an attempt for a call seen in the stream, unless the runtime asked about it before."""
        if item.runtime_tool_call_id in self._known:
            return
        taken = await self._calls.take(item)
        if taken is not None and item.runtime_tool_call_id is not None:
            self._remember(item.runtime_tool_call_id, await self._calls.open(item, taken), item)

    async def may_run(self, item: ToolAnnouncement) -> str | None:
        """Decide on a call that the runtime is about to run. Return why it may not, or None once it is written down."""
        taken, runtime_id = await self._calls.take(item), item.runtime_tool_call_id
        if taken is None or runtime_id is None:
            return "The call cannot be written down, so it must not run."
        own = await self._meet(runtime_id)
        if own is not None and own.call.identity.input_hash != taken.digest:
            self._drop(own.call, CHANGED)
            own = None
        call = own.call if own is not None else await self._calls.open(item, taken)
        self._remember(runtime_id, call, item)
        deciding = self._calls.spawn(self._decide(call, item))
        try:
            await asyncio.wait([deciding])
        except asyncio.CancelledError:
            self._calls.give_up(call, "The runtime no longer waits for this call.")
            raise
        return "The task is ending." if deciding.cancelled() else deciding.result()

    async def ended(self, item: ToolEnded) -> None:
        """Write down the end of a call. One that nobody was asked about is a violation, unless nobody had to be."""
        own = self._known.pop(item.runtime_tool_call_id, None)
        call = own.call if own is not None else self._gate.take_unmet(item.runtime_tool_call_id)
        if call is None or not self._calls.is_open(call):
            return  # it was denied: what the runtime tells is that
        if call.phase == "waiting" and item.refused:
            self._drop(call, str(item.result))
            return
        unasked = call.phase == "waiting" and not self._is_allowed(call, own)
        if call.phase == "waiting":
            self._admit(call, unasked)
        run = ToolRun(result=item.result, is_error=item.is_error, exit_code=item.exit_code)
        await Execution(self._scope, call).record(run, item.outcome)
        if unasked and own is not None:
            message = f"The runtime ran its own tool {call.name} without asking. The task is stopped."
            self._violated(message, call.name)

    async def _decide(self, call: CallState, item: ToolAnnouncement) -> str | None:
        await self._calls.decide(
            call, item.input, lambda: judge_native(self._scope, call, item.input, item.subjects)
        )
        may = self._calls.is_open(call)
        if may:
            ledger.started(self._scope.journal, call, ledger.NATIVE, UNCONFINED)
        await self._scope.recorder.settle()
        return None if may else call.closing_words

    async def _meet(self, runtime_id: str) -> _Own | None:
        """Return the announced call, waiting a moment for it: only the announcement says where it belongs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOIN_S):
                while runtime_id not in self._known:
                    self._news.clear()
                    await self._news.wait()
        return self._known.get(runtime_id)

    def _remember(self, runtime_id: str, call: CallState, item: ToolAnnouncement) -> None:
        self._known[runtime_id] = _Own(call, item)
        self._news.set()

    def _is_allowed(self, call: CallState, own: _Own | None) -> bool:
        """Tell whether a call that nobody was asked about would have been allowed, and note the opinions if so."""
        if own is None:
            return False
        opinions = judge_native(self._scope, call, own.item.input, own.item.subjects)
        if decide(opinions).result != "allow":
            return False
        for opinion in opinions:
            ledger.evaluate(self._scope.journal, call, opinion)
        return True

    def _admit(self, call: CallState, unasked: bool) -> None:
        """Write down that a call ran that was not asked about."""
        journal = self._scope.journal
        if unasked:
            opinion = Evaluation(source="runtime", result="allow", reason=UNASKED)
            ledger.evaluate(journal, call, opinion)
        ledger.approve(journal, call, RUNTIME if unasked else POLICY, UNASKED)
        ledger.started(journal, call, ledger.NATIVE, UNCONFINED)

    def _drop(self, call: CallState, reason: str) -> None:
        """Deny a call that the runtime did not go through with."""
        if self._calls.is_open(call) and call.phase == "waiting":
            opinion = Evaluation(source="runtime", result="deny", reason=reason)
            ledger.evaluate(self._scope.journal, call, opinion)
            ledger.deny(self._scope.journal, call, RUNTIME, reason)
