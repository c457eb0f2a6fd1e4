"""The loop: ask the model, run the tools that it calls, tell it what they gave, until it calls none.

`Agent` is what works and knows no session; a `Turn` is one piece of work. It has two lives, alone and as a runtime, and
they differ only in the `Model` and the `ToolExecutor` that it is given.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count

import msgspec

from codesdk.contract.errors import CodeSDKError, ErrorInfo, TaskFailure
from codesdk.contract.messages import ContentBlock, Message, Reasoning, Text, ToolResult, ToolUse, user
from codesdk.contract.text import mend
from codesdk.minicode import types as t
from codesdk.minicode.context import Context, Keep

MAX_STEPS = 100
RETRIES = 4
MAX_WAIT_S = 60.0
"""A provider that wants more patience than this is not waited for."""
INTERRUPTED = "(The answer was interrupted here.)"
_ABORTED = t.ToolOutput(ok=False, output_message="The call was given up before it ended.")
_AHEAD = 64
"""How many events a turn may be ahead of whoever listens to it."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """What works on turns. Holds nothing of a session, so one serves many."""

    model: t.Model
    tools: t.ToolExecutor
    instructions: str = ""
    stop_when: tuple[t.StopCondition, ...] = ()
    max_steps: int = MAX_STEPS
    retries: int = RETRIES
    context_tokens: int = 100_000
    """How much the model is sent at most."""


class Turn:
    """One turn. Iterate `events` once, to its end; `added` is what the turn adds to the transcript."""

    def __init__(
        self,
        agent: Agent,
        transcript: Sequence[Message],
        new_id: Callable[[], str],
        *,
        keep: Keep | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.added: list[Message] = []
        self.usage = t.NOTHING
        self._agent = agent
        self._context = Context(transcript, agent.context_tokens, keep)
        self._new_id = new_id
        self._sleep = sleep
        self._steering: list[Message] = []
        self._partial: dict[str, _Block] = {}
        self._open: dict[str, t.ToolCall] = {}
        self._outputs: dict[str, t.ToolOutput] = {}
        self._answer: Message | None = None
        self._steps: list[t.StepFinish] = []
        self._events: asyncio.Queue[t.TurnEvent] = asyncio.Queue()
        self._room = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._aborted: str | None = None
        self._ending = False

    async def events(self) -> AsyncGenerator[t.TurnEvent, None]:
        """Work, and yield what happens. The last event, and only that, says how the turn ended."""
        task = asyncio.create_task(self._run())
        try:
            while True:
                event = await self._events.get()
                self._room.set()
                yield event
                if isinstance(event, t.Finish | t.Abort | t.TurnError):
                    return
        finally:
            self._ending = True
            task.cancel()
            await asyncio.wait([task])

    def steer(self, messages: Sequence[Message]) -> bool:
        """Have the model told something more before its next step. Return false if there is none."""
        if not self._ending:
            self._steering += messages
        return not self._ending

    def abort(self, reason: str) -> None:
        """Give up. What was said so far stays said."""
        if self._aborted is None and not self._ending:
            self._aborted = reason
            if self._working is not None:  # else it is about to begin, and will find that it need not
                self._working.cancel()

    # --- the loop -------------------------------------------------------------------------------------

    async def _work(self) -> t.FinishReason:
        """Work until there is nothing more to do. Return why."""
        while True:
            self._take_steering()
            answer = await self._ask()
            await self._run_tools(answer)
            if not answer.calls and not self._steering:
                return answer.finish_reason
            if any(stop(self._steps) for stop in self._agent.stop_when):
                return "stop_condition"
            if len(self._steps) >= self._agent.max_steps:
                return "max_steps"

    async def _ask(self) -> t.ModelMessage:
        """Ask the model until it has answered. Every attempt that failed is told of, and what came of it is taken back."""
        for attempt in count(1):
            try:
                return await self._listen(await self._request())
            except CodeSDKError as error:
                left_out = await self._context.refused() if error.code == "CONTEXT_TOO_LARGE" else None
                wait_s = 0.0 if left_out else self._patience(error, attempt)
                if wait_s is None:
                    raise
                await self._take_back(error.message)
                if left_out is not None:
                    await self._say(left_out)
                else:
                    await self._say(t.RetryEvent(attempt=attempt, delay_s=wait_s, error=error.info()))
                    await self._sleep(wait_s)
        raise AssertionError("counting does not end")

    async def _listen(self, request: t.ModelRequest) -> t.ModelMessage:
        """Take in one answer, in the only place where a model's stream is read."""
        async with aclosing(self._agent.model.stream(request)) as items:
            async for item in items:
                if isinstance(item, t.ModelMessage):
                    self._take(item)
                    return item
                self._partial.setdefault(item.block_id, _Block(type(item), [])).pieces.append(item.text)
                await self._say(item)
        raise TaskFailure("The model's answer ended before it was whole.", code="MODEL_ERROR", retryable=True)

    async def _run_tools(self, answer: t.ModelMessage) -> None:
        """Run the calls of an answer side by side, and keep the answer with their results."""
        async with asyncio.TaskGroup() as group:
            for call in answer.calls:
                group.create_task(self._run_tool(call))
        self._keep_answer()

    async def _run_tool(self, call: t.ToolCall) -> None:
        try:
            output = await self._agent.tools.run(call)
        except asyncio.CancelledError:
            if self._aborted is not None or self._ending:
                raise
            output = t.ToolOutput(ok=False, output_message=f"The tool {call.name} was cancelled.")
        except Exception as error:  # noqa: BLE001 - a tool that raises has failed, and the turn goes on
            output = t.ToolOutput(ok=False, output_message=f"The tool {call.name} failed: {error}")
        # Names of files, for one, may hold what no provider can be sent and no file can keep.
        output = msgspec.structs.replace(output, output_message=mend(output.output_message))
        self._outputs[call.id] = output
        await self._say(_told(call, output))

    # --- what it is made of ---------------------------------------------------------------------------

    def _take(self, answer: t.ModelMessage) -> None:
        """Take a whole answer in the place of its pieces, and tell of it; at once, since the turn may be given up any time."""
        step = t.StepFinish(finish_reason=answer.finish_reason, usage=answer.usage, message=answer.message)
        self._partial.clear()
        self._answer, self._open = answer.message, {call.id: call for call in answer.calls}
        self._steps.append(step)
        self.usage = self.usage.plus(answer.usage)
        self._context.learn(answer.usage.tokens_in)
        self._events.put_nowait(step)
        for call in answer.calls:
            self._events.put_nowait(t.ToolCallEvent(call=call, message_id=answer.message.message_id or ""))

    async def _run(self) -> None:
        """Work, and say how that ended, once."""
        self._working = asyncio.current_task()
        assert self._working is not None
        try:
            if self._aborted is not None:
                raise asyncio.CancelledError
            reason = await self._work()
            end: t.TurnEvent = t.Finish(finish_reason=reason, total_usage=self.usage)
        except asyncio.CancelledError:
            if self._aborted is None:
                raise  # whoever listened has left
            self._working.uncancel()
            end = t.Abort(reason=self._aborted, total_usage=self.usage)
        except Exception as error:  # noqa: BLE001 - whatever happens is how the turn ended
            end = t.TurnError(error=_info(error), total_usage=self.usage)
        self._ending = True
        for event in (*self._break_off(), end):
            await self._say(event)

    async def _request(self) -> t.ModelRequest:
        tools = self._agent.tools.definitions()
        self._context.beside(self._agent.instructions, tools)
        left_out = await self._context.fit()
        if left_out is not None:
            await self._say(left_out)
        return t.ModelRequest(
            instructions=self._agent.instructions,
            messages=list(self._context.messages),
            tools=tools,
            message_id=self._new_id(),
        )

    def _patience(self, error: CodeSDKError, attempt: int) -> float | None:
        """Return how long to wait before the next attempt, or None if there should be none."""
        if not error.retryable or attempt > self._agent.retries:
            return None
        asked: float | None = (error.details or {}).get("retry_after_s")
        if asked is not None:
            return asked if asked <= MAX_WAIT_S else None
        return min(MAX_WAIT_S, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)

    async def _take_back(self, why: str) -> None:
        if self._partial:
            blocks, self._partial = list(self._partial), {}
            await self._say(t.Retracted(block_ids=blocks, reason=why))

    def _take_steering(self) -> None:
        taken, self._steering = self._steering, []
        self._add(*taken)

    def _keep_answer(self) -> None:
        """Add the answer, and the results of its calls, under the ids that the transcript has for them."""
        answer, self._answer = self._answer, None
        assert answer is not None, "an answer is kept once"
        ids = {call.id: self._agent.tools.kept_as(call) for call in self._open.values()}
        results: list[ContentBlock] = [_result(ids[id_], self._outputs[id_]) for id_ in self._open]
        content = [
            msgspec.structs.replace(block, tool_call_id=ids[block.tool_call_id])
            if isinstance(block, ToolUse)
            else block
            for block in answer.content
        ]
        if content:
            self._add(msgspec.structs.replace(answer, content=content))
        if results:
            self._add(Message(role="tool", content=results, message_id=answer.message_id))
        self._open, self._outputs = {}, {}

    def _break_off(self) -> list[t.TurnEvent]:
        """Keep what there is of an answer that did not get to its end. Return what nobody has been told yet."""
        unsaid: list[t.TurnEvent] = []
        if self._answer is not None:
            for call in self._open.values():
                if call.id not in self._outputs:
                    self._outputs[call.id] = _ABORTED
                    unsaid.append(_told(call, _ABORTED))
            self._keep_answer()
        if self._partial:
            said = [block.content for block in self._partial.values()]
            self._add(Message(role="assistant", content=said))
        if self._aborted is not None:
            self._add(user(INTERRUPTED))
        self._take_steering()  # what the model was not told any more was said all the same
        return unsaid

    def _add(self, *messages: Message) -> None:
        self.added += messages
        self._context.add(*messages)

    async def _say(self, event: t.TurnEvent) -> None:
        """Emit an event, then wait if the listener has fallen behind. Cancelling the wait does not take the event back."""
        self._events.put_nowait(event)
        while self._events.qsize() > _AHEAD:
            self._room.clear()
            await self._room.wait()


class _Block(msgspec.Struct):
    """A block of an answer while it streams."""

    kind: type[t.TextDelta] | type[t.ReasoningDelta]
    pieces: list[str]

    @property
    def content(self) -> ContentBlock:
        kind = Text if self.kind is t.TextDelta else Reasoning
        return kind(text="".join(self.pieces))


def _told(call: t.ToolCall, output: t.ToolOutput) -> t.ToolResultEvent | t.ToolErrorEvent:
    kind = t.ToolResultEvent if output.ok else t.ToolErrorEvent
    return kind(call_id=call.id, name=call.name, output=output)


def _result(call_id: str, output: t.ToolOutput) -> ToolResult:
    return ToolResult(tool_call_id=call_id, result=output.output_message, is_error=not output.ok)


def _info(error: Exception) -> ErrorInfo:
    if isinstance(error, CodeSDKError):
        return error.info()
    return ErrorInfo(
        code="INTERNAL", message=f"The turn failed: {type(error).__name__}: {error}", retryable=False
    )
