"""A small agent in this process that talks to its model through the gateway, with an official client.

One for each of two formats, as a `Play` of `FakeRuntime`: it streams, calls the offered tools, and
fails with what the client raised.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import msgspec
import openai

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import OutputCompleted
from codesdk.contract.messages import Text, text_of
from codesdk.contract.models import InstructionSources
from codesdk.contract.runtime import Draft, Failed, Finished, RuntimeItem, ToolAnnouncement, ToolReply
from codesdk.testing.fakes import FakeRuntime, FakeTask, delta
from codesdk.tools.names import wire_name

MODEL = "claude-judged"
KEY = "sk-ant-canary-0123456789abcdef"
ENTRY = RuntimeEntry(name="agent", adapter="tests.gateway.agent:agent_runtime")
"""For a registry that is told of this module."""
THROUGH_GATEWAY = Capabilities(input_capture="exact")
"""Of a runtime that asks its model through the gateway."""


def agent_runtime(
    play: "Callable[[FakeTask], AsyncIterator[RuntimeItem]] | None" = None, **options: Any
) -> FakeRuntime:
    """Return a runtime whose tasks are played by such an agent."""
    options.setdefault("capabilities", THROUGH_GATEWAY)
    return FakeRuntime(play or claude_like, name="agent", **options)


async def claude_like(task: FakeTask) -> AsyncIterator[RuntimeItem]:
    """Talk Anthropic Messages."""
    base_url = await task.host.model_endpoint(InstructionSources(names=("AGENTS.md",)))
    model = task.input.model or MODEL
    tools: Any = [
        {
            "name": wire_name(spec.name),
            "description": spec.description,
            "input_schema": spec.input_schema,
        }
        for spec in task.input.tools
    ]
    messages: list[Any] = [
        {"role": "user" if m.role != "assistant" else "assistant", "content": text_of(m.content)}
        for m in task.input.messages
        if text_of(m.content)
    ]
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as client:
        for turn in range(1000):
            message_id = f"{task.input.task_id}.{turn}"
            try:
                async with client.messages.stream(
                    model=model, max_tokens=1000, messages=messages, tools=tools
                ) as stream:
                    async for text in stream.text_stream:
                        yield delta(text, message_id)
                    answer = await stream.get_final_message()
            except anthropic.APIError as error:
                yield _failed(error)
                return
            said = "".join(block.text for block in answer.content if block.type == "text")
            yield Draft(OutputCompleted(message_id=message_id, content=[Text(text=said)]))
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                yield Finished(stop_reason="end_turn")
                return
            messages.append(
                {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
            )
            results: list[Any] = []
            for call in calls:
                yield ToolAnnouncement(
                    name=call.name.replace("_", ".", 1),
                    input=call.input,
                    runtime_tool_call_id=call.id,
                    message_id=message_id,
                )
            for call in calls:
                text, is_error = _told(await task.reply(call.id))
                results.append(
                    {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": is_error}
                )
            messages.append({"role": "user", "content": results})


async def codex_like(task: FakeTask) -> AsyncIterator[RuntimeItem]:
    """Talk OpenAI Responses, without tools."""
    base_url = await task.host.model_endpoint()
    async with openai.AsyncOpenAI(
        base_url=f"{base_url}/v1", api_key="sk-canary-0123456789", max_retries=0
    ) as client:
        try:
            answer = await client.responses.create(
                model=task.input.model or "gpt-judged", input=text_of(task.input.messages[-1].content)
            )
        except openai.APIError as error:
            yield _failed(error)
            return
    yield Draft(OutputCompleted(message_id=task.input.task_id, content=[Text(text=answer.output_text)]))
    yield Finished(stop_reason="end_turn")


def asking(times: int) -> Callable[[FakeTask], AsyncIterator[RuntimeItem]]:
    """Return an agent that asks the same again and again, whatever the answer, like one caught in a loop."""

    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        base_url = await task.host.model_endpoint()
        async with anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as client:
            for _ in range(times):
                try:
                    await client.messages.create(
                        model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "Again?"}]
                    )
                except anthropic.APIError:
                    pass
        yield Finished(stop_reason="end_turn")

    return play


def _told(reply: ToolReply | str) -> tuple[str, bool]:
    if isinstance(reply, str):
        return reply, True
    text = reply.result if isinstance(reply.result, str) else msgspec.json.encode(reply.result).decode()
    return text, reply.is_error


def _failed(error: Exception) -> Failed:
    return Failed(
        error=ErrorInfo(
            code="MODEL_ERROR",
            message=f"{type(error).__name__} {getattr(error, 'code', None)}: {error}",
            retryable=False,
        )
    )
