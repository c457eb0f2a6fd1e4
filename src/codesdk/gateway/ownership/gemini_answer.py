"""Gemini answers with only the calls that may reach the agent.

A denied call becomes a text part in its place; its signature stays with the call, which the model gets back. A
stream is events or one JSON array.
"""

from typing import Any, Literal

from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.likeness import PlainText
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.rewriting import Event, Rewriting
from codesdk.gateway.ownership.values import read_json, write_json
from codesdk.gateway.wires.fields import items, mapping, string
from codesdk.gateway.wires.gemini_answer import ObjectReader

_CALLS = ("functionCall", "function_call")
_RUNS = {
    "executableCode": "code_execution",
    "executable_code": "code_execution",
    "toolCall": "",
    "tool_call": "",
}
"""Parts that are calls of Google's own tools, and the tool; where it is empty, the part says which."""
_RESULTS = {
    "codeExecutionResult": "code_execution",
    "code_execution_result": "code_execution",
    "toolResponse": "",
    "tool_response": "",
}
_SIGNATURES = ("thoughtSignature", "thought_signature")
_Fate = Literal["pass", "deny"]


class _Candidate:
    """What is known of one of the answers that were asked for."""

    def __init__(self) -> None:
        self.said: list[Event | DeniedCall] = []
        self.text: list[str] = []  # pieces of the last part, if it is a text that goes on
        self.going_on: _Fate | None = None  # a call whose arguments come in several parts

    def say(self, part: Event) -> None:
        """Add a part. Texts of one kind that follow each other are one."""
        text = part.get("text")
        last = self.said[-1] if self.said else None
        is_plain = isinstance(text, str) and not any(part.get(key) for key in _SIGNATURES)
        if is_plain and self.text and isinstance(last, dict) and last.get("thought") == part.get("thought"):
            self.text.append(string(text))
            return
        self.settle()
        self.said.append(dict(part))
        self.text = [string(text)] if is_plain else []

    def settle(self) -> None:
        """Write down the text that was going on."""
        if self.text:
            last = self.said[-1]
            assert isinstance(last, dict)
            last["text"] = "".join(self.text)
            self.text = []


class GeminiAnswer(Rewriting):
    """Rewrites one answer."""

    def __init__(self, plan: Plan, names: Names) -> None:
        super().__init__(plan, names)
        self._objects: ObjectReader | None = None
        self._is_array = False
        self._is_begun = False
        self._sent = 0  # how many objects of an array the agent got
        self._candidates: dict[int, _Candidate] = {}
        self._head: Event = {}
        self._contents: dict[int, list[Any]] = {}  # of an unstreamed answer, in all steps

    def content(self) -> list[Event | DeniedCall]:
        """Return what the model said in this step, and its denied calls. No call reached the agent."""
        candidate = self._candidate(0)
        candidate.settle()
        return candidate.said

    # --- a stream -----------------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> bytes:
        """Take bytes of a stream. The first byte shows which kind it is."""
        if not self._is_begun:
            chunk = chunk.lstrip()
            if not chunk:
                return self._released()
            self._is_begun = True
            if self.is_first and chunk[:1] in b"[{":
                self._is_array = chunk[:1] == b"["
                self._objects = ObjectReader()
        if self._objects is None:
            return super().feed(chunk)
        return self._released() + b"".join([self._pass_object(data) for data in self._objects.feed(chunk)])

    def end(self) -> bytes:
        """Return the end of the stream."""
        told = super().end()
        return told + b"]" if self._is_array and self._sent else told

    def _pass_object(self, data: bytes) -> bytes:
        try:
            events = self.take(mapping(read_json(data)), data)
        except RecursionError:
            return b""
        if events is None:
            return self._separated(data)
        return b"".join([self.write(event, data) for event in events])

    def frame(self, data: bytes, event: Event, like: bytes) -> bytes:
        """Return a chunk as an event or as an object of the array."""
        return super().frame(data, event, like) if self._objects is None else self._separated(data)

    def _separated(self, data: bytes) -> bytes:
        self._sent += 1
        if not self._is_array:
            return data
        return (b"[" if self._sent == 1 else b",\r\n") + data

    def take(self, event: Event, raw: bytes) -> list[Event] | None:
        candidates = items(event.get("candidates"))
        usage = mapping(event.get("usageMetadata"))
        self._usage = {**self._usage, **usage}
        new = [self._take_candidate(mapping(candidate)) for candidate in candidates]
        is_same = all(a is b for a, b in zip(new, candidates, strict=True))
        changed = event if is_same else {**event, "candidates": new}
        changed = self._continued(changed, event, usage)
        if any(mapping(candidate).get("finishReason") for candidate in candidates):
            self._ended = True
            return self.hold(changed, raw, is_changed=changed is not event)
        return None if changed is event else [changed]

    def plain_text(self, event: Event) -> PlainText | None:
        candidates = items(event.get("candidates"))
        candidate = mapping(candidates[0] if candidates else None)
        parts = items(mapping(candidate.get("content")).get("parts"))
        part = mapping(parts[0] if parts else None)
        text, state = part.get("text"), self._candidate(candidate.get("index"))
        is_alone = len(candidates) == len(parts) == 1 and part.keys() <= {"text", "thought"}
        if not is_alone or not isinstance(text, str) or not state.text:
            return None
        return PlainText(text, state.text)

    def _continued(self, changed: Event, event: Event, usage: Event) -> Event:
        if self.is_first:
            self._head = self._head or {k: event[k] for k in ("responseId", "modelVersion") if k in event}
            return changed
        changed = {**changed, **{key: value for key, value in self._head.items() if key in event}}
        return changed | {"usageMetadata": self.summed(usage)} if usage else changed

    def mend(self, event: Event) -> Event:
        if self.is_first or not self._usage_before:
            return event
        return {**event, "usageMetadata": self.summed(self._usage)}

    def _mended(self, held: Any) -> bytes:
        if self._objects is None:
            return super()._mended(held)
        event = self.mend(held.event)
        is_same = event is held.event and not held.is_changed
        return self._separated(held.raw) if is_same else self.write(event, held.raw)

    def without_end(self, event: Event) -> Event | None:
        candidates = [
            {key: value for key, value in mapping(c).items() if key not in ("finishReason", "finishMessage")}
            for c in items(event.get("candidates"))
            if any(_says(mapping(part)) for part in items(mapping(mapping(c).get("content")).get("parts")))
        ]
        return {**event, "candidates": candidates} if candidates else None

    def close_step(self) -> None:
        self._candidates = {}
        self._is_begun = False
        if self._objects is not None:
            self._objects = ObjectReader()

    # --- content ------------------------------------------------------------------------------------

    def _candidate(self, index: object) -> _Candidate:
        return self._candidates.setdefault(index if isinstance(index, int) else 0, _Candidate())

    def _take_candidate(self, candidate: Event) -> Event:
        content = mapping(candidate.get("content"))
        parts = items(content.get("parts"))
        state = self._candidate(candidate.get("index"))
        new = [self._take_part(state, part) for part in parts]
        if all(a is b for a, b in zip(new, parts, strict=True)):
            return candidate
        left = [part for part in new if part is not None]
        return {**candidate, "content": {**content, "parts": left}}

    def _take_part(self, state: _Candidate, given: Any) -> Any:
        """Return a part as the agent gets it; the same object if nothing changes, None if nothing."""
        part = mapping(given)
        for key in _CALLS:
            if isinstance(part.get(key), dict):
                return self._take_call(state, part, key)
        for key in part:
            name = _run_name(part, key)
            if name is not None and not self._may_run(name):
                is_call = key in _RUNS
                return self._denial(state, part, name, part.get(key)) if is_call else None
        if part and self.keeps(len(string(part.get("text"))) or len(part)):
            state.say(part)
        return given

    def _may_run(self, name: str) -> bool:
        return any(_plain(name).startswith(_plain(native)) for native in self._plan.natives if native)

    def _take_call(self, state: _Candidate, part: Event, key: str) -> Event | None:
        call = mapping(part.get(key))
        name = string(call.get("name"))
        goes_on = bool(call.get("willContinue") or call.get("will_continue"))
        if not name:  # more of the arguments of the call before
            fate, state.going_on = state.going_on, state.going_on if goes_on else None
            return part if fate == "pass" else None
        ours = self._names.ours(name)
        # Code needs the whole of the arguments, which never come together.
        spelled = None if goes_on and self._names.code else self._spelled(call, name, ours)
        if spelled is None:
            state.going_on = "deny" if goes_on else None
            given = call.get("args")
            return self._denial(state, part, name, {} if given is None else given)
        state.going_on = "pass" if goes_on else None
        self._passed += 1
        return part if spelled is call else {**part, key: spelled}

    def _spelled(self, call: Event, name: str, ours: str | None) -> Event | None:
        """Return a call as the agent gets it, or None if it is denied."""
        code = self._names.code
        if ours is not None and code is not None:
            return {**call, "name": code.tool, "args": self._names.write_code(ours, call.get("args"))}
        if ours is not None:
            spelled = self._names.flat(ours)
            return call if spelled == name else {**call, "name": spelled}
        if self._names.is_native(name):
            return call
        is_ours = self._names.is_code(name) and self._names.read_code(call.get("args")) is not None
        return call if is_ours else None

    def _denial(self, state: _Candidate, part: Event, name: str, given: Any) -> Event | None:
        if not self.counts():
            return None
        mark = self._plan.new_mark()
        call_id = string(mapping(part.get("functionCall") or part.get("function_call")).get("id"))
        state.settle()
        call = self.deny(name, given, call_id, part, mark)
        if self.keeps(len(write_json(part))):
            state.said.append(call)
        return {"text": mark}

    # --- an unstreamed answer -----------------------------------------------------------------------

    def whole(self, body: bytes) -> bytes:
        """Rewrite an unstreamed answer, or a whole array."""
        if body.lstrip()[:1] != b"[":
            return super().whole(body)
        return self.feed(body) + self.end() or body

    def take_whole(self, answer: Event) -> Event | None:
        if not items(answer.get("candidates")):
            return None
        self._ended = True
        self._usage = mapping(answer.get("usageMetadata"))
        candidates = items(answer.get("candidates"))
        new = [self._take_candidate(mapping(candidate)) for candidate in candidates]
        is_same = all(a is b for a, b in zip(new, candidates, strict=True))
        joined = [self._joined(candidate) for candidate in new]
        if self.is_first:
            self._head = {key: answer[key] for key in ("responseId", "modelVersion") if key in answer}
            return None if is_same else {**answer, "candidates": new}
        changed = {**answer, **self._head, "candidates": joined}
        usage = self.summed(self._usage)
        return changed | {"usageMetadata": usage} if usage else changed

    def _joined(self, candidate: Event) -> Event:
        """Return a candidate with the parts of the steps before it."""
        index = candidate.get("index")
        content = mapping(candidate.get("content"))
        parts = self._contents.setdefault(index if isinstance(index, int) else 0, [])
        parts += items(content.get("parts"))
        return {**candidate, "content": {"role": "model", **content, "parts": list(parts)}}


def _run_name(part: Event, key: str) -> str | None:
    """Return the name of the tool of Google's own that a field is a call or a result of, if it is one."""
    name = _RUNS.get(key, _RESULTS.get(key))
    return (string(mapping(part.get(key)).get("toolType")) or "tool_call") if name == "" else name


def _plain(name: str) -> str:
    """Return a name in a form that is the same for `googleSearch`, `google_search` and `GOOGLE_SEARCH`."""
    return name.replace("_", "").lower()


def _says(part: Event) -> bool:
    return any(value for value in part.values())
