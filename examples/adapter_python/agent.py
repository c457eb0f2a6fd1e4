#!/usr/bin/env python3
"""A coding agent in one file, as a runtime of CodeSDK: it asks a model in OpenAI's Chat Completions format and calls CodeSDK's tools.

    codesdk run --external small="python examples/adapter_python/agent.py" --runtime external:small "What is in this folder?"

The agent is `Agent` and `AgentTask`, which implement `Runtime` and `RuntimeTask` of `codesdk.contract.runtime`; `serve` makes an
adapter of them. The model is asked through CodeSDK's gateway, so there is no key here: only the gateway has it.
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Annotated, Any

import httpx2
from msgspec import Meta

from codesdk.adapter import serve
from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import COMPACT, ErrorCode, ErrorInfo
from codesdk.contract.events import OutputCompleted, OutputDelta, OutputRetracted
from codesdk.contract.messages import (
    ArtifactBlock,
    AssistantBlock,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    text_of,
)
from codesdk.contract.models import InstructionSources
from codesdk.contract.options import RuntimeOptions, read_options
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Host,
    Identified,
    RuntimeEnv,
    RuntimeItem,
    RuntimeTask,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity

NAME = "small-agent"
MODEL = "gpt-5-mini"
TRIES = 4
PROMPT = "You are a coding agent. Work with the tools that you have, and say briefly what you did."


class AgentOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to this agent."""

    system_prompt: Annotated[str | None, Meta(description="Said to the model before all else.")] = None


class Agent:
    """Says what the agent is, and starts its tasks."""

    name = NAME
    options = AgentOptions

    def capabilities(self) -> Capabilities:
        return Capabilities(
            input_capture="exact",
            auth_model="api_key",
            supports_artifacts=True,
            instruction_files=["AGENTS.md"],
        )

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        # Not asked: an agent without logins of its own needs a key, and CodeSDK knows whether there is one.
        return AuthStatus(ok="chat" in env.models, logged_in=False, auth_model="api_key")

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        return LoginOutcome(logged_in=False, problem="There is no account to log in to.")

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        options = read_options(AgentOptions, task.runtime_config, NAME)
        url = await host.model_endpoint(InstructionSources(names=("AGENTS.md",)))
        head = [options.system_prompt or PROMPT]
        head += [f"From {file.name} of the workspace:\n\n{file.text.strip()}" for file in task.instructions]
        messages = [{"role": "system", "content": text} for text in head]
        for message in task.messages:
            messages += await said(message, host)
        return AgentTask(host, task, url, messages)

    async def close_session(self, session_id: str) -> None:
        """Do nothing: nothing is kept between tasks, which bring the whole conversation."""


class AgentTask:
    """One task: ask the model, have its calls done, and ask again until it calls nothing."""

    def __init__(self, host: Host, task: TaskInput, url: str, messages: list[dict[str, Any]]) -> None:
        self._host = host
        self._task = task
        self._url = url
        self._messages = messages
        self._names = {spec.name.replace(".", "_"): spec.name for spec in task.tools}
        self._replies: dict[str, asyncio.Future[str]] = {}
        self._steered: list[Message] = []
        self._stopped = asyncio.Event()

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        yield Identified(model=self._task.model or MODEL)
        number = 0
        while True:
            answer = Answer(f"{self._task.task_id}.{number}")
            async for item in self._ask(answer):
                yield item
                if isinstance(item, Failed):
                    return
            if self._stopped.is_set():
                yield Finished(stop_reason="stopped")
                return
            yield Draft(OutputCompleted(message_id=answer.message_id, content=answer.content()))
            self._messages.append(answer.as_message())
            for index, call in enumerate(answer.calls):
                self._replies[call["id"]] = asyncio.get_running_loop().create_future()
                yield self._announced(answer, index, call)
            if not answer.calls:
                yield Finished(stop_reason=answer.stop_reason)
                return
            await self._wait_for_replies()
            if self._stopped.is_set():
                yield Finished(stop_reason="stopped")
                return
            for call in answer.calls:
                reply = self._replies.pop(call["id"]).result()
                self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": reply})
            while self._steered:
                self._messages += await said(self._steered.pop(0), self._host)
            number += 1

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        text = reply.result if isinstance(reply.result, str) else json.dumps(reply.result)
        self._reply(call, f"Error: {text}" if reply.is_error else text)

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        self._reply(call, f"Denied: {reason}")

    async def steer(self, messages: Sequence[Message]) -> None:
        self._steered += messages

    async def stop(self, reason: str) -> None:
        self._stopped.set()

    async def close(self) -> None:
        self._stopped.set()

    def _reply(self, call: ToolIdentity, text: str) -> None:
        waiting = self._replies.get(call.runtime_tool_call_id or "")
        if waiting is not None and not waiting.done():  # it may have been answered, or the task stopped
            waiting.set_result(text)

    def _announced(self, answer: "Answer", index: int, call: dict[str, Any]) -> ToolAnnouncement:
        try:
            given = json.loads(call["arguments"] or "{}")
        except ValueError:
            given = call[
                "arguments"
            ]  # the engine refuses what does not fit the tool, and the model hears of it
        return ToolAnnouncement(
            name=self._names.get(call["name"]) or str(call["name"]),
            input=given,
            runtime_tool_call_id=call["id"],
            message_id=answer.message_id,
            index=index,
            origin="stream",
        )

    async def _wait_for_replies(self) -> None:
        replied = asyncio.gather(*self._replies.values())
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait([replied, stopped], return_when=asyncio.FIRST_COMPLETED)
        for waiting in (replied, stopped):
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

    async def _ask(self, answer: "Answer") -> AsyncGenerator[RuntimeItem, None]:
        """Ask the model, and again if that may help. Yield its words as they come, or why there are none."""
        for left in reversed(range(TRIES)):
            failed = None
            try:
                async with (
                    httpx2.AsyncClient(timeout=600) as client,
                    client.stream("POST", f"{self._url}/v1/chat/completions", json=self._body()) as response,
                ):
                    if response.status_code == 200:
                        async for item in self._words(answer, response):
                            yield item
                    else:
                        await response.aread()
                        failed = failure(response)
                        pause_s = float(response.headers.get("retry-after", 0))
            except httpx2.HTTPError as error:
                failed = failure_of(
                    "MODEL_ERROR", f"The answer of the model broke off ({type(error).__name__}).", True
                )
                pause_s = 0.0
            if failed is None or self._stopped.is_set():
                return
            if answer.blocks:
                yield Draft(OutputRetracted(block_ids=answer.blocks, reason="The answer broke off."))
                answer.forget()
            if left == 0 or not failed.error.retryable:
                yield failed
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopped.wait()

    async def _words(self, answer: "Answer", response: Any) -> AsyncGenerator[RuntimeItem, None]:
        stopped = asyncio.ensure_future(self._stopped.wait())
        lines = response.aiter_lines()
        try:
            while not answer.ended:
                line = asyncio.ensure_future(anext(lines, None))
                await asyncio.wait([line, stopped], return_when=asyncio.FIRST_COMPLETED)
                if not line.done():
                    line.cancel()
                    with suppress(asyncio.CancelledError, httpx2.HTTPError):
                        await line
                    return
                text = line.result()
                if text is None:
                    raise httpx2.RemoteProtocolError("the stream ended before the answer did")
                for delta in answer.take(text):
                    yield Draft(delta)
        finally:
            stopped.cancel()

    def _body(self) -> dict[str, Any]:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": spec.description,
                    "parameters": spec.input_schema,
                },
            }
            for name, spec in zip(self._names, self._task.tools, strict=True)
        ]
        return {
            "model": self._task.model or MODEL,
            "messages": self._messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"tools": tools} if tools else {}),
        }


class Answer:
    """One answer of the model, as it comes."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self._tries = 0
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.texts: dict[str, list[str]] = {}
        self.calls: list[dict[str, Any]] = []
        self.stop_reason = ""
        self.ended = False
        self._tries += 1

    @property
    def blocks(self) -> list[str]:
        """The ids of the blocks that were streamed."""
        return [self._block(kind) for kind in self.texts]

    def take(self, line: str) -> list[OutputDelta]:
        """Take a line of the stream. Return the new words."""
        if not line.startswith("data:"):
            return []
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self.ended = True
            return []
        deltas: list[OutputDelta] = []
        for choice in json.loads(data).get("choices", []):
            delta = choice.get("delta", {})
            for kind, key in (("reasoning", "reasoning_content"), ("text", "content")):
                if delta.get(key):
                    self.texts.setdefault(kind, []).append(delta[key])
                    deltas.append(self._delta(kind, delta[key]))
            for call in delta.get("tool_calls", []):
                self._add(call)
            self.stop_reason = choice.get("finish_reason") or self.stop_reason
        return deltas

    def content(self) -> list[AssistantBlock]:
        """Return the whole message."""
        made: dict[str, type[Reasoning] | type[Text]] = {"reasoning": Reasoning, "text": Text}
        return [made[kind](text="".join(pieces)) for kind, pieces in self.texts.items()]

    def as_message(self) -> dict[str, Any]:
        """Return the message as the model is told of it later."""
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in self.calls
        ]
        text = "".join(self.texts.get("text", []))
        return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}

    def _delta(self, kind: str, text: str) -> OutputDelta:
        return OutputDelta(
            kind="text_delta" if kind == "text" else "reasoning_delta",
            block_id=self._block(kind),
            message_id=self.message_id,
            delta=text,
        )

    def _block(self, kind: str) -> str:
        return f"{self.message_id}.{self._tries}.{kind}"

    def _add(self, piece: dict[str, Any]) -> None:
        while len(self.calls) <= piece["index"]:
            self.calls.append({"id": "", "name": "", "arguments": ""})
        call, function = self.calls[piece["index"]], piece.get("function", {})
        call["id"] = piece.get("id") or call["id"]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


async def said(message: Message, host: Host) -> list[dict[str, Any]]:
    """Return a message of the conversation in the model's format."""
    if message.role == "tool":
        results = [block for block in message.content if isinstance(block, ToolResult)]
        return [
            {
                "role": "tool",
                "tool_call_id": block.tool_call_id,
                "content": block.result if isinstance(block.result, str) else json.dumps(block.result),
            }
            for block in results
        ]
    if message.role == "assistant":
        calls = [
            {
                "id": block.tool_call_id,
                "type": "function",
                "function": {"name": block.name.replace(".", "_"), "arguments": json.dumps(block.input)},
            }
            for block in message.content
            if isinstance(block, ToolUse)
        ]
        text = text_of(message.content)
        return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Text):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ArtifactBlock):
            parts.append(attached(block, await host.read_artifact(block.artifact_id)))
    return [{"role": message.role, "content": parts}]


def attached(block: ArtifactBlock, data: bytes) -> dict[str, Any]:
    """Return a file of the conversation: a picture as one, everything else as its text."""
    kind = block.content_type or ""
    if kind.startswith("image/"):
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": f"{block.name or 'A file'}:\n\n{data.decode('utf-8', 'replace')}"}


def failure(response: Any) -> Failed:
    """Return what an error of the provider means."""
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {}
    words = error.get("message") or f"The provider answered with status {response.status_code}."
    if error.get("code") == "context_length_exceeded":
        return failure_of("CONTEXT_TOO_LARGE", f"{words} {COMPACT}", False)
    if response.status_code in (401, 403):
        return failure_of("AUTH_FAILED", f"{words} Check the key that the gateway has.", False)
    again = response.headers.get("x-should-retry") != "false"
    if response.status_code == 429:
        return failure_of("RATE_LIMITED", words, again)
    return failure_of("MODEL_ERROR", words, again and response.status_code >= 500)


def failure_of(code: ErrorCode, message: str, retryable: bool) -> Failed:
    return Failed(error=ErrorInfo(code=code, message=message, retryable=retryable, runtime=NAME))


if __name__ == "__main__":
    serve(Agent(), wire="chat", version="1.0")
