"""Chat Completions answers with only the calls that may reach the agent.

A denied call becomes text of the same choice, and the calls that are left are numbered again.
"""

from typing import Any

from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.chat_calls import (
    SAID,
    ChatCall,
    Choice,
    joined,
    length_of,
    merged,
    numbered,
    says,
    size_of,
)
from codesdk.gateway.ownership.likeness import PlainText
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.rewriting import Event, Rewriting
from codesdk.gateway.ownership.values import write_json
from codesdk.gateway.wires.fields import items, mapping, string

_STOPS = ("tool_calls", "function_call")


class ChatAnswer(Rewriting):
    """Rewrites one answer."""

    def __init__(self, plan: Plan, names: Names) -> None:
        super().__init__(plan, names)
        self._choices: dict[int, Choice] = {}
        self._head: Event = {}
        self._has_usage = False
        self._done: bytes | None = None
        self._messages: dict[int, Event] = {}  # of an unstreamed answer, in all steps

    def message(self) -> tuple[Event, list[DeniedCall]]:
        """Return what the model said in this step, and its denied calls. No call reached the agent."""
        choice = self._choice(0)
        said: Event = {"role": "assistant", "content": None}
        for key, pieces in choice.said.items():
            said[key] = joined(pieces)
        return said, [call.denied for call in choice.all if call.denied is not None]

    # --- a stream -----------------------------------------------------------------------------------

    def take(self, event: Event, raw: bytes) -> list[Event] | None:
        choices = items(event.get("choices"))
        usage = mapping(event.get("usage"))
        if usage:
            self._usage = usage
        new = [self._take_choice(mapping(choice)) for choice in choices]
        is_same = all(a is b for a, b in zip(new, choices, strict=True))
        changed = event if is_same else {**event, "choices": new}
        if self.is_first:
            if not self._head:
                self._head = {key: event[key] for key in ("id", "created", "model") if key in event}
        else:
            changed = {**changed, **{key: value for key, value in self._head.items() if key in event}}
            if usage:
                changed["usage"] = self.summed(usage)
        if self._is_end(event, choices):
            return self.hold(changed, raw, is_changed=changed is not event)
        if changed is event:
            return None
        return [changed] if usage or not choices or any(map(says, new)) else []

    def plain_text(self, event: Event) -> PlainText | None:
        choices = items(event.get("choices"))
        delta = mapping(mapping(choices[0] if choices else None).get("delta"))
        said = [key for key, value in delta.items() if value]
        text = delta.get("content")
        if len(choices) != 1 or said != ["content"] or not isinstance(text, str) or event.get("usage"):
            return None
        return PlainText(text, self._choice(choices[0].get("index")).said.setdefault("content", []))

    def _is_end(self, event: Event, choices: list[Any]) -> bool:
        if any(mapping(choice).get("finish_reason") for choice in choices):
            self._ended = True
            return True
        return bool(event.get("usage")) and not choices and not event.get("error")

    def take_other(self, data: bytes, raw: bytes) -> bytes:
        if data.strip() != b"[DONE]":
            return raw
        self._done = raw
        return b""

    def end(self) -> bytes:
        """Return the end of the stream."""
        told = super().end()
        if self._usage_before and not self._usage and self._done is not None:
            told += self.write({**self._head, "choices": [], "usage": self._usage_before}, self._done)
        done, self._done = self._done or b"", None
        return told + done

    def mend(self, event: Event) -> Event:
        choices = items(event.get("choices"))
        new = [self._mend_choice(mapping(choice)) for choice in choices]
        return event if all(a is b for a, b in zip(new, choices, strict=True)) else {**event, "choices": new}

    def without_end(self, event: Event) -> Event | None:
        choices = [
            {**mapping(choice), "finish_reason": None}
            for choice in items(event.get("choices"))
            if any(mapping(mapping(choice).get("delta")).values())
        ]
        return {**event, "choices": choices} if choices else None

    def close_step(self) -> None:
        self._done = None
        for choice in self._choices.values():
            choice.close_step()

    def _choice(self, index: object) -> Choice:
        return self._choices.setdefault(index if isinstance(index, int) else 0, Choice())

    def _take_choice(self, choice: Event) -> Event:
        state = self._choice(choice.get("index"))
        delta = mapping(choice.get("delta"))
        has_calls = bool(delta.get("tool_calls") or delta.get("function_call"))
        if not self.is_first and "role" in delta:  # said already; some clients would join the two
            delta = {key: value for key, value in delta.items() if key != "role"}
        new = self._take_delta(state, delta) if has_calls else delta
        self._keep(state, delta)
        if choice.get("finish_reason"):
            new = self._finish_calls(state, new)
        return choice if new is choice.get("delta") else {**choice, "delta": new}

    def _take_delta(self, state: Choice, delta: Event) -> Event:
        new = dict(delta)
        calls = new.pop("tool_calls", None)
        legacy = new.pop("function_call", None)
        passing: list[Event] = []
        is_changed = False
        for part in items(calls):
            fields = mapping(part)
            call = state.call_at(fields)
            if call is None:
                is_changed = True
                continue
            is_fresh = call.fate == "unnamed"
            call.grow(fields, keeps=self.keeps(size_of(fields)))
            told = self._take_call(state, call, fields, is_fresh)
            is_changed = is_changed or told is not part
            passing += [] if told is None else [told]
        if passing:
            new["tool_calls"] = passing
        elif calls is not None and not items(calls):
            new["tool_calls"] = calls
        if mapping(legacy):
            told = self._take_legacy(state, mapping(legacy))
            is_changed = is_changed or told is not legacy
            if told is not None:
                new["function_call"] = told
        elif legacy is not None:
            new["function_call"] = legacy
        state.say_marks(new)
        return new if is_changed else delta

    def _take_call(self, state: Choice, call: ChatCall, part: Event, is_fresh: bool) -> Event | None:
        """Return what the agent gets of a call in this chunk; a mark is noted."""
        if is_fresh:
            if not call.name:
                return None  # what it is will be said later
            self._judge(state, call)
            if call.fate == "deny":
                state.marks.append(call.mark)
            elif call.fate == "pass":
                return self._begun(call, part)
            return None
        return self._continued(call, part) if call.fate == "pass" else None

    def _judge(self, state: Choice, call: ChatCall) -> None:
        ours = self._names.ours(call.name)
        if self._names.code and (
            ours is not None or (self._names.is_code(call.name) and not self._names.is_native(call.name))
        ):
            call.fate = "hold"
        elif ours is not None or self._names.is_native(call.name):
            call.fate = "pass"
            call.spelled = call.name if ours is None else self._names.flat(ours)
            self._let_in(state, call)
        else:
            call.fate = "deny"
            call.mark = self._plan.new_mark()

    def _let_in(self, state: Choice, call: ChatCall) -> None:
        self._passed += 1
        if not call.legacy:
            call.out = state.out
            state.out += 1

    def _begun(self, call: ChatCall, part: Event) -> Event:
        """Return the first delta of a call, with all that came before its name."""
        inner = mapping(part.get(call.kind))
        before = call.made()
        is_whole = inner.get("name") == call.spelled and part.get("id") == before["id"]
        if is_whole and part.get("index") == call.out and string(inner.get(call.key)) == call.written:
            return part
        written = {**inner, **before[call.kind], "name": call.spelled}
        return {**part, **before, "index": call.out, call.kind: written}

    def _continued(self, call: ChatCall, part: Event) -> Event:
        inner = mapping(part.get(call.kind))
        name = inner.get("name")
        if part.get("index") == call.out and (not name or name == call.spelled):
            return part
        new = {**part, "index": call.out}
        if "name" in inner:  # a few servers say it again each time
            rest = {key: value for key, value in inner.items() if key != "name"}
            new[call.kind] = {"name": call.spelled, **rest} if name == call.name else rest
        return new

    def _take_legacy(self, state: Choice, part: Event) -> Event | None:
        call = state.legacy_call()
        is_fresh = call.fate == "unnamed"
        call.grow({"function": part}, keeps=self.keeps(len(string(part.get("arguments")))))
        told = self._take_call(state, call, {"function": part}, is_fresh)
        if told is None:
            return None
        inner = mapping(told.get("function"))
        return part if inner == part else inner

    def _finish_calls(self, state: Choice, delta: Event) -> Event:
        """Return the last delta of a choice with the calls that had to be complete."""
        new = delta
        passing: list[Event] = []
        for call in state.completed():
            if call.fate == "hold":
                new = dict(delta) if new is delta else new
                self._decide(state, call, new, passing)
            if call.fate == "deny":
                call.denied = self.deny(call.name, call.given, call.id, call.made(), call.mark)
        if passing:
            new["tool_calls"] = [*items(new.get("tool_calls")), *passing]
        state.say_marks(new)
        return new

    def _decide(self, state: Choice, call: ChatCall, delta: Event, passing: list[Event]) -> None:
        coded = self._coded(call) if self.keeps(0) else None
        if coded is None:
            call.fate, call.mark = "deny", self._plan.new_mark()
            state.marks.append(call.mark)
            return
        call.fate = "pass"
        self._let_in(state, call)
        if call.legacy:
            delta["function_call"] = coded["function"]
        else:
            passing.append({"index": call.out, **coded})

    def _coded(self, call: ChatCall) -> Event | None:
        """Return a complete call as the agent gets it; None if it is denied after all."""
        ours, code = self._names.ours(call.name), self._names.code
        if ours is None or code is None:
            return call.made() if self._names.read_code(call.given) is not None else None
        written = write_json(self._names.write_code(ours, call.given)).decode()
        made = {key: value for key, value in call.made().items() if key != "custom"}
        return {**made, "type": "function", "function": {"name": code.tool, "arguments": written}}

    def _mend_choice(self, choice: Event) -> Event:
        reason = self._reason(choice.get("finish_reason"))
        return choice if reason == choice.get("finish_reason") else {**choice, "finish_reason": reason}

    def _reason(self, reason: Any) -> Any:
        """Return why the answer stops, now that calls may be gone from it."""
        if reason in _STOPS and self._calls and not self.reaches:
            return "stop"
        return "tool_calls" if reason == "stop" and self._passed_before else reason

    def _keep(self, state: Choice, said: Event) -> None:
        for key in SAID:
            value = said.get(key)
            if value and self.keeps(length_of(value)):
                state.said.setdefault(key, []).append(value)

    # --- an unstreamed answer -----------------------------------------------------------------------

    def take_whole(self, answer: Event) -> Event | None:
        choices = items(answer.get("choices"))
        if not choices:
            return None
        self._ended = True
        self._usage = mapping(answer.get("usage"))
        new = [self._whole_choice(mapping(choice)) for choice in choices]
        if self.is_first:
            self._head = {key: answer[key] for key in ("id", "created", "model") if key in answer}
            if all(a is b for a, b in zip(new, choices, strict=True)):
                return None
            return {**answer, "choices": new}
        changed = {**answer, **self._head, "choices": new}
        if usage := self.summed(self._usage):
            changed["usage"] = usage
        return changed

    def _whole_choice(self, choice: Event) -> Event:
        index = choice.get("index")
        state = self._choice(index)
        message = mapping(choice.get("message"))
        new = self._take_delta(state, numbered(message))
        self._keep(state, message)
        new = self._finish_calls(state, new)
        calls = [{k: v for k, v in mapping(c).items() if k != "index"} for c in items(new.get("tool_calls"))]
        if calls:
            new = {**new, "tool_calls": calls}
        key = index if isinstance(index, int) else 0
        if key in self._messages:
            new = merged(self._messages[key], new)
        self._messages[key] = new
        reason = self._reason(choice.get("finish_reason"))
        if new == message and reason == choice.get("finish_reason"):
            return choice
        return {**choice, "message": new, "finish_reason": reason}
