"""Anthropic answers: the parts of an answer ↔ the events of a stream, or one message.

A stream is message_start, then for each block of content start, deltas and stop, then message_delta
with the stop reason and the usage, then message_stop. The codec is in `anthropic`.
"""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from codesdk.gateway.wires.exchange import (
    Ask,
    Call,
    Finish,
    Part,
    ReasoningChunk,
    Seen,
    TextChunk,
    Tokens,
    joined,
)
from codesdk.gateway.wires.fields import (
    arguments_of,
    count,
    decode_json,
    error_text,
    input_of,
    items,
    mapping,
    pieces_of,
    string,
)
from codesdk.gateway.wires.keeping import CALL_BYTES, Kept
from codesdk.gateway.wires.sse import EventReader, frame

_STOPS = {"stop_sequence": "end_turn"}
_Kind = Literal["text", "thinking"]
# The name of a kind is also the key of its text, in blocks and in deltas.
_KINDS: dict[type, _Kind] = {TextChunk: "text", ReasoningChunk: "thinking"}
_EMPTY_BLOCKS: dict[_Kind, dict[str, str]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class AnthropicEncoder:
    """Writes the events of one answer. Consecutive chunks of one kind share a block."""

    def __init__(self, ask: Ask, answer_id: str) -> None:
        self._model = ask.model
        self._answer_id = answer_id
        self._index = 0
        self._open: _Kind | None = None

    def start(self) -> bytes:
        """Return the start of the message, and the ping that follows it. The usage is not yet known."""
        message = _message(self._model, self._answer_id, [], _stop_fields(None), Tokens())
        return _event("message_start", message=message) + _event("ping")

    def feed(self, part: Part) -> bytes:
        """Return the events of a part; none for an empty chunk."""
        if isinstance(part, Call):
            return self._close() + self._call(part)
        if isinstance(part, Finish):
            return self._close() + _end(part)
        return self._chunk(_KINDS[type(part)], part.text) if part.text else b""

    def _chunk(self, kind: _Kind, text: str) -> bytes:
        begin = b"" if self._open == kind else self._close() + self._begin(_EMPTY_BLOCKS[kind])
        self._open = kind
        return begin + self._delta({"type": f"{kind}_delta", kind: text})

    def _call(self, call: Call) -> bytes:
        events = [self._begin({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})]
        for piece in ("", *pieces_of(arguments_of(call.input))):  # like Anthropic, begin with an empty delta
            events.append(self._delta({"type": "input_json_delta", "partial_json": piece}))
        return b"".join(events) + self._stop()

    def _begin(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        stop = _event("content_block_stop", index=self._index)
        self._index += 1
        return stop

    def _close(self) -> bytes:
        """End the open block, a thinking block with its signature."""
        kind, self._open = self._open, None
        if kind is None:
            return b""
        if kind == "thinking":
            signature = _signature(self._answer_id, self._index)
            return self._delta({"type": "signature_delta", "signature": signature}) + self._stop()
        return self._stop()


def encode_message(ask: Ask, answer_id: str, parts: Iterable[Part]) -> bytes:
    """Return an unstreamed answer."""
    content: list[dict[str, Any]] = []
    finish = Finish("end_turn")
    for part in joined(parts):
        if isinstance(part, Finish):
            finish = part
        elif isinstance(part, Call):
            content.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.input})
        else:
            kind = _KINDS[type(part)]
            content.append({"type": kind, kind: part.text})
            if kind == "thinking":
                content[-1]["signature"] = _signature(answer_id, len(content) - 1)
    message = _message(ask.model, answer_id, content, _stop_fields(finish), finish.tokens or Tokens())
    return msgspec.json.encode(message)


class AnthropicDecoder:
    """Reads a stream of events, or one message, or an error."""

    def __init__(self) -> None:
        self._events = EventReader()
        self._seen = Seen()
        self._texts: dict[str, list[str]] = {"text": [], "thinking": []}
        self._usage: dict[str, Any] = {}
        self._unfinished: dict[int, _UnfinishedCall] = {}
        self._kept = Kept()

    def feed(self, chunk: bytes) -> None:
        """Take more bytes of a stream. Ignore events of unknown types."""
        for data in self._events.feed(chunk):
            self._take(mapping(decode_json(data)))

    def whole(self, body: bytes) -> None:
        """Take a message, an error, or a token count, which says nothing about an answer."""
        answer = mapping(decode_json(body))
        if answer.get("type") == "message":
            self._take_message(answer)
            for block in items(answer.get("content")):
                self._take_block(mapping(block))
        elif "error" in answer:
            self._seen.error = error_text(answer["error"], "type")
        elif "input_tokens" not in answer:
            self._seen.error = "the answer is neither a message nor an error"

    def result(self) -> Seen:
        """Return what was seen so far. A call counts once its input is complete."""
        return msgspec.structs.replace(
            self._seen,
            text="".join(self._texts["text"]),
            reasoning="".join(self._texts["thinking"]),
            calls=list(self._seen.calls),
            tokens=_tokens(self._usage) if self._usage else None,
            unfinished=self._kept.beyond
            + sum(len(piece) for call in self._unfinished.values() for piece in call.pieces),
        )

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            self._take_message(mapping(event.get("message")))
        elif kind == "content_block_start":
            self._take_start(count(event.get("index")), mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            self._take_delta(count(event.get("index")), mapping(event.get("delta")))
        elif kind == "content_block_stop":
            call = self._unfinished.pop(count(event.get("index")), None)
            if call is not None:
                self._seen.calls.append(call.finish())
        elif kind == "message_delta":
            self._take_end(mapping(event.get("delta")), event.get("usage"))
        elif kind == "error":
            self._seen.error = error_text(event.get("error"), "type")

    def _take_message(self, message: dict[str, Any]) -> None:
        self._seen.model = string(message.get("model")) or self._seen.model
        self._take_end(message, message.get("usage"))

    def _take_end(self, delta: dict[str, Any], usage: object) -> None:
        """Take a stop reason, and counts, which replace earlier ones."""
        reason = string(delta.get("stop_reason"))
        self._seen.stop_reason = _STOPS.get(reason, reason) or self._seen.stop_reason
        details = mapping(delta.get("stop_details"))
        self._seen.refusal = string(details.get("explanation")) or self._seen.refusal
        self._usage.update({name: value for name, value in mapping(usage).items() if value is not None})

    def _take_start(self, index: int, block: dict[str, Any]) -> None:
        if block.get("type") == "tool_use":
            if not self._kept.room_for(CALL_BYTES):
                return
            call_id, name = string(block.get("id")), string(block.get("name"))
            self._unfinished[index] = _UnfinishedCall(call_id, name, block.get("input"), [])
        else:
            self._take_block(block)

    def _take_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = string(delta.get("type")).removesuffix("_delta")
        if kind == "input_json" and index in self._unfinished:
            # Input streams as pieces of JSON text, which can be decoded only when all are there.
            self._kept.add(self._unfinished[index].pieces, string(delta.get("partial_json")))
        elif kind in self._texts:
            self._kept.add(self._texts[kind], string(delta.get(kind)))

    def _take_block(self, block: dict[str, Any]) -> None:
        kind = string(block.get("type"))
        if kind in self._texts:
            self._kept.add(self._texts[kind], string(block.get(kind)))
        elif kind == "tool_use" and self._kept.room_for(CALL_BYTES):
            call = Call(string(block.get("id")), string(block.get("name")), block.get("input"))
            self._seen.calls.append(call)


class _UnfinishedCall(NamedTuple):
    """A call whose input is still arriving."""

    id: str
    name: str
    start: object
    pieces: list[str]

    def finish(self) -> Call:
        """Return the call."""
        text = "".join(self.pieces)
        # Without any delta, the input is what the block began with.
        return Call(self.id, self.name, input_of(text) if text else self.start)


def _event(kind: str, **fields: Any) -> bytes:
    return frame(kind, msgspec.json.encode({"type": kind, **fields}))


def _message(
    model: str, answer_id: str, content: list[dict[str, Any]], stop: dict[str, Any], tokens: Tokens
) -> dict[str, Any]:
    head = {"id": f"msg_{answer_id}", "type": "message", "role": "assistant", "model": model}
    return {**head, "content": content, **stop, "usage": _usage(tokens)}


def _end(finish: Finish) -> bytes:
    usage = _usage(finish.tokens or Tokens())
    return _event("message_delta", delta=_stop_fields(finish), usage=usage) + _event("message_stop")


def _stop_fields(finish: Finish | None) -> dict[str, Any]:
    """Return why an answer stops; at the start of a stream, with None, this is not yet known."""
    reason = finish.stop_reason if finish else None
    details: dict[str, Any] | None = None
    if finish is not None and reason == "refusal":
        details = {"type": "refusal", "category": None, "explanation": finish.refusal}
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": details}


def _usage(tokens: Tokens) -> dict[str, Any]:
    """Return counts in Anthropic's terms: thinking is part of the output."""
    usage: dict[str, Any] = {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output + tokens.reasoning,
    }
    if tokens.reasoning:
        usage["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
    return usage


def _tokens(usage: dict[str, Any]) -> Tokens:
    output = count(usage.get("output_tokens"))
    details = mapping(usage.get("output_tokens_details"))
    reasoning = min(output, count(details.get("thinking_tokens")))
    return Tokens(
        input=count(usage.get("input_tokens")),
        output=output - reasoning,
        cache_read=count(usage.get("cache_read_input_tokens")),
        cache_write=count(usage.get("cache_creation_input_tokens")),
        reasoning=reasoning,
    )


def _signature(answer_id: str, index: int) -> str:
    """Return a stand-in for the signature of a thinking block: opaque to clients, who send it back."""
    return b64encode(f"{answer_id}/{index}".encode()).decode()
