"""The four official clients, asked for one answer each in its own way, and what each hears in the same words.

`converse(base_url, wire, …)` changes nothing of a client but its base URL, how long it waits and how often it tries.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from tests.gateway.peers import PATIENCE_S, genai, types

from codesdk.gateway.wires.exchange import Wire

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = "workspace_read"


@dataclass(frozen=True)
class Heard:
    """What a client made of an answer. `stop` is the provider's own word; tokens are input, output and all in all."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    stop: str | None = None
    refusal: str | None = None
    tokens: tuple[int, int, int] | None = None


class Turn:
    """One exchange with a client: what it heard, and what it would send back with the results of the calls."""

    def __init__(self, heard: Heard, follow_up: Callable[[list[str]], list[Any]]) -> None:
        self.heard = heard
        self.follow_up = follow_up


@asynccontextmanager
async def official(
    base_url: str, wire: Wire, *, timeout_s: float = PATIENCE_S, retries: int = 0
) -> AsyncIterator[Any]:
    """Open the official client of a format."""
    if wire == "gemini":
        retry = types.HttpRetryOptions(attempts=retries + 1, initial_delay=0.01, jitter=0.0)
        options = types.HttpOptions(
            base_url=base_url, timeout=int(timeout_s * 1000), retry_options=retry if retries else None
        )
        both = genai.Client(api_key="not-a-key", http_options=options)
        async with both.aio as model:
            yield model
        both.close()
        return
    kind, url = (AsyncAnthropic, base_url) if wire == "anthropic" else (AsyncOpenAI, f"{base_url}/v1")
    async with kind(api_key="not-a-key", base_url=url, max_retries=retries, timeout=timeout_s) as client:
        yield client


async def converse(
    base_url: str,
    wire: Wire,
    *,
    streaming: bool = True,
    messages: list[Any] | None = None,
    timeout_s: float = PATIENCE_S,
    retries: int = 0,
) -> Turn:
    """Ask once, with a tool on offer, and hear the answer to its end."""
    async with official(base_url, wire, timeout_s=timeout_s, retries=retries) as client:
        return await hear(client, wire, streaming, messages)


async def hear(client: Any, wire: Wire, streaming: bool, messages: list[Any] | None = None) -> Turn:
    """The same with a client that is open already."""
    hi = types.Content(role="user", parts=[types.Part(text="Hi")])
    first = [hi] if wire == "gemini" else [{"role": "user", "content": "Hi"}]
    return await _ASKS[wire](client, messages or first, streaming)


async def _anthropic(client: Any, messages: list[Any], streaming: bool) -> Turn:
    tools = [{"name": TOOL, "description": "Read a file.", "input_schema": PARAMETERS}]
    asked = {"model": "claude-judged", "max_tokens": 2000, "messages": messages, "tools": tools}
    if streaming:
        async with client.messages.stream(**asked) as events:
            message = await events.get_final_message()
    else:
        message = await client.messages.create(**asked)
    blocks = message.content
    calls = [block for block in blocks if block.type == "tool_use"]
    usage = message.usage
    read = (
        usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    )
    heard = Heard(
        text="".join(block.text for block in blocks if block.type == "text"),
        reasoning="".join(block.thinking for block in blocks if block.type == "thinking"),
        calls=tuple((call.name, call.input) for call in calls),
        stop=message.stop_reason,
        refusal=message.stop_details.explanation if message.stop_details else None,
        tokens=(read, usage.output_tokens, read + usage.output_tokens),
    )

    def follow_up(results: list[str]) -> list[Any]:
        told = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in zip(calls, results, strict=True)
        ]
        said = [block.model_dump(exclude_none=True) for block in blocks]
        return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": told}]

    return Turn(heard, follow_up)


async def _responses(client: Any, messages: list[Any], streaming: bool) -> Turn:
    tools = [{"type": "function", "name": TOOL, "parameters": PARAMETERS, "strict": False}]
    asked = {"model": "gpt-5.5", "input": messages, "tools": tools}
    if streaming:
        response, deltas = None, []
        async for event in await client.responses.create(**asked, stream=True):
            if event.type == "response.output_text.delta":
                deltas.append(event.delta)
            if event.type in ("response.completed", "response.incomplete"):
                response = event.response
        if response is None:
            return Turn(Heard(text="".join(deltas)), lambda results: [])
    else:
        response = await client.responses.create(**asked)
    output = response.output
    calls = [item for item in output if item.type == "function_call"]
    parts = [part for item in output if item.type == "message" for part in item.content]
    thoughts = [part for item in output if item.type == "reasoning" for part in item.summary]
    details, usage = response.incomplete_details, response.usage
    heard = Heard(
        text="".join(part.text for part in parts if part.type == "output_text"),
        reasoning="".join(part.text for part in thoughts),
        calls=tuple((call.name, msgspec.json.decode(call.arguments)) for call in calls),
        stop=response.status if details is None else f"{response.status}: {details.reason}",
        refusal="".join(part.refusal for part in parts if part.type == "refusal") or None,
        tokens=(usage.input_tokens, usage.output_tokens, usage.total_tokens),
    )

    def follow_up(results: list[str]) -> list[Any]:
        told = [
            {"type": "function_call_output", "call_id": call.call_id, "output": text}
            for call, text in zip(calls, results, strict=True)
        ]
        return [*messages, *(item.model_dump(exclude_none=True) for item in output), *told]

    return Turn(heard, follow_up)


async def _chat(client: Any, messages: list[Any], streaming: bool) -> Turn:
    tools = [{"type": "function", "function": {"name": TOOL, "parameters": PARAMETERS}}]
    asked = {"model": "gpt-5.5", "messages": messages, "tools": tools}
    if streaming:
        joined = _ChatStream()
        options = {"include_usage": True}
        async for chunk in await client.chat.completions.create(**asked, stream=True, stream_options=options):
            joined.add(chunk)
        message, stop, usage = joined.message(), joined.stop, joined.usage
    else:
        completion = await client.chat.completions.create(**asked)
        choice = completion.choices[0]
        message, stop = choice.message.model_dump(exclude_none=True), choice.finish_reason
        usage = completion.usage
    calls = message.get("tool_calls") or []
    heard = Heard(
        text=message.get("content") or "",
        reasoning=message.get("reasoning_content") or "",
        calls=tuple((c["function"]["name"], msgspec.json.decode(c["function"]["arguments"])) for c in calls),
        stop=stop,
        refusal=message.get("refusal"),
        tokens=(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) if usage else None,
    )

    def follow_up(results: list[str]) -> list[Any]:
        told = [
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(calls, results, strict=True)
        ]
        return [*messages, message, *told]

    return Turn(heard, follow_up)


class _ChatStream:
    """The chunks of a stream, put together as whoever uses the client without its helper does."""

    def __init__(self) -> None:
        self.stop: str | None = None
        self.usage: Any = None
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, chunk: Any) -> None:
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            self.stop = choice.finish_reason or self.stop
            for key, pieces in self._texts.items():
                pieces.append(getattr(choice.delta, key, None) or "")
            for call in choice.delta.tool_calls or []:
                if call.id:
                    self._calls[call.index] = call.model_dump(exclude_none=True, exclude={"index"})
                else:
                    self._calls[call.index]["function"]["arguments"] += call.function.arguments

    def message(self) -> dict[str, Any]:
        texts = {key: "".join(pieces) for key, pieces in self._texts.items() if any(pieces)}
        calls = {"tool_calls": list(self._calls.values())} if self._calls else {}
        return {"role": "assistant", **texts, **calls}


async def _gemini(client: Any, messages: list[Any], streaming: bool) -> Turn:
    function = types.FunctionDeclaration(name=TOOL, parameters_json_schema=PARAMETERS)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[function])])
    asked = {"model": "gemini-2.5-flash", "contents": messages, "config": config}
    if streaming:
        chunks = [chunk async for chunk in await client.models.generate_content_stream(**asked)]
    else:
        chunks = [await client.models.generate_content(**asked)]
    candidates = [candidate for chunk in chunks for candidate in chunk.candidates or []]
    contents = [candidate.content for candidate in candidates if candidate.content]
    parts = [part for content in contents for part in content.parts or []]
    calls = [part.function_call for part in parts if part.function_call]
    reasons = [candidate.finish_reason.name for candidate in candidates if candidate.finish_reason]
    usage = next((chunk.usage_metadata for chunk in reversed(chunks) if chunk.usage_metadata), None)
    written = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0) if usage else 0
    heard = Heard(
        text="".join(part.text for part in parts if part.text and not part.thought),
        reasoning="".join(part.text for part in parts if part.text and part.thought),
        calls=tuple((call.name, call.args) for call in calls),
        stop=reasons[-1] if reasons else None,
        refusal=next((c.finish_message for c in candidates if c.finish_message), None),
        tokens=(usage.prompt_token_count, written, usage.total_token_count) if usage else None,
    )

    def follow_up(results: list[str]) -> list[Any]:
        told = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": text}
                )
            )
            for call, text in zip(calls, results, strict=True)
        ]
        return [*messages, *contents, types.Content(role="user", parts=told)]

    return Turn(heard, follow_up)


_ASKS: dict[Wire, Callable[[Any, list[Any], bool], Awaitable[Turn]]] = {
    "anthropic": _anthropic,
    "responses": _responses,
    "chat": _chat,
    "gemini": _gemini,
}
