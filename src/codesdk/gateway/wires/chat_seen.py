"""The bytes of a Chat Completions answer → its content: text, reasoning, calls, tokens, or why it failed.

Many servers speak this format with small differences: the name of the reasoning field, calls without an
index, usage on any chunk. All differences met so far are understood; of several choices, only the first is
read.
"""

from typing import Any

from codesdk.gateway.wires.arguments import input_of
from codesdk.gateway.wires.exchange import Call, Seen, Tokens
from codesdk.gateway.wires.fields import count, decode_json, items, mapping, string
from codesdk.gateway.wires.openai_terms import error_text
from codesdk.gateway.wires.sse import EventReader

_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _Call:
    """A call, as far as it has arrived."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.is_custom = False
        self.pieces: list[str] = []

    def add(self, fields: dict[str, Any]) -> None:
        """Take what a chunk, or a whole message, says about the call."""
        self.id = string(fields.get("id")) or self.id
        function, custom = mapping(fields.get("function")), mapping(fields.get("custom"))
        self.is_custom = self.is_custom or bool(custom)
        self.name = string(function.get("name")) or string(custom.get("name")) or self.name
        self.pieces.append(string(function.get("arguments")) + string(custom.get("input")))

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
        self._model: str | None = None
        self._tokens: Tokens | None = None
        self._stop: str | None = None
        self._error: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Take more bytes of a stream."""
        for event in self._reader.feed(chunk):
            self._take(mapping(decode_json(event.data)), "delta")

    def whole(self, body: bytes) -> None:
        """Take the body of an unstreamed answer, or of an error."""
        fields = mapping(decode_json(body))
        if fields.get("choices"):  # an error has none, whatever its shape
            self._take(fields, "message")
        else:
            self._error = error_text(fields) or "the answer is neither a completion nor an error"

    def result(self) -> Seen:
        """Return what was seen so far.

        Calls count once the answer has ended: only then are they surely complete.
        """
        has_ended = self._stop is not None
        calls = [self._calls[index] for index in sorted(self._calls)] if has_ended else []
        refusal = "".join(self._refusal) or None
        return Seen(
            model=self._model,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=[call.made() for call in calls if call.name],
            refusal=refusal,
            stop_reason="refusal" if has_ended and refusal else self._stop,
            tokens=self._tokens,
            error=self._error,
        )

    def _take(self, fields: dict[str, Any], key: str) -> None:
        self._model = string(fields.get("model")) or self._model
        if fields.get("error"):
            self._error = error_text(fields)
        if fields.get("usage"):
            self._tokens = _tokens(mapping(fields["usage"]))
        for choice in map(mapping, items(fields.get("choices"))):
            if count(choice.get("index")) == 0:
                self._take_message(mapping(choice.get(key)))
                reason = string(choice.get("finish_reason"))
                self._stop = _STOPS.get(reason, reason) or self._stop

    def _take_message(self, message: dict[str, Any]) -> None:
        self._text.append(string(message.get("content")))
        self._refusal.append(string(message.get("refusal")))
        thought = string(message.get("reasoning_content")) or string(message.get("reasoning"))
        self._reasoning.append(thought)
        for number, call in enumerate(map(mapping, items(message.get("tool_calls")))):
            self._calls.setdefault(self._index(call, number), _Call()).add(call)
        if legacy := mapping(message.get("function_call")):
            self._calls.setdefault(0, _Call()).add({"function": legacy})

    def _index(self, call: dict[str, Any], number: int) -> int:
        """Return a call's index.

        If there is none, an id begins a new call, and no id continues the last one.
        """
        index: object = call.get("index")
        if isinstance(index, int):
            return index
        if call.get("id"):
            return len(self._calls)
        return max(self._calls, default=number)


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
