"""The calls of a Chat Completions answer while they arrive, and the messages that they are part of.

Servers of this format differ: calls without an index, several under one index, names that come late or again.
"""

from collections.abc import Iterable
from typing import Any, Literal

from codesdk.gateway.ownership.acts import DeniedCall
from codesdk.gateway.ownership.rewriting import MAX_PARTS, Event
from codesdk.gateway.ownership.values import made_up_id, read_input, write_json
from codesdk.gateway.wires.fields import items, mapping, string

Fate = Literal["unnamed", "pass", "deny", "hold"]
SAID = ("content", "refusal", "reasoning_content", "reasoning", "reasoning_details")
"""What a message has besides calls, and is put together from the pieces of a stream."""


class ChatCall:
    """A call of the model's, as far as it has arrived, and what becomes of it."""

    def __init__(self, *, legacy: bool = False) -> None:
        self.fate: Fate = "unnamed"
        self.legacy = legacy
        self.fields: Event = {}
        self.id = ""
        self.kind = "function"
        self.name = ""
        self.out = 0
        self.spelled = ""
        self.mark = ""
        self.denied: DeniedCall | None = None
        self._pieces: list[str] = []

    def grow(self, delta: Event, *, keeps: bool) -> None:
        self.fields |= {
            key: value for key, value in delta.items() if key not in ("index", "function", "custom")
        }
        self.id = string(delta.get("id")) or self.id
        if "custom" in delta:
            self.kind = "custom"
        inner = mapping(delta.get(self.kind))
        self.name = self.name or string(inner.get("name"))
        if keeps:
            self._pieces.append(string(inner.get(self.key)))

    @property
    def key(self) -> str:
        return "input" if self.kind == "custom" else "arguments"

    @property
    def written(self) -> str:
        return "".join(self._pieces)

    @property
    def given(self) -> Any:
        return self.written if self.kind == "custom" else read_input(self.written)

    def made(self) -> Event:
        """Return the call as the model made it. A legacy one is a call like others from now on."""
        call_id = self.id or (made_up_id(self.mark) if self.mark else "")
        inner = {"name": self.name, self.key: self.written}
        return {**self.fields, "id": call_id, "type": self.kind, self.kind: inner}


class Choice:
    """What is known of one of the answers that were asked for."""

    def __init__(self) -> None:
        self.calls: dict[int, ChatCall] = {}
        self.last: int | None = None  # the index of the call that came last
        self.all: list[ChatCall] = []
        self.open: list[ChatCall] = []  # those that are not complete
        self.legacy: ChatCall | None = None
        self.out = 0  # how many calls of all steps the agent got
        self.said: dict[str, list[Any]] = {}
        self.marks: list[str] = []  # of calls denied in the chunk at hand

    def say_marks(self, delta: Event) -> None:
        """Add the marks to a delta, all at once: one chunk may hold any number of calls."""
        if self.marks:
            said = [value for value in (delta.get("content"), "".join(self.marks)) if value]
            delta["content"] = joined(said)
            self.marks = []

    def call_at(self, delta: Event) -> ChatCall | None:
        """Return the call that a delta is of; None if it would be one too many."""
        index = delta.get("index")
        if not isinstance(index, int):
            # Without an index an id begins a new call, and no id continues the last one.
            index = len(self.calls) if delta.get("id") or self.last is None else self.last
        self.last = index
        call = self.calls.get(index)
        begins = string(
            mapping(delta.get("function")).get("name") or mapping(delta.get("custom")).get("name")
        )
        call_id = string(delta.get("id"))
        if call is None or (begins and call.name and call_id and call.id and call_id != call.id):
            if len(self.all) >= MAX_PARTS:
                return None
            call = self.calls[index] = self._begin(ChatCall())
        return call

    def legacy_call(self) -> ChatCall:
        if self.legacy is None:
            self.legacy = self._begin(ChatCall(legacy=True))
        return self.legacy

    def _begin(self, call: ChatCall) -> ChatCall:
        self.all.append(call)
        self.open.append(call)
        return call

    def completed(self) -> list[ChatCall]:
        """Return the calls that are complete now that the choice has ended."""
        found, self.open = self.open, []
        return found

    def close_step(self) -> None:
        self.calls, self.last, self.all, self.open = {}, None, [], []
        self.legacy, self.said = None, {}


def numbered(message: Event) -> Event:
    """Return a message whose calls have an index, as in a stream."""
    calls = items(message.get("tool_calls"))
    if not calls:
        return message
    numbered = [{**mapping(call), "index": number} for number, call in enumerate(calls)]
    return {**message, "tool_calls": numbered}


def merged(before: Event, message: Event) -> Event:
    """Return two messages as one."""
    new = {**before, **message}
    for key in SAID:
        pieces = [value for value in (before.get(key), message.get(key)) if value]
        if pieces:
            new[key] = joined(pieces)
    calls = [*items(before.get("tool_calls")), *items(message.get("tool_calls"))]
    return new | ({"tool_calls": calls} if calls else {})


def joined(pieces: Iterable[Any]) -> Any:
    """Return the pieces of a text, or of a list of parts, in one."""
    found = list(pieces)
    if all(isinstance(piece, str) for piece in found):
        return "".join(found)
    parts: list[Any] = []
    for piece in found:
        parts += [{"type": "text", "text": piece}] if isinstance(piece, str) else items(piece)
    return parts


def says(choice: Event) -> bool:
    """Return whether a chunk says anything of a choice."""
    return bool(choice.get("finish_reason")) or any(mapping(choice.get("delta")).values())


def size_of(part: Event) -> int:
    inner = mapping(part.get("function")) or mapping(part.get("custom"))
    return len(string(inner.get("arguments"))) + len(string(inner.get("input")))


def length_of(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(write_json(value))
