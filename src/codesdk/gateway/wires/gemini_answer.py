"""Gemini answers: the parts of an answer ↔ a stream of candidates, or a single one.

Each chunk of a stream is a whole answer with a piece of content; the last has the finish reason and the
usage. A stream is events, or one JSON array. The codec is in `gemini`.
"""

import re
from collections.abc import Iterable
from typing import Any

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
    joined,
)
from codesdk.gateway.wires.fields import count, decode_json, error_text, items, mapping, string
from codesdk.gateway.wires.keeping import CALL_BYTES, Kept
from codesdk.gateway.wires.sse import MAX_EVENT_BYTES, EventReader

_FINISHES: dict[StopReason, str] = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "refusal": "SAFETY",
}
_STOPS: dict[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}
# Google escapes these; some clients split lines at them.
_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_OUTSIDE = re.compile(rb'["{}]')
_INSIDE = re.compile(rb'["\\]')


class GeminiEncoder:
    """Writes the chunks of one answer, as events or as array items."""

    def __init__(self, ask: Ask, answer_id: str) -> None:
        self._model = ask.model
        self._answer_id = answer_id
        self._is_sse = ask.sse
        self._is_first = True

    def start(self) -> bytes:
        """Return the beginning of the array; events have none."""
        return b"" if self._is_sse else b"["

    def feed(self, part: Part) -> bytes:
        """Return the chunk of a part; none for an empty part."""
        if isinstance(part, Finish):
            closed = b"" if self._is_sse else b"]"
            return self._chunk(_last_content(part), part) + closed
        content = _content(part)
        return self._chunk({"content": {"parts": [content], "role": "model"}}, None) if content else b""

    def _chunk(self, candidate: dict[str, Any], finish: Finish | None) -> bytes:
        chunk = _answer(self._model, self._answer_id, candidate, finish)
        if self._is_sse:
            return b"data: " + _encode(chunk) + b"\r\n\r\n"
        # The comma comes before an item: whether another one follows is not known yet.
        between = b"" if self._is_first else b",\r\n"
        self._is_first = False
        return between + _encode(chunk)


def encode_answer(ask: Ask, answer_id: str, parts: Iterable[Part]) -> bytes:
    """Return an unstreamed answer. Consecutive chunks of one kind become one part."""
    contents: list[dict[str, Any]] = []
    finish = Finish("end_turn")
    for part in joined(parts):
        if isinstance(part, Finish):
            finish = part
        elif content := _content(part):
            contents.append(content)
    candidate: dict[str, Any] = {"content": {"parts": contents, "role": "model"}}
    return _encode(_answer(ask.model, answer_id, candidate if contents else _last_content(finish), finish))


class GeminiDecoder:
    """Decodes a stream of either kind, one answer, or an error. Only the first candidate is read."""

    def __init__(self) -> None:
        self._reader: EventReader | ObjectReader | None = None
        self._seen = Seen()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._kept = Kept()
        self._usage: dict[str, Any] = {}

    def feed(self, chunk: bytes) -> None:
        """Take more bytes of a stream. The first byte shows which kind it is."""
        if self._reader is None:
            chunk = chunk.lstrip()
            if not chunk:
                return
            self._reader = ObjectReader() if chunk[:1] in b"[{" else EventReader()
        for data in self._reader.feed(chunk):
            self._take(mapping(decode_json(data)))

    def whole(self, body: bytes) -> None:
        """Take an answer or an error, possibly in a list, or a token count, which holds no answer."""
        answer = decode_json(body)
        chunks = [mapping(chunk) for chunk in items(answer) or [answer]]
        if not any(chunks):
            self._seen.error = "the answer is neither candidates nor an error"
        for chunk in chunks:
            self._take(chunk)

    def result(self) -> Seen:
        """Return what was seen so far. `STOP` after a call means that the model waits for its result."""
        seen = self._seen
        awaits = seen.stop_reason == "end_turn" and bool(seen.calls)
        return msgspec.structs.replace(
            seen,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=list(seen.calls),
            stop_reason="tool_use" if awaits else seen.stop_reason,
            tokens=_tokens(self._usage) if self._usage else None,
            unfinished=self._kept.beyond,
        )

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self._seen.error = error_text(chunk["error"], "status")
        self._seen.model = string(chunk.get("modelVersion")) or self._seen.model
        self._usage.update(mapping(chunk.get("usageMetadata")))
        feedback = mapping(chunk.get("promptFeedback"))
        if feedback.get("blockReason"):
            self._seen.stop_reason = "refusal"
            self._seen.refusal = string(feedback.get("blockReasonMessage")) or self._seen.refusal
        for candidate in items(chunk.get("candidates")):
            if not count(mapping(candidate).get("index")):
                self._take_candidate(mapping(candidate))

    def _take_candidate(self, candidate: dict[str, Any]) -> None:
        for part in items(mapping(candidate.get("content")).get("parts")):
            self._take_part(mapping(part))
        reason = string(candidate.get("finishReason"))
        self._seen.stop_reason = _STOPS.get(reason, reason) or self._seen.stop_reason
        if _STOPS.get(reason) == "refusal":
            self._seen.refusal = string(candidate.get("finishMessage")) or self._seen.refusal

    def _take_part(self, part: dict[str, Any]) -> None:
        if isinstance(part.get("functionCall"), dict):
            call = mapping(part["functionCall"])
            name = string(call.get("name"))
            if not self._kept.room_for(CALL_BYTES):
                return
            self._seen.calls.append(Call(string(call.get("id")) or name, name, call.get("args") or {}))
        elif part.get("thought") is True:
            self._kept.add(self._reasoning, string(part.get("text")))
        else:
            self._kept.add(self._text, string(part.get("text")))


class ObjectReader:
    """Splits a JSON array, in chunks cut anywhere, into its objects. Skips one larger than `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._depth = 0
        self._is_string = False
        self._is_escaped = False
        self._is_too_large = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the objects that this chunk completes."""
        objects: list[bytes] = []
        start = at = 0
        while at < len(chunk):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_INSIDE if self._is_string else _OUTSIDE).search(chunk, at)
            if found is None:
                break
            at = found.end()
            # Braces inside strings do not count, so strings and escapes are followed as well.
            if self._depth == 0 and found[0] == b"{":
                start = found.start()
            if self._turn(found[0]):
                self._keep(chunk[start:at])
                self._end(objects)
        if self._depth:
            self._keep(chunk[start:])
        return objects

    def _turn(self, sign: bytes) -> bool:
        """Process one JSON character. Return whether it ended an object of the array."""
        if sign == b'"':
            self._is_string = not self._is_string
        elif sign == b"\\":
            self._is_escaped = True
        elif sign == b"{":
            self._depth += 1
        elif self._depth:
            self._depth -= 1
            return self._depth == 0
        return False

    def _keep(self, data: bytes) -> None:
        if self._is_too_large or len(self._kept) + len(data) > self._max_bytes:
            self._is_too_large = True
            self._kept.clear()
        else:
            self._kept += data

    def _end(self, objects: list[bytes]) -> None:
        if not self._is_too_large:
            objects.append(bytes(self._kept))
        self._kept.clear()
        self._is_too_large = False


def _encode(value: Any) -> bytes:
    data = msgspec.json.encode(value)
    for line_end, escaped in _LINE_ENDS:
        data = data.replace(line_end, escaped)
    return data


def _answer(model: str, answer_id: str, candidate: dict[str, Any], finish: Finish | None) -> dict[str, Any]:
    end: dict[str, Any] = {} if finish is None else {"finishReason": _FINISHES[finish.stop_reason]}
    if finish is not None and finish.refusal is not None:
        end["finishMessage"] = finish.refusal
    answer: dict[str, Any] = {"candidates": [{**candidate, **end, "index": 0}]}
    if finish is not None and finish.tokens is not None:
        answer["usageMetadata"] = _usage(finish.tokens)
    return {**answer, "modelVersion": model, "responseId": answer_id}


def _content(part: TextChunk | ReasoningChunk | Call) -> dict[str, Any] | None:
    if isinstance(part, Call):
        return {"functionCall": {"id": part.id, "name": part.name, "args": part.input}}
    if not part.text:
        return None
    return {"text": part.text, "thought": True} if isinstance(part, ReasoningChunk) else {"text": part.text}


def _last_content(finish: Finish) -> dict[str, Any]:
    """Return the content of a final chunk without text: an empty text, or nothing if blocked."""
    if finish.stop_reason == "refusal":
        return {}
    return {"content": {"parts": [{"text": ""}], "role": "model"}}


def _usage(tokens: Tokens) -> dict[str, Any]:
    """Return counts in Gemini's terms: the prompt includes what was cached, thoughts are separate."""
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": tokens.output,
        "totalTokenCount": prompt + tokens.output + tokens.reasoning,
    }
    if tokens.cache_read:
        usage["cachedContentTokenCount"] = tokens.cache_read
    if tokens.reasoning:
        usage["thoughtsTokenCount"] = tokens.reasoning
    return usage


def _tokens(usage: dict[str, Any]) -> Tokens:
    prompt = count(usage.get("promptTokenCount"))
    cached = min(prompt, count(usage.get("cachedContentTokenCount")))
    return Tokens(
        input=prompt - cached + count(usage.get("toolUsePromptTokenCount")),
        output=count(usage.get("candidatesTokenCount")),
        cache_read=cached,
        reasoning=count(usage.get("thoughtsTokenCount")),
    )
