"""OpenAI Responses: requests with our tools and no others, and the history as the model made it."""

from typing import Any, cast

from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import AnswerActs, DeniedCall, Plan
from codesdk.gateway.ownership.marks import Marks
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.responses_answer import ResponsesAnswer
from codesdk.gateway.ownership.responses_items import (
    FUNCTIONS,
    Item,
    call_items,
    input_of,
    is_sendable,
    name_of,
    tool_kind,
)
from codesdk.gateway.ownership.values import write_json
from codesdk.gateway.wires.fields import items, mapping, string
from codesdk.gateway.wires.responses_tools import CARRIERS, joined

_TEXTS = ("output_text", "text", "input_text")


class ResponsesActs:
    """The acts of this format."""

    def request(self, body: Item, plan: Plan) -> Item:
        """Return a request as the model gets it."""
        names = Names(plan, _declared(body))
        sent = _with_tools(body, plan, names)
        if isinstance(sent.get("input"), list):
            sent["input"] = _History(names, plan).items(sent["input"])
        return sent

    def answer(self, plan: Plan, body: Item) -> ResponsesAnswer:
        """Return what rewrites the answer to a request."""
        return ResponsesAnswer(plan, Names(plan, _declared(body)))

    def again(self, body: Item, answer: AnswerActs) -> Item:
        """Return the request that asks once more."""
        assert isinstance(answer, ResponsesAnswer)
        said: list[Item] = []
        results: list[Item] = []
        for part in answer.content():
            if isinstance(part, DeniedCall):
                call, result = call_items(part)
                said.append(call)
                results.append(result)
            elif is_sendable(part, body):
                said.append(part)
        given = body.get("input")
        before = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
        return {**body, "input": [*before, *said, *results]}


ACTS = ResponsesActs()


def _declared(body: Item) -> list[str]:
    carried = (mapping(item).get("tools") for item in items(body.get("input")) if _is_carrier(item))
    return [name for tools in (body.get("tools"), *carried) for name in _names_in(tools, None)]


def _is_carrier(item: object) -> bool:
    return mapping(item).get("type") in CARRIERS


def _names_in(tools: object, namespace: str | None) -> list[str]:
    found: list[str] = []
    for tool in map(mapping, items(tools)):
        if tool.get("type") == "namespace" and namespace is None:
            found += _names_in(tool.get("tools"), string(tool.get("name")))
        else:
            found.append(joined(_name(tool), namespace))
    return found


def _name(tool: Item) -> str:
    """Return the name of a tool; the provider's own are known by their type, remote servers by their label."""
    return string(tool.get("name")) or string(tool.get("server_label")) or string(tool.get("type"))


# --- tools ------------------------------------------------------------------------------------------


def _with_tools(body: Item, plan: Plan, names: Names) -> Item:
    sent = dict(body)
    tools = _kept(body.get("tools"), plan, names, None)
    if plan.naming is not None:
        tools += [_tool(name, spec) for name, spec in plan.tools.items()]
    if tools:
        sent["tools"] = tools
    else:
        sent.pop("tools", None)
    choice = _choice(body.get("tool_choice"), set(_names_in(tools, None)), names)
    if choice is None:
        sent.pop("tool_choice", None)
    else:
        sent["tool_choice"] = choice
    return sent


def _kept(tools: object, plan: Plan, names: Names, namespace: str | None) -> list[Item]:
    found: list[Item] = []
    for tool in map(mapping, items(tools)):
        if tool.get("type") == "namespace" and namespace is None:
            inner = _kept(tool.get("tools"), plan, names, string(tool.get("name")))
            found += [{**tool, "tools": inner}] if inner else []
        elif _stays(tool, plan, names, namespace):
            found.append(tool)
    return found


def _stays(tool: Item, plan: Plan, names: Names, namespace: str | None) -> bool:
    name = _name(tool)
    if names.ours(name, namespace) is not None:
        return plan.naming is None
    if names.is_native(name, namespace):
        return True
    is_own = "name" not in tool and "server_label" not in tool
    return is_own and any(tool_kind(native) == tool_kind(name) for native in plan.natives)


def _tool(name: str, spec: ToolSpec) -> Item:
    described = {"type": "function", "name": name, "description": spec.description}
    return {**described, "parameters": spec.input_schema, "strict": False}


def _choice(choice: Any, offered: set[str], names: Names) -> Any:
    """Return a choice of a tool that can be made among those that are offered."""
    if not offered or choice is None:
        return None
    if not isinstance(choice, dict):
        return choice
    fields: Item = mapping(cast("object", choice))
    if fields.get("type") == "allowed_tools":
        wanted = [_renamed(mapping(tool), names) for tool in items(fields.get("tools"))]
        left = [tool for tool in wanted if joined(_name(tool), tool.get("namespace")) in offered]
        return {**fields, "tools": left} if left else "auto"
    new = _renamed(fields, names)
    return new if joined(_name(new), new.get("namespace")) in offered else "auto"


def _renamed(fields: Item, names: Names) -> Item:
    """Return a call, or a choice, by the name that the model knows."""
    if names.is_kept:
        return fields
    ours = names.ours(string(fields.get("name")), fields.get("namespace"))
    if ours is None or (ours == fields.get("name") and "namespace" not in fields):
        return fields
    return {key: value for key, value in fields.items() if key != "namespace"} | {"name": ours}


# --- history ----------------------------------------------------------------------------------------


class _History:
    """The items of a request, turned into what the model said and was told."""

    def __init__(self, names: Names, plan: Plan) -> None:
        self._names = names
        self._plan = plan
        self._marks = Marks(plan.denied)
        made = ((string(call.item.get("id")), call) for call in plan.denied.values())
        self._by_id = {item_id: call for item_id, call in made if item_id}

    def items(self, given: list[Any]) -> list[Any]:
        """Return the items. Calls that the model made at once stay together, with the reasoning before them."""
        found: list[Any] = []
        denied: list[DeniedCall] = []
        for part in (part for item in given for part in self._item(item)):
            if denied and not _is_beside(part, denied[-1]):
                found += [call_items(call)[1] for call in denied]
                denied = []
            if isinstance(part, DeniedCall):
                denied.append(part)
                found.append(call_items(part)[0])
            else:
                found.append(part)
        return [*found, *(call_items(call)[1] for call in denied)]

    def _item(self, item: Any) -> list[Any]:
        fields = mapping(item)
        kind = string(fields.get("type")) or ("message" if "role" in fields else "item_reference")
        if kind == "message" and fields.get("role") == "assistant":
            return self._message(fields)
        if kind in FUNCTIONS:
            return [self._call(fields)]
        if kind == "item_reference" and string(fields.get("id")) in self._by_id:
            return [self._by_id[string(fields.get("id"))]]
        if kind in CARRIERS:
            return self._carrier(kind, fields)
        return [item]

    def _carrier(self, kind: str, item: Item) -> list[Item]:
        """Return an item that brings more tools with those that stay."""
        tools = _kept(item.get("tools"), self._plan, self._names, None)
        return [] if kind == "additional_tools" and not tools else [{**item, "tools": tools}]

    def _call(self, item: Item) -> Item:
        if not self._names.is_code(name_of(item)):
            return _renamed(item, self._names)
        coded = self._names.read_code(input_of(item))
        if coded is None:
            return item
        return {**item, "name": coded.name, "arguments": write_json(coded.input).decode()}

    def _message(self, item: Item) -> list[Item | DeniedCall]:
        """Return a message, in several if it has marks: before, between and behind the calls in their place."""
        content = item.get("content")
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else items(content)
        if not any(self._marks.within(mapping(part).get("text")) for part in parts):
            return [item]
        found: list[Item | DeniedCall] = []
        said: list[Any] = []
        for part in parts:
            for piece in self._pieces(part):
                if not isinstance(piece, DeniedCall):
                    said.append(piece)
                    continue
                found += [*_said(item, said), piece]
                said = []
        return [*found, *_said(item, said)]

    def _pieces(self, part: Any) -> list[Any]:
        fields = mapping(part)
        if fields.get("type") not in _TEXTS or not self._marks.within(fields.get("text")):
            return [part]
        pieces = self._marks.split(string(fields.get("text")))
        # What refers to places in the text no longer fits.
        rest: Item = {key: [] if key in ("annotations", "logprobs") else fields[key] for key in fields}
        return [p if isinstance(p, DeniedCall) else {**rest, "text": p} for p in pieces]


def _is_beside(part: Any, denied: DeniedCall) -> bool:
    """Return whether an item is a call of the same step as a denied one before it."""
    if isinstance(part, DeniedCall):
        return part.step == denied.step
    return denied.beside > 0 and mapping(part).get("type") in FUNCTIONS


def _said(item: Item, parts: list[Any]) -> list[Item]:
    """Return what is left of a message. It is none that the provider knows, so it has no id."""
    rest = {key: value for key, value in item.items() if key != "id"}
    return [{**rest, "content": parts}] if parts else []
