"""A session's questions → requests over the stdio policy channel: a command as a program that waits for decisions.

Implements `View`. Whatever the session's policy asks about is requested and waits; what it decides by itself is told.
The model's words are printed as they are, each on complete lines, so that events never begin in the middle of one.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import msgspec

from codesdk.channel import Channel, ToolDenied
from codesdk.cli.view.out import write_bytes
from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError, Forbidden, InvalidRequest
from codesdk.contract.messages import text_of
from codesdk.contract.service import Published
from codesdk.contract.tools import ToolClass
from codesdk.handles import Session

_ACTIONS: dict[ToolClass, Any] = {
    "read_only": "read",
    "write": "write",
    "network": "net",
    "dangerous": "exec",
}


class PolicyView:
    """One task as the other side of the channel sees it."""

    def __init__(self, channel: Channel, session: Session, load: Callable[[str], Any]) -> None:
        self._channel = channel
        self._session = session
        self._load = load
        self._given: dict[str, tuple[str, Any, dict[str, Any]]] = {}
        self._calls: dict[str, Any] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def show(self, items: Sequence[Published]) -> None:
        """Request, tell and print what events say."""
        for item in items:
            payload: object = item.event.payload
            match payload:
                case ev.ToolCallRequested():
                    action = _ACTIONS[payload.tool_class]
                    self._given[payload.tool_call_id] = payload.name, action, await self._input(payload)
                case ev.ApprovalRequested():
                    self._ask(payload)
                case ev.ToolCallStarted():
                    self._tell(payload.tool_call_id)
                case ev.ToolCallDenied():
                    await self._end(payload.tool_call_id, payload.reason, failed=True)
                case ev.ToolCallCompleted():
                    await self._end(payload.tool_call_id, payload.result_preview, failed=payload.is_error)
                case ev.OutputCompleted():
                    _print(text_of(payload.content))
                case _:
                    pass

    def end_with(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the other side wants this to end, or is gone: nothing can be decided then."""
        self._channel.on_abort = lambda _: stop()
        if self._channel.closed is not None:
            stop()

    async def remark(self, text: str) -> None:
        """Keep quiet: stdout is the model's words and events."""

    async def _input(self, payload: ev.ToolCallRequested) -> dict[str, Any]:
        given = payload.input
        if payload.input_ref is not None:
            given = msgspec.json.decode(await self._load(payload.input_ref.artifact_id))
        return cast("dict[str, Any]", given) if isinstance(given, dict) else {"input": given}

    def _ask(self, question: ev.ApprovalRequested) -> None:
        """Request a decision. What is no call (a budget, a question of a model's) nobody can decide here: it is denied."""
        task = asyncio.create_task(self._decide(question))
        self._asking[question.approval_id] = task
        task.add_done_callback(lambda _: self._asking.pop(question.approval_id, None))

    async def _decide(self, question: ev.ApprovalRequested) -> None:
        call_id = question.tool_call_id
        given = self._given.get(call_id or "")
        try:
            if call_id is None or given is None or question.question is not None:
                named = call_id or question.approval_id
                await self._session.deny(named, "Only tool calls are decided over the policy channel.")
                return
            call = self._calls[call_id] = self._channel.call(*given)
            attempt, seen = question.attempt, question.input_hash
            try:
                await call.ask(question.summary)
            except ToolDenied as denied:
                await self._session.deny(call_id, str(denied), attempt=attempt, input_hash=seen)
            else:
                await self._session.approve(call_id, attempt=attempt, input_hash=seen)
        except CodeSDKError:
            pass  # it was decided elsewhere, or the task has ended

    def _tell(self, call_id: str) -> None:
        if call_id not in self._calls and call_id in self._given:
            self._calls[call_id] = self._channel.tell(*self._given[call_id])

    async def _end(self, call_id: str, result: Any, *, failed: bool) -> None:
        self._given.pop(call_id, None)
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        if failed:
            call.fail(result if isinstance(result, str) else msgspec.json.encode(result).decode())
        else:
            call.output = result
            call.done()


def _print(text: str) -> None:
    # Not in a thread: an event must not begin in the middle of it.
    if text:
        write_bytes(text.encode("utf-8", "replace") + b"\n")


def check_stdio(prompt: str, *, as_json: bool, has_schema: bool) -> None:
    """Raise `InvalidRequest` if stdin or stdout is wanted for something else than decisions."""
    if prompt == "-":
        raise InvalidRequest("With --policy-stdio, stdin is for decisions. Give the prompt as an argument.")
    if as_json or has_schema:
        other = "--json" if as_json else "--output-schema"
        raise InvalidRequest(
            f"--policy-stdio and {other} both want stdout for themselves. Leave out one of the two."
        )
    if sys.stdin.isatty():
        raise InvalidRequest(
            "--policy-stdio is for a program that decides: `codesdk wrap -- codesdk … --policy-stdio …`. At a terminal"
            " you are asked without it."
        )


def check_scopes(scopes: Collection[str]) -> None:
    """Raise `Forbidden` if a daemon would not let this command answer."""
    if "approve" not in scopes:
        raise Forbidden(
            "With --policy-stdio this command answers questions. Its token needs the scope approve."
        )
