"""The bytes of a Responses answer → its content: text, reasoning, calls, tokens, or why it failed.

Deltas are kept by item, so that an answer that breaks off is known as far as it arrived. A finished item
replaces its deltas, and the final response replaces the items.
"""

from typing import Any

import msgspec

from codesdk.gateway.wires.exchange import Call, Seen, Tokens
from codesdk.gateway.wires.fields import count, decode_json, input_of, items, mapping, string
from codesdk.gateway.wires.keeping import CALL_BYTES, Kept
from codesdk.gateway.wires.openai_terms import error_text
from codesdk.gateway.wires.responses_tools import joined
from codesdk.gateway.wires.sse import EventReader

_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
_INPUTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_FINAL = ("response.completed", "response.incomplete", "response.failed")
_STOPS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_PARTS = {
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("reasoning", "text"),
    "reasoning_text": ("reasoning", "text"),
}
"""For each type of part: what it is, and the key that holds its text."""


class _Item:
    """What is known about one output item."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {"text": [], "refusal": [], "reasoning": []}
        self.call: Call | None = None
        self.unfinished = 0  # characters of a call's input

    @classmethod
    def of(cls, fields: dict[str, Any], kept: Kept) -> "_Item":
        """Return a finished item."""
        item = cls()
        kind = string(fields.get("type"))
        if kind in ("function_call", "custom_tool_call") and fields.get("name"):
            name = joined(string(fields.get("name")), fields.get("namespace"))
            written = string(fields.get("arguments"))
            value = string(fields.get("input")) if kind == "custom_tool_call" else input_of(written)
            item.call = Call(string(fields.get("call_id")), name, value)
        for part in (*items(fields.get("summary")), *items(fields.get("content"))):
            holds, key = _PARTS.get(string(mapping(part).get("type")), ("", ""))
            if holds:
                kept.add(item.texts[holds], string(mapping(part).get(key)))
        return item


class ResponsesDecoder:
    """Decodes one answer. Never raises."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self._items: dict[int, _Item] = {}
        self._kept = Kept()
        self._seen = Seen()
        self._status = ""
        self._reason = ""

    def feed(self, chunk: bytes) -> None:
        """Take more bytes of a stream."""
        for data in self._reader.feed(chunk):
            self._take(mapping(decode_json(data)))

    def whole(self, body: bytes) -> None:
        """Take the body of an unstreamed answer, or of an error."""
        fields = mapping(decode_json(body))
        if fields.get("object") == "response":
            self._take_response(fields)
            self._take_final(fields)
        else:
            self._seen.error = error_text(fields) or "the answer is neither a response nor an error"

    def result(self) -> Seen:
        """Return what was seen so far."""
        found = [self._items[index] for index in sorted(self._items)]
        calls = [item.call for item in found if item.call is not None]
        texts = {
            holds: "".join(piece for item in found for piece in item.texts[holds])
            for holds in ("text", "reasoning", "refusal")
        }
        refusal = texts.pop("refusal") or None
        stop_reason = self._stop_reason(bool(calls), bool(refusal))
        return msgspec.structs.replace(
            self._seen,
            **texts,
            calls=calls,
            refusal=refusal,
            stop_reason=stop_reason,
            unfinished=self._kept.beyond + sum(item.unfinished for item in found),
        )

    def _take(self, event: dict[str, Any]) -> None:
        kind = string(event.get("type"))
        index = count(event.get("output_index"))
        if (holds := _DELTAS.get(kind)) is not None:
            if item := self._item(index):
                self._kept.add(item.texts[holds], string(event.get("delta")))
        elif kind in _INPUTS:
            if item := self._item(index):
                item.unfinished += len(string(event.get("delta")))
        elif kind == "response.output_item.done":
            if self._kept.room_for(CALL_BYTES):
                self._items[index] = _Item.of(mapping(event.get("item")), self._kept)
        elif kind == "error" or event.get("error"):
            self._seen.error = error_text(event)
        elif event.get("response"):
            self._take_response(mapping(event["response"]))
            if kind in _FINAL:
                self._take_final(mapping(event["response"]))

    def _item(self, index: int) -> _Item | None:
        """Return an item, made if need be; None if there is no room for one more."""
        if index not in self._items and self._kept.room_for(CALL_BYTES):
            self._items[index] = _Item()
        return self._items.get(index)

    def _take_response(self, response: dict[str, Any]) -> None:
        self._seen.model = string(response.get("model")) or self._seen.model
        if response.get("usage"):
            self._seen.tokens = _tokens(mapping(response["usage"]))
        if response.get("error"):
            self._seen.error = error_text(response)

    def _take_final(self, response: dict[str, Any]) -> None:
        self._status = string(response.get("status"))
        self._reason = string(mapping(response.get("incomplete_details")).get("reason"))
        output = items(response.get("output"))
        if output:  # some servers leave it empty although items were streamed
            self._kept = Kept()  # it replaces all that was kept, and was bounded as an event
            self._items = {index: _Item.of(mapping(item), self._kept) for index, item in enumerate(output)}

    def _stop_reason(self, has_calls: bool, has_refusal: bool) -> str | None:
        if self._status == "incomplete":
            return _STOPS.get(self._reason, self._reason or "incomplete")
        if self._status != "completed":  # failed, or not ended yet
            return None
        if has_refusal:
            return "refusal"
        return "tool_use" if has_calls else "end_turn"


def _tokens(usage: dict[str, Any]) -> Tokens:
    details = mapping(usage.get("input_tokens_details"))
    cache_read, cache_write = count(details.get("cached_tokens")), count(details.get("cache_write_tokens"))
    reasoning = count(mapping(usage.get("output_tokens_details")).get("reasoning_tokens"))
    return Tokens(
        input=max(0, count(usage.get("input_tokens")) - cache_read - cache_write),
        output=max(0, count(usage.get("output_tokens")) - reasoning),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=reasoning,
    )
