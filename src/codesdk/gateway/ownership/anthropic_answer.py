"""Anthropic answers with only the calls that may reach the agent.

A denied call becomes a text block at the same index. What the provider's own tools returned is left out, and the
blocks behind it are renumbered.
"""

from typing import Any, Literal

from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.likeness import PlainText
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.rewriting import Event, Rewriting
from codesdk.gateway.ownership.values import read_input, write_json
from codesdk.gateway.wires.fields import items, mapping, string

_Fate = Literal["pass", "deny", "drop", "hold"]
_CALL, _RESULT = "tool_use", "_tool_result"
_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class _Block:
    """A block of the model's, as far as it has arrived, and what becomes of it."""

    def __init__(self, block: Event, fate: _Fate, out: int) -> None:
        self.block = block
        self.fate: _Fate = fate
        self.out = out
        self.mark = ""
        self.call: DeniedCall | None = None
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[Any] = []

    @property
    def is_call(self) -> bool:
        return string(self.block.get("type")).endswith(_CALL)

    @property
    def name(self) -> str:
        return string(self.block.get("name"))

    def pieces_of(self, key: str) -> list[str]:
        """Return where the pieces of a text of the block are kept."""
        return self._pieces.setdefault(key, [])

    def grow(self, delta: Event) -> None:
        kind = string(delta.get("type"))
        key = _TEXTS.get(kind)
        if key is not None:
            self.pieces_of(key).append(string(delta.get(key)))
        elif kind == "citations_delta":
            self._citations.append(delta.get("citation"))

    def made(self) -> Event:
        """Return the block as the model made it."""
        block = dict(self.block)
        for key, pieces in self._pieces.items():
            written = "".join(pieces)
            if key == "partial_json":
                block["input"] = read_input(written) if written else block.get("input")
            else:
                block[key] = string(block.get(key)) + written
        if self._citations:
            block["citations"] = [*items(block.get("citations")), *self._citations]
        return block


class AnthropicAnswer(Rewriting):
    """Rewrites one answer."""

    def __init__(self, plan: Plan, names: Names) -> None:
        super().__init__(plan, names)
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._shift = 0
        self._next = 0  # the index behind the last block that the agent got
        self._run: set[str] = set()  # the ids of calls that the provider may run
        self._content: list[Any] = []  # of an unstreamed answer, in all steps
        self._head: Event = {}

    def name_of(self, event: Event) -> str:
        return string(event.get("type"))

    def content(self) -> list[Event | DeniedCall]:
        """Return what the model said in this step, and its denied calls. No call reached the agent."""
        said: list[Event | DeniedCall] = []
        for entry in self._blocks:
            if entry.call is not None:
                said.append(entry.call)
            elif entry.fate == "pass" and not entry.is_call:
                said.append(entry.made())
        return said

    # --- a stream -----------------------------------------------------------------------------------

    def take(self, event: Event, raw: bytes) -> list[Event] | None:
        match event.get("type"):
            case "content_block_delta":
                return self._take_delta(event)
            case "content_block_start":
                return self._take_start(event)
            case "content_block_stop":
                return self._take_stop(event)
            case "message_start":
                return self._take_message(event)
            case "message_delta":
                return self._take_end(event, raw)
            case "message_stop":
                return self.hold(event, raw)
            case _:
                return None

    def _take_message(self, event: Event) -> list[Event] | None:
        message = mapping(event.get("message"))
        self._usage.update(_told(message.get("usage")))
        content = [self._whole_block(block) for block in items(message.get("content"))]
        if not self.is_first:
            return []
        if not content:
            return None
        # No provider begins with content, but an agent would believe it.
        self._next = self._shift = len(content)
        kept = [block for block in content if block is not None]
        return [{**event, "message": {**message, "content": kept}}]

    def _take_start(self, event: Event) -> list[Event] | None:
        block = mapping(event.get("content_block"))
        index = _index(event)
        if not self.counts():
            self._open.pop(index, None)
            return []
        entry = _Block(block, self._judge(block), index + self._shift)
        self._open[index] = entry
        if self.keeps(len(write_json(block))):
            self._blocks.append(entry)
        if entry.fate == "drop":
            self._shift -= 1
            return []
        self._next = max(self._next, entry.out + 1)
        if entry.fate == "hold":
            return []
        if entry.fate == "deny":
            return self._begin_denial(entry)
        renamed = self._renamed(block) if entry.is_call else block
        if entry.is_call:
            self._passed += 1
        if renamed is block and entry.out == index:
            return None
        return [{**event, "index": entry.out, "content_block": renamed}]

    def _take_delta(self, event: Event) -> list[Event] | None:
        index = _index(event)
        entry = self._open.get(index)
        delta = mapping(event.get("delta"))
        if entry is None:  # of a block that never began
            return [] if delta.get("type") == "input_json_delta" else self._moved(event, index + self._shift)
        if self.keeps(len(string(delta.get(_TEXTS.get(string(delta.get("type")), "text"))))):
            entry.grow(delta)
        return self._moved(event, entry.out) if entry.fate == "pass" else []

    def _take_stop(self, event: Event) -> list[Event] | None:
        index = _index(event)
        entry = self._open.pop(index, None)
        if entry is None:
            return self._moved(event, index + self._shift)
        begun: list[Event] = []
        if entry.fate == "drop":
            return []
        if entry.fate == "hold":
            begun = self._let_in(entry)
        if entry.fate == "deny":
            self._note(entry)
        moved = self._moved(event, entry.out)
        return [*begun, *(moved or [event])] if begun else moved

    def _take_end(self, event: Event, raw: bytes) -> list[Event] | None:
        usage = _told(event.get("usage"))
        self._usage.update(usage)
        if mapping(event.get("delta")).get("stop_reason") is None:
            if self.is_first or not usage:
                return None
            return [{**event, "usage": self.summed(usage)}]
        self._ended = True
        return self.hold(event, raw)

    def mend(self, event: Event) -> Event:
        if event.get("type") != "message_delta":
            return event
        delta = mapping(event.get("delta"))
        reason = self._reason(delta.get("stop_reason"))
        if reason == delta.get("stop_reason") and self.is_first:
            return event
        usage = self.summed(self._usage) if not self.is_first else event.get("usage")
        mended = {**event, "delta": {**delta, "stop_reason": reason}}
        return mended if usage is None else {**mended, "usage": usage}

    def close_step(self) -> None:
        self._blocks = []
        self._open = {}
        self._shift = self._next

    def _moved(self, event: Event, out: int) -> list[Event] | None:
        return None if out == _index(event) else [{**event, "index": out}]

    def plain_text(self, event: Event) -> PlainText | None:
        delta = mapping(event.get("delta"))
        key = _TEXTS.get(string(delta.get("type")))
        entry = self._open.get(_index(event))
        if event.get("type") != "content_block_delta" or entry is None or entry.is_call or key is None:
            return None
        return PlainText(string(delta.get(key)), entry.pieces_of(key))

    # --- calls --------------------------------------------------------------------------------------

    def _judge(self, block: Event) -> _Fate:
        kind, name = string(block.get("type")), string(block.get("name"))
        if kind.endswith(_RESULT):
            return "pass" if self._may_run(kind, block) else "drop"
        if not kind.endswith(_CALL):
            return "pass"
        if kind != _CALL:
            known = string(block.get("server_name")) or name
            if not self._names.is_native(known):
                return "deny"
            self._run.add(string(block.get("id")))
            return "pass"
        if self._names.ours(name) is not None:
            return "hold" if self._names.code else "pass"
        if self._names.is_native(name):
            return "pass"
        return "hold" if self._names.is_code(name) else "deny"

    def _may_run(self, kind: str, block: Event) -> bool:
        name = kind.removesuffix(_RESULT)
        return string(block.get("tool_use_id")) in self._run or self._names.is_native(name)

    def _renamed(self, block: Event) -> Event:
        name = self._names.ours(string(block.get("name")))
        if name is None or block.get("type") != _CALL:
            return block
        spelled = self._names.flat(name)
        return block if spelled == block.get("name") else {**block, "name": spelled}

    def _begin_denial(self, entry: _Block) -> list[Event]:
        entry.mark = self._plan.new_mark()
        delta = {"type": "text_delta", "text": entry.mark}
        return [
            _begin(entry.out, {"type": "text", "text": ""}),
            {"type": "content_block_delta", "index": entry.out, "delta": delta},
        ]

    def _note(self, entry: _Block) -> None:
        item = entry.made()
        entry.call = self.deny(entry.name, item.get("input"), string(item.get("id")), item, entry.mark)

    def _coded(self, entry: _Block) -> Event | None:
        """Return a call that had to be complete as the agent gets it; None if it is denied after all."""
        made = entry.made()
        name, given = self._names.ours(entry.name), made.get("input")
        if name is None:
            return made if self._names.read_code(given) is not None and self._kept_all() else None
        if not self._kept_all() or self._names.code is None:
            return None
        return {**made, "name": self._names.code.tool, "input": self._names.write_code(name, given)}

    def _kept_all(self) -> bool:
        return self.keeps(0)

    def _let_in(self, entry: _Block) -> list[Event]:
        call = self._coded(entry)
        if call is None:
            entry.fate = "deny"
            return self._begin_denial(entry)
        entry.fate = "pass"
        self._passed += 1
        written = write_json(call["input"]).decode()
        delta = {"type": "input_json_delta", "partial_json": written}
        return [
            _begin(entry.out, {**call, "input": {}}),
            {"type": "content_block_delta", "index": entry.out, "delta": delta},
        ]

    def _reason(self, reason: Any) -> Any:
        """Return why the answer stops, now that calls may be gone from it."""
        if reason in (_CALL, "pause_turn") and self._calls and not self.reaches:
            return "end_turn"
        return _CALL if reason == "end_turn" and self._passed_before else reason

    # --- an unstreamed answer -----------------------------------------------------------------------

    def take_whole(self, answer: Event) -> Event | None:
        if answer.get("type") != "message":
            return None
        content = items(answer.get("content"))
        out = [self._whole_block(block) for block in content]
        kept = [block for block in out if block is not None]
        self._ended = True
        self._usage = _told(answer.get("usage"))
        is_same = len(kept) == len(content) and all(a is b for a, b in zip(kept, content, strict=False))
        before, self._content = self._content, [*self._content, *kept]
        if self.is_first:
            self._head = answer
            if is_same:
                return None
        changed: Event = {**answer, "content": [*before, *kept]}
        changed["stop_reason"] = self._reason(answer.get("stop_reason"))
        if not self.is_first:
            changed |= {"usage": self.summed(self._usage)}
            changed |= {key: self._head[key] for key in ("id", "model") if key in self._head}
        return changed

    def _whole_block(self, given: Any) -> Any:
        """Return a complete block as the agent gets it; the same object if nothing changes, None if nothing."""
        block = mapping(given)
        if not block:
            return given
        entry = _Block(block, self._judge(block), 0)
        self._blocks.append(entry)
        if entry.fate == "drop":
            return None
        if entry.fate == "hold":
            call = self._coded(entry)
            entry.fate = "deny" if call is None else "pass"
            if call is not None:
                self._passed += 1
                return call
        if entry.fate == "deny":
            entry.mark = self._plan.new_mark()
            self._note(entry)
            return {"type": "text", "text": entry.mark}
        if entry.is_call:
            self._passed += 1
            return self._renamed(block)
        return block


def _begin(index: int, block: Event) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _told(usage: object) -> dict[str, Any]:
    return {name: value for name, value in mapping(usage).items() if value is not None}


def _index(event: Event) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0
