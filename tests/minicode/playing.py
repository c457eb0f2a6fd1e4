"""A model and tools that do what a plan says, for tests of the loop: pieces, faults and calls, at every point."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import ContentBlock, Message, Reasoning, Text, ToolUse, user
from codesdk.minicode.agent import Agent, Turn
from codesdk.minicode.types import (
    ModelItem,
    ModelMessage,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolOutput,
    TurnEvent,
    Usage,
)

USED = Usage(input=10, output=5, cost_usd=0.5)
READ = ToolDefinition(name="read", description="Read a file.", input_schema={"type": "object"})


@dataclass(frozen=True)
class Try:
    """One request: what streams, and then a fault, the end without an end, or the whole message with these calls."""

    pieces: Sequence[str] = ()
    fault: CodeSDKError | None = None
    cut: bool = False
    calls: Sequence[str] = ()
    thought: str = ""


def broken(retry_after_s: float | None = None, *, retryable: bool = True) -> CodeSDKError:
    details = None if retry_after_s is None else {"retry_after_s": retry_after_s}
    return CodeSDKError("The stream broke.", code="MODEL_ERROR", retryable=retryable, details=details)


def too_long() -> CodeSDKError:
    return CodeSDKError("The prompt is too long.", code="CONTEXT_TOO_LARGE")


class PlannedModel:
    """Answers each request with the next try of a plan, and with nothing to say when the plan is over."""

    name = "planned"

    def __init__(self, *plan: Try) -> None:
        self._plan = list(plan)
        self.requests: list[ModelRequest] = []
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem, None]:
        self.requests.append(request)
        planned = self._plan.pop(0) if self._plan else Try()
        self.open += 1
        try:
            await asyncio.sleep(0)
            if planned.thought:
                yield ReasoningDelta(block_id=f"{request.message_id}.t", text=planned.thought)
            for piece in planned.pieces:
                yield TextDelta(block_id=f"{request.message_id}.0", text=piece)
                await asyncio.sleep(0)
            if planned.fault is not None:
                raise planned.fault
            if not planned.cut:
                yield whole(request.message_id, planned)
        finally:
            self.open -= 1
            await asyncio.sleep(0)  # to close a connection takes a moment, in which a turn may be given up


def whole(message_id: str, planned: Try) -> ModelMessage:
    content: list[ContentBlock] = []
    if planned.thought:
        content.append(Reasoning(text=planned.thought))
    if planned.pieces:
        content.append(Text(text="".join(planned.pieces)))
    calls = [
        ToolCall(
            id=f"{message_id}:{name}{number}", name=name, input={"n": number}, index=len(content) + number
        )
        for number, name in enumerate(planned.calls)
    ]
    content += [ToolUse(tool_call_id=call.id, name=call.name, input=call.input) for call in calls]
    return ModelMessage(
        message=Message(role="assistant", content=content, message_id=message_id),
        calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=USED,
    )


@dataclass
class PlannedTools:
    """Does what the name of a tool says: gives, refuses, raises, is cancelled, or waits for ever."""

    ran: list[ToolCall] = field(default_factory=list)
    given: str = "done"
    wanted: int = 1
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when so many calls as are wanted have begun."""
    rename: Callable[[ToolCall], str] = lambda call: call.id

    def definitions(self) -> Sequence[ToolDefinition]:
        return [READ]

    def kept_as(self, call: ToolCall) -> str:
        return self.rename(call)

    async def run(self, call: ToolCall) -> ToolOutput:
        self.ran.append(call)
        if len(self.ran) == self.wanted:
            self.begun.set()
        await asyncio.sleep(0)
        match call.name:
            case "refuse":
                return ToolOutput(ok=False, output_message="no")
            case "raise":
                raise ValueError("out of order")
            case "cancelled":
                raise asyncio.CancelledError
            case "wait":
                await asyncio.Event().wait()
        return ToolOutput(ok=True, output_message=self.given)


async def no_wait(seconds: float) -> None:
    await asyncio.sleep(0)


def turn_of(model: PlannedModel, tools: PlannedTools | None = None, *said: Message, **given: Any) -> Turn:
    numbers = count()
    agent = Agent(model=model, tools=tools or PlannedTools(), instructions="Be brief.", **given)
    return Turn(agent, list(said) or [user("Go.")], lambda: f"m{next(numbers)}", sleep=no_wait)


async def play(turn: Turn, at: int | None = None, act: Callable[[], object] | None = None) -> list[TurnEvent]:
    """Return the events of a turn. After `at` of them, do something."""
    events: list[TurnEvent] = []
    async for event in turn.events():
        events.append(event)
        if len(events) == at and act is not None:
            act()
    return events
