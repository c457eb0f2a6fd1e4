"""A small agent over any format, streaming or whole: it runs every call that reaches it, as many real ones do.

It has tools of its own, which it runs without asking anyone, and knows ours under names with a prefix.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import OutputCompleted
from codesdk.contract.messages import Text, text_of
from codesdk.contract.models import Wire
from codesdk.contract.ownership import ToolNaming, WireRules
from codesdk.contract.runtime import Draft, Failed, Finished, RuntimeItem, ToolAnnouncement, ToolReply
from codesdk.gateway.wires.exchange import Call, Seen
from codesdk.gateway.wires.formats import codec_for
from codesdk.testing.fakes import FakeTask, delta
from codesdk.tools import PREFIX, wire_name

NATIVES = ("Bash", "Write", "web_search")
RULES = WireRules(naming=ToolNaming(prefix=PREFIX))
PATHS: dict[tuple[Wire, bool], str] = {
    ("anthropic", True): "/v1/messages",
    ("responses", True): "/v1/responses",
    ("chat", True): "/v1/chat/completions",
    ("gemini", True): "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    ("anthropic", False): "/v1/messages",
    ("responses", False): "/v1/responses",
    ("chat", False): "/v1/chat/completions",
    ("gemini", False): "/v1beta/models/gemini-2.5-flash:generateContent",
}


@dataclass
class LoopAgent:
    """Plays tasks of a `FakeRuntime`. `ran` are the tools of its own that it ran, `asked` its own requests."""

    wire: Wire
    stream: bool = True
    rules: WireRules = RULES
    ran: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    answers: list[Seen] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)

    async def play(self, task: FakeTask) -> AsyncIterator[RuntimeItem]:
        url = await task.host.model_endpoint(rules=self.rules) + PATHS[self.wire, self.stream]
        self.history.append(said(self.wire, text_of(task.input.messages[-1].content)))
        ours = {PREFIX + wire_name(spec.name): spec for spec in task.input.tools}
        async with httpx2.AsyncClient(timeout=30) as client:
            for turn in range(50):
                message_id = f"{task.input.task_id}.{turn}"
                body = body_of(self.wire, self.stream, self.history, list(ours))
                self.asked.append(msgspec.json.decode(msgspec.json.encode(body)))
                try:
                    status, data = await self._ask(client, url, body)
                except httpx2.HTTPError as error:
                    yield failed(f"the connection broke: {type(error).__name__}")
                    return
                if status >= 400:
                    yield failed(f"HTTP {status}: {data.decode()[:500]}")
                    return
                seen = self._read(data)
                self.answers.append(seen)
                for piece in (seen.text[:7], seen.text[7:]):  # a mark is cut in two
                    if piece:
                        yield delta(piece, message_id)
                yield Draft(OutputCompleted(message_id=message_id, content=[Text(text=seen.text)]))
                if not seen.calls:
                    yield Finished(stop_reason="end_turn")
                    return
                results: list[str] = []
                for call in seen.calls:
                    if call.name not in ours:
                        self.ran.append(call.name)
                        results.append("I ran it.")
                        continue
                    yield ToolAnnouncement(
                        name=ours[call.name].name, input=call.input, runtime_tool_call_id=call.id
                    )
                    reply = await task.reply(call.id)
                    results.append(str(reply.result if isinstance(reply, ToolReply) else reply))
                self.history += answered(self.wire, seen.text, seen.calls, results)

    async def _ask(self, client: httpx2.AsyncClient, url: str, body: dict[str, Any]) -> tuple[int, bytes]:
        async with client.stream(
            "POST", url, json=body, headers={"x-api-key": "k", "user-agent": "t"}
        ) as answer:
            return answer.status_code, b"".join([chunk async for chunk in answer.aiter_bytes()])

    def _read(self, data: bytes) -> Seen:
        decoder = codec_for(self.wire).decoder()
        (decoder.feed if self.stream else decoder.whole)(data)
        return decoder.result()


def said_by(text: str) -> Draft:
    """Return a message of the model."""
    return Draft(OutputCompleted(message_id="m1", content=[Text(text=text)]))


def failed(message: str) -> Failed:
    return Failed(error=ErrorInfo(code="MODEL_ERROR", message=message, retryable=False))


def said(wire: Wire, text: str) -> dict[str, Any]:
    if wire == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}


def body_of(wire: Wire, stream: bool, history: Sequence[Any], ours: Sequence[str]) -> dict[str, Any]:
    """Return a request that declares the agent's own tools, and ours under its names."""
    schema = {"type": "object", "properties": {}}
    names = [*NATIVES[:2], *ours]
    if wire == "anthropic":
        tools: list[Any] = [{"name": name, "description": name, "input_schema": schema} for name in names]
        tools.append({"type": "web_search_20250305", "name": "web_search"})
        return {
            "model": "claude-judged",
            "max_tokens": 100,
            "stream": stream,
            "messages": list(history),
            "tools": tools,
        }
    if wire == "responses":
        tools = [{"type": "function", "name": name, "parameters": schema} for name in names]
        tools.append({"type": "web_search"})
        return {"model": "gpt-5.5", "stream": stream, "input": list(history), "tools": tools}
    if wire == "chat":
        tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
        body = {"model": "gpt-5.5", "stream": stream, "messages": list(history), "tools": tools}
        return body | ({"stream_options": {"include_usage": True}} if stream else {})
    declared = [{"name": name, "description": name, "parametersJsonSchema": schema} for name in names]
    return {
        "contents": list(history),
        "tools": [{"functionDeclarations": declared}, {"googleSearch": {}}],
    }


def answered(wire: Wire, text: str, calls: Sequence[Call], results: Sequence[str]) -> list[Any]:
    """Return what an answer and the results of its calls add to a history."""
    pairs = list(zip(calls, results, strict=True))
    if wire == "anthropic":
        words = [{"type": "text", "text": text}] if text else []
        uses = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c in calls]
        given = [{"type": "tool_result", "tool_use_id": c.id, "content": r} for c, r in pairs]
        return [{"role": "assistant", "content": [*words, *uses]}, {"role": "user", "content": given}]
    if wire == "responses":
        message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        made = [
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": _json(c.input)}
            for c in calls
        ]
        given = [{"type": "function_call_output", "call_id": c.id, "output": r} for c, r in pairs]
        return [*([message] if text else []), *made, *given]
    if wire == "chat":
        made = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _json(c.input)}}
            for c in calls
        ]
        given = [{"role": "tool", "tool_call_id": c.id, "content": r} for c, r in pairs]
        return [{"role": "assistant", "content": text or None, "tool_calls": made}, *given]
    parts: list[Any] = [{"text": text}] if text else []
    parts += [{"functionCall": {"id": c.id, "name": c.name, "args": c.input}} for c in calls]
    given = [{"functionResponse": {"id": c.id, "name": c.name, "response": {"output": r}}} for c, r in pairs]
    return [{"role": "model", "parts": parts}, {"role": "user", "parts": given}]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
