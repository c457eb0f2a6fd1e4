"""The parts of an answer → the chunks of a Chat Completions stream, or one completion.

Reasoning is sent as `reasoning_content`, which OpenAI itself does not send but compatible servers do.
"""

from collections.abc import Iterable
from typing import Any, assert_never

from codesdk.gateway.wires.arguments import arguments_of, pieces_of
from codesdk.gateway.wires.exchange import (
    Ask,
    Call,
    Finish,
    Part,
    ReasoningChunk,
    StopReason,
    TextChunk,
    Tokens,
)
from codesdk.gateway.wires.fields import mapping
from codesdk.gateway.wires.openai_terms import CREATED, encode
from codesdk.gateway.wires.sse import frame

_REASONS: dict[StopReason, str] = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
_DONE = frame("", b"[DONE]")


class ChatEncoder:
    """Writes one answer as a stream."""

    def __init__(self, ask: Ask, answer_id: str) -> None:
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{answer_id}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": ask.model,
            "system_fingerprint": None,
        }
        self._tells_usage = mapping(ask.body.get("stream_options")).get("include_usage") is True
        self._calls = 0

    def start(self) -> bytes:
        """Return the chunk with the role."""
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def feed(self, part: Part) -> bytes:
        """Return the chunks of a part."""
        match part:
            case TextChunk():
                return self._chunk({"content": part.text})
            case ReasoningChunk():
                return self._chunk({"reasoning_content": part.text})
            case Call():
                return self._call(part)
            case Finish():
                return self._finish(part)
            case _:
                assert_never(part)

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._frame([choice], None)

    def _frame(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        # A request that asks for usage gets the field on every chunk, null on all but the last.
        tail = {"usage": usage} if self._tells_usage else {}
        return frame("", encode({**self._head, "choices": choices, **tail}))

    def _call(self, call: Call) -> bytes:
        index = self._calls
        self._calls += 1
        begun = {"index": index, "id": call.id, "type": "function"}
        chunks = [self._chunk({"tool_calls": [begun | {"function": {"name": call.name, "arguments": ""}}]})]
        for piece in pieces_of(arguments_of(call.input)):
            chunks.append(self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        return b"".join(chunks)

    def _finish(self, finish: Finish) -> bytes:
        refusal = self._chunk({"refusal": finish.refusal}) if finish.refusal else b""
        end = self._chunk({}, _REASONS[finish.stop_reason])
        usage = b""
        if self._tells_usage and finish.tokens is not None:
            usage = self._frame([], usage_of(finish.tokens))
        return refusal + end + usage + _DONE


def completion(ask: Ask, answer_id: str, parts: Iterable[Part]) -> dict[str, Any]:
    """Return an unstreamed answer. Without a `Finish`, it ends normally."""
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    finish = Finish("end_turn")
    for part in parts:
        match part:
            case TextChunk():
                texts.append(part.text)
            case ReasoningChunk():
                reasoning.append(part.text)
            case Call():
                function = {"name": part.name, "arguments": arguments_of(part.input)}
                calls.append({"id": part.id, "type": "function", "function": function})
            case Finish():
                finish = part
            case _:
                assert_never(part)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": finish.refusal or None,
        "annotations": [],
    }
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    reason = _REASONS[finish.stop_reason]
    return {
        "id": f"chatcmpl-{answer_id}",
        "object": "chat.completion",
        "created": CREATED,
        "model": ask.model,
        "system_fingerprint": None,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": None if finish.tokens is None else usage_of(finish.tokens),
    }


def usage_of(tokens: Tokens) -> dict[str, Any]:
    """Return token counts in this API's terms: all that was read, all that was written."""
    read = tokens.input + tokens.cache_read + tokens.cache_write
    written = tokens.output + tokens.reasoning
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
