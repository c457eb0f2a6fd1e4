"""The parts of an answer → the events of a Responses stream, in the order in which OpenAI sends them.

A stretch of text or reasoning is one output item: the item is added, then its part, then deltas, and
everything again when it is done. The last event holds the whole response, which is also the body of an
unstreamed answer.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, assert_never

import msgspec

from codesdk.gateway.wires.exchange import Ask, Call, Finish, Part, ReasoningChunk, TextChunk, Tokens
from codesdk.gateway.wires.fields import arguments_of, items, mapping, pieces_of
from codesdk.gateway.wires.openai_terms import CREATED
from codesdk.gateway.wires.responses_tools import Spelling, spellings
from codesdk.gateway.wires.sse import frame

Status = Literal["in_progress", "completed", "incomplete"]
_ECHOED = (
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "top_p",
    "truncation",
)


class _Kind(NamedTuple):
    """What differs between the kinds of items with a growing text. `key` names the list of the item's parts."""

    item: Literal["message", "reasoning"]
    prefix: str
    key: str
    part_type: str
    part_event: str
    text_event: str
    text_key: str = "text"


_TEXT = _Kind("message", "msg", "content", "output_text", "content_part", "output_text")
_REFUSAL = _Kind("message", "msg", "content", "refusal", "content_part", "refusal", text_key="refusal")
_THOUGHT = _Kind("reasoning", "rs", "content", "reasoning_text", "content_part", "reasoning_text")
_SUMMARY = _Kind(
    "reasoning", "rs", "summary", "summary_text", "reasoning_summary_part", "reasoning_summary_text"
)


class _Open(NamedTuple):
    """The item being written."""

    kind: _Kind
    place: dict[str, Any]
    pieces: list[str]


class ResponsesEncoder:
    """Writes one answer."""

    def __init__(self, ask: Ask, answer_id: str) -> None:
        self.status: Status = "in_progress"
        self._answer_id = answer_id
        self._base = _blank_response(f"resp_{answer_id}", ask.model) | _echo(ask.body)
        self._spellings = spellings(ask.body)
        self._reasoning = _reasoning_kind(ask.body)
        self._encrypted = "reasoning.encrypted_content" in items(ask.body.get("include"))
        self._output: list[dict[str, Any]] = []
        self._open: _Open | None = None
        self._number = 0
        self._end: dict[str, Any] = {}

    def start(self) -> bytes:
        """Return the first two events of a stream."""
        response = self.response()
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def feed(self, part: Part) -> bytes:
        """Return the events of a part."""
        match part:
            case TextChunk():
                return self._text(_TEXT, part.text)
            case ReasoningChunk():
                return self._text(self._reasoning, part.text)
            case Call():
                return self._close("completed") + self._call(part)
            case Finish():
                return self._finish(part)
            case _:
                assert_never(part)

    def response(self) -> dict[str, Any]:
        """Return the response in its current state."""
        return self._base | {"status": self.status, "output": list(self._output)} | self._end

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = msgspec.json.encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return frame(kind, data)

    def _text(self, kind: _Kind, text: str) -> bytes:
        head = b""
        if self._open is None or self._open.kind is not kind:
            head = self._close("completed") + self._begin(kind)
        assert self._open is not None
        self._open.pieces.append(text)
        return head + self._event(
            f"response.{kind.text_event}.delta", **self._open.place, delta=text, **_logprobs(kind)
        )

    def _begin(self, kind: _Kind) -> bytes:
        index = len(self._output)
        item_id = f"{kind.prefix}_{self._answer_id}_{index}"
        place = {"item_id": item_id, "output_index": index, f"{kind.key}_index": 0}
        self._open = _Open(kind, place, [])
        item = self._item(kind, item_id, "in_progress", [])
        return self._event("response.output_item.added", output_index=index, item=item) + self._event(
            f"response.{kind.part_event}.added", **place, part=_part(kind, "")
        )

    def _close(self, status: Status) -> bytes:
        """Return the end of the item being written, if there is one."""
        if self._open is None:
            return b""
        kind, place, pieces = self._open
        self._open = None
        text = "".join(pieces)
        part = _part(kind, text)
        item = self._item(kind, place["item_id"], status, [part])
        self._output.append(item)
        return (
            self._event(
                f"response.{kind.text_event}.done", **place, **{kind.text_key: text}, **_logprobs(kind)
            )
            + self._event(f"response.{kind.part_event}.done", **place, part=part)
            + self._event("response.output_item.done", output_index=place["output_index"], item=item)
        )

    def _item(self, kind: _Kind, item_id: str, status: Status, parts: list[dict[str, Any]]) -> dict[str, Any]:
        if kind.item == "message":
            return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": parts}
        item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": [], kind.key: parts}
        if self._encrypted:
            item["encrypted_content"] = f"encrypted_{item_id}"
        return item

    def _call(self, call: Call) -> bytes:
        index = len(self._output)
        spelling = self._spellings.get(call.name) or Spelling(call.name)
        kind = _CUSTOM if spelling.is_custom else _FUNCTION
        written = (
            call.input if spelling.is_custom and isinstance(call.input, str) else arguments_of(call.input)
        )
        item: dict[str, Any] = {"id": f"{kind.prefix}_{self._answer_id}_{index}", "type": kind.item}
        item |= {"status": "completed", "call_id": call.id, "name": spelling.name, kind.key: written}
        if spelling.namespace is not None:
            item["namespace"] = spelling.namespace
        self._output.append(item)
        place = {"item_id": item["id"], "output_index": index}
        begun = item | {"status": "in_progress", kind.key: ""}
        deltas = [self._event("response.output_item.added", output_index=index, item=begun)]
        deltas += [self._event(f"{kind.event}.delta", **place, delta=piece) for piece in pieces_of(written)]
        deltas.append(self._event(f"{kind.event}.done", **place, **{kind.key: written}))
        deltas.append(self._event("response.output_item.done", output_index=index, item=item))
        return b"".join(deltas)

    def _finish(self, finish: Finish) -> bytes:
        reason = None
        if finish.stop_reason == "max_tokens":
            reason = "max_output_tokens"
        # A refusal with words is a complete answer that contains them; one without is cut off by a filter.
        elif finish.stop_reason == "refusal" and not finish.refusal:
            reason = "content_filter"
        self.status = "completed" if reason is None else "incomplete"
        told = b""
        if finish.stop_reason == "refusal" and finish.refusal:
            told = self._text(_REFUSAL, finish.refusal)
        told += self._close(self.status)
        if finish.tokens is not None:
            self._end["usage"] = _usage(finish.tokens)
        if reason is not None:
            self._end["incomplete_details"] = {"reason": reason}
        return told + self._event(f"response.{self.status}", response=self.response())


class _CallKind(NamedTuple):
    item: str
    prefix: str
    key: str
    event: str


_FUNCTION = _CallKind("function_call", "fc", "arguments", "response.function_call_arguments")
_CUSTOM = _CallKind("custom_tool_call", "ctc", "input", "response.custom_tool_call_input")


def encode_response(ask: Ask, answer_id: str, parts: Iterable[Part]) -> bytes:
    """Return an unstreamed answer: what the last event of its stream would hold."""
    encoder = ResponsesEncoder(ask, answer_id)
    for part in parts:
        encoder.feed(part)
    if encoder.status == "in_progress":
        encoder.feed(Finish("end_turn"))
    return msgspec.json.encode(encoder.response())


def _blank_response(response_id: str, model: str) -> dict[str, Any]:
    """Return a response without content. Instructions and tools are not echoed: they are large."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _usage(tokens: Tokens) -> dict[str, Any]:
    """Return token counts in this API's terms: all that was read, all that was written."""
    read = tokens.input + tokens.cache_read + tokens.cache_write
    written = tokens.output + tokens.reasoning
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": read + written,
    }


def _part(kind: _Kind, text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": kind.part_type, kind.text_key: text}
    return part | {"annotations": [], "logprobs": []} if kind is _TEXT else part


def _logprobs(kind: _Kind) -> dict[str, Any]:
    return {"logprobs": []} if kind is _TEXT else {}


def _echo(body: dict[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in _ECHOED if body.get(key) is not None}


def _reasoning_kind(body: dict[str, Any]) -> _Kind:
    """Return how to send reasoning: as a summary, or in full if the request sets up reasoning without one."""
    settings = mapping(body.get("reasoning"))
    wants_none = settings.get("summary") in (None, "none")
    return _THOUGHT if settings and wants_none else _SUMMARY
