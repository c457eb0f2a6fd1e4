"""What the answers of all formats share while they are rewritten: framing, denied calls, steps, usage, the end.

A format says in `take` what becomes of an event, in `mend` what of a held one once the step is known to be the
last, and in `take_whole` what of an unstreamed answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.frames import Frames, data_of, write_event
from codesdk.gateway.ownership.likeness import Likeness, PlainText
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.values import add_usage, clean, read_json, write_json
from codesdk.gateway.wires.sse import MAX_EVENT_BYTES

MAX_KEPT = MAX_EVENT_BYTES
"""How much of one step is kept to ask the model again, in characters. A longer one is not asked again."""
MAX_PARTS = 100_000
"""How many blocks, items or calls one answer may have. What comes behind them is left out."""
_MAX_HELD = 2 * MAX_EVENT_BYTES
_OVERHEAD = 200  # of a denied call, besides its text

Event = dict[str, Any]


class Held(NamedTuple):
    """An event of the end of a step, and the bytes that it came in."""

    event: Event
    raw: bytes
    is_changed: bool


class Rewriting(ABC):
    """Rewrites one answer to the agent. Implements most of `AnswerActs`."""

    def __init__(self, plan: Plan, names: Names) -> None:
        self._plan = plan
        self._names = names
        self._step = 0
        self._calls: list[DeniedCall] = []
        self._passed = 0
        self._passed_before = 0
        self._ended = False
        self._kept = 0
        self._parts = 0
        self._held_bytes = 0
        self._frames = Frames()
        self._likeness = Likeness()
        self._held: list[Held] = []
        self._pending = b""
        self._usage: dict[str, Any] = {}
        """Of the present step, as far as it was told."""
        self._usage_before: dict[str, Any] = {}

    # --- AnswerActs ---------------------------------------------------------------------------------

    @property
    def denied(self) -> Sequence[DeniedCall]:
        """The complete calls of the present step that were denied."""
        return [msgspec.structs.replace(call, beside=self._passed) for call in self._calls]

    @property
    def passed(self) -> int:
        """How many calls of the present step reach the agent."""
        return self._passed

    @property
    def ended(self) -> bool:
        """Whether the present step came to its end, and is not too long to be asked again."""
        return self._ended and self._kept <= MAX_KEPT

    def feed(self, chunk: bytes) -> bytes:
        """Take bytes of a stream; return what the agent gets now."""
        return self._released() + b"".join([self._pass(raw) for raw in self._frames.feed(chunk)])

    def end(self) -> bytes:
        """Return the end of the stream."""
        # An event without its blank line: some agents read line by line, so it must be judged, too.
        rest = self._frames.rest()
        told = self._pass(rest) if rest else b""
        return self._released() + told + self._let_go()

    def next_step(self) -> None:
        """Begin another step."""
        rest = self._frames.rest()
        told = self._pass(rest) if rest else b""
        for held in self._held:
            if (left := self.without_end(held.event)) is not None:
                told += self.write(left, held.raw)
        self._held.clear()
        self._held_bytes = 0
        self._pending += told
        self.close_step()
        self._usage_before = add_usage(self._usage_before, self._usage)
        self._usage = {}
        self._passed_before += self._passed
        self._passed = 0
        self._calls = []
        self._ended = False
        self._kept = 0
        self._step += 1

    def whole(self, body: bytes) -> bytes:
        """Rewrite an unstreamed answer."""
        try:
            answer = read_json(body)
            changed = self.take_whole(cast("Event", answer)) if isinstance(answer, dict) else None
            return body if changed is None else write_json(changed)
        except RecursionError:
            return b"{}"

    # --- what a format says -------------------------------------------------------------------------

    @abstractmethod
    def take(self, event: Event, raw: bytes) -> list[Event] | None:
        """Return what the agent gets in place of an event; None if it passes as it came."""

    @abstractmethod
    def mend(self, event: Event) -> Event:
        """Return a held event as the end of all steps; the same object if nothing is to be changed."""

    @abstractmethod
    def take_whole(self, answer: Event) -> Event | None:
        """Return an unstreamed answer, with the content of the steps before; None if it passes as it came."""

    @abstractmethod
    def close_step(self) -> None:
        """Put away what a format knows of the step that has ended."""

    def without_end(self, event: Event) -> Event | None:
        """Return what a held event has besides the end of its step, if anything."""
        return None

    def take_other(self, data: bytes, raw: bytes) -> bytes:
        """Return what the agent gets in place of an event that is no JSON object."""
        return raw

    def plain_text(self, event: Event) -> PlainText | None:
        """Return the text of an event that brings nothing else and passes as it came. Must change nothing."""
        return None

    def name_of(self, event: Event) -> str:
        """Return the name of an event, for formats that have them."""
        return ""

    # --- for the formats ----------------------------------------------------------------------------

    def deny(self, name: str, given: Any, call_id: str | None, item: Event, mark: str) -> DeniedCall:
        """Note a complete call that was denied."""
        name, given, call_id, item = clean([name, given, call_id, item])
        call = DeniedCall(
            mark=mark,
            name=name,
            input=given,
            model_call_id=call_id or None,
            item=item,
            reason=self._plan.reason_for(name),
            step=self._step,
        )
        if self.keeps(_OVERHEAD):
            self._calls.append(call)
        return call

    def hold(self, event: Event, raw: bytes, *, is_changed: bool = False) -> list[Event]:
        """Hold an event back until it is known whether another step follows."""
        self._held_bytes += len(raw)
        if self._held_bytes <= _MAX_HELD:
            self._held.append(Held(event, raw, is_changed))
        return []

    def keeps(self, size: int) -> bool:
        """Return whether so much more of the step may be kept."""
        self._kept += size
        return self._kept <= MAX_KEPT

    def counts(self) -> bool:
        """Return whether the answer may have one more part."""
        self._parts += 1
        return self._parts <= MAX_PARTS

    @property
    def reaches(self) -> int:
        """How many calls of all steps reach the agent."""
        return self._passed_before + self._passed

    @property
    def is_first(self) -> bool:
        """Whether it is the first step, and so most events pass as they came."""
        return self._step == 0

    def summed(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the usage of the steps before with that of this one."""
        return add_usage(self._usage_before, usage) if self._usage_before else usage

    def write(self, event: Event, like: bytes) -> bytes:
        """Return an event as bytes; nothing if it is nested too deeply to be written."""
        try:
            return self.frame(write_json(event), event, like)
        except RecursionError:
            return b""

    def frame(self, data: bytes, event: Event, like: bytes) -> bytes:
        """Return the JSON of an event as an event of the stream."""
        return write_event(self.name_of(event), data, like)

    # --- inside -------------------------------------------------------------------------------------

    def _pass(self, raw: bytes) -> bytes:
        if (plain := self._likeness.of(raw)) is not None:
            if self.keeps(len(plain.text)):
                plain.kept.append(plain.text)
            return raw
        lines = data_of(raw)
        if not lines:
            return raw  # a comment, or a blank line
        try:
            if len(lines) == 1:
                return self._pass_data(lines[0], raw, learns=True)
            data = b"\n".join(lines)
            if read_json(data) is not None:
                return self._pass_data(data, write_event("", data.replace(b"\n", b" "), raw))
            if not any(isinstance(read_json(line), dict) for line in lines):
                self._likeness.forget()
                return self.take_other(data, raw)
            # Some agents read each line by itself.
            return b"".join([self._pass_data(line, write_event("", line, raw)) for line in lines])
        except RecursionError:
            self._likeness.forget()
            return b""  # nested so deeply that it cannot be judged

    def _pass_data(self, data: bytes, raw: bytes, *, learns: bool = False) -> bytes:
        event = read_json(data)
        if not isinstance(event, dict):
            self._likeness.forget()
            return self.take_other(data, raw)
        fields = cast("Event", event)
        events = self.take(fields, raw)
        plain = self.plain_text(fields) if events is None and learns else None
        if plain is None:
            self._likeness.forget()
        else:
            self._likeness.learn(raw, plain, self._read_text)
        return raw if events is None else b"".join([self.write(event, raw) for event in events])

    def _read_text(self, raw: bytes) -> str | None:
        event = read_json(b"".join(data_of(raw)))
        found = self.plain_text(cast("Event", event)) if isinstance(event, dict) else None
        return None if found is None else found.text

    def _released(self) -> bytes:
        pending, self._pending = self._pending, b""
        return pending

    def _let_go(self) -> bytes:
        held, self._held = self._held, []
        return b"".join([self._mended(event) for event in held])

    def _mended(self, held: Held) -> bytes:
        event = self.mend(held.event)
        is_same = event is held.event and not held.is_changed
        return held.raw if is_same else self.write(event, held.raw)
