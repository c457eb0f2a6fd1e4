"""Tools owned on the wire, as the engine sees it: what the model may be offered, and what it called beside that.

`WireRecord` is the part of a session's tap that the gateway's acts use; `SessionTap` is the rest of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.ownership import WireCall, mark_for
from codesdk.contract.text import mend
from codesdk.contract.tools import ToolSpec
from codesdk.engine.calls.wire_calls import note_denied, read_denied
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle

_ENDED = 256  # requests whose task is remembered: a denied call is told of right after its request has ended


class WireRecord:
    """What passes the acts in one session. Implements `WireTap`."""

    def __init__(self, scope: SessionScope) -> None:
        self._scope = scope
        self._tasks: dict[str, str | None] = {}
        self._ended: dict[str, str | None] = {}
        self._results: list[str] = []
        self._conversed = False
        self._unknown = False
        self.refuse: Callable[[WireCall], Awaitable[None]] | None = None
        """Records a denied call of the running task. Each run sets its own."""

    def add_result(self, result: Any) -> None:
        """Remember the result of a call that the model is given."""
        self._results.append(result if isinstance(result, str) else msgspec.json.encode(result).decode())

    def tools(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may be offered now."""
        task = self._scope.state.task
        return () if task is None or task.summarizes_before is not None else self._scope.offered()

    def mark(self) -> str:
        """Return a new mark. It has the id that its call will have in the log."""
        mark = mark_for(self._scope.ports.stamper.mint("call"))
        self._scope.marks.add(mark)
        return mark

    async def denied(self, call: WireCall) -> None:
        """Record a denied call; it is committed when this returns."""
        if self.refuse is not None and self._is_current(call.request_id):
            await self.refuse(call)
        else:
            note_denied(self._scope, call, "It was not part of a running task.", in_task=False)
        self.add_result(call.reason)  # the next request quotes it
        await self._scope.recorder.settle()

    async def denials(self) -> Sequence[WireCall]:
        """Return the denied calls of the session as its log has them."""
        since = self._scope.state.denied_since
        if not since:
            return ()
        marks, calls = await read_denied(self._scope, since - 1)
        for mark in marks:
            self._scope.marks.add(mark)
        return calls

    def converse(self) -> None:
        """Note that the running task's conversation was recognized."""
        self._conversed = True

    def unrecognized(self) -> ErrorInfo | None:
        """Return why a task has failed whose runtime asked its model, but for all we know never in the conversation.

        Its model was offered no tools, so whatever it answered is not the work that was asked for.
        """
        if self._conversed or not self._unknown or not self.tools():
            return None
        runtime = self._scope.state.runtime_name
        message = (
            f"None of the model requests of {runtime} was recognized as part of the conversation: it puts what users"
            " say in words of its own. So the model was offered no tools, and the task failed. Find out how with"
            " `codesdk runtimes probe`, or name in the agent's row what it writes behind those words (`appends`)."
        )
        return ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False, runtime=runtime)

    def aside(self, request_id: str, tools: Sequence[str]) -> None:
        """Note a request of an unknown kind, from which these tools were taken."""
        self._unknown = True
        message = (
            "The runtime asked the model something of its own, of a kind that is not known. It got no tools."
        )
        details = {"request_id": request_id, "purpose": "unknown", "tools": list(tools)}
        lifecycle.notice(self._scope.journal, "hidden_request", message, details)

    def give_up(self, why: str) -> None:
        """End the task: its model does not come to an answer."""
        error = ErrorInfo(code="MODEL_ERROR", message=self._scope.redactor.text(mend(why)), retryable=False)
        self._scope.halt(error, None)

    def _is_current(self, request_id: str) -> bool:
        task = self._scope.state.task
        asked_in = self._tasks.get(request_id, self._ended.get(request_id))
        return task is not None and asked_in == task.task_id

    def _forget(self, request_id: str) -> None:
        """Forget a request that has ended, but not at once."""
        self._ended[request_id] = self._tasks.pop(request_id, None)
        if len(self._ended) > _ENDED:
            del self._ended[next(iter(self._ended))]
