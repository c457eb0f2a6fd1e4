"""Responses answers with only the calls that may reach the agent.

A denied call becomes a message at the same index. All events carry a number that grows: those behind events that
were put in get a higher one. The last event repeats the whole output.
"""

from typing import Any, Literal

from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.responses_items import (
    FUNCTIONS,
    Item,
    id_of,
    input_of,
    is_call,
    is_enabled,
    is_output,
    item_in,
    name_of,
    place_of,
    stand_in,
)
from codesdk.gateway.ownership.rewriting import Event, Rewriting
from codesdk.gateway.ownership.values import write_json
from codesdk.gateway.wires.fields import items, mapping, string

_Fate = Literal["pass", "deny", "drop", "hold"]
_STARTS = ("response.created", "response.in_progress", "response.queued")
_ENDS = ("response.completed", "response.incomplete")
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_CALL_SIGNS = ("_call_", "_call.", "mcp_list_tools", "_tool_call")


class _Slot:
    """What becomes of the item at one index."""

    def __init__(self, fate: _Fate, out: int) -> None:
        self.fate: _Fate = fate
        self.out = out
        self.mark = ""
        self.spelled: Any = None  # the name of a call of ours, as the agent knows it
        self.item: Item = {}  # what the agent gets, when it is complete
        self.made: Item = {}
        self.call: DeniedCall | None = None


class ResponsesAnswer(Rewriting):
    """Rewrites one answer."""

    def __init__(self, plan: Plan, names: Names) -> None:
        super().__init__(plan, names)
        self._slots: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._shift = 0
        self._next = 0  # the index behind the last item that the agent got
        self._number = -1  # of the last event that the agent got
        self._before: list[Item] = []  # what the agent got in the steps before
        self._response_id: Any = None

    def name_of(self, event: Event) -> str:
        return string(event.get("type"))

    def content(self) -> list[Item | DeniedCall]:
        """Return what the model said in this step, and its denied calls. No call reached the agent."""
        found: list[Item | DeniedCall] = []
        for index in sorted(self._slots):
            slot = self._slots[index]
            if slot.call is not None:
                found.append(slot.call)
            elif slot.fate == "pass" and slot.made and not is_call(slot.made):
                found.append(slot.made)
        return found

    # --- a stream -----------------------------------------------------------------------------------

    def take(self, event: Event, raw: bytes) -> list[Event] | None:
        kind = string(event.get("type"))
        if kind in _ENDS:
            self._ended = True
            self._usage = mapping(mapping(event.get("response")).get("usage"))
            changed = self._with_output(event)
            return self.hold(changed, raw, is_changed=changed is not event)
        if kind == _ADDED:
            events = self._take_added(event)
        elif kind == _DONE:
            events = self._take_done(event)
        elif isinstance(event.get("response"), dict):
            events = self._take_response(kind, event)
        else:
            events = self._take_part(kind, event)
        return self._numbered(event, events)

    def _take_response(self, kind: str, event: Event) -> list[Event]:
        response = mapping(event.get("response"))
        if self.is_first and self._response_id is None:
            self._response_id = response.get("id")
        if kind in _STARTS and not self.is_first:
            return []
        if self.is_first and not items(response.get("output")):
            return [event]
        return [self._identified(self._with_output(event))]

    def _take_added(self, event: Event) -> list[Event]:
        index, item = place_of(event), item_in(event)
        if not self.counts():
            return []
        slot = self._slots[index] = self._open(index, item)
        if slot.fate in ("drop", "hold"):
            return []
        if slot.fate == "deny":
            return self._begin_denial(slot, item)
        renamed = self._renamed(item)
        slot.spelled = None if renamed is item else renamed.get("name")
        return [self._placed(event, slot.out, renamed)]

    def _take_done(self, event: Event) -> list[Event]:
        index, item = place_of(event), item_in(event)
        slot = self._slots.get(index)
        begun: list[Event] = []
        if not self.counts():
            return []
        if slot is None or (self._judge(item) != slot.fate and is_call(item)):
            # It never began, or as something else. What counts is how it ends.
            slot = self._slots[index] = self._open(index, item)
            begun = self._begin_denial(slot, item) if slot.fate == "deny" else []
        if self.keeps(len(write_json(item))):
            slot.made = item
        self._by_id[id_of(item)] = slot
        if slot.fate == "drop":
            return []
        if slot.fate == "hold":
            return self._let_in(event, slot, item)
        if slot.fate == "deny":
            return [*begun, *self._end_denial(slot, item)]
        slot.item = self._renamed(item)
        if is_call(item):
            self._passed += 1
        return [self._placed(event, slot.out, slot.item)]

    def _take_part(self, kind: str, event: Event) -> list[Event]:
        """Take an event that is about a part of an item, or about nothing that we know."""
        if "output_index" not in event:
            return [event]
        slot = self._slots.get(place_of(event))
        if slot is None:
            is_calling = any(sign in kind for sign in _CALL_SIGNS)
            return [] if is_calling else [self._placed(event, place_of(event) + self._shift, None)]
        if slot.fate != "pass":
            return []
        placed = self._placed(event, slot.out, None)
        # The end of the arguments repeats the name.
        return [{**placed, "name": slot.spelled} if slot.spelled and "name" in event else placed]

    def mend(self, event: Event) -> Event:
        response = mapping(event.get("response"))
        changed = event
        if not self.is_first:
            usage = self.summed(self._usage) or None
            changed = self._identified({**event, "response": {**response, "usage": usage}})
        number = event.get("sequence_number")
        return self._renumbered(changed, number) if isinstance(number, int) else changed

    def _identified(self, event: Event) -> Event:
        """Return an event of a later step with the id of the first."""
        if self.is_first or self._response_id is None:
            return event
        return {**event, "response": {**mapping(event.get("response")), "id": self._response_id}}

    def close_step(self) -> None:
        self._before += self._output()
        self._slots = {}
        self._by_id = {}
        self._shift = self._next

    def _output(self) -> list[Item]:
        slots = [self._slots[index] for index in sorted(self._slots)]
        return [slot.item for slot in slots if slot.item]

    def _with_output(self, event: Event) -> Event:
        """Return an event that repeats the output with what the agent got of it, of all steps."""
        response = mapping(event.get("response"))
        given = items(response.get("output"))
        new = [found for n, item in enumerate(given) if (found := self._whole_item(n, item)) is not None]
        if not given and self._before:
            new = self._output()
        output = [*self._before, *new]
        if len(output) == len(given) and all(a is b for a, b in zip(output, given, strict=True)):
            return event
        return {**event, "response": {**response, "output": output}}

    # --- numbers ------------------------------------------------------------------------------------

    def _numbered(self, event: Event, events: list[Event]) -> list[Event] | None:
        """Return events with numbers that grow; None if there is nothing but the event as it came."""
        number = event.get("sequence_number")
        if isinstance(number, int):
            events = [self._renumbered(found, number) for found in events]
        return None if len(events) == 1 and events[0] is event else events

    def _renumbered(self, event: Event, number: int) -> Event:
        """Return an event with a number behind the last one; if possible the one that it came with."""
        self._number = max(self._number + 1, number)
        same = event.get("sequence_number") == self._number
        return event if same else {**event, "sequence_number": self._number}

    def _placed(self, event: Event, out: int, item: Item | None) -> Event:
        """Return an event about an item at its new index."""
        if out == place_of(event) and (item is None or item is event.get("item")):
            return event
        placed = {**event, "output_index": out}
        return placed if item is None else placed | {"item": item}

    # --- calls --------------------------------------------------------------------------------------

    def _open(self, index: int, item: Item) -> _Slot:
        slot = _Slot(self._judge(item), index + self._shift)
        if slot.fate == "drop":
            self._shift -= 1
        else:
            self._next = max(self._next, slot.out + 1)
        return slot

    def _judge(self, item: Item) -> _Fate:
        if is_output(item):
            return "pass" if is_enabled(item, self._names) else "drop"
        if not is_call(item):
            return "pass"
        if item.get("type") in FUNCTIONS:
            if self._names.ours(name_of(item)) is not None:
                return "hold" if self._names.code else "pass"
            if self._names.is_code(name_of(item)) and not is_enabled(item, self._names):
                return "hold"
        return "pass" if is_enabled(item, self._names) else "deny"

    def _renamed(self, item: Item) -> Item:
        ours = self._names.ours(name_of(item)) if item.get("type") in FUNCTIONS else None
        if ours is None:
            return item
        name, namespace = self._names.spell(ours)
        if self._names.is_kept or (name == item.get("name") and namespace == item.get("namespace")):
            return item
        new = {key: value for key, value in item.items() if key != "namespace"} | {"name": name}
        return new if namespace is None else new | {"namespace": namespace}

    def _begin_denial(self, slot: _Slot, item: Item) -> list[Event]:
        slot.mark = self._plan.new_mark()
        message = stand_in(item, slot.mark)
        place = {"item_id": message["id"], "output_index": slot.out, "content_index": 0}
        part: Item = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        begun: Item = {**message, "status": "in_progress", "content": []}
        return [
            {"type": _ADDED, "output_index": slot.out, "item": begun},
            {"type": "response.content_part.added", **place, "part": part},
            {"type": "response.output_text.delta", **place, "delta": slot.mark, "logprobs": []},
        ]

    def _end_denial(self, slot: _Slot, item: Item) -> list[Event]:
        self._note(slot, item)
        part = slot.item["content"][0]
        place = {"item_id": slot.item["id"], "output_index": slot.out, "content_index": 0}
        return [
            {"type": "response.output_text.done", **place, "text": slot.mark, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": _DONE, "output_index": slot.out, "item": slot.item},
        ]

    def _note(self, slot: _Slot, item: Item) -> None:
        slot.item = stand_in(item, slot.mark)
        slot.call = self.deny(name_of(item), input_of(item), id_of(item), item, slot.mark)

    def _coded(self, item: Item) -> Item | None:
        """Return a complete call as the agent gets it; None if it is denied after all."""
        if not self.keeps(0):
            return None
        ours, code = self._names.ours(name_of(item)), self._names.code
        if ours is None or code is None:
            return item if self._names.read_code(input_of(item)) is not None else None
        written = write_json(self._names.write_code(ours, input_of(item))).decode()
        rest = {key: value for key, value in item.items() if key not in ("namespace", "input")}
        return {**rest, "type": "function_call", "name": code.tool, "arguments": written}

    def _let_in(self, event: Event, slot: _Slot, item: Item) -> list[Event]:
        call = self._coded(item)
        if call is None:
            slot.fate = "deny"
            return [*self._begin_denial(slot, item), *self._end_denial(slot, item)]
        slot.fate, slot.item = "pass", call
        self._passed += 1
        begun = {**call, "status": "in_progress", "arguments": ""}
        place = {"item_id": call.get("id"), "output_index": slot.out}
        written = call.get("arguments")
        arguments = "response.function_call_arguments"
        return [
            {"type": _ADDED, "output_index": slot.out, "item": begun},
            {"type": f"{arguments}.delta", **place, "delta": written},
            {"type": f"{arguments}.done", **place, "name": call.get("name"), "arguments": written},
            self._placed(event, slot.out, call),
        ]

    # --- an unstreamed answer -----------------------------------------------------------------------

    def take_whole(self, answer: Event) -> Event | None:
        if answer.get("object") != "response" and not items(answer.get("output")):
            return None
        self._ended = answer.get("status") in (None, "completed", "incomplete")
        self._usage = mapping(answer.get("usage"))
        if self.is_first:
            self._response_id = answer.get("id")
        new = mapping(self._with_output({"response": answer}).get("response"))
        if self.is_first:
            return None if new is answer else new
        usage = self.summed(self._usage)
        return {**new, "id": self._response_id, "usage": usage or None}

    def _whole_item(self, index: int, given: Any) -> Any:
        """Return a complete item as the agent gets it, None if not at all.

        In the last event of a stream, it is what the agent got at this index.
        """
        item = mapping(given)
        fate = self._judge(item)
        slot = self._by_id.get(id_of(item)) if id_of(item) else self._slots.get(index)
        if slot is not None and slot.item and (slot.fate == fate or fate == "hold"):
            return slot.item if fate != "pass" else self._renamed(item)
        return self._fresh_item(index, item) if item else given

    def _fresh_item(self, index: int, item: Item) -> Item | None:
        slot = self._slots[index] = self._open(index, item)
        slot.made = item
        match slot.fate:
            case "drop":
                return None
            case "hold":
                call = self._coded(item)
                slot.fate = "deny" if call is None else "pass"
                slot.item = call or {}
            case "pass":
                slot.item = self._renamed(item)
            case "deny":
                pass
        if slot.fate == "deny":
            slot.mark = self._plan.new_mark()
            self._note(slot, item)
        elif is_call(item):
            self._passed += 1
        return slot.item
