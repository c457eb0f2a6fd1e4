"""Chat Completions answers: the parts of an answer ↔ the chunks of a stream, or one completion.

Reasoning is sent as `reasoning_content`, which OpenAI itself does not send but compatible servers do. Many
servers speak this format with small differences: the name of the reasoning field, calls without an index,
usage on any chunk. All differences met so far are understood; of several choices, only the first is read.
"""

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from codesdk.gateway.wires.exchange import (
    Ask,
    Call,
    Finish,
    Part,
    ReasoningChunk,
    Seen,
    StopReason,
    TextChunk,
    Tokens,
)
from codesdk.gateway.wires.fields import (
    arguments_of,
    count,
    decode_json,
    input_of,
    items,
    mapping,
    pieces_of,
    string,
)
from codesdk.gateway.wires.keeping import CALL_BYTES, Kept
from codesdk.gateway.wires.openai_terms import CREATED, error_text
from codesdk.gateway.wires.sse import EventReader, frame

_REASONS: dict[StopReason, str] = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
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
        return frame("", msgspec.json.encode({**self._head, "choices": choices, **tail}))

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
            usage = self._frame([], _usage(finish.tokens))
        return refusal + end + usage + _DONE


def encode_completion(ask: Ask, answer_id: str, parts: Iterable[Part]) -> bytes:
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
    answer = {
        "id": f"chatcmpl-{answer_id}",
        "object": "chat.completion",
        "created": CREATED,
        "model": ask.model,
        "system_fingerprint": None,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": None if finish.tokens is None else _usage(finish.tokens),
    }
    return msgspec.json.encode(answer)


def _usage(tokens: Tokens) -> dict[str, Any]:
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


class _Call:
    """A call, as far as it has arrived."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.is_custom = False
        self.pieces: list[str] = []

    def add(self, fields: dict[str, Any], kept: Kept) -> None:
        """Take what a chunk, or a whole message, says about the call."""
        self.id = string(fields.get("id")) or self.id
        function, custom = mapping(fields.get("function")), mapping(fields.get("custom"))
        self.is_custom = self.is_custom or bool(custom)
        self.name = string(function.get("name")) or string(custom.get("name")) or self.name
        kept.add(self.pieces, string(function.get("arguments")) + string(custom.get("input")))

    def made(self) -> Call:
        """Return the call."""
        written = "".join(self.pieces)
        return Call(self.id, self.name, written if self.is_custom else input_of(written or "{}"))


class ChatDecoder:
    """Decodes one answer. Never raises."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._highest: int | None = None  # of the calls
        self._alternatives = 0  # characters
        self._kept = Kept()
        self._seen = Seen()

    def feed(self, chunk: bytes) -> None:
        """Take more bytes of a stream."""
        for data in self._reader.feed(chunk):
            self._take(mapping(decode_json(data)), "delta")

    def whole(self, body: bytes) -> None:
        """Take the body of an unstreamed answer, or of an error."""
        fields = mapping(decode_json(body))
        if fields.get("choices"):  # an error has none, whatever its shape
            self._take(fields, "message")
        else:
            self._seen.error = error_text(fields) or "the answer is neither a completion nor an error"

    def result(self) -> Seen:
        """Return what was seen so far.

        Calls count once the answer has ended: only then are they surely complete.
        """
        has_ended = self._seen.stop_reason is not None
        arrived = [self._calls[index] for index in sorted(self._calls)]
        calls, unfinished = (arrived, []) if has_ended else ([], arrived)
        refusal = "".join(self._refusal) or None
        return msgspec.structs.replace(
            self._seen,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=[call.made() for call in calls if call.name],
            refusal=refusal,
            stop_reason="refusal" if has_ended and refusal else self._seen.stop_reason,
            unfinished=self._alternatives
            + self._kept.beyond
            + sum(len(piece) for call in unfinished for piece in call.pieces),
        )

    def _take(self, fields: dict[str, Any], key: str) -> None:
        self._seen.model = string(fields.get("model")) or self._seen.model
        if fields.get("error"):
            self._seen.error = error_text(fields)
        if fields.get("usage"):
            self._seen.tokens = _tokens(mapping(fields["usage"]))
        for choice in map(mapping, items(fields.get("choices"))):
            if count(choice.get("index")) == 0:
                self._take_message(mapping(choice.get(key)))
                reason = string(choice.get("finish_reason"))
                self._seen.stop_reason = _STOPS.get(reason, reason) or self._seen.stop_reason
            else:
                self._alternatives += len(string(mapping(choice.get(key)).get("content")))

    def _take_message(self, message: dict[str, Any]) -> None:
        self._kept.add(self._text, string(message.get("content")))
        self._kept.add(self._refusal, string(message.get("refusal")))
        thought = string(message.get("reasoning_content")) or string(message.get("reasoning"))
        self._kept.add(self._reasoning, thought)
        for number, call in enumerate(map(mapping, items(message.get("tool_calls")))):
            self._take_call(self._index(call, number), call)
        if legacy := mapping(message.get("function_call")):
            self._take_call(0, {"function": legacy})

    def _take_call(self, index: int, fields: dict[str, Any]) -> None:
        call = self._calls.get(index)
        if call is None:
            if not self._kept.room_for(CALL_BYTES):
                return
            call = self._calls[index] = _Call()
            self._highest = index if self._highest is None else max(self._highest, index)
        call.add(fields, self._kept)

    def _index(self, call: dict[str, Any], number: int) -> int:
        """Return a call's index.

        If there is none, an id begins a new call, and no id continues the last one.
        """
        index: object = call.get("index")
        if isinstance(index, int):
            return index
        if call.get("id"):
            return len(self._calls)
        return number if self._highest is None else self._highest


def _tokens(usage: dict[str, Any]) -> Tokens:
    details = mapping(usage.get("prompt_tokens_details"))
    cache_read = count(details.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
    cache_write = count(details.get("cache_write_tokens"))
    reasoning = count(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    return Tokens(
        input=max(0, count(usage.get("prompt_tokens")) - cache_read - cache_write),
        output=max(0, count(usage.get("completion_tokens")) - reasoning),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=reasoning,
    )
