"""The events of a turn → what the engine records of a task, and what the engine says → the turn."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import count

import msgspec

from codesdk.contract.events import OutputCompleted, OutputDelta, OutputRetracted, RuntimeNotice
from codesdk.contract.messages import Message, ToolResult, ToolUse
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Host,
    Identified,
    RuntimeItem,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity
from codesdk.minicode import types as t
from codesdk.minicode.agent import Agent, Turn
from codesdk.minicode.models import OpenModel
from codesdk.minicode.runtime import NAME
from codesdk.minicode.runtime.tools import EngineTools

_ENDS: dict[t.FinishReason, str] = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
"""Ends of answers in the words that other runtimes use for them."""


class MinicodeTask:
    """One task. Implements `RuntimeTask`."""

    def __init__(self, agent: Agent, model: OpenModel, host: Host, task: TaskInput) -> None:
        assert isinstance(agent.tools, EngineTools)
        self._tools = agent.tools
        self._model = model
        self._host = host
        self._announced: set[str] = set()
        self._calls: dict[str, str] = {}
        numbers = count(task.model_messages)
        self._turn = Turn(agent, task.messages, lambda: f"{task.task_id}.{next(numbers)}", keep=self._keep)

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        try:
            yield Identified(model=self._model.name)
            async for event in self._turn.events():
                for item in self._items(event):
                    yield item
        finally:
            await self._model.aclose()

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        self._answer(call, t.ToolOutput(ok=not reply.is_error, output_message=_readable(reply.result)))

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        self._answer(call, t.ToolOutput(ok=False, output_message=reason))

    async def steer(self, messages: Sequence[Message]) -> None:
        self._turn.steer(messages)

    async def stop(self, reason: str) -> None:
        self._turn.abort(reason)

    async def close(self) -> None:
        self._turn.abort("the task was closed")
        await self._model.aclose()

    def _answer(self, call: ToolIdentity, output: t.ToolOutput) -> None:
        own = self._calls.get(call.runtime_tool_call_id or "")
        if own is not None:
            self._tools.answer(own, call.tool_call_id, output)

    async def _keep(self, text: str) -> str:
        ref = await self._host.put_artifact(
            text.encode("utf-8", "replace"), "text/plain; charset=utf-8", "result"
        )
        return ref.content_hash

    def _items(self, event: t.TurnEvent) -> Iterator[RuntimeItem]:
        match event:
            case t.TextDelta() | t.ReasoningDelta():
                yield Draft(_delta(event))
            case t.Retracted():
                yield Draft(OutputRetracted(block_ids=event.block_ids, reason=event.reason))
            case t.StepFinish():
                yield Draft(_completed(event))
            case t.ToolCallEvent():
                yield self._announcement(event)
            case t.RetryEvent():
                message = f"The model is asked again in {event.delay_s:.1f} s: {event.error.message}"
                details = {"attempt": event.attempt, "code": event.error.code}
                yield Draft(RuntimeNotice(kind="retry", message=message, details=details))
            case t.ContextEvent():
                yield Draft(_shortened(event))
            case t.Finish():
                yield Finished(stop_reason=_ENDS.get(event.finish_reason, event.finish_reason))
            case t.Abort():
                yield Finished(stop_reason="stopped")
            case t.TurnError():
                yield Failed(error=msgspec.structs.replace(event.error, runtime=NAME))
            case t.ToolResultEvent() | t.ToolErrorEvent():
                pass  # the engine has it: it gave it to us

    def _announcement(self, event: t.ToolCallEvent) -> ToolAnnouncement:
        call = event.call
        # Some servers give the same ids again in each answer; the engine would take the second call for the first.
        known = call.id if call.id not in self._announced else f"{call.id}@{event.message_id}"
        self._announced.add(known)
        self._calls[known] = call.id
        return ToolAnnouncement(
            name=call.name,
            input=call.input,
            runtime_tool_call_id=known,
            message_id=event.message_id,
            index=call.index,
            origin="stream",
        )


def _delta(event: t.TextDelta | t.ReasoningDelta) -> OutputDelta:
    return OutputDelta(
        kind="text_delta" if isinstance(event, t.TextDelta) else "reasoning_delta",
        block_id=event.block_id,
        message_id=event.block_id.rpartition(".")[0],
        delta=event.text,
    )


def _completed(event: t.StepFinish) -> OutputCompleted:
    message = event.message
    return OutputCompleted(
        message_id=message.message_id or "",
        content=[block for block in message.content if not isinstance(block, ToolUse | ToolResult)],
        stop_reason=_ENDS.get(event.finish_reason, event.finish_reason),
    )


def _shortened(event: t.ContextEvent) -> RuntimeNotice:
    message = (
        f"To fit the model's window, {len(event.replaced)} outputs of tools were shown as previews and"
        f" {event.omitted} of the oldest messages left out."
    )
    details = {
        "replaced": event.replaced,
        "omitted": event.omitted,
        "estimated_tokens": event.estimated_tokens,
    }
    return RuntimeNotice(kind="context_shortened", message=message, details=details)


def _readable(result: object) -> str:
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()
