"""Tool calls that come through the gate: the MCP host has them, the ledger decides, the answer goes back the same way.

`TaskGate` is a task's side of it, for runtimes whose stream only announces calls; `Gate` finds the task
by its session and implements `ToolGate`. What a call does and whether it may is the concern of `calls`.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from codesdk.contract.canonical import CanonicalError
from codesdk.contract.errors import CodeSDKError, Conflict, InvalidRequest
from codesdk.contract.runtime import ToolAnnouncement, ToolReply
from codesdk.contract.tools import Actor, Evaluation, ToolSpec
from codesdk.engine.calls.calls import Calls, ledger
from codesdk.engine.calls.inputs import Taken, take_input
from codesdk.engine.calls.matching import Announced, Meetings
from codesdk.engine.log.state import CallState
from codesdk.engine.sessions.scope import SessionScope

RUNTIME = Actor(kind="runtime")
NEVER_CAME = "The runtime did not go through with this call."


class TaskGate:
    """The calls of one task that its runtime makes over MCP."""

    def __init__(self, scope: SessionScope, calls: Calls, told: Callable[[Any], None]) -> None:
        self._scope = scope
        self._calls = calls
        self._told = told
        self._meetings = Meetings()
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._closed = False
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    async def announce(self, item: ToolAnnouncement) -> None:
        """Open an attempt for a call seen in the stream. It is decided when it comes through the gate."""
        taken = await self._calls.take(item)
        if taken is None or self._meetings.is_late(item.runtime_tool_call_id, item.name, taken.digest):
            return
        if self._calls.is_repeat(item, taken.digest):
            return
        call = await self._calls.open(item, taken)
        self._meetings.announce(Announced(call, item.runtime_tool_call_id, call.name, taken.digest))

    def drop(self, runtime_id: str | None, reason: str) -> None:
        """Deny the announced call that the runtime says it will not make; without an id, all that it has not made."""
        for call in self._meetings.take_unmet(runtime_id):
            if self._calls.is_open(call) and call.phase == "waiting":
                opinion = Evaluation(source="runtime", result="deny", reason=reason)
                ledger.evaluate(self._scope.journal, call, opinion)
                ledger.deny(self._scope.journal, call, RUNTIME, reason)

    async def call(self, name: str, arguments: Any, runtime_id: str | None) -> ToolReply:
        """Decide and run a call. The same one again gets the same answer."""
        try:
            taken = take_input(self._scope.redactor, arguments)
        except (CanonicalError, CodeSDKError, RecursionError) as error:
            raise InvalidRequest(f"The input of the tool call is not usable ({error}).") from None
        answer = self._find(runtime_id, taken.digest)
        if answer is None:
            if self._closed:
                raise Conflict("The task is ending; no more tools are called.")
            answer = _Answer(self._calls.spawn(self._run(name, arguments, runtime_id, taken)))
            if runtime_id is not None:
                self._answers[(runtime_id, taken.digest)] = answer
        answer.waiting += 1
        try:
            reply = await asyncio.shield(answer.task)
            await self._may_answer.wait()
            return reply
        finally:
            answer.waiting -= 1
            if not answer.waiting:
                answer.task.cancel()  # nobody is left to be told; no effect on one that is done

    def take_unmet(self, runtime_id: str) -> CallState | None:
        """Return a call that was announced and did not come here, and forget it: the runtime ran it itself."""
        return next(iter(self._meetings.take_unmet(runtime_id)), None)

    def hold(self) -> None:
        """Keep answers back until the runtime was told to stop: with one in hand it would ask its model once more."""
        self._may_answer.clear()

    def release(self) -> None:
        """Give the answers that were kept back."""
        self._may_answer.set()

    def close(self) -> None:
        """Take no more calls, and deny those that were announced and never came."""
        self._closed = True
        self.release()
        self.drop(None, NEVER_CAME)

    def _find(self, runtime_id: str | None, digest: str) -> "_Answer | None":
        """Return the answer to the same call, on its way or given."""
        answer = None if runtime_id is None else self._answers.get((runtime_id, digest))
        return None if answer is not None and answer.task.cancelled() else answer

    async def _run(self, name: str, arguments: Any, runtime_id: str | None, taken: Taken) -> ToolReply:
        call = await self._meetings.meet(runtime_id, self._scope.redactor.text(name), taken.digest)
        if call is None or not self._calls.is_open(call):
            item = ToolAnnouncement(name=name, input=arguments, runtime_tool_call_id=runtime_id)
            call = await self._calls.open(item, taken)
        reply = await self._see_through(call, arguments)
        if not isinstance(reply, ToolReply):
            reply = ToolReply(result=reply, is_error=True)
        self._told(reply.result)
        return reply

    async def _see_through(self, call: CallState, arguments: Any) -> ToolReply | str:
        seeing = self._calls.spawn(self._calls.see_through(call, arguments))
        try:
            await asyncio.wait([seeing])
        except asyncio.CancelledError:
            self._calls.give_up(call, "The runtime no longer waits for this call.")
            raise
        if seeing.cancelled():
            return "The call was not run: the task is ending."
        return seeing.result()


@dataclasses.dataclass
class _Answer:
    """The answer to a call, and how many wait for it."""

    task: asyncio.Task[ToolReply]
    waiting: int = 0


class GatedSession(Protocol):
    """What the gate needs of a session."""

    @property
    def scope(self) -> SessionScope: ...

    @property
    def gate(self) -> TaskGate | None: ...


class Gate:
    """All sessions' tools, behind one door. Implements `ToolGate`."""

    def __init__(self, find: Callable[[str], GatedSession]) -> None:
        self._find = find

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        """Return the tools that a session offers."""
        return self._find(session_id).scope.tools.specs()

    async def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> ToolReply:
        """Decide on a call of the running task, run it if it may run, and return what the model should read."""
        gate = self._find(session_id).gate
        if gate is None:
            raise Conflict(f"Session {session_id} has no running task, so no tool can be called.")
        return await gate.call(name, arguments, runtime_tool_call_id)
